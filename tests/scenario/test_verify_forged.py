"""History rewritten by somebody with all rights: each forgery is named by `fedops verify`, version and cause."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fedops.core.ids import GlobalVersion
from tests.forgery import Forger
from tests.scenario.auditing import Auditor
from tests.verify_world import NEWEST

VERSION, METRICS, POINTER = "global/version.json", "global/metrics.json", "global/model.safetensors.dvc"
OTHER = "0" * 40
Json = dict[str, Any]


def dump(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def changed(forger: Forger, commit: str, path: str, change: Callable[[Json], object]) -> bytes:
    """A JSON file of a commit, edited."""
    value = json.loads(forger.read(commit, path))
    change(value)
    return dump(value)


def replaced(forger: Forger, commit: str, path: str, old: bytes, new: bytes) -> bytes:
    data = forger.read(commit, path)
    assert old in data
    return data.replace(old, new, 1)


def record(number: int, forger: Forger) -> Json:
    value: Json = json.loads(forger.read(forger.version(number), VERSION))
    return value


def set_record(forger: Forger, number: int, change: Callable[[Json], object], *, new_tag: bool = False) -> None:
    """Change a version's record, and everything in its commit that follows from the record."""
    commit = forger.version(number)
    data = changed(forger, commit, VERSION, change)
    files = {VERSION: data, METRICS: dump(json.loads(data)["metrics"])}
    forger.rewrite({commit: files})
    if new_tag:
        sign_tag(forger, number)


def sign_tag(forger: Forger, number: int) -> None:
    """Make the tag anew, so that it names the record as it is now."""
    import hashlib

    ref = f"refs/tags/global@v{number}.0.0"
    lines = forger.objects[forger.refs[ref]][1].decode().split("\n")
    data = forger.read(forger.version(number), VERSION)
    digest = hashlib.sha256(data).hexdigest()
    model = json.loads(data)["model"]["sha256"]
    lines = [
        f"Fedops-Record: sha256:{digest}"
        if line.startswith("Fedops-Record")
        else f"Fedops-Model: sha256:{model}"
        if line.startswith("Fedops-Model")
        else line
        for line in lines
    ]
    forger.set_ref(ref, forger.put("tag", "\n".join(lines).encode()))


# ---------------------------------------------------------------- honest


def test_the_honest_history_is_recomputed_bit_for_bit(auditor: Auditor) -> None:
    report = auditor.verify()
    assert (report.code, report.document["ok"], report.findings) == (0, True, [])
    assert [row["version"] for row in report.document["versions"]] == list(range(NEWEST + 1))
    assert report.levels == ["inputs"] * (NEWEST + 1)


def test_the_past_holds_what_auditors_must_tell_apart(auditor: Auditor) -> None:
    """What the other tests take for granted of the federation that they damage."""
    forger = auditor.forger()
    records = [record(n, forger) for n in range(NEWEST + 1)]
    bases = [[c["base_version"] for c in r["contributions"]] for r in records]
    assert bases == [[], [0, 0], [0, 1], [2], [3]]
    assert [[(e["slug"], e["judged"]) for e in r["excluded"]] for r in records] == [
        [],
        [],
        [],
        [("norm_exceeded", "bytes")],
        [("site_suspended", "tree")],
    ]
    assert [[u["site"] for u in r["witness"]["unavailable"]] for r in records[3:]] == [["clinic-c"], ["clinic-c"]]
    assert records[4]["consumed"]["clinic-c"] == 0
    assert [r["witness"]["trigger"] for r in records[1:]] == ["quorum", "quorum", "max_wait", "max_wait"]
    parents = [forger.parents(forger.version(n))[0] for n in range(1, NEWEST + 1)]
    inputs = [r["witness"]["input_commit"] for r in records[1:]]
    assert [a == b for a, b in zip(parents, inputs, strict=True)] == [True, True, True, False]


def test_history_re_created_without_any_change_is_the_same_history(auditor: Auditor) -> None:
    forger = auditor.forger()
    tip = forger.refs["refs/heads/main"]
    forger.rewrite()
    assert forger.refs["refs/heads/main"] == tip


def merge_again(forger: Forger, merge: str, head: str) -> None:
    """Let a merge have brought another commit of the site, and re-create what comes after it."""
    forger.follow(merge, forger.recommit(merge, forger.files(merge), [forger.parents(merge)[0], head]))


# ---------------------------------------------------------------- what a version read


def first_named(auditor: Auditor, number: int) -> Callable[..., bool]:
    """Verify; all versions before `number` must be good, and this one not."""
    report = auditor.verify()
    assert report.code == 3
    assert report.failed[:1] == [number]
    assert report.document["ok"] is False
    return lambda slug, **detail: report.names(number, slug, **detail)


def test_a_used_record(auditor: Auditor) -> None:
    forger = auditor.forger()
    commit, path = forger.commit("merge(hospital-b): update on v0"), "sites/hospital-b/submission.json"
    forger.rewrite({commit: {path: changed(forger, commit, path, lambda r: r.update(num_examples=101))}})
    named = first_named(auditor, 1)
    assert named("record_mismatch", field="record", site="hospital-b")
    assert named("lineage_broken", field="witness.input_commit", why="not on main")


def test_a_used_record_in_the_sites_own_commit_too(auditor: Auditor) -> None:
    """The merge is consistent again, but the site's signature is not of this commit any more."""
    forger = auditor.forger()
    commit, path = forger.commit("merge(hospital-a): update on v1"), "sites/hospital-a/submission.json"
    data = changed(forger, commit, path, lambda r: r["metrics"].update(loss=0.0))
    head = forger.parents(commit)[1]
    files = forger.files(head) | {path: ("100644", forger.put("blob", data))}
    forged = forger.recommit(head, files, forger.parents(head))
    new = forger.rewrite({commit: {path: data}})
    merge_again(forger, new[commit], forged)
    named = first_named(auditor, 2)
    assert named("record_mismatch", field="record", site="hospital-a")


