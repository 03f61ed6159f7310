"""A whole federation on a real registry with scoped tokens: each site may write its own repository, CI the rest."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fedops.adapters.registry_credentials import Credentials
from fedops.adapters.store_registry import RegistryStore
from fedops.core.artifacts import update_annotations
from fedops.core.errors import StoreError
from fedops.core.ids import Digest, SiteId
from tests import cli_world
from tests.cli_world import EXAMPLES, SITES, STEPS, World, environment
from tests.registry.accounts import PASSWORDS, PATH, rights, sign_in
from tests.registry.proxy import Answer, FaultProxy, fault_proxy
from tests.registry.server import RegistryServer, registry_server
from tests.registry.tokens import TokenService
from tests.registry.worlds import registry_store
from tests.scenario.test_ci_jobs import Jobs


@dataclass(frozen=True)
class Fed:
    """A federation whose store is a registry; `proxy` stands before it and sees everything."""

    world: World
    proxy: FaultProxy
    server: RegistryServer
    service: TokenService

    @contextmanager
    def as_(self, who: str) -> Iterator[World]:
        """The environment of one of them; the lead makes v0 by CI's account."""
        with environment(**sign_in(self.service, who)):
            yield self.world

    def store(self, who: str) -> RegistryStore:
        credentials = Credentials(who, PASSWORDS[who])
        hosts = frozenset({self.service.host})
        return registry_store(self.proxy.host, lambda _: credentials, token_hosts=hosts, path=PATH)

    def hand_in(self, *sites: str) -> None:
        for site in sites:
            with self.as_(site) as world:
                world.hand_in(site)

    def reconcile(self) -> None:
        with self.as_("ci") as world:
            world("ci", "ci", "reconcile")

    def record(self, site: str) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.world.show(f"sites/{site}/submission.json"))
        return found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fed]:
    """At v0, with all sites on the roster."""
    folder = tmp_path_factory.mktemp("registry-federation")
    with (
        TokenService(PASSWORDS, rights()).running() as service,
        registry_server(folder / "registry", auth=service.auth(folder / "registry")) as server,
        fault_proxy(server.host) as proxy,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(cli_world, "INIT", (*cli_world.INIT, "--store", f"oci://{proxy.host}/{PATH}"))
        fed = Fed(World(folder / "world"), proxy, server, service)
        with fed.as_("lead"):
            cli_world.build(folder / "world")
        yield fed


@pytest.fixture(scope="module")
def fed(running: Fed) -> Fed:
    """At v2: two contributions each, and clinic-c's on v0 came late."""
    running.hand_in("hospital-a", "hospital-b")
    running.reconcile()
    running.hand_in("hospital-a", "clinic-c")
    running.reconcile()
    assert running.world.version()["version"] == 2
    return running


def test_anybody_pulls_a_version_and_an_auditor_verifies_all(fed: Fed) -> None:
    with fed.as_("hospital-b") as world:
        world("hospital-b", "pull")
        assert world.json("hospital-b", "verify", "--all")["ok"]


def test_the_registry_has_each_version_under_its_names(fed: Fed) -> None:
    version = fed.world.version()
    model = version["model"]
    with closing(registry_store(fed.proxy.host, token_hosts=frozenset({fed.service.host}), path=PATH)) as anybody:
        names = [f"v{version['version']}", f"md5-{model['md5']}", f"m-{model['manifest'].removeprefix('sha256:')}"]
        assert {anybody.resolve(f"global:{name}") for name in names} == {model["manifest"]}
        with pytest.raises(StoreError) as caught:
            anybody.manifest("archive", Digest(model["manifest"]))
        assert caught.value.cause == "auth"


@pytest.mark.parametrize("who", ["auditor", "anybody"])
def test_dvc_gets_a_version_by_address_and_tag_as_its_page_says(fed: Fed, tmp_path: Path, who: str) -> None:
    """Outside of any clone, by an account that may read all, and by nobody in particular."""
    number = {"auditor": 1, "anybody": 2}[who]
    tag, out = f"global@v{number}.0.0", tmp_path / "got.safetensors"
    words = ("dvc", "get", str(fed.world.origin), "global/model.safetensors", "--rev", tag, "-o", str(out))
    account = dict[str, str | None](sign_in(fed.service, "auditor"))
    if who == "anybody":
        account |= dict.fromkeys(("FEDOPS_REGISTRY_USERNAME", "FEDOPS_REGISTRY_PASSWORD"))
    # No clone says which registry the account is of.
    places = {"FEDOPS_REGISTRY_HOST": fed.proxy.host, "DVC_SITE_CACHE_DIR": str(tmp_path / "site-cache")}
    with environment(**account, **places):
        command = (sys.executable, "-m", "fedops.cli.main", *words)
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert hashlib.sha256(out.read_bytes()).hexdigest() == fed.world.version(tag)["model"]["sha256"]


def test_archive_has_what_was_used_and_took_no_bytes_for_it(fed: Fed) -> None:
    with closing(fed.store("ci")) as store:
        for site in ("hospital-a", "clinic-c"):
            assert (
                store.manifest("archive", Digest(fed.record(site)["manifest"])).layer.sha256
                == fed.record(site)["sha256"]
            )
    sent = [s for s in fed.proxy.seen if s.method == "PUT" and "/archive/blobs/" in s.path]
    assert sent == []


def test_no_password_went_anywhere_but_to_the_token_service(fed: Fed) -> None:
    kinds = {seen.headers.get("authorization", "none").partition(" ")[0] for seen in fed.proxy.seen}
    assert kinds == {"none", "Bearer"}


def test_a_command_signs_in_once_and_asks_little(fed: Fed) -> None:
    fed.proxy.seen.clear()
    fed.service.asked.clear()
    fed.reconcile()  # there is nothing to do
    tag = f"HEAD /v2/{PATH}/global/manifests/v{fed.world.version()['version']}"
    assert (fed.proxy.lines(), len(fed.service.asked)) == ([tag, tag], 1), "once without a token, once with it"
    fed.service.asked.clear()
    with fed.as_("hospital-a") as world:
        world("hospital-a", "verify", "--all")
    repositories = ("archive", "global", *(f"sites/{site}" for site in SITES))
    assert sorted(fed.service.asked) == sorted([f"repository:{PATH}/{name}:pull"] for name in repositories)
    assert len([seen for seen in fed.proxy.seen if "authorization" not in seen.headers]) == 2


def point_tags_elsewhere(fed: Fed, site: SiteId, evil: Path) -> Digest:
    """Let the tags of a site's submission name other bytes, with the site's own password; the other manifest's digest."""
    record = fed.record(site)
    with closing(fed.store(site)) as store:
        said = update_annotations(
            site=site,
            base_version=int(record["base_version"]),
            num_examples=int(record["num_examples"]),
            created_at=record["created_at"],
        )
        other = store.put(f"sites/{site}", evil, said).manifest
        name = f"{PATH}/sites/{site}"
        data = store._client.manifest(name, other)
        for tag in (f"md5-{record['md5']}", f"m-{record['manifest'].removeprefix('sha256:')}"):
            store._client.put_manifest(name, tag, data)
            assert store.resolve(f"sites/{site}:{tag}") == other
    return other


def test_tag_overwritten_after_the_version_changes_nothing(fed: Fed, tmp_path: Path) -> None:
    """Attack: the site points its tags at other bytes once its submission was used."""
    (tmp_path / "evil.safetensors").write_bytes(b"other bytes")
    point_tags_elsewhere(fed, SiteId("hospital-a"), tmp_path / "evil.safetensors")
    with fed.as_("ci") as world:
        assert world.json("ci", "verify", "--all")["ok"]


def test_tag_overwritten_between_merge_and_aggregation_changes_nothing(fed: Fed, tmp_path: Path) -> None:
    """Attack: the tags name a model that would pass every check, after the merge and before its bytes are read again."""
    evil_site, other_site = SiteId("hospital-a"), SiteId("hospital-b")
    before = fed.world.version()["version"]
    with fed.as_(evil_site) as world:
        world(evil_site, "pull", "--out", str(tmp_path / "before.safetensors"))
    fed.hand_in(evil_site, other_site)
    honest = load_file(tmp_path / "before.safetensors")
    save_file({n: a + np.float32(100) for n, a in honest.items()}, tmp_path / "evil.safetensors")
    jobs = Jobs(fed.world)
    with fed.as_("ci"):
        jobs.merge()
    record = fed.record(evil_site)
    assert (jobs.outputs["due"], record["base_version"]) == ("true", before)

    evil = point_tags_elsewhere(fed, evil_site, tmp_path / "evil.safetensors")

    fed.proxy.seen.clear()
    with fed.as_("ci") as world:
        jobs.run("aggregate", *jobs.pinned)
        jobs.run("publish", *jobs.pinned, "--proposal", jobs.outputs["proposal"])
        made = world.version()
        assert made["version"] == before + 1
        used = {c["site"]: (c["sha256"], c["manifest"]) for c in made["contributions"]}
        assert used[evil_site] == (record["sha256"], record["manifest"])
        assert evil not in json.dumps(made)
        read = [s.path for s in fed.proxy.seen if f"/sites/{evil_site}/manifests/" in s.path]
        assert read, "its manifest was looked up again"
        assert {path.rpartition("/")[2] for path in read} == {record["manifest"]}, "by digest alone"
        world("ci", "pull", "--out", str(tmp_path / "after.safetensors"))
        assert world.json("ci", "verify", "--all")["ok"]
    # FedAvg by hand: both sites trained on the version before, and one step adds the same to every value.
    sites = (evil_site, other_site)
    step = sum(EXAMPLES[s] * Fraction(STEPS[s]) for s in sites) / sum(EXAMPLES[s] for s in sites)
    after = load_file(tmp_path / "after.safetensors")
    for name, array in honest.items():
        np.testing.assert_allclose(after[name], array + float(step), rtol=1e-6)


def test_site_that_removes_its_bytes_after_the_merge_stops_nobody(fed: Fed, tmp_path: Path) -> None:
    """Attack: the site deletes what was used; the archive keeps it, since the blobs are lent, not linked."""
    record = fed.record("clinic-c")
    with closing(fed.store("clinic-c")) as site:
        assert site.drop("sites/clinic-c", Digest(record["manifest"]))
        with pytest.raises(StoreError):
            site.manifest("sites/clinic-c", Digest(record["manifest"]))
    with fed.as_("ci") as world:
        assert world.json("ci", "verify", "--all")["ok"]


def test_bytes_swapped_in_the_storage_are_found_by_verify(fed: Fed, tmp_path: Path) -> None:
    """Attack, by the registry's operator: a blob of the archive is exchanged behind its digest."""
    record = fed.record("hospital-b")
    blob = fed.server.blob(Digest(f"sha256:{record['sha256']}"))
    kept = tmp_path / "kept"
    shutil.copy2(blob, kept)
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.write_bytes(data)
    try:
        with fed.as_("ci") as world:
            found = world.json("ci", "verify", "--all", code=3)
    finally:
        shutil.copy2(kept, blob)
    assert "hash_mismatch" in json.dumps(found)
    assert hashlib.sha256(blob.read_bytes()).hexdigest() == record["sha256"]


def test_site_cannot_write_for_another(fed: Fed, tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"x")
    with closing(fed.store("hospital-a")) as site:
        for repository in ("sites/hospital-b", "global", "archive"):
            with pytest.raises(StoreError) as caught:
                site.put(repository, tmp_path / "x.safetensors", {})
            assert caught.value.cause == "auth"
            assert "password" not in caught.value.message


def test_registry_that_is_down_makes_no_version_and_the_next_run_does(fed: Fed) -> None:
    fed.hand_in("hospital-a", "hospital-b")
    before = fed.world.version()["version"]
    for method in ("GET", "HEAD"):
        fed.proxy.plan(method, "/v2/", Answer(503, {"Retry-After": "3600"}), times=10**6)
    with fed.as_("ci") as world:
        world("ci", "ci", "reconcile", code=5)
    assert fed.world.version()["version"] == before
    fed.proxy.mend()
    fed.reconcile()
    assert fed.world.version()["version"] == before + 1
