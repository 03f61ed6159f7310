"""`fedops init`: what it writes, that it overwrites nothing, and that a killed run is finished by the next."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fedops.app.first_model import Generated
from fedops.app.init import init, recreate
from fedops.app.snapshot import main_snapshot
from fedops.core.errors import ConfigError, GitError, StoreError
from fedops.core.facts import RefUpdate
from fedops.core.records import model_pointer, render_pointer
from tests.founding_world import SPECS, World, Wrapped, founded_world, make_world, wanted


class KilledError(Exception):
    """Stands for a kill at this step."""


def kill(*_: object, **__: object) -> None:
    raise KilledError


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def found(world: World, **changes: Any) -> Any:
    with world.ground() as ground:
        return init(ground, wanted(**changes))


def slugs(founded: Any) -> list[tuple[str, str]]:
    return [(f.slug, f.where) for f in founded.findings]


# ---------------------------------------------------------------- what is written


def test_init_pushes_one_commit_and_its_tag(world: World) -> None:
    founded = found(world)
    assert world.git("rev-list", "--count", "main") == "1"
    assert world.refs()["refs/heads/main"] == founded.commit == world.git("rev-parse", "global@v0.0.0^{commit}")
    assert world.git("log", "-1", "--format=%s", "main") == "global: v0 (init)"
    assert world.git("cat-file", "-t", "global@v0.0.0") == "tag"
    assert sorted(map(str, founded.written)) == world.paths()


def test_the_record_of_v0_says_what_the_store_and_the_tree_hold(world: World) -> None:
    found(world)
    record = json.loads(world.show("global/version.json"))
    assert (record["version"], record["base_version"], record["kind"]) == (0, None, "init")
    assert record["source"] == {"generator": "normal", "seed": 5}
    assert record["witness"]["decided_at"] == "2026-03-02T10:00:00Z"
    model = record["model"]
    blobs = world.store_folder / "global" / "blobs" / "sha256"
    data = (blobs / model["sha256"]).read_bytes()
    assert (hashlib.sha256(data).hexdigest(), hashlib.md5(data).hexdigest(), len(data)) == (
        model["sha256"],
        model["md5"],
        model["size"],
    )
    manifest = (blobs / model["manifest"].removeprefix("sha256:")).read_bytes()
    assert json.loads(manifest)["annotations"] == {"fl.version": "0"}
    assert world.store().resolve("global:v0") == model["manifest"]
    lines = b""
    for path in sorted(p for p in world.paths() if p.startswith("policies/") or p == "federation.yaml"):
        lines += f"{hashlib.sha256(world.show(path)).hexdigest()}  {path}\n".encode()
    assert record["policy"] == "sha256:" + hashlib.sha256(lines).hexdigest()


def test_the_pointer_and_the_metrics_are_those_of_the_record(world: World) -> None:
    founded = found(world)
    assert world.show("global/model.safetensors.dvc") == render_pointer(model_pointer(founded.record, "safetensors"))
    assert json.loads(world.show("global/metrics.json")) == {}


def test_a_model_file_is_stored_in_canonical_bytes(world: World, tmp_path: Path) -> None:
    arrays = {"coef": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array(3, dtype=np.int64)}
    np.savez(tmp_path / "first.npz", **arrays)  # type: ignore[arg-type]  # numpy's stub takes no mapping of arrays
    save_file(arrays, tmp_path / "reference.safetensors")
    founded = found(world, model=tmp_path / "first.npz")
    assert founded.record.source is None
    assert founded.record.model.sha256 == hashlib.sha256((tmp_path / "reference.safetensors").read_bytes()).hexdigest()
    assert founded.record.model.tensors["coef"].shape == (2, 3)


def test_metadata_of_a_model_file_is_dropped_with_a_warning(world: World, tmp_path: Path) -> None:
    save_file({"a": np.zeros(1)}, tmp_path / "m.safetensors", metadata={"who": "me"})
    founded = found(world, model=tmp_path / "m.safetensors")
    assert slugs(founded) == [("metadata_dropped", str(tmp_path / "m.safetensors"))]
    blob = world.store_folder / "global" / "blobs" / "sha256" / founded.record.model.sha256
    assert list(load_file(blob)) == ["a"]


def test_a_model_with_nan_founds_nothing(world: World, tmp_path: Path) -> None:
    save_file({"a": np.array([1.0, np.nan])}, tmp_path / "m.safetensors")
    founded = found(world, model=tmp_path / "m.safetensors")
    assert founded.record is None
    assert [slug for slug, _ in slugs(founded)] == ["non_finite"]
    assert world.refs() == {}


def test_a_file_that_is_no_model_founds_nothing(world: World, tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(b"hello")
    founded = found(world, model=tmp_path / "m.safetensors")
    assert founded.record is None
    assert founded.findings
    assert world.refs() == {}


def test_a_model_file_that_is_not_there_is_a_wrong_command(world: World, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        found(world, model=tmp_path / "nothing.npz")


def test_without_a_model_nothing_is_founded(world: World) -> None:
    with pytest.raises(ConfigError, match="exactly one of --model"):
        found(world, model=None)


def test_a_dry_run_says_what_would_be_written_and_writes_nothing(world: World) -> None:
    with world.ground() as ground:
        founded = init(ground, wanted(), dry_run=True)
    assert founded.changed
    assert founded.commit is None
    assert world.refs() == {}
    assert list(world.store_folder.iterdir()) == []
    assert sorted(found(world).written) == list(founded.written)


# ---------------------------------------------------------------- what is there already


def test_a_second_run_changes_nothing(world: World) -> None:
    first = found(world)
    before = world.refs()
    world.clock.sleep(3600)
    again = found(world)
    assert (again.changed, again.commit, again.written, again.findings) == (False, first.commit, (), ())
    assert world.refs() == before
    assert found(world, model=None).changed is False


def test_a_readme_that_is_there_stays_and_is_reported(world: World) -> None:
    world.commit({"README.md": b"ours\n"})
    founded = found(world)
    assert slugs(founded) == [("file_kept", "README.md")]
    assert world.show("README.md") == b"ours\n"
    assert "README.md" not in founded.written
    assert world.git("rev-list", "--count", "main") == "2"


def test_a_file_that_is_there_with_the_same_bytes_is_not_worth_a_word(world: World) -> None:
    world.commit({".dvc/.gitignore": b"/config.local\n/tmp\n/cache\n"})
    assert found(world).findings == ()


def test_a_policy_that_cannot_be_read_stops_init(world: World) -> None:
    world.commit({"policies/aggregation.yaml": b"schema: fedops.aggregation/v1\ntrigger: {quorum: none}\n"})
    before = world.refs()
    founded = found(world)
    assert founded.record is None
    assert ("policy_invalid", "policies/aggregation.yaml") in slugs(founded)
    assert world.refs() == before


def test_a_policy_of_the_leads_own_enters_the_digest(world: World) -> None:
    own = b"schema: fedops.aggregation/v1\ntrigger: {quorum: 7}\n"
    world.commit({"policies/aggregation.yaml": own})
    founded = found(world)
    assert slugs(founded) == [("file_kept", "policies/aggregation.yaml")]
    assert world.show("policies/aggregation.yaml") == own
    with world.ground() as ground:
        ground.repository.fetch()
        main = main_snapshot(ground.repository)
        assert main.policy == founded.record.policy
        assert main.aggregation.trigger.quorum == 7


def test_an_existing_federation_yaml_and_roster_decide_what_the_new_files_say(world: World) -> None:
    world.commit(
        {
            "federation.yaml": (
                b'schema: fedops.federation/v1\nname: theirs\nfedops: "0.1.0"\n'
                b'forge: {kind: github, repository: acme/fed}\nstore: {url: "ocidir:store"}\n'
            ),
            "policies/sites.yaml": (
                b"schema: fedops.sites/v1\nleads: [{login: mia, id: 9}]\n"
                b"sites: {s1: {accounts: [{login: x, id: 5}], store: 'oci://h/x'}}\n"
            ),
        }
    )
    found(world)
    assert b"# theirs" in world.show("README.md")
    assert b"github.repository == 'acme/fed'" in world.show(".github/workflows/reconcile.yml")
    assert b"/policies/ @mia" in world.show(".github/CODEOWNERS")
    assert b"oci://h/x/sites/s1" in world.show(".dvc/config")


def test_an_opaque_federation_is_not_founded_by_init(world: World) -> None:
    world.commit(
        {
            "federation.yaml": (
                b'schema: fedops.federation/v1\nname: f\nfedops: "0.1.0"\nstore: {url: "ocidir:s"}\n'
                b"model: {format: opaque}\n"
            )
        }
    )
    with pytest.raises(ConfigError, match="opaque -> safetensors"):
        found(world)


def test_a_policy_that_is_only_in_the_work_tree_is_not_passed_over(world: World) -> None:
    (world.clone / "policies").mkdir()
    (world.clone / "policies" / "training.yaml").write_text("mine\n")
    founded = found(world)
    assert founded.record is None
    assert ("policy_invalid", "policies/training.yaml") in slugs(founded)
    assert (world.clone / "policies" / "training.yaml").read_text() == "mine\n"


def test_other_files_of_the_work_tree_are_left_out_of_the_commit(world: World) -> None:
    (world.clone / "README.md").symlink_to("/dev/null")
    founded = found(world)
    assert slugs(founded) == [("file_kept", "README.md")]
    assert "README.md" not in world.paths()
    assert (world.clone / "README.md").is_symlink()


def test_a_global_model_of_another_origin_stops_init(world: World) -> None:
    world.commit({"global/metrics.json": b'{"loss": 1}\n'})
    founded = found(world)
    assert founded.record is None
    assert slugs(founded) == [("policy_invalid", "global/metrics.json")]


def test_a_tag_of_an_earlier_federation_stops_init(world: World) -> None:
    world.commit({"x": b"1"})
    world.git("tag", "global@v0.0.0", "main")
    with pytest.raises(ConfigError, match=r"main has no global/version\.json"):
        found(world)


def test_changed_files_of_a_federation_are_reported_and_left(world: World) -> None:
    found(world)
    world.commit({"README.md": b"ours\n"})
    again = found(world)
    assert slugs(again) == [("file_kept", "README.md")]
    assert again.changed is False
    assert world.show("README.md") == b"ours\n"


# ---------------------------------------------------------------- kills and races


@pytest.mark.parametrize("step", ["put", "write_commit", "write_tag", "push", "tag"])
def test_a_run_killed_at_any_step_is_finished_by_the_next(world: World, step: str) -> None:
    on_store = step in ("put", "tag")
    store: Any = Wrapped(world.store(), **{step: kill}) if on_store else world.store()
    with (
        pytest.raises(KilledError),
        world.ground(store=store, wrap=lambda r: r if on_store else Wrapped(r, **{step: kill})) as ground,
    ):
        init(ground, wanted())
    published = step == "tag"
    assert ("refs/heads/main" in world.refs()) is published
    assert ("refs/tags/global@v0.0.0" in world.refs()) is published
    done = found(world)
    assert done.changed
    assert world.git("rev-list", "--count", "main") == "1"
    assert world.store().resolve("global:v0") == done.record.model.manifest
    assert found(world).changed is False


def racing(world: World, times: int, rival: Any) -> Any:
    """A repository whose first pushes are each preceded by somebody else's."""
    left = [times]

    def wrap(repository: Any) -> Any:
        def push(updates: list[RefUpdate]) -> bool:
            if left[0]:
                left[0] -= 1
                rival()
            return bool(repository.push(updates))

        return Wrapped(repository, push=push)

    return wrap


