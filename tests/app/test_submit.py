from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from fedops.adapters.model_writer import save_arrays
from fedops.app.inspect import inspect_pull
from fedops.app.offer import Wanted
from fedops.app.pull import pull
from fedops.app.snapshot import main_snapshot
from fedops.app.submit import Refused, Submitted, submit
from fedops.app.train import LastVersion
from fedops.app.verdict_cache import BytesMemory
from fedops.app.work import Trained, Work, write_document
from fedops.core.errors import ConfigError, ForgeError, GitError, StoreError
from fedops.core.facts import Artifact, RefUpdate
from fedops.core.ids import CommitId, Digest, RepoPath, SiteId, digest_of_hex, record_path
from tests.core.samples import version
from tests.fakes_repository import FakeRepository
from tests.fakes_store import FakeStore
from tests.site_world import BASE, World, git_world, memory_world, moved

A = SiteId("hospital-a")
B = SiteId("hospital-b")
TRAINED = moved(1)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return memory_world(tmp_path)


@pytest.fixture(params=["memory", "git"])
def each_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    world = memory_world(tmp_path) if request.param == "memory" else git_world(tmp_path)
    yield world
    world.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A trained model, as a site's own code would save it."""
    path = tmp_path / "mine.safetensors"
    save_file(dict(TRAINED), path)
    return path


def call(
    world: World, file: Path | None, *, dry_run: bool = False, site: SiteId = A, **wanted: Any
) -> Submitted | LastVersion | Refused:
    facts: dict[str, Any] = {"num_examples": 150, "metrics": {"loss": 0.31}} if file is not None else {}
    key = wanted.pop("key", world.key(site))
    return submit(
        world.ctx(site),
        world.root(site),
        Wanted(**{"site": site, "file": file} | facts | wanted),
        key=key,
        dry_run=dry_run,
    )


def done(world: World, file: Path | None, **wanted: Any) -> Submitted:
    got = call(world, file, **wanted)
    assert isinstance(got, Submitted), got
    return got


def slugs(world: World, file: Path | None, **wanted: Any) -> list[str]:
    """Why it was refused; nothing may have left."""
    uploads, pulls = store(world).calls["put"], world.forges["lena"].open_pulls()
    got = call(world, file, **wanted)
    assert isinstance(got, Refused), got
    assert store(world).calls["put"] == uploads
    assert world.forges["lena"].open_pulls() == pulls
    assert all(line["step"] not in ("stored", "submitted") for line in work(world).noted())
    return [f.slug for f in got.findings]


def store(world: World) -> FakeStore:
    assert isinstance(world.store, FakeStore)
    return world.store


def work(world: World, site: SiteId = A) -> Work:
    return Work(world.root(site))


def steps(world: World) -> list[str]:
    return [line["step"] for line in work(world).noted()]


def put_training(world: World, number: int = 0, arrays: Mapping[str, NDArray[Any]] = TRAINED, site: SiteId = A) -> Path:
    """A finished training, as `train` leaves it."""
    here = work(world, site)
    here.version(number).mkdir(parents=True, exist_ok=True)
    sha256, _, size = save_arrays(here.update(number), arrays)
    said = Trained(site=site, base_version=number, num_examples=96, metrics={"loss": 0.5}, sha256=sha256, size=size)
    write_document(here.result(number), said)
    return here.update(number)


# ---------------------------------------------------------------- what is handed in


