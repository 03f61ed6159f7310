"""The handed cases that `fedops aggregate` computes: the right numbers, and never a wrong model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedops.adapters.model_writer import save_arrays
from tests.cases.harness import (
    Aggregated,
    Case,
    Cases,
    aggregate,
    aggregate_plan,
    check,
    fedops_process,
    submissions,
)
from tests.cases.tensors import Tensor, as_expected, assert_tensors, read_tensors


def assert_complete(done: Aggregated) -> None:
    assert (done.code, done.result["outcome"], done.result["findings"]) == (0, "complete", [])


# ------------------------------------------------------------------ numbers


@pytest.mark.parametrize("number", ["H01", "H02", "H03", "H05", "H11", "H12", "H21", "H24", "H25", "H27"])
def test_the_numbers_are_the_cases(cases: Cases, tmp_path: Path, number: str) -> None:
    case = cases[number]
    done = aggregate(case, tmp_path / "out")
    assert_complete(done)
    assert_tensors(done.tensors, case.expected["tensors"])


@pytest.mark.parametrize("number", ["H01", "H21", "H27"])
def test_differences_give_the_same_numbers_as_full_weights(cases: Cases, tmp_path: Path, number: str) -> None:
    case = cases[number]
    items = []
    for site, files in case.files["updates"].items():
        record = {k: case.json(files["metadata"])[k] for k in ("site", "base_version", "num_examples")}
        if "delta" in files:
            items.append({"update": files["delta"], "record": record | {"payload": "delta"}})
        else:
            items += submissions(case, site)
    done = aggregate(case, tmp_path / "out", items, submission_policy={"payloads": ["full", "delta"]})
    assert_complete(done)
    assert_tensors(done.tensors, case.expected["tensors"])


@pytest.mark.parametrize("rule", ["max", "sum_of_deltas", "rounded_mean", "keep"])
def test_h01_each_integer_rule_gives_its_number(cases: Cases, tmp_path: Path, rule: str) -> None:
    case = cases["H01"]
    done = aggregate(case, tmp_path / "out", policy={"integers": {"default": rule}})
    expected = dict(case.expected["tensors"])
    for name, value in case.expected["alternatives"][rule].items():
        expected[name] = expected[name] | {"values": [value]}
    assert_tensors(done.tensors, expected)


def test_h04_a_nan_is_left_out_and_told(cases: Cases, tmp_path: Path) -> None:
    case = cases["H04"]
    done = aggregate(case, tmp_path / "out")
    assert (done.code, done.result["outcome"]) == (0, case.expected["outcome"])
    [(site, expected)] = case.expected["rejected"].items()
    [found] = done.result["findings"]
    assert (found["slug"], found["where"]) == (
        expected["error"],
        f"submissions/{list(case.files['updates']).index(site)}",
    )
    assert (found["detail"]["site"], found["detail"]["tensor"], found["got"]) == (site, expected["tensor"], "nan")
    assert_tensors(done.tensors, case.expected["tensors"])
    without = aggregate(case, tmp_path / "without", submissions(case, "hospital-a", "clinic-c"))
    assert_complete(without)
    assert (tmp_path / "out/model.safetensors").read_bytes() == (tmp_path / "without/model.safetensors").read_bytes()


def test_h08_no_examples_make_no_version(cases: Cases, tmp_path: Path) -> None:
    case = cases["H08"]
    done = aggregate(case, tmp_path / "out")
    assert done.code == 3
    refused = done.refused()
    assert refused.pop(None) == ["too_few_updates"]
    assert refused == {site: [e["error"]] for site, e in case.expected["per_site"].items()}


def test_h21_weights_are_discounted_and_may_be_divided_by_the_count(cases: Cases, tmp_path: Path) -> None:
    case = cases["H21"]
    done = aggregate(case, tmp_path / "weights")
    weights = {c["site"]: c["weight"] for c in done.result["contributions"]}
    assert weights == {site: float(w) for site, w in case.expected["weights"].items()}
    assert {c["site"]: c["staleness"] for c in done.result["contributions"]} == {"hospital-a": 0, "hospital-b": 3}
    assert (done.result["version"], done.result["denominator"]) == (8, 150.0)
    by_count = aggregate(case, tmp_path / "count", policy={"weights": {"normalize": "count"}})
    [(name, values)] = case.expected["alternatives"]["normalise=examples"].items()
    assert_tensors(by_count.tensors, {name: case.expected["tensors"][name] | {"values": values}})
    assert by_count.result["denominator"] == 200.0


def _h23_items(case: Case) -> list[dict[str, Any]]:
    a = case.files["updates"]["hospital-a"]
    again = {"update": a["update_again"], "record": a["metadata_again"]}
    return [*submissions(case, "hospital-a"), again, *submissions(case, "hospital-b")]


def test_h23_the_first_counts_where_the_policy_rejects(cases: Cases, tmp_path: Path) -> None:
    case = cases["H23"]
    done = aggregate(case, tmp_path / "out", _h23_items(case))
    assert (done.code, done.result["outcome"]) == (0, case.expected["outcome"])
    [expected] = case.expected["rejected"].values()
    [found] = done.result["findings"]
    assert (found["slug"], found["where"], found["detail"]["site"]) == (
        expected["error"],
        "submissions/1",
        "hospital-a",
    )
    assert_tensors(done.tensors, case.expected["tensors"])


def test_h23_the_latest_counts_where_the_policy_supersedes(cases: Cases, tmp_path: Path) -> None:
    case = cases["H23"]
    done = aggregate(case, tmp_path / "out", _h23_items(case), submission_policy={"resubmit": "supersede"})
    assert_complete(done)
    for name, values in case.expected["alternatives"]["duplicates=latest"].items():
        assert done.tensors[name].values.tolist() == values


def test_h27_a_delta_is_clipped_as_a_whole(cases: Cases, tmp_path: Path) -> None:
    case = cases["H27"]
    done = aggregate(case, tmp_path / "out")
    rows = {c["site"]: c for c in done.result["contributions"]}
    assert {site: row["clip_factor"] for site, row in rows.items()} == case.expected["clip_factors"]
    assert {site: row["delta_norm"] for site, row in rows.items()} == {"hospital-a": 0.0, "hospital-b": 5.0}


@pytest.mark.parametrize("number", ["H24", "H25"])
def test_robust_rules_give_none_of_the_wrong_numbers(cases: Cases, tmp_path: Path, number: str) -> None:
    case = cases[number]
    done = aggregate(case, tmp_path / "out", list(reversed(submissions(case))))
    assert_tensors(done.tensors, case.expected["tensors"])
    for wrong in case.expected.get("wrong", {}).values():
        assert done.tensors["w"].values.tolist() != wrong
    assert (done.result["chosen"], {c["score"] for c in done.result["contributions"]}) == (None, {None})


def test_h26_krum_takes_the_update_closest_to_the_others(cases: Cases, tmp_path: Path) -> None:
    case = cases["H26"]
    done = aggregate(case, tmp_path / "out")
    assert_complete(done)
    assert done.result["chosen"] == case.expected["chosen"]
    assert {c["site"]: str(int(c["score"])) for c in done.result["contributions"]} == case.expected["scores"]
    for name, values in case.expected["float_tensors"].items():
        assert done.tensors[name].values.tolist() == values


def test_h26_krum_of_too_few_makes_no_version(cases: Cases, tmp_path: Path) -> None:
    case = cases["H26"]
    few = case.expected["with_three_sites"]
    rule = {"strategy": {"name": "krum", "f": few["f"]}}
    done = aggregate(case, tmp_path / "out", submissions(case, *few["sites"]), policy=rule)
    assert (done.code, done.refused()) == (3, {None: [few["error"]]})


# ------------------------------------------------------------------ the writer, and two runs one after the other


def test_h10_arrays_of_any_memory_order_are_packed_as_they_look(cases: Cases, tmp_path: Path) -> None:
    case = cases["H10"]
    a = np.arange(12, dtype="f4").reshape(3, 4)
    arrays = {
        "plain": a,
        "fortran": np.asfortranarray(a),
        "strided": np.repeat(a, 2, axis=1)[:, ::2],
        "transposed": a.T,
    }
    assert not any(arrays[name].flags.c_contiguous for name in ("fortran", "strided", "transposed"))
    save_arrays(tmp_path / "packed.safetensors", arrays)
    assert_tensors(read_tensors(tmp_path / "packed.safetensors"), case.expected["tensors"])
    want = load_file(case.root / case.files["want"])
    for name, got in load_file(tmp_path / "packed.safetensors").items():
        np.testing.assert_array_equal(got, want[name])
    item = {"name": "npz", "kind": "submission", "update": case.files["npz"]}
    tensors = check(case, [item])["npz"]["facts"]["tensors"]
    assert tensors == {name: {"dtype": "F32", "shape": [3, 4]} for name in ("fortran", "plain")}


def test_h42_each_update_counts_in_exactly_one_version(cases: Cases, tmp_path: Path) -> None:
    case = cases["H42"]
    first, then = case.expected["first"], case.expected["second"]["then"]
    a = aggregate(case, tmp_path / "v4", submissions(case, *first["consumed"]))
    assert a.result["version"] == first["version"]
    assert a.tensors["w"].values.tolist() == first["w"]
    globals_ = {"3": {"path": case.files["globals"]["3"]}, "4": {"path": str(tmp_path / "v4/model.safetensors")}}
    b = aggregate(case, tmp_path / "v5", submissions(case, *then["consumed"]), globals=globals_)
    assert b.result["version"] == then["version"]
    assert [c["staleness"] for c in b.result["contributions"]] == [then["tau"]]
    assert b.tensors["w"].values.tolist() == then["w"]


# ------------------------------------------------------------------ real models


def _correct(case: Case, tensors: dict[str, Tensor]) -> int:
    """Rows of the evaluation set that a logistic regression gets right, in float64."""
    rows = load_file(case.root / case.files["eval"])
    z = rows["X"].astype(np.float64) @ tensors["coef"].values + float(tensors["intercept"].values[0])
    assert len(z) == case.expected["eval_rows"]
    return int(((z > 0) == (rows["y"] > 0)).sum())


def _h44_items(case: Case, *, stale: bool) -> list[dict[str, Any]]:
    items = submissions(case, *case.expected["sites"])
    if stale:
        late = case.files["stale_clinic_c"]
        items[list(case.expected["sites"]).index("clinic-c")] = {"update": late["update"], "record": late["metadata"]}
    return items


@pytest.mark.parametrize("name", ["fedavg", "fedavg_stale"])
def test_h44_real_sites_make_a_model_as_good_as_expected(cases: Cases, tmp_path: Path, name: str) -> None:
    case = cases["H44"]
    done = aggregate(case, tmp_path / "out", _h44_items(case, stale=name == "fedavg_stale"))
    assert_complete(done)
    expected = as_expected(case.root / case.files["expected"][name], case.expected["ulps"])
    assert_tensors(done.tensors, expected)
    assert _correct(case, done.tensors) == case.expected["correct"][name]
    before = read_tensors(case.root / case.files["globals"]["3"])
    assert _correct(case, before) == case.expected["correct"]["global_v3"]
    assert {c["site"]: c["num_examples"] for c in done.result["contributions"]} == case.expected["sites"]
    late = next(c for c in done.result["contributions"] if c["site"] == "clinic-c")
    assert late["weight"] == (96 / 3 if name == "fedavg_stale" else 96)


@pytest.mark.parametrize(
    ("name", "strategy"),
    [("median", {"name": "median"}), ("trimmed_0.25", {"name": "trimmed_mean", "beta": "0.25"})],
    ids=["median", "trimmed_mean"],
)
def test_h44_real_sites_make_a_robust_model_as_good_as_expected(
    cases: Cases, tmp_path: Path, name: str, strategy: dict[str, Any]
) -> None:
    case = cases["H44"]
    done = aggregate(case, tmp_path / "out", _h44_items(case, stale=False), policy={"strategy": strategy})
    assert_complete(done)
    assert_tensors(done.tensors, as_expected(case.root / case.files["expected"][name], case.expected["ulps"]))
    assert _correct(case, done.tensors) == case.expected["correct"][name]


def test_h44_krum_scores_real_sites_as_expected(cases: Cases, tmp_path: Path) -> None:
    case = cases["H44"]
    items, rule = _h44_items(case, stale=False), {"strategy": {"name": "krum", "f": 0}}
    done = aggregate(case, tmp_path / "out", items, policy=rule)
    assert_complete(done)
    expected = case.expected["krum_f0"]
    assert done.result["chosen"] == expected["chosen"]
    scores = {c["site"]: c["score"] for c in done.result["contributions"]}
    assert [scores[site] for site in case.expected["sites"]] == pytest.approx(expected["scores"], rel=1e-14)
    taken = read_tensors(case.root / case.files["updates"][expected["chosen"]]["update"])
    assert {n: t.values.tolist() for n, t in done.tensors.items()} == {n: t.values.tolist() for n, t in taken.items()}


def test_h45_a_real_cnn_keeps_its_counters_and_its_keys(cases: Cases, tmp_path: Path) -> None:
    case = cases["H45"]
    code, result, stderr = fedops_process(
        "aggregate", "--plan", str(aggregate_plan(case)), "--out", str(tmp_path / "out")
    )
    assert (code, stderr, result["outcome"]) == (0, "", "complete")
    tensors = read_tensors(tmp_path / "out/model.safetensors")
    assert_tensors(tensors, as_expected(case.root / case.files["expected"]["fedavg"], case.expected["ulps"]))
    assert set(tensors) == set(case.expected["keys"])
    for name, value in case.expected["counters"].items():
        assert (tensors[name].dtype, tensors[name].shape, tensors[name].values.tolist()) == ("I64", (), [value])
    assert {c["site"]: c["num_examples"] for c in result["contributions"]} == case.expected["num_examples"]


# ------------------------------------------------------------------ a process of its own


def test_h04_a_process_says_the_same_as_a_call(cases: Cases, tmp_path: Path) -> None:
    case = cases["H04"]
    done = aggregate(case, tmp_path / "call")
    plan = aggregate_plan(case)
    code, result, stderr = fedops_process("aggregate", "--plan", str(plan), "--out", str(tmp_path / "process"))
    assert (code, result, stderr) == (done.code, done.result, "")
    for name in ("model.safetensors", "version.json"):
        assert (tmp_path / "call" / name).read_bytes() == (tmp_path / "process" / name).read_bytes()