def test_a_lost_race_against_an_ordinary_push_is_tried_again_on_top(world: World) -> None:
    with world.ground(wrap=racing(world, 1, lambda: world.commit({"notes.txt": b"hi\n"}))) as ground:
        founded = init(ground, wanted())
    assert world.show("notes.txt") == b"hi\n"
    assert world.git("rev-list", "--count", "main") == "2"
    assert world.git("rev-parse", "global@v0.0.0^{commit}") == founded.commit


def test_of_two_leads_who_init_at_once_one_wins_and_the_other_sees_it(world: World) -> None:
    theirs: list[Any] = []
    other = Generated("normal", 6, SPECS)
    with world.ground(wrap=racing(world, 1, lambda: theirs.append(found(world, model=other)))) as ground:
        founded = init(ground, wanted())
    assert founded.commit == theirs[0].commit
    assert founded.changed is False
    assert json.loads(world.show("global/version.json"))["source"]["seed"] == 6
    assert world.git("rev-list", "--count", "main") == "1"


def test_a_race_that_is_always_lost_ends_as_temporary(world: World) -> None:
    count = iter(range(9))
    with (
        world.ground(wrap=racing(world, 9, lambda: world.commit({"n": str(next(count)).encode()}))) as ground,
        pytest.raises(GitError) as caught,
    ):
        init(ground, wanted())
    assert caught.value.cause == "temporary"
    assert "refs/tags/global@v0.0.0" not in world.refs()


