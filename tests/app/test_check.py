"""`fedops check` as a use case: items by themselves, facts, and the plan's own faults."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save

from fedops.adapters.git_repo import GitRepository
from fedops.adapters.model_files import ModelFiles
from fedops.adapters.store_layout import LayoutStore
from fedops.app.check import Checked, Outside, check_file, check_plan
from fedops.core.errors import ConfigError, FedopsError, StoreError
from fedops.core.findings import Finding
from fedops.core.settings import SubmissionPolicy

PLACE = "sites/hospital-a/update.safetensors.dvc"
BASE = {"w": np.zeros((2, 2), np.float32), "n": np.array(3)}
UPDATE = {"w": np.array([[3, 0], [0, 4]], np.float32), "n": np.array(9)}
MANIFEST = "sha256:" + "c" * 64
SITES: dict[str, Any] = {"sites": {"hospital-a": {"accounts": [{"login": "alice-a", "id": 1001}]}}}


class Folder:
    """A folder with a plan, and the outside that belongs to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def outside(self) -> Outside:
        return Outside(ModelFiles(), lambda url: LayoutStore(self.path / url.removeprefix("ocidir:")), GitRepository)

    def write(self, name: str, data: bytes) -> str:
        (self.path / name).write_bytes(data)
        return name

    def model(self, name: str, tensors: Mapping[str, NDArray[Any]], metadata: dict[str, str] | None = None) -> str:
        return self.write(name, save(dict(tensors), metadata))

    def record(self, name: str = "a.json", update: str | None = None, **changes: Any) -> str:
        data = (self.path / update).read_bytes() if update else b""
        fields = {
            "schema": "fedops.submission/v1",
            "site": "hospital-a",
            "base_version": 4,
            "num_examples": 10,
            "format": "safetensors",
            "payload": "full",
            "sha256": hashlib.sha256(data).hexdigest(),
            "metrics": {"auc": 0.5},
            "created_at": "2026-03-02T10:30:00+01:00",
        }
        return self.write(name, json.dumps(fields | changes).encode())

    def pointer(self, name: str, update: str, **changes: Any) -> str:
        data = (self.path / update).read_bytes()
        out: dict[str, Any] = {
            "md5": hashlib.md5(data).hexdigest(),
            "size": len(data),
            "hash": "md5",
            "path": "update.safetensors",
            "remote": "sites-hospital-a",
        }
        meta: dict[str, Any] = {
            "repository": "sites/hospital-a",
            "manifest": MANIFEST,
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        for key, value in changes.items():
            (meta if key in meta else out)[key] = value
        lines = ["outs:", *(f"{'- ' if i == 0 else '  '}{k}: {v}" for i, (k, v) in enumerate(out.items()))]
        lines += ["meta:", "  fedops:", *(f"    {k}: {v}" for k, v in meta.items()), ""]
        return self.write(name, "\n".join(lines).encode())

    def plan(self, *items: Mapping[str, Any], **changes: Any) -> Path:
        plan = {"schema": "fedops.check-plan/v1", "items": list(items)} | changes
        return self.path / self.write("check.json", json.dumps(plan).encode())

    def check(self, *items: Mapping[str, Any], **changes: Any) -> tuple[Checked, ...]:
        return check_plan(self.plan(*items, **changes), self.outside())

    def one(self, item: Mapping[str, Any], **changes: Any) -> Checked:
        [checked] = self.check(item, **changes)
        return checked


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def told(checked: Checked) -> list[tuple[str, str]]:
    return [(f.slug, f.where) for f in checked.findings]


def only(checked: Checked) -> Finding:
    [found] = checked.findings
    return found


def submission(folder: Folder, **changes: Any) -> dict[str, Any]:
    update = folder.model("a.safetensors", UPDATE)
    return {"name": "a", "kind": "submission", "update": update, "record": folder.record(update=update)} | changes


def with_base(folder: Folder) -> dict[str, Any]:
    return {"globals": {"4": {"path": folder.model("g4.safetensors", BASE)}}}


# ------------------------------------------------------------------ submissions


def test_facts_are_what_a_person_compares(folder: Folder) -> None:
    item = submission(folder)
    data = (folder.path / "a.safetensors").read_bytes()
    checked = folder.one(item, **with_base(folder), current_version=9)
    assert (checked.name, checked.kind, checked.ok, checked.findings) == ("a", "submission", True, ())
    assert checked.facts == {
        "format": "safetensors",
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "md5": hashlib.md5(data).hexdigest(),
        "tensors": {"n": {"dtype": "I64", "shape": []}, "w": {"dtype": "F32", "shape": [2, 2]}},
        "delta_norm": None,
        "site": "hospital-a",
        "base_version": 4,
        "staleness": 5,
        "num_examples": 10,
        "payload": "full",
        "metrics": {"auc": 0.5},
    }


def test_the_norm_is_measured_where_the_policy_limits_it(folder: Folder) -> None:
    item, base = submission(folder), with_base(folder)
    assert folder.one(item, **base, submission_policy={"update_norm_max": 5.0}).facts["delta_norm"] == 5.0
    exceeded = folder.one(item, **base, submission_policy={"update_norm_max": 4})
    assert (only(exceeded).slug, only(exceeded).got, only(exceeded).expected) == ("norm_exceeded", 5.0, 4.0)


def test_a_norm_without_a_value_is_written_as_text(folder: Folder) -> None:
    base = folder.model("g.safetensors", {"w": np.array([-1.7e308])})
    update = folder.model("u.safetensors", {"w": np.array([1.7e308])})
    item = {"kind": "submission", "update": update, "record": folder.record(update=update)}
    checked = folder.one(item, globals={"4": {"path": base}}, submission_policy={"update_norm_max": 1.0})
    assert (only(checked).slug, checked.facts["delta_norm"]) == ("norm_exceeded", "inf")


def test_a_bad_record_does_not_hide_a_bad_file(folder: Folder) -> None:
    update = folder.model("a.safetensors", {"w": np.array([np.nan], np.float32)})
    record = folder.record(update=update, num_examples=0)
    checked = folder.one({"kind": "submission", "update": update, "record": record})
    assert told(checked) == [("num_examples_invalid", "a.json"), ("non_finite", "a.safetensors")]
    assert "site" not in checked.facts
    assert "tensors" in checked.facts


def test_an_update_without_a_record_is_checked_by_itself(folder: Folder) -> None:
    update = folder.model("a.safetensors", UPDATE)
    checked = folder.one({"kind": "submission", "update": update}, **with_base(folder))
    assert (checked.name, checked.ok) == ("items/0", True)
    assert "site" not in checked.facts


def test_a_record_without_an_update_is_checked_by_itself(folder: Folder) -> None:
    checked = folder.one({"kind": "submission", "record": folder.record(base_version=7)}, current_version=9)
    assert (checked.ok, checked.facts["staleness"]) == (True, 2)


def test_a_record_may_stand_in_the_plan(folder: Folder) -> None:
    record = {"site": "hospital-a", "base_version": 4, "num_examples": 0}
    checked = folder.one({"name": "x", "kind": "submission", "record": record})
    assert told(checked) == [("num_examples_invalid", "x")]
    assert folder.one({"kind": "submission", "record": record | {"num_examples": 1}}).ok


def test_the_current_version_is_the_highest_given(folder: Folder) -> None:
    g = folder.model("g.safetensors", BASE)
    item = submission(folder)
    assert (
        folder.one(item, globals={"4": {"path": g}, "11": {"path": g}}, policy={"staleness": {"max": 6}})
        .findings[0]
        .got
        == 7
    )
    unknown = folder.one(item, globals={"3": {"path": g}, "5": {"path": g}})
    assert (only(unknown).slug, only(unknown).got, only(unknown).expected) == ("base_version_unknown", 4, [3, 5])
    assert folder.one(item, current_version=3).findings[0].slug == "base_version_unknown"


def test_metrics_are_judged_where_the_plan_names_them(folder: Folder) -> None:
    item = submission(folder)
    assert folder.one(item).ok
    refused = folder.one(item, submission_policy={"metrics": {"allowed": ["loss"]}})
    assert told(refused) == [("metrics_invalid", "a.json")]


@pytest.mark.parametrize(
    ("changes", "slug"),
    [
        ({"sha256": "a" * 64}, "hash_mismatch"),
        ({"md5": "a" * 32}, "hash_mismatch"),
        ({"size": 7}, "size_mismatch"),
        ({"format": "npz"}, "metadata_schema"),
        ({"base_sha256": "a" * 64}, "hash_mismatch"),
    ],
)
def test_what_a_record_states_of_its_file_must_be_right(folder: Folder, changes: dict[str, Any], slug: str) -> None:
    item = submission(folder)
    folder.record(update="a.safetensors", **changes)
    checked = folder.one(item, **with_base(folder))
    assert told(checked) == [(slug, "a.safetensors")]
    assert only(checked).detail == {"field": next(iter(changes))}


def test_the_right_base_may_be_stated(folder: Folder) -> None:
    item, base = submission(folder), with_base(folder)
    sha256 = hashlib.sha256((folder.path / "g4.safetensors").read_bytes()).hexdigest()
    folder.record(update="a.safetensors", base_sha256=sha256)
    assert folder.one(item, globals={"4": {"path": "g4.safetensors", "sha256": sha256}}).ok
    assert base["globals"]["4"]["path"] == "g4.safetensors"


def test_free_metadata_is_dropped_from_a_draft_with_a_warning(folder: Folder) -> None:
    update = folder.model("a.safetensors", UPDATE, {"patient": "x"})
    checked = folder.one({"kind": "submission", "update": update})
    assert checked.ok
    assert told(checked) == [("metadata_dropped", update)]


def test_a_file_that_is_data_is_told_as_what_it_is(folder: Folder) -> None:
    update = folder.write("a.safetensors", b"age,sex\n61,1\n54,0\n")
    checked = folder.one({"kind": "submission", "update": update})
    assert (only(checked).slug, "comma" in only(checked).got) == ("format_unknown", True)
    assert "tensors" not in checked.facts


def test_an_opaque_model_is_never_opened(folder: Folder) -> None:
    update = folder.write("a.bin", b"\x80\x04no model of ours")
    item = {"kind": "submission", "update": update, "record": folder.record(update=update, format="opaque")}
    checked = folder.one(item)
    assert (checked.ok, checked.facts["format"]) == (True, "opaque")
    assert told(folder.one(item, submission_policy={"limits": {"update_bytes": 3}})) == [("file_too_large", update)]


def test_a_file_that_is_too_large_is_not_read(folder: Folder) -> None:
    with (folder.path / "huge.safetensors").open("wb") as file:
        file.truncate(1 << 43)  # reading it would take hours
    checked = folder.one({"kind": "submission", "update": "huge.safetensors"})
    found = only(checked)
    assert (found.slug, found.got, found.expected) == (
        "file_too_large",
        1 << 43,
        SubmissionPolicy().limits.update_bytes,
    )
    assert checked.facts == {"size": 1 << 43}


def test_record_and_pointer_belong_to_the_folder_that_they_are_for(folder: Folder) -> None:
    item = submission(folder, placed_at="sites/hospital-b/update.safetensors.dvc")
    assert told(folder.one(item)) == [("site_mismatch", "a.json")]


def test_the_path_of_a_record_says_for_which_folder_it_is(folder: Folder) -> None:
    for path, expected in (
        ("sites/hospital-b", ["site_mismatch"]),
        ("sites/hospital-a", []),
        ("sites/hospital-b/first", []),
        ("hospital-b", []),
    ):
        (folder.path / path).mkdir(parents=True, exist_ok=True)
        checked = folder.one({"kind": "submission", "record": folder.record(f"{path}/submission.json")})
        assert [f.slug for f in checked.findings] == expected


@pytest.mark.parametrize(
    ("site", "slugs"), [("hospital-a", []), ("clinic-c", ["site_suspended"]), ("x", ["site_unknown"])]
)
def test_a_roster_in_the_plan_says_who_may_hand_in(folder: Folder, site: str, slugs: list[str]) -> None:
    clinic = {"accounts": [{"login": "cy-c", "id": 1003}], "state": "suspended"}
    sites = {"sites": SITES["sites"] | {"clinic-c": clinic}}
    checked = folder.one({"kind": "submission", "record": folder.record(site=site)}, sites=sites)
    assert [f.slug for f in checked.findings] == slugs


def test_a_pointer_of_a_draft_is_read_and_compared_with_the_file(folder: Folder) -> None:
    item = submission(folder)
    good = item | {"pointer": folder.pointer("good.dvc", "a.safetensors"), "placed_at": PLACE}
    assert folder.one(good).findings == ()
    assert folder.one(good | {"placed_at": None}).findings == ()
    other = folder.pointer("x.dvc", "a.safetensors", md5="0" * 31 + "a", size=7, sha256="b" * 64)
    checked = folder.one(good | {"pointer": other})
    assert [(f.slug, (f.detail or {})["field"]) for f in checked.findings] == [
        ("hash_mismatch", "sha256"),
        ("hash_mismatch", "md5"),
        ("size_mismatch", "size"),
    ]
    bad = folder.pointer("bad.dvc", "a.safetensors", path="../x")
    assert told(folder.one(good | {"pointer": bad})) == [("dvc_path_escape", "bad.dvc")]


def test_a_pointer_without_a_file_is_compared_with_the_record(folder: Folder) -> None:
    item = submission(folder)
    pointer = folder.pointer("x.dvc", "a.safetensors", sha256="b" * 64)
    alone = {"kind": "submission", "record": item["record"], "pointer": pointer}
    assert told(folder.one(alone)) == [("hash_mismatch", "x.dvc")]
    assert folder.one({"kind": "submission", "pointer": pointer, "placed_at": PLACE}).ok


def test_a_complete_record_implies_every_byte_of_its_pointer(folder: Folder) -> None:
    item = submission(folder)
    data = (folder.path / "a.safetensors").read_bytes()
    sha256, md5 = hashlib.sha256(data).hexdigest(), hashlib.md5(data).hexdigest()
    folder.record(update="a.safetensors", md5=md5, size=len(data), manifest=MANIFEST)
    rendered = (
        f"outs:\n- {{md5: {md5}, size: {len(data)}, hash: md5, path: update.safetensors, remote: sites-hospital-a}}\n"
        f'meta:\n  fedops: {{repository: "sites/hospital-a", manifest: "{MANIFEST}", sha256: {sha256}}}\n'
    ).encode()
    good = item | {"pointer": folder.write("good.dvc", rendered), "placed_at": PLACE}
    assert folder.one(good).findings == ()
    crlf = folder.write("crlf.dvc", rendered.replace(b"\n", b"\r\n"))
    checked = folder.one(good | {"pointer": crlf})
    assert (only(checked).slug, only(checked).got) == ("dvc_schema", "CRLF line ends")


def test_records_and_pointers_have_a_largest_size(folder: Folder) -> None:
    item = submission(folder)
    pointer = folder.pointer("x.dvc", "a.safetensors")
    small = {"limits": {"record_bytes": 10, "pointer_bytes": 10}}
    checked = folder.one(item | {"pointer": pointer, "placed_at": PLACE}, submission_policy=small)
    assert told(checked) == [("file_too_large", "a.json"), ("file_too_large", "x.dvc")]
    lone = {"kind": "pointer", "pointer": pointer, "placed_at": PLACE}
    assert told(folder.one(lone, submission_policy=small)) == [("file_too_large", "x.dvc")]


def test_one_file_is_checked_without_a_plan(folder: Folder) -> None:
    update, base = (
        folder.path / folder.model("u.safetensors", UPDATE),
        folder.path / folder.model("g.safetensors", BASE),
    )
    record = folder.path / folder.record(update="u.safetensors", base_version=7)
    [checked] = check_file(update, record, base, folder.outside())
    assert (checked.name, checked.ok, checked.facts["staleness"]) == (str(update), True, None)
    other = folder.path / folder.model("o.safetensors", {"w": np.zeros(3, np.float32), "n": np.array(1)})
    [checked] = check_file(other, None, base, folder.outside())
    assert told(checked) == [("shape_mismatch", str(other))]
    [checked] = check_file(None, record, None, folder.outside())
    assert (checked.name, checked.ok) == (str(record), True)


# ------------------------------------------------------------------ other items


def test_items_never_stop_each_other(folder: Folder) -> None:
    bad = {"name": "i", "kind": "site-id", "value": "Hospital-A"}
    results = folder.check(bad, submission(folder), {"name": "t", "kind": "tag", "value": "v9"})
    assert [(c.name, c.ok) for c in results] == [("i", False), ("a", True), ("t", False)]


@pytest.mark.parametrize(
    ("kind", "value", "facts", "slug"),
    [
        ("site-id", "hospital-a", {"site": "hospital-a"}, None),
        ("site-id", "Hospital-A", {}, "site_id_invalid"),
        ("site-id", "archive", {}, "site_id_reserved"),
        ("site-id", None, {}, "site_id_invalid"),
        ("site-id", ["hospital-a"], {}, "site_id_invalid"),
        ("tag", "global@v12.0.0", {"site": "global", "version": 12}, None),
        ("tag", "global@v012.0.0", {}, "tag_name_invalid"),
        ("tag", 12, {}, "tag_name_invalid"),
        ("ref", "sites/hospital-a-v2:v3", {"site": "hospital-a-v2", "version": 3}, None),
        ("ref", "global:v3", {"site": "global", "version": 3}, None),
        ("ref", "sites/Hospital-A:v3", {}, "tag_name_invalid"),
        ("ref", None, {}, "tag_name_invalid"),
    ],
)
def test_names_are_parsed_or_refused(folder: Folder, kind: str, value: Any, facts: Any, slug: str | None) -> None:
    checked = folder.one({"name": "x", "kind": kind, "value": value})
    assert checked.facts == facts
    assert told(checked) == ([] if slug is None else [(slug, "x")])


def manifest(title: str = "update.safetensors") -> bytes:
    empty = hashlib.sha256(b"{}").hexdigest()
    layer = {
        "mediaType": "application/vnd.fedops.model.v1+safetensors",
        "digest": MANIFEST,
        "size": 160,
        "annotations": {"org.opencontainers.image.title": title},
    }
    return json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "artifactType": "application/vnd.fedops.model.v1",
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": f"sha256:{empty}", "size": 2},
            "layers": [layer],
        }
    ).encode()