@pytest.mark.parametrize(("number", "site"), [(1, "hospital-a"), (2, "clinic-c"), (3, "hospital-a")])
def test_a_used_pointer(auditor: Auditor, number: int, site: str) -> None:
    forger = auditor.forger()
    base = {c["site"]: c["base_version"] for c in record(number, forger)["contributions"]}[site]
    commit = forger.commit(f"merge({site}): update on v{base}", -1)
    path = f"sites/{site}/update.safetensors.dvc"
    forger.rewrite({commit: {path: replaced(forger, commit, path, b"hash: md5", b"hash:  md5")}})
    assert first_named(auditor, number)("record_mismatch", field="pointer", site=site)


def test_the_record_of_an_excluded_submission(auditor: Auditor) -> None:
    forger = auditor.forger()
    commit, path = forger.commit("merge(hospital-b): update on v1"), "sites/hospital-b/submission.json"
    forger.rewrite({commit: {path: changed(forger, commit, path, lambda r: r.update(num_examples=1))}})
    assert first_named(auditor, 3)("record_mismatch", field="record", site="hospital-b")


def test_a_record_that_no_version_used_breaks_the_lineage_of_the_next(auditor: Auditor) -> None:
    forger = auditor.forger()
    commit, path = forger.commit("merge(hospital-a): update on v0", 0), "sites/hospital-a/submission.json"
    forger.rewrite({commit: {path: changed(forger, commit, path, lambda r: r.update(num_examples=1))}})
    assert first_named(auditor, 1)("lineage_broken", field="witness.input_commit")


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("policies/aggregation.yaml", b"quorum: 2", b"quorum: 1"),
        ("policies/aggregation.yaml", b"kind: inverse", b"kind: constant"),
        ("policies/aggregation.yaml", b"max_wait_hours: 24", b"max_wait_hours: 48"),
        ("policies/submission.yaml", b"require_signed: true", b"require_signed: false"),
        ("policies/training.yaml", b"\n", b"\n\n"),
        ("policies/sites.yaml", b"  clinic-c:", b"  clinic-d:"),
        ("federation.yaml", b"name: breast-cancer", b"name: breast-cancel"),
    ],
)
def test_a_policy(auditor: Auditor, path: str, old: bytes, new: bytes) -> None:
    forger = auditor.forger()
    commit = forger.commit("policy: change", 0)
    forger.rewrite({commit: {path: replaced(forger, commit, path, old, new)}})
    assert first_named(auditor, 1)("policy_mismatch")


def test_a_policy_between_two_versions_leaves_the_first_alone(auditor: Auditor) -> None:
    forger = auditor.forger()
    commit, path = forger.commit("policy: change", 1), "policies/submission.yaml"
    forger.rewrite({commit: {path: replaced(forger, commit, path, b"update_norm_max: 10.0", b"update_norm_max: 11.0")}})
    assert first_named(auditor, 3)("policy_mismatch")


def test_the_policies_of_v0(auditor: Auditor) -> None:
    forger = auditor.forger()
    commit, path = forger.version(0), "policies/training.yaml"
    forger.rewrite({commit: {path: forger.read(commit, path) + b"# more\n"}})
    assert first_named(auditor, 0)("policy_mismatch")


def test_a_key_removed_from_the_roster(auditor: Auditor) -> None:
    forger = auditor.forger()
    commit, path = forger.commit("policy: change", 0), "policies/sites.yaml"
    text = forger.read(commit, path).decode()
    at = text.index("keys:", text.index("hospital-a:"))
    end = text.index("]", at) if text[at + 6] == "[" else text.index("state:", at)
    inline = text[at + 6] == "["
    new = text[:at] + ("keys: [" if inline else "keys: []\n    ") + text[end:]
    forger.rewrite({commit: {path: new.encode()}})
    named = first_named(auditor, 1)
    assert named("policy_mismatch")
    assert named("record_mismatch", field="decision")  # hospital-a alone is unsigned, and one is no quorum


def test_a_key_added_to_the_roster(auditor: Auditor) -> None:
    forger = auditor.forger()
    commit, path = forger.commit("policy: change", 0), "policies/sites.yaml"
    text = forger.read(commit, path)
    key = text[text.index(b"ssh-ed25519", text.index(b"clinic-c:")) :].split(b'"')[0].split(b"\n")[0]
    assert key.startswith(b"ssh-ed25519 ")
    new = text.replace(key, key[:-30] + b"B" * 8 + key[-22:], 1)
    forger.rewrite({commit: {path: new}})
    assert first_named(auditor, 1)("policy_mismatch")


@pytest.mark.parametrize(
    "path", ["policies/aggregation.yaml", "policies/sites.yaml", "policies/submission.yaml", "federation.yaml"]
)
@pytest.mark.parametrize("data", [b"a: [1", b"", None])
def test_a_policy_that_cannot_be_read_is_named_and_stops_no_other_version(
    auditor: Auditor, path: str, data: bytes | None
) -> None:
    forger = auditor.forger()
    commit = forger.commit("merge(clinic-c): update on v0")
    good = forger.read(commit, path)
    forger.rewrite({commit: {path: data}}, extra={forger.version(2): {path: good}})
    report = auditor.verify()
    assert (report.code, report.failed[:1]) == (3, [2])
    assert report.names(2, "policy_invalid")
    assert report.slugs(1) == []
    assert set(report.slugs(4)) == {"lineage_broken"}


@pytest.mark.parametrize(
    ("path", "data", "slug"),
    [
        ("policies/large.bin", b"x" * 2_000_000, "file_too_large"),
        ("policies/two\nlines.yaml", b"x", "policy_invalid"),
    ],
)
def test_a_file_among_the_policies_that_has_no_digest(auditor: Auditor, path: str, data: bytes, slug: str) -> None:
    forger = auditor.forger()
    forger.rewrite(
        {forger.commit("merge(clinic-c): update on v0"): {path: data}}, extra={forger.version(2): {path: None}}
    )
    assert first_named(auditor, 2)(slug)


# ---------------------------------------------------------------- the version record


def weights(r: Json) -> None:
    r["contributions"][0]["weight"] = 40.0


def consistent_weights(r: Json) -> None:
    r["contributions"][0].update(weight=40.0, share=40 / 190)
    r["contributions"][1].update(share=150 / 190)
    r["denominator"] = 190.0


