"""What `fedops doctor` says of policies that parse and still cannot be meant; pure.

Each line names the file and the field to change. Nothing is said of what makes sense.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from fedops.core.health import Check
from fedops.core.ids import AGGREGATION_PATH, SITES_PATH, GlobalVersion, SiteId
from fedops.core.policy import trigger_of
from fedops.core.records import VersionRecord
from fedops.core.settings import Aggregation, Lead, Sites, SubmissionPolicy, Trigger
from fedops.core.staleness import as_written
from fedops.core.strategies import least_updates, make_strategy

ForgeKind = Literal["git", "github"]
_NAMED = 5  # names in one line
_MANY = 1000  # updates, more than which nobody waits for


def check_sense(
    forge: ForgeKind, sites: Sites, submission: SubmissionPolicy, aggregation: Aggregation, current: VersionRecord
) -> Iterator[Check]:
    """One line for each rule that can never do what it is there for.

    Args:
        forge: on git a signature is the account, so that a lead without a key is nobody.
        current: the record of the current version.
    """
    active, trigger, least = len(sites.active()), trigger_of(aggregation), least_updates(aggregation.strategy)
    yield from _strategy(active, aggregation, least)
    if active >= least or least == 1:
        yield from _quorum(active, trigger)
    yield from _wait(trigger, least)
    yield from _end(current, aggregation.stop.max_version)
    yield from _share(active, aggregation.weights.max_share)
    yield from _leads(forge, sites.leads)
    yield from _approvals(forge, sites, aggregation)
    yield from _keys_of_sites(sites, submission)


def _strategy(active: int, aggregation: Aggregation, least: int) -> Iterator[Check]:
    """A rule that needs more updates than there can be, or than the trigger says, or that protects against nobody."""
    strategy, trigger = make_strategy(aggregation.strategy), aggregation.trigger
    name = " ".join([strategy.name, *(f"{key} {value}" for key, value in strategy.parameters.items())])
    if active < least and least > 1:
        lower = f", or {AGGREGATION_PATH}: strategy.f: {(active - 3) // 2}" if active >= 3 else ""
        got = f"{name} needs {least} updates, {_count(active, 'active site')}: no version can come"
        yield Check("strategy: sites", "warning", got, "more sites", f"a lead: fedops site add SITE …{lower}")
    enough = {"quorum": trigger.quorum}
    if trigger.max_wait_hours is not None and trigger.quorum > least:  # else the wait changes nothing, see `_wait`
        enough["quorum_after_wait"] = trigger.quorum_after_wait
        if trigger.quorum_after_wait < least:
            got = f"{name} needs {least} updates, quorum_after_wait {trigger.quorum_after_wait}: so few make no version"
            step = f"{AGGREGATION_PATH}: trigger.quorum_after_wait: {least}"
            yield Check("strategy: wait", "warning", got, f"at least {least}", step)
    key = min(enough, key=enough.__getitem__)
    count = max(least, enough[key])
    if not strategy.linear and strategy.withstands(count) == 0:
        more = next((n for n in range(count, _MANY) if strategy.withstands(n)), None)
        step = "strategy: other parameters, or another one" if more is None else f"trigger.{key}: {more}"
        got = f"{name} of {_count(count, 'update')} protects against no site"
        yield Check("strategy: protection", "warning", got, "against at least one", f"{AGGREGATION_PATH}: {step}")


def _quorum(active: int, trigger: Trigger) -> Iterator[Check]:
    enough = trigger.quorum_after_wait if trigger.max_wait_hours is not None else trigger.quorum
    if active < min(trigger.quorum, enough):
        got = f"{_count(active, 'active site')}: no version can come"
        expected = f"trigger.quorum at most {active}, or more sites" if active else "more sites"
        lower = f", or {AGGREGATION_PATH}: trigger.quorum: {active}" if active else ""
        yield Check("quorum", "warning", got, expected, f"a lead: fedops site add SITE …{lower}")


def _wait(trigger: Trigger, least: int) -> Iterator[Check]:
    """Enough after the wait is enough without it; only a running grace period could be ended by the wait."""
    quorum, after = trigger.quorum, trigger.quorum_after_wait
    if trigger.max_wait_hours is None or after < quorum or trigger.grace_minutes > 0:
        return
    got = f"quorum_after_wait {after}, quorum {quorum}: max_wait_hours changes nothing"
    field = f"trigger.quorum_after_wait: {quorum - 1}" if quorum > least else "trigger.max_wait_hours: null"
    yield Check("max wait", "warning", got, "quorum_after_wait below quorum", f"{AGGREGATION_PATH}: {field}")


def _end(current: VersionRecord, last: int | None) -> Iterator[Check]:
    short = GlobalVersion(current.version).short
    if current.status == "final":
        # NOTE: no change of policy and no rollback opens a federation again that is at its end.
        step = "fedops pull, then fedops init --model FILE in a new repository, to train on"
        yield Check(
            "end", "warning", f"{short} is final: no version comes any more", "running, unless this was meant", step
        )
    elif last is not None and current.version >= last:
        got = f"{short} is there, stop.max_version is {last}: no version comes"
        step = f"{AGGREGATION_PATH}: stop.max_version: null, or a higher number"
        yield Check("end", "warning", got, f"stop.max_version above {current.version}", step)


def _share(active: int, share: float | None) -> Iterator[Check]:
    """Of K weights one is at least 1/K of the sum: where that is too much, all are made the smallest of them."""
    if share is None or active == 0 or as_written(share) * active >= 1:
        return
    got = f"max_share {share}, {_count(active, 'active site')}: cannot hold, all count as much as the smallest"
    step = f"{AGGREGATION_PATH}: weights.max_share: {math.ceil(100 / active) / 100}, or null"
    yield Check("max share", "warning", got, f"weights.max_share at least 1/{active}", step)


# ---------------------------------------------------------------- leads


def _leads(forge: ForgeKind, leads: Sequence[Lead]) -> Iterator[Check]:
    if not leads:
        step = f"{SITES_PATH}: leads: [{{login: LOGIN, id: NUMBER, keys: [KEY]}}]"
        yield Check("leads", "warning", "none", "who approves and changes policies", step)
    nobodies = _nobodies(forge, leads)
    if nobodies:
        got = f"none of {nobodies}, whose approvals and rollbacks count for nothing"
        step = f"{SITES_PATH}: leads: keys of {nobodies}, each the line of a .pub file"
        yield Check("keys of leads", "warning", got, "forge git: one key each", step)


def _approvals(forge: ForgeKind, sites: Sites, aggregation: Aggregation) -> Iterator[Check]:
    """What more leads must approve than there are who may."""
    merge, publish = aggregation.merge, aggregation.publish
    if not sites.leads:
        return  # that there are none says it
    able = frozenset(lead.id for lead in sites.leads if forge != "git" or lead.keys)
    nobodies = _nobodies(forge, sites.leads)
    judges = {site: _judges(sites, site, able) for site in sites.active()}
    stuck = [site for site, count in judges.items() if count < merge.approvals]
    if merge.mode == "review" and stuck:
        least = min(judges[site] for site in stuck)
        what = f"updates of {_named(stuck)}"
        yield _unapproved("approvals: merge", "broken", "merge", merge.approvals, least, what, nobodies)
    if publish.mode == "review" and len(able) < publish.approvals:
        what = "versions and rollbacks"
        yield _unapproved("approvals: publish", "broken", "publish", publish.approvals, len(able), what, nobodies)
        return
    others = _others(forge, frozenset(lead.id for lead in sites.leads), able)
    if others < publish.approvals:
        what = "rollbacks"
        yield _unapproved("approvals: rollback", "warning", "publish", publish.approvals, others, what, nobodies)


def _unapproved(
    name: str, state: Literal["warning", "broken"], rule: str, needed: int, able: int, what: str, nobodies: str
) -> Check:
    """Args: able: how many leads may approve; nobodies: those who could with a key."""
    got = f"{rule}.approvals {needed}, {_count(able, 'lead')} who may judge: {what} can never be approved"
    steps = [f"{AGGREGATION_PATH}: {rule}.approvals: {able}"] if able else []
    steps.append(f"{SITES_PATH}: keys of {nobodies}" if nobodies else f"{SITES_PATH}: more leads")
    expected = f"{rule}.approvals at most {able}, or more leads" if able else "more leads"
    return Check(name, state, got, expected, ", or ".join(steps))


def _judges(sites: Sites, site: SiteId, able: frozenset[int]) -> int:
    """How many leads may approve an update, whichever of the site's accounts proposes it: its author never does."""
    judges = sites.judges_of(site) & able
    return max(len(judges - {account.id}) for account in sites.sites[site].accounts)


def _others(forge: ForgeKind, leads: frozenset[int], able: frozenset[int]) -> int:
    """How many leads may approve a rollback that one of them proposes; on git a lead who is alone approves alone."""
    alone = leads if forge == "git" and len(leads) == 1 else frozenset()
    return max((len(((leads - {proposer}) or alone) & able) for proposer in able), default=0)


def _nobodies(forge: ForgeKind, leads: Sequence[Lead]) -> str:
    return _named([lead.login for lead in leads if forge == "git" and not lead.keys])


# ---------------------------------------------------------------- sites


def _keys_of_sites(sites: Sites, submission: SubmissionPolicy) -> Iterator[Check]:
    unsigned = [s for s in sites.active() if not sites.sites[s].keys] if submission.require_signed else []
    if unsigned:
        yield Check(
            "keys of sites",
            "warning",
            f"none of {_named(unsigned)}, whose updates will be rejected",
            "require_signed: one key each",
            "the site: fedops join SITE; then a lead: fedops site add SITE --key …",
        )


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", …" if names[_NAMED:] else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
