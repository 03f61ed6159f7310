"""H39 to H41: the signal issue on a GitHub that is played from a transcript; how often each rule was used is the case's."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from fedops.adapters.forge_github import Clone, GitHubForge
from fedops.core.facts import Issue, Marker
from fedops.core.github_hosts import host_of
from tests.cases.harness import Case, Cases
from tests.forge_worlds import ManualClock


@contextmanager
def played(case: Case) -> Iterator[Any]:
    """The case's server; markers in its bodies are written in fedops' way."""
    text = case.read(case.files["transcript"]).decode().replace("<!-- fedops-signal:", "<!-- fedops:signal ")
    # The script is handed as it is, and has no types.
    replay, servers = importlib.import_module("tests.cases.replay").serve(json.loads(text), str(case.root / case.name))
    try:
        yield replay
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def signalled(case: Case, clock: ManualClock) -> tuple[Any, Issue]:
    """Have the case's signal, by the adapter; returns what the server saw, and the issue."""
    with played(case) as replay:
        forge = GitHubForge(
            cast("Clone", None),  # an issue needs no clone
            host=host_of(f"http://{replay.hosts[0]}"),
            name="fed-org/demo",
            token="t",
            clock=clock,
            pace=(0, 0),
        )
        signal = case.document["signal"]
        labels = frozenset({signal["label"]})
        issue = forge.ensure_issue(Marker("signal", signal["key"]), signal.get("title", "a signal"), "text", labels)
        forge.close()
    return replay, issue


def assert_used(case: Case, replay: Any) -> None:
    assert case.expected["outcome"] == "ok"
    for rule, (least, most) in case.expected["used"].items():
        assert least <= replay.used[rule] <= most, (rule, replay.used)
    assert len(replay.log) <= case.expected.get("max_requests", len(replay.log)), replay.log
    assert all(entry["rule"] is not None for entry in replay.log), replay.log


def test_h39_a_label_that_exists_already_stops_nothing(cases: Cases) -> None:
    case = cases["H39"]
    replay, issue = signalled(case, ManualClock())
    assert_used(case, replay)
    assert issue.number == 12


def test_h40_the_signal_on_the_second_page_is_found(cases: Cases) -> None:
    case = cases["H40"]
    replay, issue = signalled(case, ManualClock())
    assert_used(case, replay)
    assert (issue.number, issue.open) == (40, True)


def test_h41_a_limit_is_waited_out_and_one_issue_comes_of_it(cases: Cases) -> None:
    case, clock = cases["H41"], ManualClock()
    replay, issue = signalled(case, clock)
    assert_used(case, replay)
    assert issue.number == 3
    assert sum(clock.slept) >= case.expected["min_seconds"]
    assert clock.slept[0] == 1, "as its Retry-After says"