def test_a_submission_is_one_signed_commit_with_record_and_pointer_that_ci_accepts(
    each_world: World, file: Path
) -> None:
    world = each_world
    got = done(world, file)
    assert (got.outcome, got.pull, got.uploaded, got.changed) == ("opened", 1, True, True)
    (one,) = world.forges["lena"].open_pulls()
    assert (one.branch, one.title) == ("submit/hospital-a", "hospital-a: update on v0 (150 examples)")
    repository = world.repositories["lena"]
    repository.fetch()
    head, main = repository.commit(one.head), repository.resolve("main")
    assert head.parents == (main,)
    assert head.message.strip() == "submit(hospital-a): update on v0"
    assert head.committed_at == world.clock.now()
    assert repository.signer(one.head, [world.keys[A].public]) == world.keys[A].public
    assert main is not None
    changed = {c.path: c.mode for c in repository.changes(main, one.head)}
    assert changed == {f"sites/{A}/submission.json": "100644", f"sites/{A}/update.safetensors.dvc": "100644"}
    judged = inspect_pull(world.ctx("lena"), main_snapshot(repository), one, BytesMemory())
    assert (judged.verdict.state, judged.verdict.findings) == ("accepted", ())
    assert judged.record == got.record


def test_the_record_says_what_was_trained_and_what_is_stored(world: World, file: Path) -> None:
    record = done(world, file).record
    canonical = work(world).outgoing(0).read_bytes()
    assert (record.site, record.base_version, record.num_examples) == (A, 0, 150)
    assert (record.metrics, record.payload, record.format) == ({"loss": 0.31}, "full", "safetensors")
    assert record.sha256 == hashlib.sha256(canonical).hexdigest()
    assert record.md5 == hashlib.md5(canonical).hexdigest()
    assert record.size == len(canonical)
    assert record.created_at == "2026-03-02T09:30:00Z"
    assert record.base_sha256 == main_snapshot(world.repositories[A]).version.model.sha256
    assert record.software == {"fedops": "0.1.0"}
    artifact = world.store.manifest("sites/hospital-a", Digest(record.manifest))
    assert artifact.layer.title == "update.safetensors"
    assert artifact.annotations == {
        "fl.client-id": "hospital-a",
        "fl.base-version": "0",
        "fl.num-examples": "150",
        "fl.timestamp": "2026-03-02T09:30:00Z",
    }


def test_an_npz_is_handed_in_as_the_same_canonical_file(world: World, file: Path, tmp_path: Path) -> None:
    npz = tmp_path / "mine.npz"
    np.savez(npz, **TRAINED)  # type: ignore[arg-type]  # numpy's stub takes the names for its own options
    from_npz = done(world, npz, dry_run=True).record
    assert from_npz == done(world, file).record
    np.testing.assert_array_equal(load_file(work(world).outgoing(0))["weight"], TRAINED["weight"])


def test_free_metadata_is_dropped_with_a_warning(world: World, file: Path, tmp_path: Path) -> None:
    chatty = tmp_path / "chatty.safetensors"
    save_file(dict(TRAINED), chatty, metadata={"patient": "Jane"})
    got = done(world, chatty)
    assert [f.slug for f in got.findings] == ["metadata_dropped"]
    assert b"Jane" not in work(world).outgoing(0).read_bytes()
    assert done(world, file).outcome == "open"  # the same bytes without it


def test_how_far_an_upload_is_is_the_stores_to_show(world: World, file: Path) -> None:
    before = list(world.progress.started)
    done(world, file)
    assert [told for told in world.progress.started[len(before) :] if "upload" in told[0]] == []


# ---------------------------------------------------------------- the second time, and after a kill


def test_submitting_twice_changes_nothing(each_world: World, file: Path) -> None:
    first = done(each_world, file)
    before = each_world.repositories["lena"].resolve("refs/pull/1/head")
    each_world.clock.sleep(3600)  # a later run must not make another record
    again = done(each_world, file)
    assert (again.outcome, again.pull, again.uploaded, again.changed) == ("open", 1, False, False)
    assert again.record == first.record
    each_world.repositories["lena"].fetch()
    assert each_world.repositories["lena"].resolve("refs/pull/1/head") in (
        before,
        each_world.forges["lena"].pull(1).head,
    )
    assert steps(each_world) == ["pulled", "stored", "submitted"][-2:]


