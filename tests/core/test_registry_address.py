"""Addresses of stores in registries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.core.registry_address import RegistryAddress, is_loopback, parse_registry_url, store_url_fault

_WORD = st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)


@given(
    st.lists(_WORD, min_size=1, max_size=3).map(".".join),
    st.none() | st.integers(1, 65535).filter(lambda port: port not in (80, 443)),
    st.lists(_WORD, min_size=1, max_size=4).map("/".join),
)
def test_url_is_read_as_it_is_written(name: str, port: int | None, path: str) -> None:
    address = RegistryAddress(name if port is None else f"{name}:{port}", path)
    assert parse_registry_url(address.url) == address


@pytest.mark.parametrize(
    ("url", "host", "path"),
    [
        ("oci://ghcr.io/acme/fed", "ghcr.io", "acme/fed"),
        ("oci://localhost:5000/fl", "localhost:5000", "fl"),
        ("oci://[::1]:5000/fl", "[::1]:5000", "fl"),
        ("oci://registry/a__b/c-d.e_f", "registry", "a__b/c-d.e_f"),
        ("oci://ghcr.io:443/a", "ghcr.io", "a"),
        ("oci://localhost:80/a", "localhost", "a"),
        ("oci://localhost:443/a", "localhost:443", "a"),
    ],
)
def test_host_and_path_are_told_apart(url: str, host: str, path: str) -> None:
    assert parse_registry_url(url) == RegistryAddress(host, path)
    assert store_url_fault(url) is None


@pytest.mark.parametrize(
    "url",
    ["", "https://ghcr.io/acme", "oci:ghcr.io/acme", "oci://", "oci:///acme", "oci://ghcr.io", "oci://ghcr.io/",
     "oci://GHCR.io/acme", "oci://ghcr.io/Acme", "oci://ghcr.io/acme/", "oci://ghcr.io//acme", "oci://ghcr.io/a..b",
     "oci://ghcr.io/../x", "oci://ghcr.io/acme:v1", "oci://ghcr.io/acme@sha256", "oci://ghcr.io:0/a", "oci://ghcr.io:99999/a",
     "oci://-a/b", "oci://a-/b", "oci://ghcr.io/a\n", "oci://ghcr.io/a?x=1", "oci://ghcr.io/a#b", "oci://ghcr.io/-a",
     "oci://[::1/a", "oci://ghcr.io/" + "a" * 129, "oci-layout:/x", "ocidir:"],
)  # fmt: skip
def test_anything_else_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_registry_url(url)
    assert store_url_fault(url) is not None


def test_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="user or password") as caught:
        parse_registry_url("oci://alice:s3cret@ghcr.io/acme")
    assert "s3cret" not in str(caught.value)


def test_folder_is_a_store_too() -> None:
    assert store_url_fault("ocidir:store") is None


@pytest.mark.parametrize("host", ["localhost", "localhost:5000", "127.0.0.1:1", "127.255.1.2", "[::1]:5000"])
def test_this_machine_alone_is_spoken_to_without_tls(host: str) -> None:
    assert is_loopback(host)
    assert RegistryAddress(host, "x").base == f"http://{host}"


@pytest.mark.parametrize(
    "host", ["ghcr.io", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:5000", "", "::1"]
)
def test_other_hosts_need_tls(host: str) -> None:
    assert not is_loopback(host)
    assert RegistryAddress(host, "x").base == f"https://{host}"


def test_repository_is_below_the_path() -> None:
    assert RegistryAddress("ghcr.io", "acme/fed").name("sites/hospital-a") == "acme/fed/sites/hospital-a"
