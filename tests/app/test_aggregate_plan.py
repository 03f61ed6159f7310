"""`fedops aggregate` as a use case: who counts, what is told, and what is written or not."""

from __future__ import annotations

import hashlib
import itertools
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedops.core.errors import ConfigError
from tests.aggregate_world import World, good, told


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# ------------------------------------------------------------------ numbers and defaults


def test_what_a_plan_leaves_out_has_its_default(world: World) -> None:
    outcome = world.run(*good(world))
    made = outcome.made
    assert made is not None
    assert (outcome.word, outcome.changed, outcome.findings) == ("complete", True, ())
    assert (made.version, made.base_version, made.denominator) == (8, 7, 400.0)
    assert world.values() == [4.0, 4.0]
    rows = [(c.site, c.staleness, c.num_examples, c.weight, c.share) for c in made.contributions]
    assert rows == [("hospital-a", 0, 100, 100.0, 0.25), ("hospital-b", 0, 300, 300.0, 0.75)]
    assert {(c.delta_norm, c.clip_factor, c.score, c.sha256) for c in made.contributions} == {(None,) * 4}
    assert (made.rule.staleness.kind, made.rule.staleness.max, made.rule.privacy) == ("inverse", 5, None)


def test_the_current_version_may_be_another_than_the_highest(world: World) -> None:
    outcome = world.run(world.item("a", [2, 4], base=4), current_version=4)
    assert outcome.made is not None
    assert (outcome.made.version, world.values()) == (5, [2.0, 4.0])


def test_policies_may_stand_in_files(world: World) -> None:
    world.write("aggregation.yaml", b"weights: {by: uniform}\n")
    world.write("submission.yaml", b"num_examples_max: 299\n")
    outcome = world.run(*good(world), policy="aggregation.yaml", submission_policy="submission.yaml")
    assert told(outcome) == [("num_examples_invalid", "submissions/1")]
    assert world.values() == [1.0, 1.0]
    world.run(*good(world), policy="aggregation.yaml")
    assert world.values() == [3.0, 3.0]


def test_neither_the_order_of_the_plan_nor_a_name_of_a_file_changes_a_byte(world: World) -> None:
    items = [*good(world), world.item("clinic-c", [0.1, -7.3], base=4, n=7)]
    results = set()
    for i, order in enumerate(itertools.permutations(items)):
        out = world.path / f"out-{i}"
        world.run(*order, out=out)
        results.add(tuple(world.files(out).items()))
    assert len(results) == 1


def test_metrics_are_averaged_over_those_that_report_them(world: World) -> None:
    a, b = good(world)
    a["record"]["metrics"] = {"loss": 0.5}
    b["record"]["metrics"] = {"loss": 0.25, "auc": 0.75}
    world.run(a, b)
    assert world.record()["metrics"] == {"auc": 0.75, "loss": (100 * 0.5 + 300 * 0.25) / 400}


def test_a_delta_counts_if_the_policy_allows_it(world: World) -> None:
    a = good(world)[0]
    # The same as full weights (5, 5) on v7 (1, 2).
    delta = world.item("hospital-b", [4, 3], n=300, payload="delta")
    world.run(a, delta, submission_policy={"payloads": ["full", "delta"]})
    assert world.values() == [4.0, 4.0]
    refused = world.run(a, delta)
    assert told(refused) == [("payload_refused", "submissions/1")]


def test_a_stated_digest_does_not_change_a_byte_of_the_model(world: World) -> None:
    a, b = good(world)
    world.run(a, b)
    model = world.files()["model.safetensors"]
    for item in (a, b):
        item["record"]["sha256"] = world.sha256(item["update"])
    world.run(a, b)
    assert world.files()["model.safetensors"] == model


def test_the_mean_is_exact_over_several_bases(world: World) -> None:
    items = [world.item("a", [2, 2]), world.item("b", [3, -3], base=4)]
    world.run(*items)
    # Weights 100 and 100 / 4; deltas (1, 0) and (3, -3) from their own bases.
    expected = [1 + Fraction(100 * 1 + 25 * 3, 125), 2 + Fraction(25 * -3, 125)]
    assert world.values() == [float(np.float32(float(v))) for v in expected]


# ------------------------------------------------------------------ who counts