def test_a_manifest_is_one_plain_layer_under_a_fixed_title(folder: Folder) -> None:
    good = folder.one({"kind": "manifest", "manifest": folder.write("m.json", manifest())})
    assert good.ok
    assert (good.facts["title"], good.facts["sha256"], good.facts["size"]) == ("update.safetensors", "c" * 64, 160)
    bad = folder.one({"kind": "manifest", "manifest": folder.write("x.json", manifest("../x.yml"))})
    assert told(bad) == [("layer_title_invalid", "x.json")]


def test_a_pointers_object_is_fetched_and_compared(folder: Folder) -> None:
    (folder.path / "store").mkdir()
    update = folder.model("a.safetensors", UPDATE)
    artifact = LayoutStore(folder.path / "store").put("sites/hospital-a", folder.path / update, {})
    pointer = folder.pointer("x.dvc", update, manifest=artifact.manifest)
    item = {"kind": "pointer", "pointer": pointer, "placed_at": PLACE}
    assert folder.one(item).findings == ()
    checked = folder.one(item, store="ocidir:store")
    assert checked.findings == ()
    assert (checked.facts["site"], checked.facts["manifest"]) == ("hospital-a", artifact.manifest)
    for changes, expected in (
        ({"size": 7, "sha256": "b" * 64}, ["size_mismatch", "hash_mismatch"]),
        ({"md5": "0" * 31 + "a"}, ["hash_mismatch"]),
        ({"manifest": MANIFEST}, ["object_missing"]),
        ({"md5": "x"}, ["dvc_schema"]),
    ):
        folder.pointer("x.dvc", update, **({"manifest": artifact.manifest} | changes))
        found = folder.one(item, store="ocidir:store")
        assert [slug for slug, _ in told(found)] == expected


