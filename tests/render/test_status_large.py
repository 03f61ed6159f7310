"""`fedops status` of a federation that no screen holds: counts first, then whoever somebody must do something about."""

from __future__ import annotations

import datetime as dt
import time

from fedops.core.facts import Wait
from fedops.core.findings import finding
from fedops.core.ids import SiteId
from fedops.core.settings import Trigger
from fedops.core.status import Heartbeat, LocalWork, OpenPull, Phase, Silence, SiteLine, StatusReport
from fedops.render.status import MOST_ROWS, status_text
from tests.core.samples import T0, hex64

NOW = T0 + dt.timedelta(days=1)


def report(lines: tuple[SiteLine, ...], own: str | None = None, faults: int = 0) -> StatusReport:
    return StatusReport(
        name="large",
        version=9,
        model=hex64("m"),
        made_at=T0,
        final=False,
        ready=(),
        trigger=Trigger(quorum=5),
        decision=Wait("quorum", ()),
        sites=lines,
        own=SiteId(own) if own else None,
        work=LocalWork(None, None),
        pulls=3,
        next_command="",
        faults=tuple(finding("record_unreadable", f"sites/{n}") for n in range(faults)),
    )


def line(number: int, phase: Phase = "due", **fields: object) -> SiteLine:
    return SiteLine(SiteId(f"site-{number:04}"), phase, **fields)  # type: ignore[arg-type]  # fields of the class


def many(number: int = 1000) -> list[SiteLine]:
    lines = [line(n) for n in range(number)]
    lines[700] = line(700, "open", pull=OpenPull(5, "failure", "rejected: non_finite", T0, owned=True))
    lines[800] = line(800, "open", pull=OpenPull(6, "success", "accepted", T0, owned=True))
    lines[900] = line(900, "refused")
    lines[850] = line(850, "ready", reason=finding("object_missing", "sites/site-0850"))
    lines[950] = line(950, beat=Heartbeat(8, "training", T0, stalled=True))
    lines[951] = line(951, beat=Heartbeat(9, "training", NOW, stalled=False))
    return lines


def test_counts_come_first_and_then_who_must_act() -> None:
    text = status_text(report(tuple(many()), own="site-0500"), NOW)
    head, counts, table, beats, own = text.split("\n\n")
    assert "waits for 5 more submissions" in head
    assert counts == "1,000 sites: 996 to train, 2 PR open, 1 unavailable, 1 refused, 1 stalled"
    rows = table.splitlines()
    assert [row.split()[0] for row in rows[1:7]] == [
        "site-0500", "site-0700", "site-0850", "site-0950", "site-0900", "site-0800",
    ]  # fmt: skip
    assert (len(rows), rows[-1]) == (MOST_ROWS + 2, "… and 960 more: fedops status --all")
    assert [row.split()[0] for row in beats.splitlines()[2:]] == ["site-0950", "site-0951"]
    assert "site-0500" in own


def test_of_many_heartbeats_the_oldest_are_shown() -> None:
    lines = [line(n, beat=Heartbeat(9, "waiting", NOW - dt.timedelta(minutes=n), stalled=False)) for n in range(100)]
    beats = status_text(report(tuple(lines)), NOW).split("\n\n")[3].splitlines()
    assert (beats[2].split()[0], beats[-1]) == ("site-0099", "… and 60 more: fedops status --all")


def test_all_shows_every_site_in_order_of_ids() -> None:
    text = status_text(report(tuple(many()), faults=100), NOW, every=True)
    rows = [row.split()[0] for row in text.splitlines() if row.startswith("site-") and "  " in row]
    assert rows[:1000] == [f"site-{n:04}" for n in range(1000)]
    assert "more: fedops status --all" not in text
    assert text.count("warning: ") == 100


def test_many_warnings_are_counted() -> None:
    text = status_text(report((line(1),), faults=100), NOW)
    assert (text.count("warning: "), text.splitlines()[-1]) == (MOST_ROWS, "… and 60 more: fedops status --all")


def test_of_many_that_never_sent_a_heartbeat_there_is_a_line_for_each_of_the_oldest_versions() -> None:
    silences = [Silence(number, T0 - dt.timedelta(days=20 - number)) for number in range(1, 9)]
    lines = [line(n, silence=silences[n % 8]) for n in range(800)] + [line(n) for n in range(800, 1000)]
    text = status_text(report(tuple(lines)), NOW)
    counts, silent = text.split("\n\n")[1], text.split("\n\n")[3].splitlines()
    assert counts == "1,000 sites: 1,000 to train, 800 stalled"
    assert silent[0].startswith(
        "no heartbeat, stalled since 2026-02-11 09:00 UTC, when v1 was made: site-0000, site-0008,"
    )
    assert silent[0].endswith("site-0072 and 90 more")
    assert [row.split(" was made")[0][-2:] for row in silent[:-1]] == ["v1", "v2", "v3", "v4", "v5"]
    assert silent[-1] == "… and 300 sites more: fedops status --all"
    whole = status_text(report(tuple(lines)), NOW, every=True)
    assert whole.count("no heartbeat, stalled since") == 8
    assert whole.endswith("site-0791, site-0799")


def test_few_sites_stand_in_order_of_ids_without_a_count() -> None:
    lines = tuple(many()[890:900] + many()[900:930])
    text = status_text(report(lines), NOW)
    assert "40 sites:" not in text
    assert [row.split()[0] for row in text.splitlines() if row.startswith("site-")] == [s.site for s in lines]


def test_twenty_thousand_sites_are_printed_in_a_moment() -> None:
    lines = tuple(line(n) for n in range(20_000))
    begin = time.process_time()
    assert len(status_text(report(lines), NOW)) < 10_000
    assert time.process_time() - begin < 5