def test_a_store_that_makes_another_manifest_is_not_believed(world: World) -> None:
    inner = world.store()

    def put(repository: str, file: Path, annotations: Any, config: bytes = b"{}") -> Any:
        return inner.put(repository, file, {**annotations, "extra": "1"}, config)

    with (
        world.ground(store=Wrapped(inner, put=put)) as ground,
        pytest.raises(StoreError, match="another manifest"),
    ):
        init(ground, wanted())
    assert world.refs() == {}


# ---------------------------------------------------------------- bytes again


def recreated(world: World, *, dry_run: bool = False) -> bool:
    with world.context() as ctx:
        ctx.repository.fetch()
        return recreate(ctx, main_snapshot(ctx.repository), dry_run=dry_run)


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def lose_store(world: World) -> None:
    world.store_folder.rename(world.folder / "lost")
    world.store_folder.mkdir()


def test_a_lost_store_gets_the_generated_v0_back_byte_for_byte(tmp_path: Path) -> None:
    world = founded_world(tmp_path)
    before = contents(world.store_folder)
    lose_store(world)
    assert recreated(world, dry_run=True) is True
    assert contents(world.store_folder) == {}
    assert recreated(world) is True
    assert contents(world.store_folder) == before
    assert recreated(world) is False


def test_a_damaged_v0_is_put_back(tmp_path: Path) -> None:
    world = founded_world(tmp_path)
    before = contents(world.store_folder)
    sha256 = json.loads(world.show("global/version.json"))["model"]["sha256"]
    blob = world.store_folder / "global" / "blobs" / "sha256" / sha256
    blob.chmod(0o600)
    blob.write_bytes(b"x" * blob.stat().st_size)
    assert recreated(world) is True
    assert contents(world.store_folder) == before


