"""A token is sent to the host it is for, and to no other, whatever a federation says."""

from __future__ import annotations

import pytest

from fedops.cli.tokens import forge_token, git_environment
from fedops.core.errors import ConfigError
from fedops.core.github_hosts import host_of
from fedops.core.settings import Forge

DOTCOM, OTHER = host_of(None), host_of("https://ghe.example/api/v3")


@pytest.mark.parametrize(
    ("environ", "token"),
    [
        ({}, None),
        ({"GITHUB_TOKEN": ""}, None),
        ({"GITHUB_TOKEN": "g"}, "g"),
        ({"GITHUB_TOKEN": "g", "GH_TOKEN": "h"}, "h"),
        ({"GITHUB_TOKEN": "g", "GH_TOKEN": "h", "FEDOPS_TOKEN": "f"}, "f"),
    ],
)
def test_the_most_specific_token_is_taken(environ: dict[str, str], token: str | None) -> None:
    assert forge_token(DOTCOM, environ) == token


@pytest.mark.parametrize("name", ["GITHUB_TOKEN", "GH_TOKEN"])
def test_a_common_token_goes_to_no_server_that_only_a_federation_names(name: str) -> None:
    with pytest.raises(ConfigError, match=r"ghe\.example") as raised:
        forge_token(OTHER, {name: "secret"})
    assert raised.value.slug == "credential_scope"
    assert "secret" not in raised.value.message + raised.value.hint


def test_a_job_s_token_is_for_the_server_of_the_job() -> None:
    job = {"GITHUB_TOKEN": "g", "GITHUB_API_URL": "https://ghe.example/api/v3"}
    assert forge_token(OTHER, job) == "g"
    with pytest.raises(ConfigError):
        forge_token(host_of("https://ghe.example.evil.example/api/v3"), job)


def test_a_person_may_give_a_token_for_the_server_of_a_federation() -> None:
    assert forge_token(OTHER, {"FEDOPS_TOKEN": "f", "GITHUB_TOKEN": "g"}) == "f"


def test_git_gets_the_token_for_the_forge_s_address_alone() -> None:
    env = git_environment(Forge(kind="github", repository="o/n"), {"GITHUB_TOKEN": "secret", "GIT_CONFIG_COUNT": "2"})
    assert env["GIT_CONFIG_COUNT"] == "4"
    assert {env["GIT_CONFIG_KEY_2"], env["GIT_CONFIG_KEY_3"]} == {"credential.https://github.com.helper"}
    assert [name for name, value in env.items() if "secret" in value] == ["FEDOPS_GIT_PASSWORD"]


@pytest.mark.parametrize("environ", [{}, {"GIT_CONFIG_COUNT": "x"}])
def test_without_a_token_git_is_left_as_it_is(environ: dict[str, str]) -> None:
    assert git_environment(Forge(kind="github", repository="o/n"), environ) == {}
    assert git_environment(Forge(), {"GITHUB_TOKEN": "g"}) == {}
    counted = git_environment(Forge(kind="github", repository="o/n"), environ | {"GITHUB_TOKEN": "g"})
    assert counted["GIT_CONFIG_COUNT"] == "2"
