"""One pass over the open pull requests: what each may cost is bounded, and one that fails stops none of the others."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import suppress

from fedops.app.allowance import PULLS, Allowance
from fedops.app.context import Context
from fedops.app.counted_forge import counted
from fedops.app.inspect import TEMPORARY, Judgement, inspect_pull
from fedops.app.merge import Merged, merge_pull
from fedops.app.snapshot import Snapshot
from fedops.app.verdict_cache import BytesMemory, BytesVerdict, remember
from fedops.core.errors import ConfigError, FedopsError, GitError, SpentError
from fedops.core.facts import Pull
from fedops.core.findings import Finding, finding
from fedops.core.forge_settings import VERDICT
from fedops.core.turns import in_turn


class PullPass:
    """Merges and reports one pull request after the other, as far as the allowance goes.

    Args:
        pulls: all that are open, oldest first.
        allowance: what is left of the run; None: this pass is all of it, as in a job of its own.

    Attributes:
        done: what became of each that was looked at.
        failed: one finding for each that could not be looked at to the end.
        left: those that the next run must look at.
    """

    def __init__(self, ctx: Context, pulls: Sequence[Pull], allowance: Allowance | None = None) -> None:
        self.allowance = allowance or Allowance(ctx.clock.now())
        self._ctx, self._pulls = counted(ctx, self.allowance), pulls
        self.done: list[Merged] = []
        self.failed: list[Finding] = []
        self.left: list[Pull] = []
        self._reached: list[BytesVerdict] = []

    def take(self, pull: Pull, judge: Callable[[], Judgement]) -> None:
        """Merge one pull request, or tell it why not.

        Raises:
            FedopsError: access is refused, or the forge takes no more requests; what was reached is kept all the same.
        """
        try:
            judged = judge()
            if judged.reached is not None:
                self._reached.append(judged.reached)
            if judged.left or not self.allowance.may_merge():
                self.left.append(pull)
                return
            one = merge_pull(self._ctx, judged)
        except FedopsError as e:
            if e.cause == "auth" or isinstance(e, SpentError):
                with suppress(GitError):
                    self.end()
                raise
            self.failed.append(finding("github_rejected", f"pull/{pull.number}", got=e.message))
            return
        self.done.append(one)

    def end(self) -> bool:
        """Keep the verdicts on bytes for later runs; True if something was written."""
        merged = {one.judgement.pull.number for one in self.done if one.outcome == "merged"}
        heads = [pull.head for pull in self._pulls if pull.number not in merged]
        return remember(self._ctx.repository, self._ctx.clock, self._reached, heads)


def turns(ctx: Context, main: Snapshot, pulls: Sequence[Pull], memory: BytesMemory) -> tuple[Pull, ...]:
    """The order in which a run looks at the open pull requests.

    Those whose bytes an earlier run could not get come after the others, or they would use up every run's time. If there
    are more than one run may read, so do all that had a look before.
    """
    try:
        roster = main.sites.sites.values()
    except ConfigError:
        return tuple(pulls)  # nothing can be judged, which is told of each
    members = {account.id for site in roster for account in site.accounts}
    said = ctx.forge.statuses({pull.head for pull in pulls}, VERDICT) if len(pulls) > 1 else {}
    many = len(pulls) > PULLS
    before = {head for head, status in said.items() if many or status[1].startswith(TEMPORARY)}
    return in_turn(pulls, members, again=memory.tried, before=before, salt=f"{ctx.clock.now():%Y-%m-%dT%H:%M}")


class _Nothing:
    """Lets nothing be read."""

    def take(self, size: int, now: dt.datetime) -> bool:  # noqa: ARG002 as in the protocol
        return False


def inspect_all(ctx: Context, main: Snapshot, pulls: Sequence[Pull]) -> tuple[Judgement, ...]:
    """Judge open pull requests as far as one run may go, oldest first; those that are left out are the next run's.

    Where main's documents cannot be used, leads' own changes alone are judged: one of them may mend it.

    Raises:
        FedopsError: they cannot be used, and there is no such change.
    """
    memory, allowance = BytesMemory(), Allowance(ctx.clock.now())
    judged, broken = dict[int, Judgement](), None
    # Whose turn it is matters for bytes alone; to find that out, the forge is asked of each.
    for pull in pulls:
        try:
            judged[pull.number] = inspect_pull(ctx, main, pull, memory, _Nothing())
        except FedopsError as e:
            broken = e
    if broken is not None and not judged:
        raise broken
    for pull in turns(ctx, main, [one.pull for one in judged.values() if one.left], memory):
        judged[pull.number] = inspect_pull(ctx, main, pull, memory, allowance)
    return tuple(sorted((one for one in judged.values() if not one.left), key=lambda one: one.pull.number))
