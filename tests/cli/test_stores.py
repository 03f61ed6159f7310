"""Which registry is told who we are, from what the environment says."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from fedops.adapters.registry_credentials import Credentials
from fedops.adapters.store_layout import LayoutStore
from fedops.adapters.store_registry import RegistryStore
from fedops.cli import wire
from fedops.cli.stores import Registries, registry_lookup
from fedops.core.errors import ConfigError
from tests.registry.proxy import FaultProxy, fault_proxy
from tests.registry.server import registry_server
from tests.registry.tokens import htpasswd

HOME, OWN = "oci://registry.example:5000/acme/fed", Credentials("alice", "s3cret")
SET = {"FEDOPS_REGISTRY_USERNAME": "alice", "FEDOPS_REGISTRY_PASSWORD": "s3cret"}
JOB = {"GITHUB_ACTIONS": "true", "GITHUB_TOKEN": "job token", "GITHUB_ACTOR": "bo"}


def test_password_in_the_environment_is_for_the_federations_registry_alone() -> None:
    lookup = registry_lookup(SET, HOME)
    assert lookup("registry.example:5000") == OWN
    assert [lookup(host) for host in ("registry.example", "evil.example", "ghcr.io")] == [None] * 3


def test_password_in_the_environment_may_be_for_another_host_that_is_named() -> None:
    lookup = registry_lookup(SET | {"FEDOPS_REGISTRY_HOST": "ghcr.io"}, HOME)
    assert (lookup("ghcr.io"), lookup("registry.example:5000")) == (OWN, None)
    assert registry_lookup(SET | {"FEDOPS_REGISTRY_HOST": "ghcr.io"}, None)("ghcr.io") == OWN


@pytest.mark.parametrize("home", [None, "ocidir:store"])
def test_password_for_no_known_host_is_refused(home: str | None) -> None:
    with pytest.raises(ConfigError, match="for which registry") as caught:
        registry_lookup(SET, home)
    assert (caught.value.slug, "FEDOPS_REGISTRY_HOST" in caught.value.hint) == ("credential_scope", True)
    with pytest.raises(ConfigError, match="for which registry") as caught:
        Registries(SET, home=home, clock=wire.SystemClock()).open("oci://registry.example:5000/fed")
    assert caught.value.hint.startswith(
        "export FEDOPS_REGISTRY_HOST=registry.example:5000 if it is for that one; else unset"
    )


@pytest.mark.parametrize("name", sorted(SET))
def test_half_of_a_user_and_password_is_a_mistake(name: str) -> None:
    with pytest.raises(ConfigError, match="not set") as caught:
        registry_lookup({name: "s3cret"}, HOME)
    assert "s3cret" not in caught.value.message


def test_docker_configuration_is_read_where_docker_has_it(tmp_path: Path, isolated_environment: Path) -> None:
    entry = {"auths": {"ghcr.io": {"auth": base64.b64encode(b"u:p").decode()}}}
    for folder, environ in (
        (isolated_environment / ".docker", dict[str, str]()),
        (tmp_path / "elsewhere", {"DOCKER_CONFIG": str(tmp_path / "elsewhere")}),
    ):
        folder.mkdir()
        assert registry_lookup(environ, HOME)("ghcr.io") is None
        (folder / "config.json").write_text(json.dumps(entry))
        assert registry_lookup(environ, HOME)("ghcr.io") == Credentials("u", "p")
        assert registry_lookup(environ | JOB, HOME)("ghcr.io") == Credentials("u", "p"), (
            "a log-in is meant, a job has none"
        )


@pytest.mark.parametrize(
    ("environ", "host", "found"),
    [
        (JOB, "ghcr.io", Credentials("bo", "job token")),
        (JOB | {"GITHUB_ACTOR": ""}, "ghcr.io", Credentials("github-actions", "job token")),
        (JOB | {"GITHUB_API_URL": "https://api.github.com"}, "ghcr.io", Credentials("bo", "job token")),
        (JOB | {"GITHUB_API_URL": "https://ghe.example/api/v3"}, "ghcr.io", None),
        (JOB, "ghcr.io.evil.example", None),
        (JOB | {"GITHUB_ACTIONS": "false"}, "ghcr.io", None),
        (JOB | {"GITHUB_TOKEN": ""}, "ghcr.io", None),
    ],
)
def test_token_of_a_job_is_for_its_own_forges_registry(
    environ: Mapping[str, str], host: str, found: Credentials | None
) -> None:
    assert registry_lookup(environ, None)(host) == found


def test_store_is_opened_once_and_closed_with_the_command() -> None:
    with closing(Registries({}, home=HOME, clock=wire.SystemClock())) as registries:
        store = registries.open(HOME)
        assert registries.open(HOME) is store
        assert registries.open("oci://ghcr.io/alice-a/fed") is not store


@pytest.mark.parametrize(
    "url", ["oci://GHCR.io/acme", "oci:///acme", "oci://u:p@ghcr.io/acme", "https://ghcr.io/acme", "x"]
)
def test_what_is_no_store_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must"):
        wire.store(url, relative_to=tmp_path)


def test_scheme_says_which_store_it_is(tmp_path: Path) -> None:
    assert isinstance(wire.store("ocidir:x", relative_to=tmp_path), LayoutStore)
    store = wire.store(HOME, relative_to=tmp_path)
    assert isinstance(store, RegistryStore)
    store.close()


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[FaultProxy]:
    folder = tmp_path / "locked"
    with (
        registry_server(folder, auth=htpasswd(folder, {"alice": "s3cret"})) as server,
        fault_proxy(server.host) as proxy,
    ):
        yield proxy


def test_whole_way_from_the_environment_to_the_registry(
    locked: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SET.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "x.safetensors").write_bytes(b"x")
    url = f"oci://{locked.host}/acme/fed"
    with closing(wire.registries_of(url)) as registries:
        store = wire.store(url, relative_to=tmp_path, registries=registries)
        put = store.put("sites/hospital-a", tmp_path / "x.safetensors", {})
        assert (
            wire.store(url, relative_to=tmp_path, registries=registries).manifest("sites/hospital-a", put.manifest)
            == put
        )
    assert len([seen for seen in locked.seen if "authorization" not in seen.headers]) == 1