def test_a_broken_store_is_not_the_sites_fault(folder: Folder) -> None:
    update = folder.model("a.safetensors", UPDATE)
    item = {"kind": "pointer", "pointer": folder.pointer("x.dvc", update), "placed_at": PLACE}
    with pytest.raises(StoreError):
        folder.one(item, store="ocidir:nowhere")


# ------------------------------------------------------------------ changes


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)
    return done.stdout.decode().strip()


def commit(clone: Path, files: Mapping[str, str], message: str) -> str:
    for path, text in files.items():
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_text(text)
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", message)
    return git(clone, "rev-parse", "HEAD")


@pytest.fixture
def origin(folder: Folder) -> Path:
    path = folder.path / "origin"
    path.mkdir()
    git(path, "init", "--quiet", "--initial-branch=main")
    commit(path, {"README.md": "x", "sites/hospital-a/submission.json": "{}"}, "start")
    git(path, "checkout", "--quiet", "-b", "pr")
    return path


def change(**changes: Any) -> dict[str, Any]:
    author = {"login": "alice-a", "id": 1001}
    item = {"name": "pr", "kind": "change", "repository": "origin", "base": "main", "head": "pr", "author": author}
    return item | changes


def test_a_change_is_judged_by_the_roster_of_the_plan(folder: Folder, origin: Path) -> None:
    head = commit(origin, {"sites/hospital-a/submission.json": "{1}", "sites/hospital-a/evil.sh": "x"}, "submit")
    checked = folder.one(change(), sites=SITES)
    assert told(checked) == [("path_not_allowed", "sites/hospital-a/evil.sh")]
    assert (checked.facts["site"], checked.facts["head"]) == ("hospital-a", head)
    assert checked.facts["paths"] == ["sites/hospital-a/evil.sh", "sites/hospital-a/submission.json"]