def test_a_superseded_submission_is_no_finding_and_leaves_no_trace(world: World) -> None:
    a, b = good(world)
    earlier = world.item("hospital-b", [900, 900], n=9)
    outcome = world.run(a, earlier, b)
    assert (outcome.word, outcome.findings) == ("complete", ())
    kept = world.files()
    assert world.run(a, b).changed is False
    assert world.files() == kept


def test_a_newer_base_supersedes_and_an_older_one_comes_too_late(world: World) -> None:
    old, new = world.item("a", [3, 3], base=4), world.item("a", [2, 2])
    for resubmit in ("reject", "supersede"):
        policy = {"resubmit": resubmit}
        assert world.run(old, new, submission_policy=policy).findings == ()
        assert world.values() == [2.0, 2.0]
        late = world.run(new, old, submission_policy=policy)
        assert told(late) == [("duplicate_submission", "submissions/1")]
        assert world.values() == [2.0, 2.0]


def test_a_refused_submission_neither_supersedes_nor_blocks(world: World) -> None:
    first, bad = world.item("a", [2, 2], n=1), world.item("a", [np.nan, 2], n=2)
    superseding = world.run(first, bad)
    assert told(superseding) == [("non_finite", "submissions/1")]
    assert world.values() == [2.0, 2.0]
    blocking = world.run(bad, first, submission_policy={"resubmit": "reject"})
    assert told(blocking) == [("non_finite", "submissions/0")]
    assert world.values() == [2.0, 2.0]


def test_what_is_superseded_is_looked_at_as_when_it_was_merged(world: World) -> None:
    bad, then = world.item("a", [np.nan, 2], n=1), world.item("a", [2, 2], n=2)
    outcome = world.run(bad, then)
    assert (outcome.word, told(outcome)) == ("partial", [("non_finite", "submissions/0")])
    wrong = world.item("a", [3, 3], n=3, sha256="a" * 64)
    outcome = world.run(wrong, then)
    assert (outcome.word, told(outcome)) == ("partial", [("hash_mismatch", "submissions/0")])
    assert world.values() == [2.0, 2.0]


@pytest.mark.parametrize("stated", [False, True])
def test_the_same_bytes_count_once_for_the_earlier_site(world: World, stated: bool) -> None:
    a = world.item("hospital-a", [2, 2])
    thief = {"update": a["update"], "record": a["record"] | {"site": "clinic-c", "num_examples": 900}}
    other = world.item("hospital-b", [4, 4])
    if stated:
        for item in (a, thief, other):
            item["record"]["sha256"] = world.sha256(item["update"])
    outcome = world.run(a, other, thief)
    [found] = outcome.findings
    assert (found.slug, found.where, found.got) == ("duplicate_submission", "submissions/2", world.sha256(a["update"]))
    assert found.detail == {"site": "clinic-c", "same_as": "hospital-a"}
    assert world.values() == [3.0, 3.0]


def test_bytes_count_although_another_site_claimed_their_digest_before(world: World) -> None:
    zeros = np.zeros(50_000, np.float32)
    for version in (4, 7):
        world.model(f"v{version}", zeros)
    values = zeros + 2
    honest = world.item("hospital-a", values)
    honest["record"]["sha256"] = world.sha256(honest["update"])
    values[777] = 3  # where nobody looks before the file is read
    liar = world.item("clinic-c", values, sha256=honest["record"]["sha256"])
    outcome = world.run(liar, honest)
    assert told(outcome) == [("hash_mismatch", "submissions/0")]
    assert set(world.values()) == {2.0}


def test_a_copy_of_what_is_refused_by_its_digest_counts(world: World) -> None:
    honest = world.item("hospital-a", [2, 2])
    first = {"update": honest["update"], "record": honest["record"] | {"site": "clinic-c"}}
    wrong = {"update": honest["update"], "record": first["record"] | {"sha256": "a" * 64}}
    assert told(world.run(first, honest)) == [("duplicate_submission", "submissions/1")]
    assert told(world.run(wrong, honest)) == [("hash_mismatch", "submissions/0")]
    assert world.values() == [2.0, 2.0]


# ------------------------------------------------------------------ what a site supplied


