"""Addresses of DVC remotes are read as they are written."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from fedops.core.remotes import object_url, parse_object_url, parse_remote_url, remote_url

PAIRS = [
    ("ocidir:.fedops/store", "global", "ocidir://.fedops/store/global"),
    ("ocidir:store", "sites/hospital-a", "ocidir://store/sites/hospital-a"),
    ("ocidir:/srv/fed/store", "archive", "ocidir://localhost/srv/fed/store/archive"),
    ("ocidir:localhost/store", "global", "ocidir://./localhost/store/global"),
    ("ocidir:localhosts/x", "global", "ocidir://localhosts/x/global"),
    ("ocidir:localhost", "global", "ocidir://./localhost/global"),
    ("ocidir:C:/fed/store", "global", "ocidir://C:/fed/store/global"),
    ("oci://ghcr.io/acme/fed", "global", "oci://ghcr.io/acme/fed/global"),
    ("oci://localhost:5000/fed/sites", "sites/a", "oci://localhost:5000/fed/sites/sites/a"),
]


@pytest.mark.parametrize(("store", "repository", "url"), PAIRS)
def test_a_remote_is_the_store_with_the_repository_behind_it(store: str, repository: str, url: str) -> None:
    assert remote_url(store, repository) == url
    assert parse_remote_url(url) == (store, repository)


def test_no_remote_has_an_empty_host() -> None:
    """Without fedops DVC takes `ocidir:///x` for the name of a folder, pushes into it, and says that all is well."""
    for _, _, url in PAIRS:
        assert urlsplit(url).netloc
    assert parse_remote_url("ocidir:///srv/store/global") == ("ocidir:/srv/store", "global")


def test_a_slash_at_the_end_of_a_store_is_not_doubled() -> None:
    assert remote_url("oci://host/fed/", "global") == "oci://host/fed/global"
    assert remote_url("ocidir:store/", "global") == "ocidir://store/global"


@pytest.mark.parametrize(
    "url",
    ["https://host/global", "oci://host/fed/other", "oci://global", "ocidir://global", "oci:///global", "ocidir:///global", "ocidir://localhost/global",
     "oci://host/sites/Not-A-Site", "store/global"],
)  # fmt: skip
def test_other_addresses_are_not_read(url: str) -> None:
    assert parse_remote_url(url) is None


MD5 = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(("store", "repository", "url"), PAIRS)
def test_the_address_of_an_object_is_read_as_it_is_written(store: str, repository: str, url: str) -> None:
    address = object_url(store, repository, MD5)
    assert address == f"{url}/files/md5/01/23456789abcdef0123456789abcdef"
    assert parse_object_url(address) == (store, repository, MD5)
    for above in (url, url + "/", url + "/files/md5", url + "/files/md5/"):
        assert parse_object_url(above) == (store, repository, None)


def test_a_store_may_lie_in_a_folder_of_dvc() -> None:
    address = object_url("ocidir:/x/files/md5/store", "global", MD5)
    assert parse_object_url(address) == ("ocidir:/x/files/md5/store", "global", MD5)


@pytest.mark.parametrize(
    "path",
    ["files/md5/01/23456789abcdef0123456789abcdef.dir", "files/md5/01/short", "files/md5/01", "files/md5x", "files",
     "files/md5/01/23456789ABCDEF0123456789abcdef", "files/md5/../23456789abcdef0123456789abcdef", "runs/01/2"],
)  # fmt: skip
def test_other_addresses_below_a_remote_are_no_objects(path: str) -> None:
    assert parse_object_url(f"oci://host/fed/global/{path}") is None


def test_an_object_of_no_remote_is_none() -> None:
    assert parse_object_url(f"https://host/global/files/md5/01/{MD5[2:]}") is None
    assert parse_object_url("") is None
