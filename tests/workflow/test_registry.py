"""`fedops local` with models in a real registry that asks for a password: jobs have it of the secrets alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import cli_world
from tests.cli_world import World, environment
from tests.registry.accounts import PASSWORDS, PATH
from tests.registry.proxy import FaultProxy, fault_proxy
from tests.registry.server import registry_server
from tests.registry.tokens import htpasswd
from tests.workflow.runs import rows


def account(who: str) -> Mapping[str, str]:
    return {"FEDOPS_REGISTRY_USERNAME": who, "FEDOPS_REGISTRY_PASSWORD": PASSWORDS[who]}


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[FaultProxy]:
    folder = tmp_path / "registry"
    with registry_server(folder, auth=htpasswd(folder, PASSWORDS)) as server, fault_proxy(server.host) as running:
        yield running


@contextmanager
def signed_in(who: str) -> Iterator[None]:
    with environment(**account(who)):
        yield


@pytest.fixture
def world(act: Path, proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """At v0, made by CI's account; two sites have handed in, each by its own."""
    monkeypatch.setattr(cli_world, "INIT", (*cli_world.INIT, "--store", f"oci://{proxy.host}/{PATH}"))
    with signed_in("ci"):
        made = cli_world.build(tmp_path / "world")
    for site in ("hospital-a", "hospital-b"):
        with signed_in(site):
            made.hand_in(site)
    return made


@pytest.mark.long
@pytest.mark.slow
def test_a_registry_with_a_password_is_signed_in_at_by_the_secrets(
    world: World, proxy: FaultProxy, tmp_path: Path
) -> None:
    """Two runs of validate, which have no password, one of reconcile (about 5 s), and an audit."""
    secrets = tmp_path / "secrets"
    secrets.write_text(f"FEDOPS_REGISTRY_PASSWORD={PASSWORDS['ci']}\n")
    secrets.chmod(0o600)
    settings = ("--secret-file", str(secrets), "--var", "FEDOPS_REGISTRY_USERNAME=ci")
    proxy.seen.clear()
    # A run of validate has nothing to say where the public may read nothing; that holds nobody up.
    runs = world.json("lead", "local", "up", "--once", *settings, code=3)
    assert rows(runs) == [
        ("validate.yml", "pull_request #1", "failure"),
        ("validate.yml", "pull_request #2", "failure"),
        ("reconcile.yml", "workflow_run", "replaced"),
        ("reconcile.yml", "workflow_run", "success"),
    ]
    record = world.version()
    assert (record["version"], [c["site"] for c in record["contributions"]]) == (1, ["hospital-a", "hospital-b"])
    audit = ("local", "run", "workflow_dispatch", "--workflow", "audit.yml")
    assert world.json("lead", *audit, *settings)["ok"]
    assert not world.json("lead", *audit, code=3)["ok"], "without the secrets the archive cannot be read"
    logs = "".join(path.read_text() for path in (world.origin / "fedops-local").rglob("*") if path.is_file())
    assert PASSWORDS["ci"] not in logs
    users = {seen.headers.get("authorization", "none").partition(" ")[0] for seen in proxy.seen}
    assert users == {"none", "Basic"}