@pytest.mark.parametrize(
    ("changes", "slug"),
    [
        ({"num_examples": 0}, "num_examples_invalid"),
        ({"num_examples": 10**9}, "num_examples_invalid"),
        ({"base_version": 5}, "base_version_unknown"),
        ({"base_version": 8}, "base_version_unknown"),
        ({"site": "Hospital-A"}, "site_id_invalid"),
        ({"site": "archive"}, "site_id_reserved"),
        ({"extra": 1}, "metadata_schema"),
        ({"metrics": {"auc": "x"}}, "metrics_invalid"),
        ({"created_at": "2026-03-02"}, "timestamp_invalid"),
        ({"payload": "topk"}, "payload_refused"),
        ({"format": "npz"}, "metadata_schema"),
        ({"format": "opaque"}, "metadata_schema"),
        ({"sha256": "a" * 64}, "hash_mismatch"),
        ({"md5": "a" * 32}, "hash_mismatch"),
        ({"size": 7}, "size_mismatch"),
        ({"base_sha256": "a" * 64}, "hash_mismatch"),
    ],
)
def test_a_bad_record_is_data_and_never_leaks_into_the_model(world: World, changes: dict[str, Any], slug: str) -> None:
    a, b = good(world)
    bad = world.item("clinic-c", [999, -999])
    bad["record"] |= changes
    outcome = world.run(a, bad, b)
    assert (outcome.word, told(outcome)) == ("partial", [(slug, "submissions/1")])
    site = bad["record"]["site"]
    assert (outcome.findings[0].detail or {}).get("site") == ("clinic-c" if site == "clinic-c" else None)
    model = world.files()["model.safetensors"]
    world.run(a, b)
    assert world.files()["model.safetensors"] == model


@pytest.mark.parametrize(
    ("update", "slug"),
    [
        (b"age,sex\n61,1\n", "format_unknown"),
        (b"", "format_unknown"),
        (b"\x80\x04.", "pickle_refused"),
        ([1.0], "shape_mismatch"),
        (np.array([1.0, 2.0]), "dtype_mismatch"),
        ([np.inf, 0.0], "non_finite"),
    ],
)
def test_a_bad_file_is_data_and_never_leaks_into_the_model(world: World, update: Any, slug: str) -> None:
    a, b = good(world)
    bad = world.item("clinic-c", [0, 0])
    bad["update"] = world.write("bad", update) if isinstance(update, bytes) else world.model("bad", update)
    outcome = world.run(bad, a, b)
    assert (outcome.word, told(outcome)) == ("partial", [(slug, "submissions/0")])
    assert (outcome.findings[0].detail or {})["site"] == "clinic-c"
    assert world.record()["excluded"] == [
        {"submission": "submissions/0", "site": "clinic-c", "id": outcome.findings[0].id, "slug": slug}
    ]
    model = world.files()["model.safetensors"]
    world.run(a, b)
    assert world.files()["model.safetensors"] == model


def test_all_that_is_wrong_is_told_in_one_result(world: World) -> None:
    nan, inf = world.item("a", [np.nan, 0]), world.item("b", [0, -np.inf])
    wrong = world.item("c", [3, 3], sha256="a" * 64)
    far, ok = world.item("d", [1001, 2]), world.item("e", [2, 2])
    faults = [("non_finite", 0), ("non_finite", 1), ("hash_mismatch", 2), ("norm_exceeded", 3)]
    expected = [(slug, f"submissions/{i}") for slug, i in faults]
    limit = {"update_norm_max": 999}
    outcome = world.run(nan, inf, wrong, far, ok, submission_policy=limit)
    assert (outcome.word, told(outcome)) == ("partial", expected)
    assert world.values() == [2.0, 2.0]
    quorum = {"trigger": {"quorum": 5}}
    refused = world.run(nan, inf, wrong, far, ok, submission_policy=limit, policy=quorum, out=world.path / "none")
    assert (refused.word, told(refused)) == ("refused", [*expected, ("too_few_updates", "policy")])
    assert (refused.findings[-1].got, refused.findings[-1].expected) == (1, 5)
    assert not (world.path / "none").exists()


def test_a_limit_of_the_norm_makes_it_known(world: World) -> None:
    outcome = world.run(world.item("a", [4, 6]), world.item("b", [4, 6.5]), submission_policy={"update_norm_max": 5})
    [found] = outcome.findings
    assert (found.slug, found.expected) == ("norm_exceeded", 5.0)
    assert found.got == pytest.approx((3**2 + 4.5**2) ** 0.5, rel=1e-15)
    assert outcome.made is not None
    assert [c.delta_norm for c in outcome.made.contributions] == [5.0]