FIELDS: Mapping[str, tuple[Callable[[Json], object], str, Json]] = {
    "weight": (weights, "record_mismatch", {"field": "contributions", "sites": ["clinic-c"]}),
    "weights, shares and denominator": (consistent_weights, "record_mismatch", {"field": "denominator"}),
    "share": (lambda r: r["contributions"][1].update(share=0.5), "record_mismatch", {"sites": ["hospital-a"]}),
    "staleness": (lambda r: r["contributions"][0].update(staleness=0), "record_mismatch", {"sites": ["clinic-c"]}),
    "num_examples": (lambda r: r["contributions"][0].update(num_examples=41), "record_mismatch", {"sites": ["clinic-c"]}),
    "a contribution's bytes": (
        lambda r: r["contributions"][0].update(sha256="0" * 64),
        "record_mismatch",
        {"sites": ["clinic-c"]},
    ),
    "a contribution's record": (
        lambda r: r["contributions"][0].update(record_blob=OTHER),
        "record_mismatch",
        {"field": "record", "site": "clinic-c"},
    ),
    "a contribution's pointer": (
        lambda r: r["contributions"][0].update(pointer_blob=OTHER),
        "record_mismatch",
        {"field": "pointer", "site": "clinic-c"},
    ),
    "delta_norm": (lambda r: r["contributions"][0].update(delta_norm=1.0), "record_mismatch", {"field": "delta_norm"}),
    "a contribution dropped": (lambda r: r["contributions"].pop(0), "record_mismatch", {"sites": ["clinic-c"]}),
    "a contribution twice": (
        lambda r: r["contributions"].append(r["contributions"][0]),
        "record_mismatch",
        {"field": "contributions"},
    ),
    "contributions in another order": (
        lambda r: r["contributions"].reverse(),
        "record_mismatch",
        {"field": "contributions"},
    ),
    "denominator": (lambda r: r.update(denominator=171.0), "record_mismatch", {"field": "denominator"}),
    "consumed": (
        lambda r: r["consumed"].update({"clinic-c": 1}),
        "record_mismatch",
        {"field": "consumed", "keys": ["clinic-c"]},
    ),
    "consumed dropped": (
        lambda r: r["consumed"].pop("hospital-b"),
        "record_mismatch",
        {"field": "consumed", "keys": ["hospital-b"]},
    ),
    "metrics": (lambda r: r["metrics"].update(loss=0.1), "record_mismatch", {"field": "metrics", "keys": ["loss"]}),
    "carried": (lambda r: r["carried"]["counters"].update(x=1), "record_mismatch", {"field": "carried"}),
    "status": (lambda r: r.update(status="final"), "record_mismatch", {"field": "status"}),
    "kind": (lambda r: r.update(kind="rollback", source={"version": 1}), "lead_required", {}),
    "kind, by its model": (
        lambda r: r.update(kind="rollback", source={"version": 1}),
        "record_mismatch",
        {"field": "model", "keys": ["manifest", "md5", "sha256"]},
    ),
    "source": (lambda r: r.update(source={"version": 1}), "record_mismatch", {"field": "source"}),
    "rule": (lambda r: r["rule"]["staleness"].update(max=9), "record_mismatch", {"field": "rule"}),
    "policy": (lambda r: r.update(policy="sha256:" + "0" * 64), "policy_mismatch", {}),
    "base_version": (lambda r: r.update(base_version=0), "lineage_broken", {}),
    "model sha256": (lambda r: r["model"].update(sha256="0" * 64), "model_mismatch", {"field": "sha256"}),
    "model md5": (lambda r: r["model"].update(md5="0" * 32), "model_mismatch", {"field": "md5"}),
    "model size": (lambda r: r["model"].update(size=1), "model_mismatch", {"field": "size"}),
    "model manifest": (lambda r: r["model"].update(manifest="sha256:" + "0" * 64), "model_mismatch", {"field": "manifest"}),
    "model format": (lambda r: r["model"].update(format="opaque"), "record_mismatch", {"field": "model"}),
    "tensors": (lambda r: r["model"]["tensors"].pop("steps"), "model_mismatch", {"field": "tensors"}),
    "a tensor's shape": (
        lambda r: r["model"]["tensors"]["weight"].update(shape=[3, 4]),
        "model_mismatch",
        {"field": "tensors"},
    ),
    "trigger": (lambda r: r["witness"].update(trigger="max_wait"), "record_mismatch", {"field": "witness.trigger"}),
    "input_commit": (
        lambda r: r["witness"].update(input_commit=OTHER),
        "lineage_broken",
        {"field": "witness.input_commit", "why": "not on main"},
    ),
    "no input_commit": (
        lambda r: r["witness"].update(input_commit=None),
        "lineage_broken",
        {"field": "witness.input_commit", "why": "not on main"},
    ),
    "decided_at is no time": (
        lambda r: r["witness"].update(decided_at="2026-13-45T99:00:00Z"),
        "record_mismatch",
        {"field": "witness.decided_at"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FIELDS)
def test_a_field_of_a_version_record(auditor: Auditor, what: str) -> None:
    change, slug, detail = FIELDS[what]
    set_record(auditor.forger(), 2, change)
    named = first_named(auditor, 2)
    assert named(slug, **detail)
    assert named("tag_moved", field="message")


@pytest.mark.parametrize("what", ["weights, shares and denominator", "consumed", "model sha256", "input_commit"])
def test_a_field_of_a_version_record_under_a_tag_that_was_made_anew(auditor: Auditor, what: str) -> None:
    change, slug, detail = FIELDS[what]
    set_record(auditor.forger(), 2, change, new_tag=True)
    named = first_named(auditor, 2)
    assert named(slug, **detail)
    assert not named("tag_moved")


def test_a_number(auditor: Auditor) -> None:
    set_record(auditor.forger(), 2, lambda r: r.update(version=7))
    report = auditor.verify()
    assert (report.code, report.failed) == (3, [7, 3, 4, 2])
    assert report.names(7, "lineage_broken", got={"version": 7, "base_version": 1})
    assert report.names(2, "tag_moved")


def test_a_number_beyond_all_bounds(auditor: Auditor) -> None:
    set_record(auditor.forger(), 2, lambda r: r.update(version=10**18, base_version=10**18 - 1))
    report = auditor.verify()
    assert (report.code, report.failed) == (3, [10**18, 3, 4, 2])


def test_an_exclusion_dropped(auditor: Auditor) -> None:
    set_record(auditor.forger(), 4, lambda r: r["excluded"].clear())
    assert first_named(auditor, 4)("record_mismatch", field="excluded", sites=["hospital-b"])


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (4, {"slug": "too_stale", "id": "FO-226"}),
        (4, {"judged": "bytes"}),
        (3, {"slug": "non_finite", "id": "FO-218"}),
        (3, {"slug": "object_missing", "id": "FO-207"}),
        (3, {"slug": "no such slug", "id": "FO-999"}),
        (3, {"judged": "tree"}),
    ],
)
def test_another_reason_for_an_exclusion(auditor: Auditor, number: int, change: Json) -> None:
    """One that depends on bytes is judged again by the bytes."""
    set_record(auditor.forger(), number, lambda r: r["excluded"][0].update(change))
    assert first_named(auditor, number)("record_mismatch", field="excluded")


