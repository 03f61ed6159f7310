"""Which addresses a token may go to, and which web address belongs to an API."""

from __future__ import annotations

import pytest

from fedops.core.errors import ConfigError
from fedops.core.github_hosts import Host, host_of, is_name


@pytest.mark.parametrize(
    ("api_url", "api", "web"),
    [
        (None, "https://api.github.com", "https://github.com"),
        ("https://api.github.com/", "https://api.github.com", "https://github.com"),
        ("https://ghe.example/api/v3", "https://ghe.example/api/v3", "https://ghe.example"),
        ("https://ghe.example:8443/api/v3/", "https://ghe.example:8443/api/v3", "https://ghe.example:8443"),
        ("https://api.acme.ghe.com", "https://api.acme.ghe.com", "https://acme.ghe.com"),
        ("https://api.example.org", "https://api.example.org", "https://api.example.org"),
        ("http://127.0.0.1:8080/api/v3", "http://127.0.0.1:8080/api/v3", "http://127.0.0.1:8080"),
        ("http://localhost:8080", "http://localhost:8080", "http://localhost:8080"),
        ("http://[::1]:8080", "http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_an_api_address_has_its_web_address(api_url: str | None, api: str, web: str) -> None:
    assert host_of(api_url) == Host(api, web)


@pytest.mark.parametrize(
    "api_url",
    [
        "http://ghe.example/api/v3",
        "http://10.0.0.1/api/v3",
        "https://user:secret@ghe.example/api/v3",
        "https://ghe.example/api/v3?x=1",
        "https://ghe.example/api/v3#x",
        "https:///api/v3",
        "https://ghe.example:port/",
        "https://[::1/",
        "ftp://ghe.example",
        "ghe.example",
        "",
        " ",
    ],
)
def test_a_token_goes_nowhere_else(api_url: str) -> None:
    if api_url == "":
        assert host_of(api_url) == host_of(None)
        return
    with pytest.raises(ConfigError, match="api_url") as raised:
        host_of(api_url)
    assert raised.value.slug == "credential_scope"


def test_a_repository_is_cloned_by_its_name() -> None:
    assert host_of(None).clone_url("fed-org/demo") == "https://github.com/fed-org/demo.git"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://github.com/alice/demo.git", "alice/demo"),
        ("https://x-access-token@github.com/alice/demo", "alice/demo"),
        ("git@github.com:alice/demo.git", "alice/demo"),
        ("ssh://git@github.com/alice/demo.git", "alice/demo"),
        ("ssh://git@github.com:22/alice/demo.git", "alice/demo"),
        ("https://github.com/alice/demo/extra", None),
        ("https://github.com/alice", None),
        ("https://evil.example/alice/demo", None),
        ("https://github.com.evil.example/alice/demo", None),
        ("https://[github.com/alice/demo", None),
        ("../fed.git", None),
        ("/srv/fed.git", None),
        ("file://github.com/alice/demo", None),
        ("-oProxyCommand=x:alice/demo", None),
    ],
)
def test_an_address_names_a_repository_of_this_host_or_none(url: str, name: str | None) -> None:
    assert host_of(None).repository_of(url) == name


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("a/b", True),
        ("A-1/b.c_d", True),
        ("a", False),
        ("a/b/c", False),
        ("a/..", False),
        ("a/b c", False),
        ("/b", False),
    ],
)
def test_a_name_is_owner_and_repository(name: str, good: bool) -> None:
    assert is_name(name) is good