def test_what_a_record_states_may_be_right(world: World) -> None:
    item = world.item("a", [2, 2])
    data = (world.path / item["update"]).read_bytes()
    md5, sha256 = hashlib.md5(data).hexdigest(), hashlib.sha256(data).hexdigest()
    base = world.sha256(world.globals[7])
    item["record"] |= {"sha256": sha256, "size": len(data), "base_sha256": base}
    assert world.run(item).findings == ()
    item["record"] |= {"md5": md5}
    outcome = world.run(item, globals={"7": {"path": world.globals[7], "sha256": base}})
    assert outcome.findings == ()
    assert outcome.made is not None
    assert [c.sha256 for c in outcome.made.contributions] == [sha256]
    item["record"] |= {"md5": "a" * 32, "sha256": "b" * 64}
    refused = world.run(item)
    assert [(f.slug, (f.detail or {}).get("field")) for f in refused.findings[:-1]] == [
        ("hash_mismatch", "sha256"),
        ("hash_mismatch", "md5"),
    ]


def test_each_record_may_state_its_base(world: World) -> None:
    base = world.sha256(world.globals[7])
    a, b = (world.item(site, [n, n], n=n, base_sha256=base) for site, n in (("a", 2), ("b", 3)))
    assert world.run(a, b).findings == ()
    b["record"]["base_sha256"] = "b" * 64
    [found] = world.run(a, b).findings
    assert (found.slug, found.got, found.expected) == ("hash_mismatch", "b" * 64, base)


def test_an_npz_counts_and_free_metadata_is_dropped_with_a_warning(world: World) -> None:
    from safetensors.numpy import save

    np.savez(world.path / "a.npz", w=np.array([1, 1], np.float32))
    a = {"update": "a.npz", "record": {"site": "a", "base_version": 7, "num_examples": 100, "format": "npz"}}
    b = world.item("b", [5, 5], n=300)
    world.write(b["update"], save({"w": np.array([5, 5], np.float32)}, {"patient": "x"}))
    outcome = world.run(a, b)
    assert (outcome.word, told(outcome)) == ("complete", [("metadata_dropped", "submissions/1")])
    assert world.values() == [4.0, 4.0]
    assert b"patient" not in world.files()["model.safetensors"]


def test_records_in_files_are_whole_and_belong_to_their_folder(world: World) -> None:
    a, b = good(world)
    a = world.filed(a, "sites/hospital-a/submission.json")
    wrong = world.filed(b, "sites/clinic-c/submission.json")
    assert told(world.run(a, wrong)) == [("site_mismatch", "submissions/1")]
    assert told(world.run(a, world.filed(b, "b.json", created_at=None))) == [("timestamp_invalid", "submissions/1")]
    assert world.run(a, world.filed(b, "b.json")).findings == ()


@pytest.mark.parametrize(
    ("text", "path", "site"),
    [
        (b'{"site": "clinic-c"}', "c.json", "clinic-c"),
        (b'{"site": "clinic-c"}', "sites/hospital-b/submission.json", "clinic-c"),
        (b"{", "sites/hospital-b/submission.json", "hospital-b"),
        (b'{"site": "Clinic"}', "sites/Clinic/submission.json", None),
        (b"[]", "c.json", None),
        (b"{", "c.json", None),
        (b" " * 20_000, "c.json", None),
    ],
)
def test_the_site_is_named_whenever_anybody_can_tell(world: World, text: bytes, path: str, site: str | None) -> None:
    a, b = good(world)
    outcome = world.run(a, b | {"record": world.write(path, text)})
    assert outcome.word == "partial"
    assert {f.where for f in outcome.findings} == {"submissions/1"}
    assert {(f.detail or {}).get("site") for f in outcome.findings} == {site}


def test_a_roster_in_the_plan_says_who_counts(world: World) -> None:
    people = {"accounts": [{"login": "x", "id": 1}]}
    sites = {"sites": {"hospital-a": people}}
    assert told(world.run(*good(world), sites=sites)) == [("site_unknown", "submissions/1")]


def test_staleness_has_a_limit(world: World) -> None:
    old, new = world.item("a", [3, 3], base=4), world.item("b", [2, 2])
    outcome = world.run(old, new, policy={"staleness": {"max": 2}})
    [found] = outcome.findings
    assert (found.slug, found.got, found.expected) == ("too_stale", 3, 2)
    assert world.run(old, new, policy={"staleness": {"max": 3}}).findings == ()


