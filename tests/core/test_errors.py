"""Which errors a service waits out."""

from __future__ import annotations

import pytest

from fedops.core.errors import ConfigError, FedopsError, GitError, StoreError, passes


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (StoreError("x", cause="temporary"), True),
        (GitError("x", slug="origin_missing"), True),
        (GitError("x"), False),
        (GitError("x", cause="auth"), False),
        (ConfigError("x"), False),
    ],
)
def test_a_service_waits_for_what_passes_and_for_an_origin_that_may_be_mounted(error: FedopsError, waits: bool) -> None:
    assert passes(error) == waits
