"""`.fedops/site.yaml`: read back as it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedops.app.site_state import SiteState, read_site_state, write_site_state
from fedops.core.errors import ConfigError


def test_a_clone_without_the_file_is_no_sites(tmp_path: Path) -> None:
    assert read_site_state(tmp_path) is None


def test_site_and_key_are_read_back_and_written_once(tmp_path: Path) -> None:
    state = SiteState("on", str(tmp_path / "keys" / "my key"))
    assert write_site_state(tmp_path, state) is True
    assert write_site_state(tmp_path, state) is False
    assert read_site_state(tmp_path) == state


def test_a_key_inside_the_clone_moves_with_it(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    write_site_state(old, SiteState("a", str(old / ".fedops" / "id_ed25519")))
    old.rename(new)
    assert read_site_state(new) == SiteState("a", str(new / ".fedops" / "id_ed25519"))


def test_a_key_elsewhere_is_noted_by_its_whole_path(tmp_path: Path) -> None:
    write_site_state(tmp_path / "clone", SiteState("a", str(tmp_path / "id")))
    assert read_site_state(tmp_path / "clone") == SiteState("a", str(tmp_path / "id"))


def test_a_site_may_have_no_key(tmp_path: Path) -> None:
    write_site_state(tmp_path, SiteState("a", None))
    assert read_site_state(tmp_path) == SiteState("a", None)


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / ".fedops").mkdir()
    (tmp_path / ".fedops" / "site.yaml").write_text("schema: fedops.site-state/v1\nsite: 7\n")
    with pytest.raises(ConfigError, match=r"\.fedops/site\.yaml:2: site"):
        read_site_state(tmp_path)
