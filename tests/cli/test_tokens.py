"""A token is sent to the host it is for, and to no other, whatever a federation says."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from fedops.cli.tokens import forge_token, git_environment
from fedops.core.errors import ConfigError
from fedops.core.github_hosts import host_of
from fedops.core.settings import Forge
from tests.sshkeys import make_key

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


# ---------------------------------------------------------------- deploy key


@pytest.fixture
def key(tmp_path: Path) -> str:
    return make_key(tmp_path, "deploy-key").private.read_text()


@pytest.mark.parametrize(("token", "count"), [("secret", 5), ("", 3)])
def test_with_a_deploy_key_pushes_to_origin_go_by_ssh(token: str, count: int, key: str) -> None:
    environ = {"GITHUB_TOKEN": token, "GIT_CONFIG_COUNT": "2", "FEDOPS_DEPLOY_KEY": key}
    env = git_environment(Forge(kind="github", repository="o/n"), environ)
    assert env["GIT_CONFIG_COUNT"] == str(count)
    setting = (env[f"GIT_CONFIG_KEY_{count - 1}"], env[f"GIT_CONFIG_VALUE_{count - 1}"])
    assert setting == ("remote.origin.pushurl", "ssh://git@github.com/o/n.git")
    command = [sys.executable, "-P", "-m", "fedops.cli.deploy_ssh", "https://api.github.com"]
    assert (shlex.split(env["GIT_SSH_COMMAND"]), env["GIT_SSH_VARIANT"]) == (command, "ssh")
    assert "PRIVATE KEY" not in "".join(env.values())
    assert [name for name, value in env.items() if token and token in value] == ["FEDOPS_GIT_PASSWORD"] * bool(token)


def test_what_is_no_key_is_refused_before_anything_is_done(key: str) -> None:
    with pytest.raises(ConfigError, match="FEDOPS_DEPLOY_KEY: not a private key"):
        git_environment(Forge(kind="github", repository="o/n"), {"FEDOPS_DEPLOY_KEY": key[:60]})


@pytest.mark.parametrize(("forge", "value"), [(Forge(kind="github", repository="o/n"), ""), (Forge(), "x")])
def test_without_a_key_or_a_forge_for_it_git_is_left_as_it_is(forge: Forge, value: str) -> None:
    assert git_environment(forge, {"FEDOPS_DEPLOY_KEY": value}) == {}
