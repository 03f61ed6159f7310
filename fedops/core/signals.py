"""Who is told to train on the current version: signal issues to open and to close."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from fedops.core.facts import Issue, Marker
from fedops.core.findings import Finding
from fedops.core.ids import GlobalVersion, SiteId, digest_of_hex, site_id_fault
from fedops.core.policy import NEVER
from fedops.core.records import VersionRecord
from fedops.core.report import SignalReport
from fedops.core.settings import Aggregation, Sites
from fedops.core.steps import CloseSignal, Signal, Step

SIGNAL_LABELS = frozenset({"fedops", "signal:train"})

_MARKER = re.compile(r"^<!-- fedops:([a-z][a-z-]*) ([^\s<>]+) -->[ \t\r]*$", re.MULTILINE)


def markers_in(body: str) -> tuple[Marker, ...]:
    """All hidden markers of a comment or issue that stand on a line of their own; inverse of `Marker.text`."""
    return tuple(Marker(kind, key) for kind, key in _MARKER.findall(body))


def marker_in(body: str) -> Marker | None:
    """The marker by which a comment or issue is found, None if there is none.

    If there are several, the last counts: fedops writes it at the end, and what a site wrote is escaped.
    """
    return next(reversed(markers_in(body)), None)


def signal_marker(site: SiteId, version: int, again: str = "") -> Marker:
    """Marker of the issue that tells a site to train on a version.

    Args:
        again: slug of the reason, if the site is told a second time for the same version.
    """
    return Marker("signal", "/".join(["train", site, GlobalVersion(version).short, *filter(None, [again])]))


def signal_of(marker: Marker | None) -> tuple[SiteId, int] | None:
    """(site, version) of a train signal's marker; inverse of `signal_marker`, None for anything else."""
    parts = marker.key.split("/") if marker is not None and marker.kind == "signal" else []
    if len(parts) not in (3, 4) or parts[0] != "train" or site_id_fault(parts[1]) is not None:
        return None
    version = GlobalVersion.from_short(parts[2])
    return None if version is None else (SiteId(parts[1]), version.number)


def reason_marker(reason: Finding) -> Marker:
    """Hidden beside a signal's own marker: which reason the issue gives."""
    return Marker("reason", reason.slug)


@dataclass(frozen=True)
class _Sent:
    """A train signal on the forge."""

    site: SiteId
    version: int
    number: int
    open: bool
    markers: Collection[Marker]  # all in its body


def plan_signals(
    record: VersionRecord,
    waiting: Mapping[SiteId, Finding | None],
    sites: Sites,
    issues: Sequence[Issue],
    policy: Aggregation,
    *,
    body: Callable[[SignalReport], str],
) -> tuple[Step, ...]:
    """Plan the signals of the current version: one open issue for each addressed site, older ones of it closed.

    Addressed are always the active ones of `waiting`, and after a version that nobody contributed to (init, rollback,
    revert) all active sites. Beyond them, by `signals.to`: `contributors` of this version; `all`; or `stale`:
    the contributors, and sites whose last signal is so old that an update on it would be refused as too stale. A site
    that is still training on an earlier signal is otherwise left alone, its issue open. So is the issue of a suspended
    site, since a closed one counts as told, and nobody would tell the site when it is active again. A final version has
    no train signal: all are closed, and so are those of sites that left the roster.

    What is there is not planned again; a signal of this version that a person closed counts as there. A site that was
    already told of this version, and of which then something could not be used, gets a second issue with the reason
    in place of the first, once for each reason.

    Args:
        record: the current version.
        waiting: sites of which nothing usable is on main: None for a site that has handed in nothing yet, else why
            its record is not used (excluded, unavailable or overtaken).
        issues: those with SIGNAL_LABELS: the open ones, and as far as known the closed ones.
        body: renders an issue's text, with the report's markers.

    Returns:
        Signals in ascending site, then closings by number: if a crash comes between, no site is without a signal.
    """
    sent = _sent(issues)
    active = sites.active()
    if record.status == "final":
        return tuple(CloseSignal(s.number) for s in sent if s.open)
    addressed = _addressed(record, waiting, active, sent, policy)
    markers = {site: _wanted(site, record, waiting.get(site), sent) for site in addressed}
    reports = [_report(record, sites, site, waiting.get(site), marker) for site, marker in markers.items() if marker]
    steps: list[Step] = [
        Signal(
            site=r.site,
            version=r.version,
            marker=r.markers[-1],
            title=f"Train on {GlobalVersion(r.version).short}: {r.site}",
            body=body(r),
            labels=SIGNAL_LABELS | {f"site:{r.site}"},
        )
        for r in reports
    ]
    kept = {s.site: s.number for s in sent if s.open and s.version == record.version}  # the newest of each site
    for s in sent:
        old = s.version < record.version and s.site in markers
        replaced = s.version == record.version and (s.number != kept.get(s.site) or bool(markers.get(s.site)))
        if s.open and (old or replaced or s.site not in sites.sites):
            steps.append(CloseSignal(s.number))
    return tuple(steps)


def _sent(issues: Sequence[Issue]) -> list[_Sent]:
    """The train signals among the issues, by number; on GitHub an outsider cannot set labels, so a forged copy has none."""
    sent = []
    for issue in sorted(issues, key=lambda i: i.number):
        markers = markers_in(issue.body)
        told = signal_of(marker_in(issue.body)) if issue.labels >= SIGNAL_LABELS else None
        if told is not None:
            sent.append(_Sent(*told, issue.number, issue.open, markers))
    return sent


def _addressed(
    record: VersionRecord,
    waiting: Collection[SiteId],
    active: Sequence[SiteId],
    sent: Sequence[_Sent],
    policy: Aggregation,
) -> tuple[SiteId, ...]:
    to, limit = policy.signals.to, policy.staleness.max
    if to == "all" or record.kind != "aggregate":
        return tuple(active)
    addressed = {SiteId(c.site) for c in record.contributions} | set(waiting)
    if to == "stale" and limit is not None:
        # A site trains on its last signal; without one, at the earliest on the version after the one it used up.
        told = {site: record.consumed.get(site, NEVER) + 1 for site in active}
        for s in sent:
            told[s.site] = max(s.version, told.get(s.site, 0))
        addressed |= {site for site in active if record.version - told[site] > limit}
    return tuple(site for site in active if site in addressed)


def _wanted(site: SiteId, record: VersionRecord, reason: Finding | None, sent: Sequence[_Sent]) -> Marker | None:
    """Marker of the issue to open for an addressed site; None if what it would say was said."""
    said = [s for s in sent if (s.site, s.version) == (site, record.version)]
    if not said:
        return signal_marker(site, record.version)
    if reason is None or any(reason_marker(reason) in s.markers for s in said):
        return None
    return signal_marker(site, record.version, reason.slug)


def _report(record: VersionRecord, sites: Sites, site: SiteId, reason: Finding | None, marker: Marker) -> SignalReport:
    return SignalReport(
        site=site,
        version=record.version,
        model=digest_of_hex(record.model.sha256),
        size=record.model.size,
        metrics=dict(record.metrics),
        logins=tuple(a.login for a in sites.sites[site].accounts),
        reason=reason,
        markers=(marker,) if reason is None else (reason_marker(reason), marker),
    )
