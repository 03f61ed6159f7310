from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedops.adapters.model_files import ModelFiles
from fedops.app.first_model import Generated, first_model
from fedops.app.pull import pull
from fedops.app.work import Work
from fedops.core.errors import ConfigError, StoreError
from fedops.core.facts import TensorSpec
from fedops.core.ids import Digest, digest_of_hex
from tests.core.samples import version
from tests.fakes_store import FakeStore
from tests.site_world import BASE, World, first, memory_world, moved

A = "hospital-a"
NEXT = moved(1)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return memory_world(tmp_path)


def get(world: World, **wanted: Any) -> Any:
    return pull(world.ctx(A), world.root(A), **wanted)


def store(world: World) -> FakeStore:
    assert isinstance(world.store, FakeStore)
    return world.store


def test_the_current_versions_model_lies_in_its_work_folder(world: World) -> None:
    world.publish(version(1), NEXT)
    got = get(world)
    assert (got.record.version, got.current, got.status) == (1, 1, "running")
    assert got.path == world.root(A) / ".fedops/versions/v1/model.safetensors"
    assert hashlib.sha256(got.path.read_bytes()).hexdigest() == got.record.model.sha256
    np.testing.assert_array_equal(load_file(got.path)["weight"], NEXT["weight"])
    assert got.changed
    assert got.downloaded


def test_pulling_twice_changes_nothing_and_downloads_nothing(world: World) -> None:
    first_time = get(world)
    before = {p: p.stat().st_mtime_ns for p in (world.root(A) / ".fedops").rglob("*")}
    again = get(world)
    assert (first_time.changed, again.changed, again.downloaded) == (True, False, False)
    assert {p: p.stat().st_mtime_ns for p in (world.root(A) / ".fedops").rglob("*")} == before
    assert store(world).calls["get"] == 1
    assert [line["step"] for line in Work(world.root(A)).noted()] == ["pulled"]


def test_an_older_version_comes_from_its_own_record(world: World) -> None:
    world.publish(version(1), NEXT)
    got = get(world, number=0)
    assert (got.record.version, got.current) == (0, 1)
    np.testing.assert_array_equal(load_file(got.path)["weight"], BASE["weight"])


def test_what_main_says_counts_also_when_a_tag_says_otherwise(world: World) -> None:
    # v1 has no tag, and somebody's clone has tags of its own: the record on main is the authority.
    world.publish(version(1), NEXT, tag=False)
    assert get(world).record.version == 1
    world.publish(version(2), BASE)
    assert get(world, number=1).record.version == 1


@pytest.mark.parametrize("number", [1, 99])
def test_a_version_that_is_not_there_is_refused(number: int, world: World) -> None:
    with pytest.raises(ConfigError, match=rf"v{number}: no such version on main -> v0 … v0"):
        get(world, number=number)


def test_a_copy_goes_where_the_caller_says(world: World, tmp_path: Path) -> None:
    out = tmp_path / "models" / "v0.safetensors"
    got = get(world, out=out)
    assert got.out == out
    assert out.read_bytes() == got.path.read_bytes()
    assert not out.samefile(got.path)  # what its owner does with it must not reach the cache
    assert not get(world, out=out).changed
    out.write_bytes(b"something else")
    assert get(world, out=out).changed
    assert out.read_bytes() == got.path.read_bytes()


def test_a_folder_is_no_place_for_the_copy(world: World, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a folder -> the name of a file"):
        get(world, out=tmp_path)


def test_a_model_that_was_changed_in_the_clone_is_fetched_again(world: World) -> None:
    got = get(world)
    good = got.path.read_bytes()
    got.path.write_bytes(good[:-1] + b"\0")  # the same file as in the cache, by its hard link
    again = get(world)
    assert again.path.read_bytes() == good
    assert again.downloaded
    assert Work(world.root(A)).cached(got.record.model.sha256).read_bytes() == good


def test_without_hard_links_the_model_is_copied(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path, target: Path) -> None:
        raise OSError("not on this disk")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    got = get(world)
    assert got.path.read_bytes() == Work(world.root(A)).cached(got.record.model.sha256).read_bytes()
    assert got.path.stat().st_nlink == 1
    assert not get(world).changed


def test_a_final_federation_is_told_apart(world: World) -> None:
    world.publish(version(1, status="final"), NEXT)
    assert get(world).status == "final"
    assert get(world, number=0).status == "final"  # of the federation, not of that version


def test_bytes_that_are_not_the_records_are_refused_and_nothing_is_left(world: World) -> None:
    sha256 = first_sha256(world)
    store(world).damage("global", digest_of_hex(sha256))
    with pytest.raises(StoreError) as e:
        get(world)
    assert e.value.slug == "hash_mismatch"
    assert not Work(world.root(A)).cached(sha256).exists()
    assert Work(world.root(A)).noted() == ()


def test_a_manifest_of_another_model_is_refused(world: World) -> None:
    other = world.put_model(NEXT, 7)
    record = version(1)
    model = world.put_model(BASE, 1).model_copy(update={"manifest": other.manifest})
    # As a forged record would: the digests of one model, the manifest of another.
    world.put_model = lambda arrays, number: model  # type: ignore[method-assign]
    world.publish(record)
    with pytest.raises(StoreError) as e:
        get(world)
    assert e.value.slug == "digest_mismatch"


def test_lost_bytes_of_a_version_that_was_not_generated_are_an_error(world: World) -> None:
    store(world).lose("global", digest_of_hex(first_sha256(world)))
    with pytest.raises(StoreError) as e:
        get(world)
    assert e.value.slug == "object_missing"


def test_lost_bytes_of_a_generated_first_model_are_made_again(world: World, tmp_path: Path) -> None:
    specs = {"w": TensorSpec("F32", (4, 2))}
    made, _ = first_model(ModelFiles(), Generated("normal", 3, specs), tmp_path)
    assert made is not None
    assert made.source is not None
    world.put_model = lambda arrays, number: made.entry  # type: ignore[method-assign]
    world.publish(first(1).model_copy(update={"source": made.source}))  # never uploaded
    got = get(world)
    assert got.path.read_bytes() == made.path.read_bytes()
    assert got.downloaded


def test_a_broken_store_is_not_taken_for_a_missing_model(world: World) -> None:
    store(world).fail_next("manifest", StoreError("store: not mounted", cause="temporary"))
    with pytest.raises(StoreError, match="not mounted"):
        get(world)


def first_sha256(world: World) -> str:
    """Digest of v0's bytes, from its record."""
    from fedops.app.snapshot import main_snapshot

    world.repositories[A].fetch()
    return main_snapshot(world.repositories[A]).version.model.sha256


def test_the_manifest_is_asked_for_by_digest(world: World) -> None:
    # A display tag that was moved to another model changes nothing.
    other = world.put_model(NEXT, 7)
    world.store.tag("global", Digest(other.manifest), "v0")
    np.testing.assert_array_equal(load_file(get(world).path)["weight"], BASE["weight"])