def test_a_good_submission_left_out_as_if_its_bytes_were_bad(auditor: Auditor) -> None:
    def leave_out(r: Json) -> None:
        gone = r["contributions"].pop(0)
        entry = {"site": gone["site"], "record_blob": gone["record_blob"], "id": "FO-219", "slug": "norm_exceeded"}
        r["excluded"] = [entry | {"judged": "bytes"}]

    set_record(auditor.forger(), 1, leave_out)
    assert first_named(auditor, 1)("record_mismatch", field="decision")  # the rest is no quorum


def test_a_good_submission_left_out_where_the_rest_is_enough(auditor: Auditor) -> None:
    """In v2 hospital-a would do alone once max_wait is over: clinic-c was wanted out."""

    def leave_out(r: Json) -> None:
        gone = r["contributions"].pop(0)
        entry = {"site": gone["site"], "record_blob": gone["record_blob"], "id": "FO-219", "slug": "non_finite"}
        r["excluded"] = [entry | {"judged": "bytes"}]
        r["contributions"][0]["share"] = 1.0
        r["denominator"] = 150.0
        r["witness"].update(trigger="max_wait", decided_at="2026-03-09T09:30:00Z")

    set_record(auditor.forger(), 2, leave_out, new_tag=True)
    assert first_named(auditor, 2)("record_mismatch", field="excluded", site="clinic-c", expected="used")


def test_a_good_submission_left_out_as_unavailable_is_a_warning_beside_the_fault(auditor: Auditor) -> None:
    """Nobody can disprove that bytes were gone at some moment; but the model does not follow."""

    def leave_out(r: Json) -> None:
        gone = r["contributions"].pop(0)
        entry = {"site": gone["site"], "record_blob": gone["record_blob"], "slug": "object_missing"}
        r["witness"].update(unavailable=[entry], trigger="max_wait", decided_at="2026-03-09T09:30:00Z")
        r["contributions"][0]["share"] = 1.0
        r["denominator"] = 150.0
        del r["consumed"]["clinic-c"]
        r["metrics"] = {"loss": 1 / 1.5}

    set_record(auditor.forger(), 2, leave_out, new_tag=True)
    named = first_named(auditor, 2)
    assert named("unavailable_present", site="clinic-c", severity="warning")
    assert named("model_mismatch", field="sha256")


@pytest.mark.parametrize(
    "entry",
    [
        {"site": "hospital-b", "record_blob": OTHER, "slug": "object_missing"},
        {"site": "clinic-c", "slug": "too_boring"},
    ],
)
def test_what_is_called_unavailable_must_be_eligible_and_unavailable_in_a_known_way(
    auditor: Auditor, entry: Json
) -> None:
    def claim(r: Json) -> None:
        known = r["witness"]["unavailable"]
        if entry["site"] == known[0]["site"]:
            known[0].update(entry)
        else:
            known.append(entry)

    set_record(auditor.forger(), 3, claim)
    assert first_named(auditor, 3)("record_mismatch", field="witness.unavailable")


def test_nothing_is_excluded_and_unavailable_at_once(auditor: Auditor) -> None:
    def claim(r: Json) -> None:
        e = r["excluded"][0]
        r["witness"]["unavailable"].append(
            {"site": e["site"], "record_blob": e["record_blob"], "slug": "object_missing"}
        )

    set_record(auditor.forger(), 3, claim)
    assert first_named(auditor, 3)("record_mismatch", field="witness.unavailable", site="hospital-b")


def test_a_decision_before_its_window_was_over(auditor: Auditor) -> None:
    set_record(auditor.forger(), 3, lambda r: r["witness"].update(decided_at="2026-03-02T12:00:00Z"))
    assert first_named(auditor, 3)("record_mismatch", field="decision", got="wait: quorum")


def test_an_input_commit_of_an_earlier_version(auditor: Auditor) -> None:
    forger = auditor.forger()
    earlier = record(1, forger)["witness"]["input_commit"]
    set_record(forger, 3, lambda r: r["witness"].update(input_commit=earlier))
    assert first_named(auditor, 3)("lineage_broken", why="before the version before")


def test_an_input_commit_with_other_policies_than_the_parents(auditor: Auditor) -> None:
    forger = auditor.forger()
    early = forger.commit("merge(hospital-b): update on v3")  # the roster changed after it
    set_record(forger, 4, lambda r: r["witness"].update(input_commit=early))
    assert first_named(auditor, 4)("lineage_broken", got=["policies/sites.yaml"])


def test_an_input_commit_to_come(auditor: Auditor) -> None:
    forger = auditor.forger()
    # Of v1, which is earlier than the merge that follows it, so that the later one can be named.
    later = forger.commit("policy: change", 0)
    set_record(forger, 0, lambda r: r["witness"].update(input_commit=later))
    assert first_named(auditor, 0)("record_mismatch", field="witness")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("consumed", lambda r: r["consumed"].update({"hospital-a": 0})),
        ("status", lambda r: r.update(status="final")),
        ("kind", lambda r: r.update(kind="revert", source={"version": 0})),
        ("metrics", lambda r: r["metrics"].update(loss=0.0)),
    ],
)
def test_a_field_of_v0(auditor: Auditor, name: str, change: Callable[[Json], object]) -> None:
    set_record(auditor.forger(), 0, change)
    named = first_named(auditor, 0)
    assert named("record_mismatch", field=name) or (name == "kind" and named("lineage_broken", got="revert"))


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("source", lambda r: r["source"].update(seed=6)),
        ("source", lambda r: r["source"].update(generator="ones")),
        ("size", lambda r: r["model"]["tensors"]["weight"].update(shape=[10**9, 10**9])),
    ],
)
def test_a_generator_that_does_not_give_v0(auditor: Auditor, field: str, change: Callable[[Json], object]) -> None:
    set_record(auditor.forger(), 0, change)
    assert first_named(auditor, 0)("model_mismatch", field=field)


