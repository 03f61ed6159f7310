"""The docker configuration and its helpers."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedops.adapters.registry_credentials import Credentials, DockerConfig, bound_to
from fedops.core.errors import ConfigError, FedopsError

AUTH = base64.b64encode(b"alice:s3cret:with:colons").decode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.json"


def config(
    path: Path, document: Any, answers: Mapping[tuple[str, str], tuple[int, bytes]] | None = None
) -> DockerConfig:
    path.write_text(json.dumps(document))

    def run(program: str, host: str) -> tuple[int, bytes]:
        return (answers or {})[program, host]

    return DockerConfig(path, run)


def test_no_configuration_is_nobody(path: Path) -> None:
    assert DockerConfig(path)("ghcr.io") is None


@pytest.mark.parametrize("key", ["ghcr.io", "https://ghcr.io", "https://ghcr.io/v1/"])
def test_host_is_found_in_each_form_and_no_other_host_is(path: Path, key: str) -> None:
    lookup = config(path, {"auths": {"evil.example": {"auth": AUTH}, key: {"auth": AUTH}}})
    found = lookup("ghcr.io")
    assert found is not None
    assert (found.username, found.password) == ("alice", "s3cret:with:colons")
    assert [lookup(h) for h in ("ghcr.io.evil.example", "ghcr.io:5000", "io", "")] == [None] * 4


def test_each_form_of_an_entry_is_read(path: Path) -> None:
    lookup = config(
        path,
        {"auths": {"a": {"username": "u", "password": "p"}, "b": {"auth": AUTH, "identitytoken": "it"}, "c": {}, "d": 5,
                   "e": {"auth": base64.b64encode(b"u:p\0\0").decode()}}},
    )  # fmt: skip
    assert [lookup(host) for host in "abcde"] == [
        Credentials("u", "p"), Credentials("", "", "it"), None, None, Credentials("u", "p")]  # fmt: skip


def test_dockers_own_registry_has_its_credentials_under_another_name(path: Path) -> None:
    lookup = config(path, {"auths": {"https://index.docker.io/v1/": {"auth": AUTH}}})
    assert lookup("registry-1.docker.io") is not None
    assert lookup("ghcr.io") is None


def test_helper_of_a_host_comes_before_the_common_one_and_the_file(path: Path) -> None:
    answer = json.dumps({"ServerURL": "x", "Username": "bo", "Secret": "from helper"}).encode()
    token = json.dumps({"Username": "<token>", "Secret": "it"}).encode()
    lookup = config(
        path,
        {
            "auths": {"a": {"auth": AUTH}, "b": {"auth": AUTH}, "c": {}},
            "credsStore": "common",
            "credHelpers": {"a": "own"},
        },
        {
            ("docker-credential-own", "a"): (0, answer),
            ("docker-credential-common", "b"): (1, b"credentials not found in native keychain\n"),
            ("docker-credential-common", "c"): (0, token),
            ("docker-credential-common", "d"): (0, b'{"Username": "", "Secret": ""}'),
        },
    )
    assert lookup("a") == Credentials("bo", "from helper")
    assert lookup("b") == Credentials("alice", "s3cret:with:colons")
    assert lookup("c") == Credentials("", "", "it")
    assert lookup("d") is None


@pytest.mark.parametrize("out", [b"", b"[]", b'{"Username": "u"}', b"panic: secret stuff"])
def test_helper_that_fails_is_said_without_its_words(path: Path, out: bytes) -> None:
    lookup = config(path, {"credsStore": "x"}, {("docker-credential-x", "a"): (1, out)})
    with pytest.raises(FedopsError) as caught:
        lookup("a")
    assert (caught.value.slug, caught.value.cause) == ("auth_failed", "auth")
    assert "secret stuff" not in caught.value.message + caught.value.hint
    assert "docker-credential-x" in caught.value.message


def test_helper_is_run_as_docker_runs_it(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = tmp_path / "docker-credential-test"
    helper.write_text('#!/bin/sh\nread host\necho "{\\"Username\\": \\"$1\\", \\"Secret\\": \\"$host\\"}"\n')
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    path.write_text('{"credsStore": "test"}')
    assert DockerConfig(path)("ghcr.io") == Credentials("get", "ghcr.io")
    path.write_text('{"credsStore": "absent"}')
    with pytest.raises(FedopsError) as caught:
        DockerConfig(path)("ghcr.io")
    assert caught.value.cause == "auth"


@pytest.mark.parametrize("text", ['{"auths": ', "[" * 100_000, '{"auths": {"a": {"auth": "!"}}}', '{"credsStore": "../x"}',
                                  '{"auths": {"a": {"auth": "/w=="}}}'])  # fmt: skip
def test_broken_configuration_is_named_and_not_quoted(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        DockerConfig(path)("a")
    assert str(path) in caught.value.message


@pytest.mark.parametrize("text", ["[]", '{"auths": []}', '{"auths": null, "credHelpers": 5, "credsStore": ""}'])
def test_configuration_of_another_shape_has_nobody(path: Path, text: str) -> None:
    path.write_text(text)
    assert DockerConfig(path)("a") is None


def test_folder_in_place_of_the_configuration_is_an_error(path: Path) -> None:
    path.mkdir()
    with pytest.raises(ConfigError):
        DockerConfig(path)("a")


def test_bound_credentials_are_for_one_host() -> None:
    own, other = Credentials("u", "p"), Credentials("x", "y")
    lookup = bound_to("ghcr.io", own, lambda host: other if host == "b" else None)
    assert [lookup(h) for h in ("ghcr.io", "b", "c", "ghcr.io:443")] == [own, other, None, None]


def test_credentials_are_not_shown() -> None:
    assert "s3cret" not in repr(Credentials("alice", "s3cret", "s3cret"))
    assert Credentials("alice", "pä:ss").basic == "Basic " + base64.b64encode("alice:pä:ss".encode()).decode()