def test_the_open_pull_request_is_recognised_from_another_clone_and_on_a_newer_main(world: World, file: Path) -> None:
    first = done(world, file)
    world.change({"README.md": b"hello\n"})
    shutil.rmtree(world.root(A) / ".fedops")  # the draft is gone
    world.clock.sleep(60)
    again = done(world, file)
    assert (again.outcome, again.record) == ("open", first.record)


def test_another_update_on_the_same_base_moves_the_open_pull_request(world: World, file: Path) -> None:
    done(world, file)
    save_file(moved(2), file)
    got = done(world, file)
    assert (got.outcome, got.pull) == ("moved", 1)
    assert len(world.forges["lena"].open_pulls()) == 1
    assert steps(world) == ["stored", "submitted", "stored", "submitted"]


def test_a_change_of_the_facts_alone_is_a_new_record(world: World, file: Path) -> None:
    first = done(world, file)
    got = done(world, file, num_examples=151)
    assert got.outcome == "moved"
    assert got.record.sha256 == first.record.sha256
    assert got.record.manifest != first.record.manifest  # its annotations say the number


def test_what_was_merged_meanwhile_is_found_done(world: World, file: Path) -> None:
    first = done(world, file)
    world.merge(1)
    world.clock.sleep(60)
    got = done(world, file)
    assert (got.outcome, got.changed, got.pull, got.record) == ("merged", False, None, first.record)


def test_what_a_version_has_used_is_found_done(world: World, file: Path) -> None:
    done(world, file)
    world.merge(1)
    world.publish(version(1, contributions=[world.contribution_of(A)], consumed={A: 0}))
    uploads = store(world).calls["put"]
    got = done(world, file, base=0)
    assert (got.outcome, got.changed, got.current) == ("used", False, 1)
    assert store(world).calls["put"] == uploads


@pytest.mark.parametrize("merged", [False, True])
def test_bytes_that_the_store_lost_are_uploaded_again(merged: bool, world: World, file: Path) -> None:
    record = done(world, file).record
    if merged:
        world.merge(1)
    store(world).lose("sites/hospital-a", Digest(record.manifest))
    store(world).lose("sites/hospital-a", digest_of_hex(record.sha256))
    got = done(world, file)
    assert (got.outcome, got.uploaded, got.changed) == ("merged" if merged else "open", True, True)
    assert world.store.manifest("sites/hospital-a", Digest(record.manifest)).layer.sha256 == record.sha256