def test_a_time_of_v0_that_is_none(auditor: Auditor) -> None:
    set_record(auditor.forger(), 0, lambda r: r["witness"].update(decided_at="yesterday"))
    assert first_named(auditor, 0)("record_mismatch", field="witness.decided_at", got="yesterday")


def test_policies_of_v0_that_cannot_be_read_stop_no_other_version(auditor: Auditor) -> None:
    forger = auditor.forger()
    forger.rewrite({forger.version(0): {"policies/aggregation.yaml": b"a: [1"}})  # the next commit sets it anew
    report = auditor.verify()
    assert report.names(0, "policy_invalid")
    assert report.slugs(1) == ["lineage_broken"]


def test_an_exclusion_of_a_site_that_never_handed_in(auditor: Auditor) -> None:
    entry = {"site": "nowhere", "record_blob": OTHER, "id": "FO-230", "slug": "site_unknown", "judged": "tree"}
    set_record(auditor.forger(), 2, lambda r: r["excluded"].append(entry))
    assert first_named(auditor, 2)("record_mismatch", field="excluded", sites=["nowhere"])


def test_a_lead_who_edits_one_weight_and_the_model_digest(auditor: Auditor) -> None:
    def edit(r: Json) -> None:
        r["contributions"][0]["weight"] = 200.0
        r["model"]["sha256"] = "1" * 64

    set_record(auditor.forger(), 4, edit, new_tag=True)
    named = first_named(auditor, 4)
    assert named("record_mismatch", field="contributions")
    assert named("model_mismatch", field="sha256")


def test_witness_that_nothing_recomputes_is_held_by_the_tag(auditor: Auditor) -> None:
    set_record(auditor.forger(), 2, lambda r: r["witness"]["software"].update(fedops="9.9.9"))
    report = auditor.verify()
    assert report.slugs(2) == ["tag_moved"]
    assert set(report.slugs(3)) == {"lineage_broken"}


