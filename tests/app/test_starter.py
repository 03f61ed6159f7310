"""A starter names the federation by its v0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedops.app.starter import starter_of
from fedops.core.errors import ConfigError
from fedops.core.ids import SiteId
from fedops.core.settings import Person, Site
from fedops.ports import Repository
from tests.founding_world import Wrapped, founded_world


def test_a_federation_without_a_first_version_has_none(tmp_path: Path) -> None:
    entry = Site(accounts=(Person(login="z", id=7),))

    def without_tags(repository: Repository) -> Any:
        return Wrapped(repository, versions=lambda: ())

    with (
        founded_world(tmp_path).context(wrap=without_tags) as ctx,
        pytest.raises(ConfigError, match="no tag of v0"),
    ):
        starter_of(ctx, SiteId("hospital-z"), entry, "/srv/fed/heart.git")
