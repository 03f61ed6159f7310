"""The handed cases, written once for all tests of a session."""

from __future__ import annotations

import pytest

from tests.cases import harness


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> harness.Cases:
    return harness.load(harness.generate(tmp_path_factory.mktemp("cases") / "handed"))