@pytest.mark.parametrize("number", range(1, NEWEST + 1))
def test_a_record_that_does_not_parse_is_named_and_stops_no_other_version(auditor: Auditor, number: int) -> None:
    forger = auditor.forger()
    forger.rewrite({forger.version(number): {VERSION: b'{"schema": "fedops.version/v1"}\n'}})
    report = auditor.verify()
    assert (report.code, report.failed[:1]) == (3, [number])
    assert report.names(number, "record_mismatch")
    assert [row["version"] for row in report.document["versions"]] == list(range(NEWEST + 1))
    assert report.levels[:number] == ["inputs"] * number


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff\xfe", b"{" * 100_000, b"x" * 17_000_000])
def test_hostile_bytes_in_place_of_a_record(auditor: Auditor, data: bytes) -> None:
    forger = auditor.forger()
    forger.rewrite({forger.version(2): {VERSION: data}})
    report = auditor.verify()
    assert (report.code, report.failed[:1]) == (3, [2])


# ---------------------------------------------------------------- the version's commit


@pytest.mark.parametrize("path", [METRICS, POINTER])
def test_a_file_beside_the_record(auditor: Auditor, path: str) -> None:
    forger = auditor.forger()
    commit = forger.version(2)
    forger.rewrite({commit: {path: forger.read(commit, path).replace(b"\n", b" \n", 1)}})
    assert first_named(auditor, 2)("record_mismatch", path=path)


@pytest.mark.parametrize("path", [METRICS, POINTER])
def test_a_file_beside_the_record_that_is_gone(auditor: Auditor, path: str) -> None:
    forger = auditor.forger()
    forger.rewrite({forger.version(3): {path: None}})
    assert first_named(auditor, 3)("record_mismatch", path=path)


@pytest.mark.parametrize("path", ["README.md", "global/other.bin", "sites/hospital-a/submission.json"])
def test_an_extra_file_in_a_versions_commit(auditor: Auditor, path: str) -> None:
    forger = auditor.forger()
    forger.rewrite({forger.version(2): {path: b"more\n"}})
    assert first_named(auditor, 2)("lineage_broken", got=[path])


def test_a_record_that_is_executable(auditor: Auditor) -> None:
    forger = auditor.forger()
    commit = forger.version(2)
    forger.rewrite({commit: {VERSION: forger.read(commit, VERSION)}}, mode="100755")
    assert first_named(auditor, 2)("record_mismatch", got="mode 100755", path=VERSION)


def test_a_record_in_other_bytes_of_the_same_meaning(auditor: Auditor) -> None:
    forger = auditor.forger()
    commit = forger.version(2)
    forger.rewrite({commit: {VERSION: json.dumps(record(2, forger)).encode()}})
    assert first_named(auditor, 2)("record_mismatch", path=VERSION)


def test_a_version_commit_with_two_parents(auditor: Auditor) -> None:
    forger = auditor.forger()
    forger.rewrite(second_parent={forger.version(2): forger.version(1)})
    expected = "one parent, or besides it the commit that proposed the version"
    assert first_named(auditor, 2)("lineage_broken", got=[forger.version(1)], expected=expected)


@pytest.mark.parametrize("path", [METRICS, POINTER, "global/other.bin"])
def test_a_commit_that_changes_global_without_being_a_version_is_told_by_itself(auditor: Auditor, path: str) -> None:
    forger = auditor.forger()
    forger.rewrite(extra={forger.version(NEWEST): {path: b"{}\n"}})
    report = auditor.verify()
    assert (report.code, report.failed, report.slugs(None)) == (3, [], ["lineage_broken"])
    stray = forger.refs["refs/heads/main"]
    assert report.names(None, "lineage_broken", where=stray, got=[path], after=f"v{NEWEST}")
    assert auditor.verify(f"v{NEWEST}").slugs(None) == ["lineage_broken"]
    earlier = auditor.verify(f"v{NEWEST - 1}")
    assert (earlier.code, earlier.findings) == (0, []), "what came later is nothing of it"


def stray_of(forger: Forger, data: Mapping[str, bytes | None]) -> str:
    """Put a commit onto main that is no version."""
    tip = forger.refs["refs/heads/main"]
    files = forger.files(tip) | {p: ("100644", forger.put("blob", d)) for p, d in data.items() if d is not None}
    stray = forger.recommit(tip, {p: f for p, f in files.items() if p not in data or data[p] is not None}, [tip])
    forger.set_ref("refs/heads/main", stray)
    return stray


@pytest.mark.parametrize("path", [METRICS, POINTER, "global/other.bin"])
def test_once_main_is_right_again_a_change_of_global_is_a_warning(auditor: Auditor, path: str) -> None:
    forger = auditor.forger()
    tip = forger.refs["refs/heads/main"]
    there = forger.read(tip, path) if path in forger.files(tip) else None
    first = stray_of(forger, {path: b"{}\n"})
    second = stray_of(forger, {path: there})
    report = auditor.verify()
    assert (report.code, report.failed) == (0, [])
    assert [(f["slug"], f["where"], f["got"]) for f in report.findings] == [
        ("global_restored", first, [path]),
        ("global_restored", second, [path]),
    ]


def test_what_the_next_version_wrote_over_is_right_again_and_what_it_left_is_not(auditor: Auditor) -> None:
    forger = auditor.forger()
    forger.rewrite(extra={forger.version(NEWEST - 1): {METRICS: b"{}\n", "global/other.bin": b"x"}})
    (told,) = auditor.verify().of(None)  # beside what is wrong with a version whose input commit was rewritten
    assert (told["slug"], told["got"], told["detail"]) == (
        "lineage_broken",
        ["global/other.bin"],
        {"after": f"v{NEWEST - 1}"},
    )
    stray_of(forger, {"global/other.bin": None})
    assert auditor.verify().slugs(None) == ["global_restored", "global_restored"]


def test_a_main_that_was_rewritten_verifies_and_older_clones_tell_for_as_long_as_they_remember(
    auditor: Auditor,
) -> None:
    """Main is set back by force, and the tag of what came after is gone: what is left is a whole federation."""
    older, never = auditor.clone(), auditor.clone()
    assert auditor.verify(clone=older).code == 0
    forger = auditor.forger()
    newest = forger.version(NEWEST)
    forger.set_ref("refs/heads/main", forger.version(NEWEST - 1))
    forger.set_ref(f"refs/tags/global@v{NEWEST}.0.0", None)
    assert auditor.verify().code == 0, "nobody who comes later can see it"
    auditor.call(never, "status")  # which fetches
    for clone in (older, older, never):
        report = auditor.verify(clone=clone)
        assert (report.code, report.failed, report.slugs(None)) == (3, [], ["main_rewritten"])
        assert report.names(None, "main_rewritten", where="main", got=newest)
    assert auditor.call(older, "ci", "audit")[0] == 3
    subprocess.run(["git", "-C", str(never), "reflog", "expire", "--expire=now", "--all"], check=True)
    subprocess.run(["git", "-C", str(never), "gc", "--quiet", "--prune=now"], check=True)
    subprocess.run(["git", "-C", str(older), "prune", "--expire=now"], check=True)
    assert auditor.verify(clone=older).names(None, "main_rewritten", got=newest)
    assert auditor.verify(clone=never).code == 0
    forger.set_ref("refs/heads/main", newest)
    assert not auditor.verify(clone=older).names(None, "main_rewritten"), "main has got back what it had"


def test_a_merge_the_wrong_way_round_and_back_loses_nothing_that_a_clone_has_met(auditor: Auditor) -> None:
    """`git pull` of a lead with a commit of their own makes main's line the side; a second merge puts it right."""
    forger = auditor.forger()
    good = forger.refs["refs/heads/main"]
    aside = forger.recommit(good, forger.files(good), [forger.version(NEWEST - 1)])
    wrong = forger.recommit(good, forger.files(good), [aside, good])
    forger.set_ref("refs/heads/main", wrong)
    clone = auditor.clone()
    report = auditor.verify(clone=clone)
    assert (report.code, report.slugs(None)) == (3, [])
    assert NEWEST in report.failed
    forger.set_ref("refs/heads/main", forger.recommit(good, forger.files(good), [good, wrong]))
    report = auditor.verify(clone=clone)
    assert (report.code, report.findings) == (0, []), "what was met beside the line is in main's history"


def test_a_version_skipped(auditor: Auditor) -> None:
    forger = auditor.forger()
    forger.rewrite(drop=[forger.version(2)])
    report = auditor.verify()
    assert (report.code, sorted(report.failed)) == (3, [2, 3, 4])
    assert report.names(2, "tag_moved")
    assert report.names(3, "lineage_broken", expected={"version": 2, "base_version": 1})


def test_a_record_that_a_versions_commit_takes_away(auditor: Auditor) -> None:
    """v1 is gone, and with it the base of what v3 excluded by its bytes."""
    forger = auditor.forger()
    forger.rewrite({forger.version(1): {VERSION: None}})
    report = auditor.verify()
    assert report.names(None, "global_restored", where=forger.version(1), after="v0")
    assert report.names(1, "tag_moved", expected="a version on main")
    assert report.names(2, "lineage_broken", expected={"version": 1, "base_version": 0})
    assert report.names(3, "lineage_broken", field="witness.input_commit")
    assert 3 in report.failed


def test_a_version_skipped_with_its_tag(auditor: Auditor) -> None:
    forger = auditor.forger()
    forger.rewrite(drop=[forger.version(2)])
    forger.set_ref("refs/tags/global@v2.0.0", None)
    assert auditor.verify().names(2, "lineage_broken")


def test_a_version_inserted(auditor: Auditor) -> None:
    forger = auditor.forger()
    one = forger.version(1)
    inserted = dump(record(1, forger) | {"version": 2, "base_version": 1})
    forger.rewrite(extra={one: {VERSION: inserted}})
    report = auditor.verify()
    assert [row["version"] for row in report.document["versions"]] == [0, 1, 2, 2, 3, 4]
    assert report.failed == [2, 2, 3, 4]
    assert report.names(2, "tag_moved")
    assert report.names(2, "record_mismatch", field="decision")
    assert report.names(2, "lineage_broken", got={"version": 2, "base_version": 1})


def test_git_revert_of_a_version(auditor: Auditor) -> None:
    forger = auditor.forger()
    before = forger.parents(forger.version(2))[0]
    back = {path: forger.read(before, path) for path in (VERSION, METRICS, POINTER)}
    forger.rewrite(extra={forger.version(2): back})
    report = auditor.verify()
    assert report.names(None, "global_restored", got=sorted(back), after="v2")
    assert report.failed == [3, 4], "what was made on the reverted main does not follow from it"
    assert report.names(3, "lineage_broken", expected={"version": 2, "base_version": 1})


def test_git_revert_of_the_newest_version_and_its_own_revert(auditor: Auditor) -> None:
    forger = auditor.forger()
    newest = forger.version(NEWEST)
    before = forger.parents(newest)[0]
    paths = (VERSION, METRICS, POINTER)
    reverted = stray_of(forger, {path: forger.read(before, path) for path in paths})
    report = auditor.verify()
    assert (report.code, report.failed) == (3, [])
    assert report.names(None, "lineage_broken", where=reverted, got=sorted(paths), after=f"v{NEWEST}")
    stray_of(forger, {path: forger.read(newest, path) for path in paths})
    report = auditor.verify()
    assert (report.code, report.failed, report.slugs(None)) == (0, [], ["global_restored"] * 2)


def test_a_record_deleted_and_put_back(auditor: Auditor) -> None:
    forger = auditor.forger()
    newest = forger.version(NEWEST)
    forger.rewrite(extra={newest: {VERSION: None}})
    tip = forger.refs["refs/heads/main"]
    back = forger.files(newest)
    assert auditor.verify().names(None, "lineage_broken", got=[VERSION])
    forger.set_ref("refs/heads/main", forger.recommit(newest, back, [tip]))
    report = auditor.verify()
    assert (report.code, report.failed, report.slugs(None)) == (0, [], ["global_restored"] * 2)


def test_a_rebase_by_which_the_input_commits_are_gone(auditor: Auditor) -> None:
    forger = auditor.forger()
    forger.rewrite(drop=[forger.commit("docs: notes")], extra={forger.commit("policy: change", 1): {"NOTES.md": b"x"}})
    report = auditor.verify()
    assert (report.code, report.failed) == (3, [3, 4])
    assert report.slugs(3) == report.slugs(4) == ["lineage_broken"]
    assert report.names(3, "lineage_broken", field="witness.input_commit", why="not on main")


def test_main_turned_round_in_a_merge_that_makes_the_old_main_its_side(auditor: Auditor) -> None:
    """A foxtrot merge: all commits are there, but main's first-parent line is another one."""
    forger = auditor.forger()
    tip, root = forger.refs["refs/heads/main"], forger.version(0)
    forger.set_ref("refs/heads/main", forger.recommit(tip, forger.files(tip), [root, tip]))
    report = auditor.verify()
    assert report.code == 3
    assert sorted(report.failed) == [1, 2, 3, 4]
    assert all(report.names(n, "tag_moved") for n in range(1, NEWEST + 1))


# ---------------------------------------------------------------- eligibility


def test_a_version_that_used_up_what_was_used_already(auditor: Auditor) -> None:
    """v3 claims hospital-b's submission on v0 once more, in place of the one that it excluded."""
    forger = auditor.forger()
    again = next(c for c in record(1, forger)["contributions"] if c["site"] == "hospital-b")

    def use(r: Json) -> None:
        r["contributions"].append(again | {"staleness": 2, "weight": 1.0, "share": 0.0})

    set_record(forger, 3, use)
    named = first_named(auditor, 3)
    assert named("record_mismatch", field="contributions", sites=["hospital-b"])
    assert named("record_mismatch", field="record", site="hospital-b")


def test_a_version_that_used_a_suspended_site(auditor: Auditor) -> None:
    def use(r: Json) -> None:
        entry = r["excluded"].pop()
        base = r["contributions"][0] | {"site": "hospital-b", "record_blob": entry["record_blob"]}
        r["contributions"].append(base)

    set_record(auditor.forger(), 4, use)
    assert first_named(auditor, 4)("record_mismatch", field="contributions", sites=["hospital-b"])


def test_a_version_that_used_an_unsigned_submission(auditor: Auditor) -> None:
    """The site's commit is replaced by one without signature; its files stay as they are."""
    forger = auditor.forger()
    merge = forger.commit("merge(clinic-c): update on v0")
    head = forger.parents(merge)[1]
    raw = forger.objects[head][1]
    unsigned = forger.put("commit", raw[: raw.index(b"gpgsig")] + b"\n" + raw.split(b"\n\n", 1)[1])
    assert forger.parents(unsigned) == forger.parents(head)
    merge_again(forger, merge, unsigned)
    named = first_named(auditor, 2)
    assert named("record_mismatch", field="decision")  # hospital-a alone is no quorum


def test_a_version_that_left_out_an_eligible_submission_without_a_reason(auditor: Auditor) -> None:
    def leave_out(r: Json) -> None:
        r["contributions"].pop(0)
        r["contributions"][0]["share"] = 1.0
        r["denominator"] = 150.0
        del r["consumed"]["clinic-c"]

    set_record(auditor.forger(), 2, leave_out)
    named = first_named(auditor, 2)
    assert named("record_mismatch", field="contributions", sites=["clinic-c", "hospital-a"])
    assert named("record_mismatch", field="consumed", keys=["clinic-c"])


# ---------------------------------------------------------------- what no pull request could have brought


def twins(forger: Forger) -> dict[str, bytes]:
    """A site's two files again, in folders and under names that only look like its own."""
    tip, site = forger.refs["refs/heads/main"], "sites/hospital-a/"
    own = {path: forger.read(tip, path) for path in forger.files(tip) if path.startswith(site)}
    assert len(own) == 2
    folders = ("sites/Hospital-A/", "sites/hospit\u0430l-a/")
    names = ("Submission.json", "\u017fubmission.json")
    return {path.replace(site, folder): data for folder in folders for path, data in own.items()} | {
        site + name: own[f"{site}submission.json"] for name in names
    }


def long_record(forger: Forger) -> dict[str, bytes]:
    """The record of hospital-a's newest submission but one, which v3 used, with ten thousand lines more."""
    path = "sites/hospital-a/submission.json"
    data = forger.read(forger.parents(forger.version(3))[0], path)
    return {path: data.replace(b"{", b"{" + b"\n" * 10_000, 1)}


def read_by_v3(forger: Forger, files: Mapping[str, bytes]) -> None:
    """Let v3's input commit be one more, which brought these files; record and tag say so."""
    forger.rewrite(extra={forger.parents(forger.version(3))[0]: files})
    [brought] = forger.parents(forger.version(3))
    set_record(forger, 3, lambda r: r["witness"].update(input_commit=brought), new_tag=True)


@pytest.mark.parametrize("make", [twins, long_record])
def test_what_nobody_could_hand_in_is_no_fault_of_versions_that_did_not_read_it(
    auditor: Auditor, make: Callable[[Forger], dict[str, bytes]]
) -> None:
    """Verify and audit judge what versions were made of; what lies on main is judged by the run that would read it."""
    forger = auditor.forger()
    forger.rewrite(extra={forger.refs["refs/heads/main"]: make(forger)})
    report = auditor.verify()
    assert (report.code, report.findings, report.levels) == (0, [], ["inputs"] * (NEWEST + 1))
    code, out, _ = auditor.call(auditor.clone(), "ci", "audit", "--format", "json")
    assert (code, json.loads(out)["findings"]) == (0, [])


def test_twins_of_a_site_and_of_its_files_counted_for_nothing_in_the_version_that_came_after_them(
    auditor: Auditor,
) -> None:
    forger = auditor.forger()
    read_by_v3(forger, twins(forger))
    named = first_named(auditor, 3)
    assert named("model_mismatch", field="manifest"), "the stored proposal was made on another commit"
    assert auditor.verify("v3").slugs(3) == ["model_mismatch"], "all else is worked out as before"


def test_a_record_of_ten_thousand_lines_that_somebody_put_on_main_is_named_where_a_version_reads_it(
    auditor: Auditor,
) -> None:
    forger = auditor.forger()
    files = long_record(forger)
    read_by_v3(forger, files)
    blob = forger.files(forger.version(3))["sites/hospital-a/submission.json"][1]
    named = first_named(auditor, 3)
    assert named("merged_by_hand", where="sites/hospital-a/submission.json", site="hospital-a")
    assert named("record_mismatch", field="record", site="hospital-a", got=blob)
    assert named("record_mismatch", field="decision"), "it counts for nothing, and the rest was not enough"
    code, out, _ = auditor.call(auditor.clone(), "ci", "audit", "--format", "json")
    assert code == 3
    assert "sites/hospital-a/submission.json" in {f["where"] for f in json.loads(out)["findings"]}


# ---------------------------------------------------------------- tags


def tag_of(number: int) -> str:
    return f"refs/tags/{GlobalVersion(number).tag}"


@pytest.mark.parametrize("number", range(NEWEST + 1))
def test_a_tag_deleted(auditor: Auditor, number: int) -> None:
    auditor.forger().set_ref(tag_of(number), None)
    report = auditor.verify()
    assert (report.code, report.failed) == (3, [number])
    assert report.slugs(number) == ["tag_missing"]


def test_a_tag_moved_to_another_commit_of_main(auditor: Auditor) -> None:
    forger = auditor.forger()
    forger.set_ref(tag_of(2), forger.refs[tag_of(1)])
    report = auditor.verify()
    assert (report.code, report.failed) == (3, [2])
    assert report.names(2, "tag_moved", got=forger.version(1))


def test_a_tag_made_lightweight(auditor: Auditor) -> None:
    forger = auditor.forger()
    forger.set_ref(tag_of(2), forger.version(2))
    report = auditor.verify()
    assert (report.code, report.failed) == (3, [2])
    assert report.names(2, "tag_moved", got="a lightweight tag")


@pytest.mark.parametrize(
    ("field", "old", "new"),
    [
        ("message", b"global: v2", b"global: v3"),
        ("message", b"Fedops-Model: sha256:", b"Fedops-Model: sha255:"),
        ("tagger", b"tagger lena", b"tagger lenA"),
        ("tagger", b" +0000\n", b" +0100\n"),
        ("tagger", b"tag global@v2.0.0", b"tag global@v3.0.0"),
        ("message", b"\n\n", b"\n\n\n"),
    ],
)
def test_one_byte_of_a_tag(auditor: Auditor, field: str, old: bytes, new: bytes) -> None:
    forger = auditor.forger()
    data = forger.objects[forger.refs[tag_of(2)]][1]
    assert old in data
    forger.set_ref(tag_of(2), forger.put("tag", data.replace(old, new, 1)))
    report = auditor.verify()
    assert (report.code, report.failed) == (3, [2])
    assert report.names(2, "tag_moved", field=field)


def test_the_date_of_a_tag(auditor: Auditor) -> None:
    forger = auditor.forger()
    data = forger.objects[forger.refs[tag_of(2)]][1]
    stamp = data.split(b"> ", 1)[1].split(b" ")[0]
    forger.set_ref(tag_of(2), forger.put("tag", data.replace(stamp, b"%d" % (int(stamp) + 1), 1)))
    assert auditor.verify().names(2, "tag_moved", field="tagger")


@pytest.mark.parametrize("number", [NEWEST + 1, 99])
def test_a_tag_above_the_current_version(auditor: Auditor, number: int) -> None:
    forger = auditor.forger()
    forger.set_ref(tag_of(number), forger.refs[tag_of(NEWEST)])
    report = auditor.verify()
    assert (report.code, report.failed) == (3, [number])
    assert report.names(number, "tag_moved", expected="a version on main")


def test_a_tag_of_something_that_is_no_commit(auditor: Auditor) -> None:
    forger = auditor.forger()
    forger.set_ref(tag_of(2), forger.files(forger.version(2))[VERSION][1])
    report = auditor.verify()
    assert (report.code, report.failed) == (3, [2])
    assert report.names(2, "tag_moved")