@pytest.mark.parametrize("dies_at", ["put", "submit_pull"])
def test_after_a_kill_the_same_call_goes_on_with_the_same_record(
    dies_at: str, world: World, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = world.store if dies_at == "put" else world.forges[A]
    real = getattr(target, dies_at)

    def dies(*args: Any, **more: Any) -> Any:
        if dies_at == "put":
            real(*args, **more)  # it took effect, but nobody heard of it
        raise KeyboardInterrupt

    monkeypatch.setattr(target, dies_at, dies)
    with pytest.raises(KeyboardInterrupt):
        call(world, file)
    monkeypatch.undo()
    assert steps(world) == (["stored"] if dies_at == "submit_pull" else [])
    draft = json.loads(work(world).draft(0).read_bytes())
    world.clock.sleep(600)
    got = done(world, file)
    assert (got.outcome, got.uploaded) == ("opened", False)
    assert got.record.created_at == draft["created_at"] == "2026-03-02T09:30:00Z"
    assert steps(world) == ["stored", "submitted"]


@pytest.mark.parametrize("outcome", ["open", "merged", "used"])
def test_what_a_killed_run_could_not_note_is_noted_by_the_next(
    outcome: str, world: World, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = world.forges[A].submit_pull

    def dies(*args: Any) -> Any:
        real(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(world.forges[A], "submit_pull", dies)
    with pytest.raises(KeyboardInterrupt):
        call(world, file)
    monkeypatch.undo()
    if outcome != "open":
        world.merge(1)
    if outcome == "used":
        world.publish(version(1, contributions=[world.contribution_of(A)], consumed={A: 0}))
    before = steps(world)
    assert done(world, file, base=0, dry_run=True).outcome == outcome
    assert steps(world) == before
    for _ in range(2):
        assert done(world, file, base=0).outcome == outcome
        assert steps(world) == [*before, "submitted"]


def test_a_draft_that_cannot_be_read_is_made_anew(world: World, file: Path) -> None:
    work(world).draft(0).parent.mkdir(parents=True)
    work(world).draft(0).write_text("{")
    assert done(world, file).outcome == "opened"


def test_a_broken_store_leaves_the_training_and_no_pull_request(world: World) -> None:
    update = put_training(world)
    store(world).fail_next("put", StoreError("store: no space", cause="temporary"))
    with pytest.raises(StoreError, match="no space"):
        call(world, None)
    assert update.is_file()
    assert world.forges["lena"].open_pulls() == ()
    assert done(world, None).outcome == "opened"


def test_a_store_that_does_not_answer_is_not_taken_for_an_empty_one(world: World, file: Path) -> None:
    # The first question is for the base model, the second whether the update is there.
    pull(world.ctx(A), world.root(A))
    store(world).fail_next("manifest", StoreError("store: not mounted", cause="temporary"))
    with pytest.raises(StoreError, match="not mounted"):
        call(world, file)


def test_a_store_that_changes_the_manifest_is_caught(world: World, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = world.store.put

    def rewrites(*args: Any, **more: Any) -> Artifact:
        return replace(real(*args, **more), manifest=Digest("sha256:" + "0" * 64))

    monkeypatch.setattr(world.store, "put", rewrites)
    with pytest.raises(StoreError) as e:
        call(world, file)
    assert e.value.slug == "digest_mismatch"
    assert world.forges["lena"].open_pulls() == ()


def test_a_lost_race_is_the_forges_to_repeat_and_its_failure_keeps_the_draft(
    world: World, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loses(*_: Any) -> Any:
        raise ForgeError("pull of submit/hospital-a: lost the race for 60 s", cause="temporary")

    monkeypatch.setattr(world.forges[A], "submit_pull", loses)
    with pytest.raises(ForgeError, match="lost the race"):
        call(world, file)
    monkeypatch.undo()
    assert done(world, file).outcome == "opened"


@pytest.mark.parametrize(
    ("wanted", "command"),
    [({}, "fedops submit"), ({"base": 0}, "fedops submit --base v0"), ({"num_examples": 3}, "fedops submit …")],
)
def test_a_failure_says_what_is_safe_and_which_command_goes_on(
    wanted: dict[str, Any], command: str, world: World
) -> None:
    put_training(world)
    store(world).fail_next("put", StoreError("store: no space", hint="make room", cause="temporary"))
    with pytest.raises(StoreError) as e:
        call(world, None, **wanted)
    assert e.value.hint == (
        "make room; so far: .fedops/versions/v0/update.safetensors is safe, the upload is not confirmed, "
        f"there is no pull request for it; go on with: {command}"
    )


def test_a_failure_names_the_file_that_was_handed_in(world: World, file: Path) -> None:
    done(world, file)
    store(world).fail_next("put", StoreError("store: not mounted", cause="temporary"))
    with pytest.raises(StoreError) as e:
        call(world, file)
    assert e.value.hint == (
        f"so far: {file} is safe, it was handed in before, its bytes in the store are not confirmed; "
        f"go on with: fedops submit {file} …"
    )


def test_a_dry_run_that_fails_has_nothing_to_go_on_with(
    world: World, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> Any:
        raise ForgeError("the forge is away", hint="look at its page", cause="temporary")

    monkeypatch.setattr(world.forges[A], "open_pulls", fails)
    with pytest.raises(ForgeError) as e:
        call(world, file, dry_run=True)
    assert e.value.hint == "look at its page"
    with pytest.raises(ForgeError, match="is away") as e:
        call(world, file)
    assert "this run sent nothing yet" in e.value.hint


# ---------------------------------------------------------------- which file, which facts


def test_the_newest_finished_training_is_handed_in_with_what_it_said(world: World) -> None:
    world.publish(version(1))
    put_training(world, 0)
    put_training(world, 1, moved(3))
    record = done(world, None).record
    assert (record.base_version, record.num_examples, record.metrics) == (1, 96, {"loss": 0.5})


def test_a_base_chooses_among_the_trainings(world: World) -> None:
    world.publish(version(1))
    put_training(world, 0)
    put_training(world, 1, moved(3))
    assert done(world, None, base=0).record.base_version == 0


def test_what_the_caller_says_goes_before_what_training_said(world: World) -> None:
    put_training(world)
    record = done(world, None, num_examples=7, metrics={"accuracy": 0.9}).record
    assert (record.num_examples, record.metrics) == (7, {"accuracy": 0.9})


def test_the_file_of_a_training_carries_its_facts_by_its_path_too(world: World) -> None:
    path = put_training(world)
    wanted = Wanted(A, path)
    got = submit(world.ctx(A), world.root(A), wanted, key=world.key(A))
    assert isinstance(got, Submitted)
    assert (got.record.base_version, got.record.num_examples) == (0, 96)


def test_another_file_in_a_work_folder_has_that_folders_base(world: World, file: Path) -> None:
    world.publish(version(1))
    kept = work(world).version(0) / "run-0a1b2c3d" / "update.safetensors"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(file.read_bytes())
    assert done(world, kept).record.base_version == 0
    loose = work(world).version(0).with_name("notes") / "x.safetensors"
    loose.parent.mkdir()
    loose.write_bytes(file.read_bytes())
    assert slugs_or_record(world, loose) == 1


def slugs_or_record(world: World, file: Path) -> int:
    return done(world, file, dry_run=True).record.base_version


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({}, "no finished training in .fedops"),
        ({"base": 3}, "no finished training on v3"),
    ],
)
def test_without_a_training_a_file_is_asked_for(wanted: dict[str, Any], says: str, world: World) -> None:
    with pytest.raises(ConfigError, match=says):
        call(world, None, **wanted)


def test_a_file_that_is_not_there_is_named(world: World, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.npz: no such file"):
        call(world, tmp_path / "nothing.npz")


def test_a_plain_file_needs_the_number_of_examples(world: World, file: Path) -> None:
    with pytest.raises(ConfigError, match="how many local examples"):
        call(world, file, num_examples=None)


def test_a_training_that_was_changed_or_contradicts_the_caller_is_not_handed_in(world: World) -> None:
    path = put_training(world)
    with pytest.raises(ConfigError, match="--site hospital-b -> hospital-a"):
        submit(world.ctx(A), world.root(A), Wanted(B), key=world.key(A))
    with pytest.raises(ConfigError, match="--base 4 -> 0"):
        submit(world.ctx(A), world.root(A), Wanted(A, path, base=4), key=world.key(A))
    save_arrays(path, BASE)
    with pytest.raises(ConfigError, match="was changed after training"):
        call(world, None)


def test_a_file_is_not_silently_taken_for_trained_on_a_version_that_was_never_pulled(world: World, file: Path) -> None:
    pull(world.ctx(A), world.root(A))
    world.publish(version(1))
    with pytest.raises(ConfigError, match="was it trained on v0, which was pulled here, or on v1"):
        call(world, file)
    assert done(world, file, base=0).record.base_version == 0


def test_without_any_pulled_version_a_file_counts_for_the_current_one(world: World, file: Path) -> None:
    world.publish(version(1))
    assert done(world, file).record.base_version == 1


# ---------------------------------------------------------------- what is refused


DATA = {
    "patients.csv": (b"id,name\n1,Jane\n", "format_unknown"),
    "scans.parquet": (b"PAR1" + bytes(40) + b"PAR1", "format_unknown"),
    "notes.txt": (b"dear colleague\n", "format_unknown"),
    "archive.tar.gz": (b"\x1f\x8b\x08" + bytes(40), "format_unknown"),
    "weights.pt": (b"\x80\x04\x95" + bytes(40) + b".", "pickle_refused"),
    "empty.safetensors": (b"", "format_unknown"),
    "model.safetensors": (b"id,name\n1,Jane\n", "format_unknown"),  # the name proves nothing
}


@pytest.mark.parametrize("name", DATA)
def test_data_is_refused_by_its_content_before_the_network_is_touched(
    name: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, slug = DATA[name]
    (tmp_path / name).write_bytes(data)
    monkeypatch.setattr(world.repositories[A], "fetch", _never)
    monkeypatch.setattr(world.forges[A], "open_pulls", _never)
    monkeypatch.setattr(world, "store", None)
    got = call(world, tmp_path / name)
    assert isinstance(got, Refused)
    assert [f.slug for f in got.findings] == [slug]
    assert not work(world).outgoing(0).exists()


def _never(*_: object) -> None:
    raise AssertionError("the network was touched")


def test_limits_are_those_of_fetched_main(world: World, file: Path) -> None:
    small = b"schema: fedops.submission-policy/v1\nlimits: {update_bytes: 100}\n"
    world.change({"policies/submission.yaml": small})
    world.repositories[A].fetch()
    assert slugs(world, file) == ["file_too_large"]
    world.change({"policies/submission.yaml": b"schema: fedops.submission-policy/v1\n"})
    assert done(world, file).outcome == "opened"  # the copy at hand still said 100


def changed(**arrays: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
    return {n: a for n, a in (dict(TRAINED) | arrays).items() if a is not None}


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        (changed(bias=None), ["missing_keys"]),
        (changed(extra=np.zeros(1, np.float32)), ["unexpected_keys"]),
        (changed(bias=np.zeros(3, np.float32)), ["shape_mismatch"]),
        (changed(bias=np.zeros(2, np.float64)), ["dtype_mismatch"]),
        (changed(bias=np.array([0, np.nan], np.float32)), ["non_finite"]),
    ],
)
def test_a_model_that_does_not_fit_its_base_is_refused_before_anything_is_uploaded(
    arrays: dict[str, NDArray[Any]], expected: list[str], world: World, tmp_path: Path
) -> None:
    path = tmp_path / "bad.safetensors"
    save_file(arrays, path)
    assert slugs(world, path) == expected


def test_the_policys_norm_limit_holds(world: World, file: Path) -> None:
    world.change({"policies/submission.yaml": b"schema: fedops.submission-policy/v1\nupdate_norm_max: 2.5\n"})
    # Eight float values move by 1 each: the norm is sqrt(8) = 2.83.
    assert slugs(world, file) == ["norm_exceeded"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"metrics": {"auc": 0.5}}, ["metrics_invalid"]),
        ({"num_examples": 10_000_001}, ["num_examples_invalid"]),
        ({"base": 7}, ["base_version_unknown"]),
        ({"site": SiteId("clinic-c"), "key": None}, ["site_unknown"]),
        ({"key": None}, ["signature_invalid"]),
    ],
)
def test_what_ci_would_refuse_is_refused_here(
    wanted: dict[str, Any], expected: list[str], world: World, file: Path
) -> None:
    site = wanted.pop("site", None)
    if site is None:
        assert slugs(world, file, **wanted) == expected
        return
    got = submit(world.ctx(A), world.root(A), Wanted(site, file, num_examples=1), key=None)
    assert isinstance(got, Refused)
    assert [f.slug for f in got.findings] == expected


@pytest.mark.parametrize("who", ["stranger", "hospital-b"])
def test_a_key_that_is_not_the_sites_is_refused_with_the_model_unsent(who: str, world: World, file: Path) -> None:
    assert "signature_invalid" in slugs(world, file, key=world.key(who))


def test_another_sites_account_cannot_hand_in_for_a_site(world: World, file: Path) -> None:
    got = submit(world.ctx(B), world.root(B), Wanted(A, file, num_examples=1), key=world.key(A))
    assert isinstance(got, Refused)
    assert "site_mismatch" in [f.slug for f in got.findings]


def test_a_stale_base_is_refused(world: World, file: Path) -> None:
    for number in range(1, 7):
        world.publish(version(number))
    assert slugs(world, file, base=0) == ["too_stale"]


def test_a_used_base_is_not_handed_in_again_with_other_bytes(world: World, file: Path) -> None:
    done(world, file)
    world.merge(1)
    world.publish(version(1, contributions=[world.contribution_of(A)], consumed={A: 0}))
    save_file(moved(2), file)
    got = call(world, file, base=0)
    assert isinstance(got, Refused)
    assert [f.slug for f in got.findings] == ["duplicate_submission"]


def test_another_sites_bytes_are_refused(world: World, file: Path) -> None:
    done(world, file)
    world.merge(1)
    got = call(world, file, site=B)
    assert isinstance(got, Refused)
    assert [f.slug for f in got.findings] == ["duplicate_submission"]


def test_a_small_npz_of_a_model_that_is_too_large_is_refused_at_its_true_size(world: World, tmp_path: Path) -> None:
    world.publish(version(1), {"w": np.zeros(5000, np.float32)})
    world.change({"policies/submission.yaml": b"schema: fedops.submission-policy/v1\nlimits: {update_bytes: 4000}\n"})
    path = tmp_path / "packed.npz"
    np.savez_compressed(path, w=np.ones(5000, np.float32))
    assert path.stat().st_size < 4000
    assert set(slugs(world, path)) == {"file_too_large"}


def test_several_faults_are_told_at_once(world: World, tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    save_file(changed(bias=np.array([0, np.nan], np.float32)), path)
    assert slugs(world, path, metrics={"auc": 0.5}) == ["metrics_invalid", "non_finite"]


# ---------------------------------------------------------------- pull requests of others


def test_a_refused_pull_request_of_an_unsigned_commit_is_replaced(world: World, file: Path) -> None:
    """The very same record under a wrong signature must not count as handed in."""
    done(world, file)
    repository = world.repositories[A]
    main = repository.resolve("main")
    good = world.forges[A].open_pulls()[0].head
    assert main is not None
    assert isinstance(repository, FakeRepository)
    files: dict[RepoPath, bytes | None] = {
        e.path: repository.read(e.blob, max_bytes=10_000) for e in repository.entries(good, f"sites/{A}")
    }
    unsigned = repository.write_commit([main], files, "submit(hospital-a): update on v0", at=world.clock.now())
    world.forges[A].submit_pull(unsigned, "submit/hospital-a", "again", "")
    got = done(world, file)
    assert (got.outcome, got.pull) == ("moved", 1)
    assert world.forges[A].open_pulls()[0].head == good


def test_a_pull_request_whose_head_cannot_be_read_is_replaced(
    world: World, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(world, file)
    real = world.repositories[A].changes

    def fails(base: CommitId, head: CommitId) -> Any:
        if head == old:
            raise GitError(f"{head} is missing", slug="object_corrupt")
        return real(base, head)

    old = world.forges[A].open_pulls()[0].head
    monkeypatch.setattr(world.repositories[A], "changes", fails)
    got = done(world, file, num_examples=151)
    assert (got.outcome, got.pull) == ("moved", 1)


# ---------------------------------------------------------------- dry run, opaque models


def test_a_dry_run_checks_everything_and_leaves_nothing(world: World, file: Path) -> None:
    got = done(world, file, dry_run=True)
    assert (got.outcome, got.pull, got.uploaded, got.changed) == ("planned", None, False, False)
    assert store(world).calls["put"] == 1  # v0's own
    assert world.forges["lena"].open_pulls() == ()
    assert not work(world).draft(0).exists()
    assert not work(world).outgoing(0).exists()
    assert steps(world) == []
    assert slugs(world, file, dry_run=True, metrics={"auc": 1.0}) == ["metrics_invalid"]


@pytest.mark.parametrize("merged", [False, True])
def test_a_dry_run_of_what_is_handed_in_uploads_nothing(merged: bool, world: World, file: Path) -> None:
    record = done(world, file).record
    if merged:
        world.merge(1)
    store(world).lose("sites/hospital-a", Digest(record.manifest))
    uploads = store(world).calls["put"]
    got = done(world, file, dry_run=True)
    assert (got.outcome, got.changed) == ("merged" if merged else "open", False)
    assert store(world).calls["put"] == uploads


@pytest.fixture
def opaque(world: World) -> World:
    text = main_snapshot(world.repositories["lena"]).bytes_of(RepoPath("federation.yaml")).decode()
    world.change({"federation.yaml": f"{text}model: {{format: opaque}}\n".encode()})
    world.repositories[A].fetch()
    return world


def test_an_opaque_model_is_handed_in_without_being_opened(opaque: World, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(b'{"trees": []}')
    record = done(opaque, path).record
    assert (record.format, record.size) == ("opaque", 13)
    artifact = opaque.store.manifest("sites/hospital-a", Digest(record.manifest))
    assert (artifact.layer.title, artifact.layer.sha256) == (
        "update.bin",
        hashlib.sha256(path.read_bytes()).hexdigest(),
    )
    path.write_bytes(b"")
    assert [f.slug for f in _findings(call(opaque, path))] == ["empty_update"]


def _findings(got: Submitted | LastVersion | Refused) -> tuple[Any, ...]:
    assert isinstance(got, Refused)
    return got.findings


def test_a_base_model_that_cannot_be_opened_is_the_federations_fault(
    world: World, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = world.folder / "broken.safetensors"
    broken.write_bytes(b"not a model")
    data = broken.read_bytes()
    artifact = world.store.put("global", broken, {})
    entry = world.put_model(BASE, 1).model_copy(
        update={
            "sha256": hashlib.sha256(data).hexdigest(),
            "md5": hashlib.md5(data).hexdigest(),
            "size": len(data),
            "manifest": artifact.manifest,
        }
    )
    monkeypatch.setattr(world, "put_model", lambda arrays, number: entry)
    world.publish(version(1))
    with pytest.raises(StoreError, match="v1: the global model cannot be opened: format_unknown"):
        call(world, file)


def test_a_file_that_changes_while_it_is_handed_in_is_refused_by_what_it_became(
    world: World, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judged are the bytes that are uploaded, not those that were sniffed."""
    real = world.repositories[A].fetch

    def swaps(pulls: Collection[int] | None = None) -> None:
        real(pulls)
        file.write_text("id,name\n1,Jane\n")

    monkeypatch.setattr(world.repositories[A], "fetch", swaps)
    assert slugs(world, file) == ["format_unknown"]


def test_the_record_on_main_that_cannot_be_read_does_not_stop_the_site(world: World, file: Path) -> None:
    world.change({record_path(A): b"{"})
    assert done(world, file).outcome == "opened"


def test_a_site_hands_in_from_a_clone_that_is_behind(world: World, file: Path) -> None:
    repository = world.repositories["lena"]
    main = repository.resolve("main")
    assert main is not None
    newer = repository.write_commit([main], {RepoPath("note"): b"x"}, "note", at=world.clock.now())
    assert repository.push([RefUpdate("refs/heads/main", main, newer)])
    done(world, file)
    assert world.repositories[A].commit(world.forges[A].open_pulls()[0].head).parents == (newer,)