def test_without_a_roster_in_the_plan_that_of_the_base_counts(folder: Folder, origin: Path) -> None:
    with pytest.raises(ConfigError, match=r"policies/sites\.yaml"):
        folder.one(change())
    git(origin, "checkout", "--quiet", "main")
    roster = json.dumps({"schema": "fedops.sites/v1"} | SITES)
    federation = json.dumps(
        {
            "schema": "fedops.federation/v1",
            "name": "x",
            "fedops": "0.1.0",
            "store": {"url": "ocidir:store"},
            "model": {"format": "opaque"},
        }
    )
    commit(origin, {"policies/sites.yaml": roster, "federation.yaml": federation}, "policy")
    git(origin, "checkout", "--quiet", "-B", "pr")
    folder_a = "sites/hospital-a"
    commit(origin, {f"{folder_a}/submission.json": "{2}", f"{folder_a}/update.bin.dvc": "x"}, "submit")
    assert folder.one(change()).findings == ()


def test_a_twin_of_the_base_is_found(folder: Folder, origin: Path) -> None:
    (origin / "sites/hospital-a/Submission.json").write_text("x")
    commit(origin, {"sites/hospital-a/submission.json": "{1}"}, "submit")
    slugs = [slug for slug, _ in told(folder.one(change(), sites=SITES))]
    assert "path_case_conflict" in slugs


