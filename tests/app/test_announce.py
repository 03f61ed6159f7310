"""A published version gets its page; a forge that has none, or refuses, stops nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedops.app.reconcile import repair
from fedops.core.errors import ForgeError
from tests.scenario.fed import MemoryFed, Watched


class Paged(Watched):
    """A forge with pages."""

    def __init__(self, inner: Any, error: ForgeError | None = None) -> None:
        super().__init__(inner, "forge", lambda name: None)
        self.pages: dict[str, tuple[str, str]] = {}
        self.error = error

    def ensure_release(self, tag: str, title: str, body: str) -> bool:
        if self.error is not None:
            raise self.error
        changed = self.pages.get(tag) != (title, body)
        self.pages[tag] = title, body
        return changed


def test_each_version_gets_its_page_once(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 1}})
    forge = Paged(fed.forge("bot", fed.new_clone("bot")))
    fed.submit("hospital-a", 1.0)
    fed.reconcile(fed.context(forge=forge))
    assert list(forge.pages) == ["global@v0.0.0", "global@v1.0.0"]
    title, body = forge.pages["global@v1.0.0"]
    assert title == "global: v1 (fedavg, 1 site)"
    assert fed.version.model.sha256 in body
    assert not fed.reconcile(fed.context(forge=forge)).changed
    forge.pages.clear()
    ctx = fed.context(forge=forge)
    ctx.repository.fetch()
    assert repair(ctx, fed.main()) is True, "a page that somebody deleted is made again"
    assert list(forge.pages) == ["global@v1.0.0"]


@pytest.mark.parametrize("cause", ["auth", "temporary", "permanent"])
def test_a_forge_that_refuses_the_page_stops_no_version(
    tmp_path: Path, cause: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 1}})
    forge = Paged(fed.forge("bot", fed.new_clone("bot")), ForgeError("no pages for you", cause=cause))
    fed.submit("hospital-a", 1.0)
    assert [r.version for r in fed.reconcile(fed.context(forge=forge)).published] == [1]
    assert "no pages for you" in caplog.text
    assert not fed.reconcile(fed.context(forge=forge)).changed