def test_an_update_whose_base_had_other_tensors_cannot_be_added(world: World) -> None:
    world.model("v4", [0, 0, 0])
    fits_base = world.item("a", [1, 1, 1], base=4)
    outcome = world.run(fits_base, world.item("b", [2, 2]))
    [found] = outcome.findings
    assert (found.slug, found.got, found.expected) == ("shape_mismatch", [3], [2])
    assert world.values() == [2.0, 2.0]


# ------------------------------------------------------------------ no version


def test_a_result_that_is_no_number_of_its_dtype_is_refused(world: World) -> None:
    for version, value in ((4, 0), (7, 60000)):
        world.model(f"v{version}", np.array([value, 0], np.float16))
    outcome = world.run(world.item("a", np.array([60000, 0], np.float16), base=4))
    assert (outcome.word, told(outcome)) == ("refused", [("non_finite_result", "globals/7")])
    assert not world.out.exists()


def test_a_result_that_is_refused_tells_the_rest_too(world: World) -> None:
    for version, value in ((4, 0), (7, 60000)):
        world.model(f"v{version}", np.array([value, 0], np.float16))
    bad = world.item("b", np.array([1, 0], np.float16), base=4, n=1, sha256="a" * 64)
    outcome = world.run(world.item("a", np.array([60000, 0], np.float16), base=4), bad)
    assert told(outcome) == [("hash_mismatch", "submissions/1"), ("non_finite_result", "globals/7")]


def test_a_delta_whose_norm_has_no_value_is_left_out(world: World) -> None:
    for version in (4, 7):
        world.model(f"v{version}", np.array([0.0, 0.0]))
    far, near = np.array([1e200, 0]), np.array([0.0, 1.0])
    outcome = world.run(world.item("a", far), world.item("b", near), submission_policy={"update_norm_max": 9})
    assert (outcome.word, told(outcome)) == ("partial", [("non_finite_result", "submissions/0")])


def test_discounts_may_leave_no_weight(world: World) -> None:
    item = world.item("a", [1, 1], base=4)
    outcome = world.run(item, policy={"staleness": {"kind": "polynomial", "alpha": 2000}})
    assert (outcome.word, told(outcome)) == ("refused", [("no_weight", "policy")])
    assert not world.out.exists()


def test_without_submissions_there_is_no_version(world: World) -> None:
    outcome = world.run()
    assert (outcome.word, outcome.made, told(outcome)) == ("refused", None, [("too_few_updates", "policy")])


def test_a_share_that_cannot_be_held_is_a_warning(world: World) -> None:
    outcome = world.run(*good(world), policy={"weights": {"max_share": 0.3}})
    assert (outcome.word, told(outcome)) == ("complete", [("share_capped", "policy")])
    assert world.values() == [3.0, 3.0]