def test_a_head_that_moved_is_not_judged(folder: Folder, origin: Path) -> None:
    first = commit(origin, {"sites/hospital-a/submission.json": "{1}"}, "submit")
    second = commit(origin, {"evil.sh": "x"}, "more")
    moved = folder.one(change(expected_head=first), sites=SITES)
    assert (only(moved).slug, only(moved).got, only(moved).expected) == ("head_moved", second, first)
    assert folder.one(change(head=first, expected_head=first), sites=SITES).ok


def test_a_head_without_common_history_is_a_finding(folder: Folder, origin: Path) -> None:
    git(origin, "checkout", "--quiet", "--orphan", "alien")
    commit(origin, {"sites/hospital-a/submission.json": "{1}"}, "submit")
    assert told(folder.one(change(head="alien"), sites=SITES)) == [("lineage_broken", "pr")]


def test_a_ref_that_is_not_there_is_the_plans_fault(folder: Folder, origin: Path) -> None:
    for item in (change(head="nowhere"), change(base="nowhere")):
        with pytest.raises(ConfigError, match="nowhere"):
            folder.one(item, sites=SITES)


def test_a_repository_that_is_damaged_is_an_error(folder: Folder, origin: Path) -> None:
    commit(origin, {"sites/hospital-a/submission.json": "{1}"}, "submit")
    tree = git(origin, "rev-parse", "pr^{tree}")
    (origin / ".git/objects" / tree[:2] / tree[2:]).unlink()
    with pytest.raises(FedopsError):
        folder.one(change(), sites=SITES)


