"""A starter is made only for who is on the roster."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedops.app.starter import starter_of
from fedops.core.errors import ConfigError
from fedops.core.ids import SiteId
from tests.founding_world import founded_world


def test_a_site_that_is_not_on_the_roster_gets_none(tmp_path: Path) -> None:
    with founded_world(tmp_path).context() as ctx, pytest.raises(ConfigError, match="no site hospital-z"):
        starter_of(ctx, SiteId("hospital-z"), "/srv/fed/heart.git")
