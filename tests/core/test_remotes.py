"""Addresses of DVC remotes are read as they are written."""

from __future__ import annotations

import pytest

from fedops.core.remotes import parse_remote_url, remote_url

PAIRS = [
    ("ocidir:.fedops/store", "global", "ocidir://.fedops/store/global"),
    ("ocidir:store", "sites/hospital-a", "ocidir://store/sites/hospital-a"),
    ("ocidir:/srv/fed/store", "archive", "ocidir:///srv/fed/store/archive"),
    ("oci://ghcr.io/acme/fed", "global", "oci://ghcr.io/acme/fed/global"),
    ("oci://localhost:5000/fed/sites", "sites/a", "oci://localhost:5000/fed/sites/sites/a"),
]


@pytest.mark.parametrize(("store", "repository", "url"), PAIRS)
def test_a_remote_is_the_store_with_the_repository_behind_it(store: str, repository: str, url: str) -> None:
    assert remote_url(store, repository) == url
    assert parse_remote_url(url) == (store, repository)


def test_a_slash_at_the_end_of_a_store_is_not_doubled() -> None:
    assert remote_url("oci://host/fed/", "global") == "oci://host/fed/global"
    assert remote_url("ocidir:store/", "global") == "ocidir://store/global"


@pytest.mark.parametrize(
    "url",
    ["https://host/global", "oci://host/fed/other", "oci://global", "ocidir://global", "oci:///global",
     "oci://host/sites/Not-A-Site", "store/global"],
)  # fmt: skip
def test_other_addresses_are_not_read(url: str) -> None:
    assert parse_remote_url(url) is None
