"""Which closed signals are asked for: a forge may have thousands of them, and few matter."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedops.app.merged import merged_state
from fedops.app.signals import signal
from fedops.core.facts import Issue
from tests.scenario.fed import START, MemoryFed, Watched


class Asked(Watched):
    """A forge that notes for what time closed issues are asked."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner, "forge", lambda name: None)
        self.since: list[dt.datetime | None] = []

    def issues(
        self,
        labels: frozenset[str],
        *,
        open: bool = True,  # noqa: A002 as in the port
        since: dt.datetime | None = None,
    ) -> Sequence[Issue]:
        if not open:
            self.since.append(since)
        found: Sequence[Issue] = self._inner.issues(labels, open=open, since=since)
        return found


def asked(fed: MemoryFed, decided_at: str | None = None) -> dt.datetime | None:
    main = fed.main()
    if decided_at is not None:
        witness = main.version.witness.model_copy(update={"decided_at": decided_at})
        main.__dict__["version"] = main.version.model_copy(update={"witness": witness})
    forge = Asked(fed.forge("bot", fed.new_clone("bot")))
    signal(fed.context(forge=forge), main, merged_state(main.repository, main), {})
    [since] = forge.since
    return since


def test_only_signals_that_can_be_of_this_version_are_asked_for(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 1}})
    fed.clock.sleep(10 * 86_400)
    fed.submit("hospital-a", 1.0)
    assert [r.version for r in fed.reconcile().published] == [1]
    since = asked(fed)
    assert since is not None
    assert START + dt.timedelta(days=8) < since <= START + dt.timedelta(days=9), "clocks may differ by a day"


def test_where_the_age_of_a_signal_matters_all_are_asked_for(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path, rules={"signals": {"to": "stale"}})
    assert asked(fed) is None


@pytest.mark.parametrize("text", ["soon", "", "0001-01-01T00:00:00Z"])
def test_a_witness_that_is_no_time_leaves_nothing_out(tmp_path: Path, text: str) -> None:
    assert asked(MemoryFed(tmp_path), text) is None