# ------------------------------------------------------------------ the plan itself


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": "fedops.check-plan/v1"},
        {"unknown": 1},
        {"submissions": None},
        {"submissions": [{"update": "v7.safetensors"}]},
        {"submissions": [{"update": "v7.safetensors", "record": []}]},
        {"submissions": [{"update": "missing", "record": {}}]},
        {"submissions": [{"update": ".", "record": {}}]},
        {"submissions": [{"update": "v7.safetensors", "record": "missing"}]},
        {"globals": {}},
        {"globals": {}, "current_version": 4},
        {"current_version": 5},
        {"globals": {"07": {"path": "v7.safetensors"}}},
        {"policy": {"unknown": 1}},
        {"policy": "missing.yaml"},
        {"policy": {"trigger": {"quorum": 0}}},
        {"policy": {"strategy": {"name": "fedadam"}}},
        {"policy": {"strategy": {"name": "median", "beta": "0.2"}}},
        {"policy": {"strategy": {"name": "trimmed_mean"}}},
        {"policy": {"strategy": {"name": "trimmed_mean", "beta": "-0.2"}}},
        {"policy": {"strategy": {"name": "trimmed_mean", "beta": "much"}}},
        {"policy": {"strategy": {"name": "krum"}}},
        {"policy": {"strategy": {"name": "krum", "f": -1}}},
        {"policy": {"strategy": {"name": "krum", "f": "1"}}},
        {"policy": {"strategy": {"name": "median"}, "privacy": {"clip_norm": 1, "noise_multiplier": 0}}},
        {"policy": {"strategy": {"name": "krum", "f": 0}, "privacy": {"clip_norm": 1, "noise_multiplier": 0}}},
        {"policy": {"strategy": {"name": "fedavg", "beta": 1}}},
        {"policy": {"privacy": {"clip_norm": 1, "noise_multiplier": 0.5}}},
        {"policy": {"privacy": {"clip_norm": 1, "noise_multiplier": 0, "max_epsilon": 3}}},
        {"policy": {"privacy": {"clip_norm": 0, "noise_multiplier": 0}}},
        {"submission_policy": {"resubmit": "maybe"}},
    ],
)
def test_a_fault_of_the_plan_is_an_error_and_writes_nothing(world: World, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        world.run(*good(world), **changes)
    assert not world.out.exists()


# ------------------------------------------------------------------ robust strategies

KRUM = {"strategy": {"name": "krum", "f": 1}}


def five(world: World, *last: float) -> list[Any]:
    """Four submissions close together on v7 (1, 2), and one more."""
    rows = ([1, 2], [2, 2], [2, 4], [5, 6], last or (-89, 42))
    return [world.item(site, row, n=10 ** (i + 1)) for i, (site, row) in enumerate(zip("abcde", rows, strict=True))]


def test_krum_tells_every_score_and_which_one_was_chosen(world: World) -> None:
    outcome = world.run(*five(world), policy=KRUM)
    made = outcome.made
    assert made is not None
    # Changes (0, 0) (1, 0) (1, 2) (4, 4) (-90, 40); of four squared distances each the two smallest.
    assert [c.score for c in made.contributions] == [1 + 5, 1 + 4, 4 + 5, 13 + 25, 8100 + 1600 + 91**2 + 38**2]
    assert (outcome.word, made.chosen, world.values()) == ("complete", "b", [2.0, 2.0])
    assert {(c.weight, c.delta_norm, c.clip_factor) for c in made.contributions} == {
        (10.0**i, None, None) for i in range(1, 6)
    }
    written = world.record()
    assert (written["chosen"], written["contributions"][1]["score"]) == ("b", 5.0)
    assert written["rule"]["strategy"] == written["rule"]["strategy"] | {"name": "krum", "f": 1}


def test_a_refused_update_is_told_and_the_rest_are_enough_or_not(world: World) -> None:
    nan = float("nan")
    sixth = world.item("f", [1, 3])
    outcome = world.run(*five(world, nan, 0), sixth, policy=KRUM)
    assert (outcome.word, told(outcome)) == ("partial", [("non_finite", "submissions/4")])
    assert outcome.made is not None
    assert [c.site for c in outcome.made.contributions] == ["a", "b", "c", "d", "f"]
    too_few = world.run(*five(world, nan, 0), policy=KRUM, out=world.path / "none")
    assert too_few.made is None
    assert told(too_few) == [("non_finite", "submissions/4"), ("krum_too_few", "policy")]
    assert (too_few.findings[1].got, too_few.findings[1].expected, too_few.findings[1].detail) == (4, 5, {"f": 1})
    assert not (world.path / "none").exists()


@pytest.mark.parametrize("rows", [([1, 2], [float("inf"), 2]), ([1, 2], [3, 4])])
def test_a_share_that_leaves_nothing_is_told_with_all_else_that_is_wrong(world: World, rows: Any) -> None:
    items = [world.item(site, row) for site, row in zip("ab", rows, strict=True)]
    outcome = world.run(*items, policy={"strategy": {"name": "trimmed_mean", "beta": "0.5"}})
    if rows[1][0] == 3:
        assert told(outcome) == [("trim_too_large", "policy")]
    else:  # one is refused, and of one nothing is cut
        assert (outcome.word, told(outcome)) == ("partial", [("non_finite", "submissions/1")])
        assert world.values() == [1.0, 2.0]


@pytest.mark.parametrize("strategy", [{"name": "median"}, {"name": "trimmed_mean", "beta": 0.34}])
def test_each_update_is_compared_by_its_change_from_its_own_version(world: World, strategy: Any) -> None:
    """Changes (1, 1) on v7, (9, -9) on v4, and (2, 2) as a change: the middle ones are 2 and 1."""
    items = [
        world.item("a", [2, 3], n=10**6),
        world.item("b", [9, -9], base=4),
        world.item("c", [2, 2], base=4, payload="delta"),
    ]
    rules = {"payloads": ["full", "delta"]}
    world.run(*items, policy={"strategy": strategy}, submission_policy=rules)
    assert world.values() == [1 + 2.0, 2 + 1.0]


def test_a_limit_on_the_norm_holds_and_the_norms_are_told(world: World) -> None:
    outcome = world.run(*five(world), world.item("f", [1, 3]), policy=KRUM, submission_policy={"update_norm_max": 50.0})
    assert told(outcome) == [("norm_exceeded", "submissions/4")]
    assert outcome.made is not None
    assert [c.delta_norm for c in outcome.made.contributions] == [0.0, 1.0, 5**0.5, 32**0.5, 1.0]


def test_a_missing_file_is_told_with_its_submission(world: World) -> None:
    a, b = good(world)
    with pytest.raises(ConfigError, match=r"submissions/1: missing\.safetensors: no such file"):
        world.run(a, b | {"update": "missing.safetensors"})


@pytest.mark.parametrize(
    "entry",
    [{"path": "missing"}, {"path": "bad.safetensors"}, {"path": "v7.safetensors", "sha256": "a" * 64}],
)
@pytest.mark.parametrize("quorum", [1, 9])
def test_a_global_model_that_cannot_be_used_is_the_plans_fault(
    world: World, entry: dict[str, Any], quorum: int
) -> None:
    world.write("bad.safetensors", b"no model")
    with pytest.raises(ConfigError, match=entry["path"].split(".")[0].replace("v7", "7")):
        world.run(*good(world), globals={"7": entry}, policy={"trigger": {"quorum": quorum}})
    assert not world.out.exists()


def test_a_global_model_is_looked_at_although_nobody_can_use_it(world: World) -> None:
    bad = world.item("a", [1, 1], n=0)
    for entries in ({"7": {"path": "plan.json"}}, {"7": {"path": world.globals[7]}, "4": {"path": "missing"}}):
        with pytest.raises(ConfigError, match=r"plan\.json: the global model cannot|missing: no such file"):
            world.run(bad, globals=entries)


def test_the_digest_of_a_model_that_nobody_uses_is_checked_too(world: World) -> None:
    entries = {
        "7": {"path": world.globals[7]},
        "4": {"path": world.globals[4], "sha256": world.sha256("v4.safetensors")},
    }
    assert world.run(*good(world), globals=entries).findings == ()
    entries["4"]["sha256"] = "a" * 64
    with pytest.raises(ConfigError, match=r"v4\.safetensors: sha256"):
        world.run(*good(world), globals=entries, out=world.path / "other")
    assert not (world.path / "other").exists()


def test_a_global_model_with_nan_is_the_plans_fault(world: World) -> None:
    world.model("v7", [np.nan, 2])
    with pytest.raises(ConfigError, match=r"globals/7: a float tensor contains NaN"):
        world.run(*good(world))


# ------------------------------------------------------------------ privacy


def test_without_noise_deltas_are_clipped_and_counted_once_each(world: World) -> None:
    items = [world.item("a", [4, 6], n=1), world.item("b", [1, 2], n=999)]
    privacy = {"clip_norm": 2.5, "noise_multiplier": 0}
    outcome = world.run(*items, policy={"privacy": privacy})
    assert outcome.made is not None
    # a's delta (3, 4) has norm 5 and is halved; b's is zero; the mean of the two is (0.75, 1).
    assert world.values() == [1.75, 3.0]
    assert [(c.weight, c.delta_norm, c.clip_factor) for c in outcome.made.contributions] == [
        (1.0, 5.0, 0.5),
        (1.0, 0.0, 1.0),
    ]
    fixed = {"privacy": privacy | {"denominator": 4}}
    world.run(*items, policy=fixed, out=world.path / "fixed")
    assert world.values(world.path / "fixed") == [1 + 1.5 / 4, 2 + 2 / 4]


def test_with_privacy_the_file_does_not_tell_how_far_a_site_moved_the_model(world: World) -> None:
    outcome = world.run(world.item("a", [4, 6]), policy={"privacy": {"clip_norm": 2.5, "noise_multiplier": 0}})
    assert outcome.made is not None
    assert outcome.made.contributions[0].delta_norm == 5.0
    [row] = world.record()["contributions"]
    assert (row["delta_norm"], row["clip_factor"]) == (None, None)