def test_a_moved_store_tag_is_set_back(tmp_path: Path) -> None:
    world = founded_world(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"other bytes")
    other = world.store().put("global", tmp_path / "model.safetensors", {})
    world.store().tag("global", other.manifest, "v0")
    assert recreated(world, dry_run=True) is True
    assert world.store().resolve("global:v0") == other.manifest
    assert recreated(world) is True
    assert world.store().resolve("global:v0") == json.loads(world.show("global/version.json"))["model"]["manifest"]


def test_bytes_that_came_from_a_file_cannot_be_made_again(world: World, tmp_path: Path) -> None:
    save_file({"a": np.zeros(1)}, tmp_path / "m.safetensors")
    found(world, model=tmp_path / "m.safetensors")
    lose_store(world)
    with pytest.raises(StoreError) as caught:
        recreated(world)
    assert caught.value.slug == "object_missing"


def rewritten(tmp_path: Path, old: bytes, new: bytes) -> World:
    """A world whose first commit has another record of the current version, and whose store is empty."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    there = founded_world(tmp_path / "a")
    files = {p: there.show(p) for p in there.paths()}
    files["global/version.json"] = files["global/version.json"].replace(old, new)
    world = make_world(tmp_path / "b")
    world.commit(files)
    return world


def test_a_record_whose_seed_was_changed_is_not_taken_for_its_bytes(tmp_path: Path) -> None:
    world = rewritten(tmp_path, b'"seed": 5', b'"seed": 6')
    with pytest.raises(ConfigError, match="seed 6 gives"):
        recreated(world)
    assert contents(world.store_folder) == {}


def test_a_history_without_v0_has_nothing_to_make_again(tmp_path: Path) -> None:
    assert recreated(rewritten(tmp_path, b'"version": 0', b'"version": 1')) is False


def test_a_broken_store_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    world = founded_world(tmp_path)
    world.store_folder.rename(tmp_path / "lost")
    with pytest.raises(StoreError) as caught:
        recreated(world)
    assert caught.value.slug == "registry_unavailable"
