"""A store's folder that is there and empty, as the mount point of a disk that is not mounted: it is not taken for the store."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from fedops.adapters.store_layout import LayoutStore
from fedops.app.founded import has_models
from fedops.cli.wire import repository
from fedops.core.errors import StoreError
from fedops.core.ids import digest_of_hex
from tests.cli_world import World, begun, fresh

NOT_MOUNTED = "is its disk not mounted?"


@pytest.fixture
def world(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    """At v1, with hospital-a's and hospital-b's updates used, and one that clinic-c trained on v0."""
    world = fresh(begun, tmp_path_factory.getbasetemp(), tmp_path / "world")
    world("ci", "ci", "reconcile")
    assert world.version()["version"] == 1
    return world


def unmount(world: World) -> Path:
    """Take the disk away; gives where it is."""
    away = world.folder / "away"
    (world.origin / "store").rename(away)
    (world.origin / "store").mkdir()
    return away


def mount(world: World, away: Path) -> None:
    (world.origin / "store").rmdir()  # fails if anything was written into the mount point
    away.rename(world.origin / "store")


@pytest.mark.parametrize(
    ("who", "command"),
    [
        ("hospital-a", ("pull",)),
        ("lead", ("verify",)),
        ("lead", ("verify", "v0")),
        ("ci", ("ci", "reconcile")),
        ("ci", ("ci", "audit")),
        ("clinic-c", ("submit",)),
        ("hospital-a", ("run", "--once", "--client", "ours:Ours")),
    ],
)
def test_a_command_that_needs_it_says_so_and_may_be_repeated(who: str, command: tuple[str, ...], world: World) -> None:
    away = unmount(world)
    ran = world(who, *command, code=5)
    error, hint = ran.err.splitlines()[-2:]
    assert f"{world.origin / 'store'}: cannot " in error
    assert f"the store's folder is empty, and main has versions: {NOT_MOUNTED}" in error
    assert hint.startswith("  hint: mount it, then repeat the command; nothing was lost")
    mount(world, away)
    world(who, *command)


def test_no_submission_is_judged_by_it(world: World) -> None:
    number = world.json("clinic-c", "submit")["pull"]
    away = unmount(world)
    told = world("ci", "ci", "inspect", "--pull", str(number), code=5).out
    assert ("pending" in told, NOT_MOUNTED in told) == (True, True)
    world("ci", "ci", "reconcile", code=5)
    mount(world, away)
    assert "merged" in world("ci", "ci", "reconcile").out


def test_the_document_names_the_cause(world: World) -> None:
    unmount(world)
    error = world.json("hospital-a", "pull", code=5)["error"]
    assert (error["slug"], error["cause"]) == ("store_empty", "temporary")


def test_doctor_calls_it_broken(world: World) -> None:
    unmount(world)
    assert NOT_MOUNTED in world("lead", "doctor", code=3).out


def test_one_model_that_is_gone_from_a_whole_store_is_what_it_was(world: World) -> None:
    digest = world.version()["model"]["sha256"]
    (world.origin / "store/global/blobs/sha256" / digest).unlink()
    ran = world.json("lead", "verify", code=3)
    assert "object_missing" in {f["slug"] for f in ran["findings"]} | {
        f["slug"] for row in ran["versions"] for f in row.get("findings", [])
    }


def test_a_folder_with_other_things_in_it_is_told_too(world: World) -> None:
    unmount(world)
    (world.origin / "store" / "lost+found").mkdir()
    assert f"has no global/oci-layout, and main has versions: {NOT_MOUNTED}" in world("lead", "verify", code=5).err


def test_a_store_that_was_copied_without_its_index_is_no_empty_one(world: World) -> None:
    (world.origin / "store/global/index.json").unlink()
    model = world.version()["model"]
    pulled = Path(world.json("hospital-a", "pull")["path"])
    assert hashlib.sha256((world.clone("hospital-a") / pulled).read_bytes()).hexdigest() == model["sha256"]


def test_a_first_version_that_a_generator_makes_need_not_be_there(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    world = fresh(begun, tmp_path_factory.getbasetemp(), tmp_path / "world")
    shutil.rmtree(world.origin / "store" / "global")
    shutil.rmtree(world.clone("hospital-a") / ".fedops" / "cache")
    world("hospital-a", "pull")
    with repository(world.clone("lead")) as repo:
        assert not has_models(repo, "ocidir:store")


def test_only_the_federations_own_store_must_have_its_models(world: World) -> None:
    with repository(world.clone("lead")) as repo:
        repo.fetch()
        assert has_models(repo, "ocidir:store")
        assert not has_models(repo, "ocidir:of-a-site")
    world.edit("global/version.json", lambda text: "{", "by hand")
    with repository(world.clone("lead")) as repo:
        repo.fetch()
        assert not has_models(repo, "ocidir:store"), "of main nothing can be said"


def test_who_founds_a_store_may_find_it_empty(tmp_path: Path) -> None:
    asked: list[str] = []

    def empty() -> bool:
        asked.append("is it founded?")
        return False

    store = LayoutStore(tmp_path, has_models=empty)
    (tmp_path / "a.safetensors").write_bytes(b"model")
    with pytest.raises(StoreError) as e:
        store.manifest("global", digest_of_hex("0" * 64))
    assert (e.value.slug, len(asked)) == ("object_missing", 1)
    stored = store.put("global", tmp_path / "a.safetensors", {})
    count = len(asked)
    assert store.manifest("global", stored.manifest).layer == stored.layer
    assert len(asked) == count, "what is there answers for itself"
