"""The handed cases that `fedops check` judges: the right word for each, and never a wrong one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from fedops.adapters.store_layout import LayoutStore
from tests.cases.harness import (
    Case,
    Cases,
    account,
    adapted_pointer,
    assert_outcome,
    base_plan,
    check,
    fedops_process,
    first,
    import_stream,
    roster,
    slugs,
    submission_items,
    write_plan,
)

NO_MANIFEST = "sha256:" + "0" * 64


def variants(case: Case, key: str, **more: Any) -> list[dict[str, Any]]:
    """One submission item for each variant of a case, which is its `update` or its `record`."""
    return [{"name": name, "kind": "submission", key: path, **more} for name, path in case.files["variants"].items()]


# ------------------------------------------------------------------ tensors


def test_h04_a_nan_is_found_by_tensor(cases: Cases) -> None:
    case = cases["H04"]
    results = check(case, submission_items(case))
    for site, result in results.items():
        rejected = case.expected["rejected"].get(site)
        assert_outcome(result, rejected or {"ok": True})
        if rejected:
            assert first(result, "non_finite")["detail"]["tensor"] == rejected["tensor"]


def test_h05_order_and_container_do_not_matter(cases: Cases) -> None:
    case = cases["H05"]
    results = check(case, submission_items(case))
    assert all(result["ok"] for result in results.values())
    assert {result["facts"]["format"] for result in results.values()} == {"safetensors", "npz"}


def test_h06_missing_and_extra_tensors_are_named(cases: Cases) -> None:
    case = cases["H06"]
    for site, result in check(case, submission_items(case)).items():
        expected = case.expected["per_site"][site]
        assert_outcome(result, expected)
        assert first(result, expected["error"])["detail"]["keys"] == expected["keys"]


def test_h07_a_shape_is_told_as_got_and_wanted(cases: Cases) -> None:
    case = cases["H07"]
    results = check(case, submission_items(case))
    for site, expected in case.expected["per_site"].items():
        assert_outcome(results[site], expected)
    expected = case.expected["per_site"]["hospital-b"]
    found = {f["detail"]["tensor"]: f for f in results["hospital-b"]["findings"]}
    assert set(found) == {expected["tensor"], expected["also_ok_tensor"]}
    assert (found[expected["tensor"]]["got"], found[expected["tensor"]]["expected"]) == (
        expected["got"],
        expected["want"],
    )


def test_h12_scalars_and_empty_tensors_are_fine(cases: Cases) -> None:
    case = cases["H12"]
    results = check(case, submission_items(case))
    assert all(result["ok"] for result in results.values())
    tensors = results["hospital-a"]["facts"]["tensors"]
    assert (tensors["scale"]["shape"], tensors["queue"]["shape"]) == ([], [0, 4])


# ------------------------------------------------------------------ files


def test_h13_no_pickle_is_ever_read(cases: Cases) -> None:
    case = cases["H13"]
    bare = {"name": "bare", "kind": "submission", "update": case.files["bare_pickle"]}
    plan = write_plan(case, base_plan(case) | {"items": [*submission_items(case), bare]})
    code, result, stderr = fedops_process("check", "--plan", str(plan))
    assert code == 3
    assert "canary" not in stderr + json.dumps(result)
    by_name = {item["name"]: item for item in result["items"]}
    assert_outcome(by_name["hospital-a"], case.expected["per_site"]["hospital-a"])
    assert_outcome(by_name["bare"], case.expected["bare_pickle"])


# Peak memory of a process by the kernel's count, before and after a check, in KiB.
_PEAK = """
import resource, sys
from fedops.cli.main import run
import fedops.app.check, fedops.adapters.model_files
idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
code = run(["check", "--plan", sys.argv[1]])
print(code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - idle, file=sys.stderr)
"""


def test_h14_a_bomb_is_refused_before_it_expands(cases: Cases, tmp_path: Path) -> None:
    import subprocess
    import sys

    case = cases["H14"]
    [item] = submission_items(case)
    result = check(case, [item])["hospital-a"]
    assert_outcome(result, case.expected["per_site"]["hospital-a"])
    plan = write_plan(case, base_plan(case) | {"items": [item]}, "peak.json")
    done = subprocess.run([sys.executable, "-c", _PEAK, str(plan)], capture_output=True, check=True)
    code, kib = map(int, done.stderr.decode().split()[-2:])
    assert (code, case.expected["expands_to"]) == (3, 2**25)
    assert kib < 16 * 1024


def test_h15_half_a_file_is_corrupt(cases: Cases) -> None:
    case = cases["H15"]
    for name, result in check(case, variants(case, "update")).items():
        assert_outcome(result, case.expected["variants"][name])


def test_h16_a_pointer_or_a_page_is_told_as_what_it_is(cases: Cases) -> None:
    case = cases["H16"]
    results = check(case, variants(case, "update"))
    for name, result in results.items():
        assert_outcome(result, case.expected["variants"][name])
    words = {"lfs-pointer": "git-lfs", "dvc-file": ".dvc", "html": "web page", "json-error": "JSON"}
    for name, word in words.items():
        assert word in json.dumps(results[name]["findings"])


# ------------------------------------------------------------------ records


@pytest.mark.parametrize("number", ["H09", "H17"])
def test_h09_h17_each_bad_field_of_a_record_has_its_word(cases: Cases, number: str) -> None:
    case = cases[number]
    for name, result in check(case, variants(case, "record", update=case.files["update"])).items():
        expected = case.expected["variants"][name]
        assert_outcome(result, expected)
        for fact in ("num_examples", "metrics"):
            if fact in expected:
                assert result["facts"][fact] == expected[fact]


def test_h08_no_examples_are_no_submission(cases: Cases) -> None:
    case = cases["H08"]
    for site, result in check(case, submission_items(case)).items():
        assert_outcome(result, case.expected["per_site"][site])


def test_h20_windows_line_ends_do_not_change_the_verdict(cases: Cases) -> None:
    case = cases["H20"]
    text = case.read(case.files["dvc"]).decode()
    assert "\r\n" in text
    pointer = case.root / "H20-crlf" / "adapted.dvc"
    pointer.write_bytes(adapted_pointer(text, "hospital-a", NO_MANIFEST, case.expected["sha256"]).encode())
    item = {
        "name": "a",
        "kind": "submission",
        "update": case.files["update"],
        "record": case.files["metadata"],
        "pointer": "H20-crlf/adapted.dvc",
        "placed_at": "sites/hospital-a/update.safetensors.dvc",
    }
    lone = {"name": "p", "kind": "pointer", "pointer": item["pointer"], "placed_at": item["placed_at"]}
    results = check(case, [item, lone])
    assert results["a"]["findings"] == results["p"]["findings"] == []
    assert results["a"]["facts"]["md5"] == results["p"]["facts"]["md5"] == case.expected["md5"]
    assert results["a"]["facts"]["sha256"] == case.expected["sha256"]


def test_h22_staleness_counts_versions(cases: Cases) -> None:
    case = cases["H22"]
    for site, result in check(case, submission_items(case)).items():
        expected = case.expected["per_site"][site]
        assert_outcome(result, expected)
        assert result["facts"]["staleness"] == expected["tau"]
        if "error" in expected:
            found = first(result, "too_stale")
            assert (found["got"], found["expected"]) == (expected["tau"], case.policy["max_staleness"])


# ------------------------------------------------------------------ names


def _as_reference(tag: str) -> tuple[str, str]:
    """A case's tag `<site>-v<N>` in fedops' two grammars: `sites/<site>:v<N>` and `global@v<N>.0.0`."""
    site, separator, number = tag.rpartition("-v")
    if not separator:
        return "ref", tag
    return ("tag", f"global@v{number}.0.0") if site == "global" else ("ref", f"sites/{site}:v{number}")


def test_h18_names_with_versions_are_parsed_from_the_right(cases: Cases) -> None:
    case = cases["H18"]
    items = []
    for tag in case.json(case.files["tags"])["tags"]:
        kind, value = _as_reference(tag)
        items.append({"name": tag, "kind": kind, "value": value})
    for tag, result in check(case, items).items():
        parsed = case.expected["parsed"][tag]
        if parsed is None:
            assert slugs(result) == [case.expected["null_means"]["error"]]
        else:
            assert [result["facts"]["site"], result["facts"]["version"]] == parsed


def test_h19_a_site_id_is_refused_never_corrected(cases: Cases) -> None:
    case = cases["H19"]
    ids = case.json(case.files["ids"])["ids"]
    results = check(case, [{"name": f"id {i}", "kind": "site-id", "value": value} for i, value in enumerate(ids)])
    for i, value in enumerate(ids):
        expected = case.expected["ids"][value]
        assert_outcome(results[f"id {i}"], {"ok": True} if expected is True else {"error": expected})


# ------------------------------------------------------------------ pull requests


@pytest.mark.parametrize("number", ["H28", "H29", "H30", "H31", "H32", "H33"])
def test_h28_to_h33_a_change_is_judged_on_real_objects(cases: Cases, tmp_path: Path, number: str) -> None:
    case = cases[number]
    event = case.json(case.files["event"])
    item = {
        "name": "pr",
        "kind": "change",
        "repository": str(import_stream(case, tmp_path / "origin.git")),
        "base": event["base_ref"],
        "head": "refs/pull/7/head",
        "expected_head": event["head_sha"],
        "author": account(event["actor"]),
    }
    result = check(case, [item], sites=roster())["pr"]
    expected = case.expected
    assert_outcome(result, expected if expected["outcome"] == "error" else {"ok": True})
    if expected["outcome"] == "ok":
        assert result["facts"]["paths"] == expected["paths"]
    elif "paths" in expected:
        assert [f["where"] for f in result["findings"]] == expected["paths"]
    if number == "H32":
        alone = check(case, [item | {"head": event["head_sha"]}], sites=roster())["pr"]
        assert alone["ok"]


# ------------------------------------------------------------------ pointers and stores


def test_h34_a_pointer_stays_in_its_folder(cases: Cases) -> None:
    case = cases["H34"]
    items = []
    for name, path in case.files["variants"].items():
        adapted = case.root / f"H34-{name}.adapted.dvc"
        sha256 = hashlib.sha256(case.read(case.files["object"])).hexdigest()
        adapted.write_text(adapted_pointer(case.read(path).decode(), "hospital-a", NO_MANIFEST, sha256))
        items.append(
            {"name": name, "kind": "pointer", "pointer": adapted.name, "placed_at": case.document["placed_at"]}
        )
    for name, result in check(case, items).items():
        assert_outcome(result, case.expected["variants"][name])


def test_h35_a_pointer_names_bytes_that_are_there_and_whole(cases: Cases, tmp_path: Path) -> None:
    case = cases["H35"]
    root = tmp_path / "store"
    root.mkdir()
    store = LayoutStore(root)
    contents = {"corrupt": b"weights of hospital-a, round 5", "missing": b"never uploaded"}
    items = []
    for name, path in case.files["variants"].items():
        data = contents.get(name, b"weights of hospital-a, round 4")
        upload = tmp_path / f"{name}.safetensors"
        upload.write_bytes(data)
        manifest = NO_MANIFEST if name == "missing" else store.put("sites/hospital-a", upload, {}).manifest
        adapted = case.root / f"H35-{name}.adapted.dvc"
        sha256 = hashlib.sha256(data).hexdigest()
        adapted.write_text(adapted_pointer(case.read(path).decode(), "hospital-a", manifest, sha256))
        place = "sites/hospital-a/update.safetensors.dvc"
        items.append({"name": name, "kind": "pointer", "pointer": adapted.name, "placed_at": place})
    whole = hashlib.sha256(contents["corrupt"]).hexdigest()
    [blob] = root.rglob(whole)
    blob.chmod(0o644)
    # The case's own damaged object: what its cache holds under the md5 of the good bytes.
    blob.write_bytes(case.read(case.files["objects"][hashlib.md5(contents["corrupt"]).hexdigest()]))
    for name, result in check(case, items, store=f"ocidir:{root}").items():
        assert_outcome(result, case.expected["variants"][name])


def test_h38_a_layer_has_the_fixed_title(cases: Cases) -> None:
    case = cases["H38"]
    items = [{"name": n, "kind": "manifest", "manifest": path} for n, path in case.files["variants"].items()]
    for name, result in check(case, items).items():
        assert_outcome(result, case.expected["variants"][name])