# ------------------------------------------------------------------ the plan itself


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": "fedops.check-plan/v2"},
        {"unknown": 1},
        {"items": None},
        {"items": [{"kind": "unknown"}]},
        {"items": [{"kind": "tag"}]},
        {"items": [{"kind": "tag", "value": "x", "extra": 1}]},
        {"globals": {"04": {"path": "g"}}},
        {"globals": {"4": {"path": "g", "sha256": "x"}}},
        {"current_version": -1},
        {"submission_policy": {"unknown": 1}},
        {"policy": {"staleness": {"max": -1}}},
        {"policy": "missing.yaml"},
        {"items": [{"kind": "submission", "update": "missing"}]},
        {"items": [{"kind": "submission", "record": "missing"}]},
        {"items": [{"kind": "submission", "pointer": "check.json"}]},
        {"items": [{"kind": "manifest", "manifest": "missing"}]},
    ],
)
def test_a_fault_of_the_plan_is_an_error(folder: Folder, changes: dict[str, Any]) -> None:
    plan = {"schema": "fedops.check-plan/v1", "items": []} | changes
    path = folder.path / folder.write("check.json", json.dumps(plan).encode())
    with pytest.raises(ConfigError):
        check_plan(path, folder.outside())


def test_a_plan_that_is_not_strict_json_is_an_error(folder: Folder) -> None:
    path = folder.path / folder.write("check.json", b'{"items": [], "items": []}')
    with pytest.raises(ConfigError, match="repeated"):
        check_plan(path, folder.outside())


def test_only_schema_and_items_are_required(folder: Folder) -> None:
    assert folder.check() == ()


def test_policies_may_stand_in_files(folder: Folder) -> None:
    folder.write("s.yaml", b"update_norm_max: 4\n")
    folder.write("a.yaml", b"staleness: {max: 1}\n")
    checked = folder.one(
        submission(folder), **with_base(folder), current_version=6, submission_policy="s.yaml", policy="a.yaml"
    )
    assert [slug for slug, _ in told(checked)] == ["too_stale", "norm_exceeded"]


def test_a_base_model_that_cannot_be_used_is_the_plans_fault(folder: Folder) -> None:
    item = submission(folder)
    folder.write("bad.safetensors", b"no model")
    good = folder.model("g.safetensors", BASE)
    for entry in ({"path": "bad.safetensors"}, {"path": "missing"}, {"path": good, "sha256": "a" * 64}):
        with pytest.raises(ConfigError, match=entry["path"]):
            folder.one(item, globals={"4": entry})
