"""Pull requests that attack: each is refused by name, and none keeps the good ones from being merged in the same run."""

from __future__ import annotations

import io
import json
import pickle
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from fedops.adapters.git_repo import GitRepository
from fedops.app.merged import merged_state
from fedops.core.artifacts import build_manifest, update_annotations
from fedops.core.catalogue import CATALOGUE
from fedops.core.documents import dump_json
from fedops.core.errors import ForgeError
from fedops.core.facts import Account, Layer, Pull, RefUpdate
from fedops.core.findings import errors
from fedops.core.ids import CommitId, RepoPath, SiteId
from fedops.core.records import Record, render_pointer, update_pointer
from tests.fakes_forge import FakeForge
from tests.fakes_repository import FakeRepository
from tests.github_face.fed import GitHubFed
from tests.scenario.fed import Fed, GitFed, MemoryFed, arrays
from tests.scenario.oracle import check_all

M = "clinic-c"  # the site of whoever attacks
RECORD, POINTER = RepoPath(f"sites/{M}/submission.json"), RepoPath(f"sites/{M}/update.safetensors.dvc")
Files = dict[RepoPath, bytes | None]
Attack = Callable[[Fed, str], Pull]


def good(fed: Fed, value: float = 5.0, **fields: Any) -> Record:
    return fed.upload(M, 0, arrays(value), **fields)


def pull_of(fed: Fed, name: str, files: Mapping[RepoPath, bytes | None], **options: Any) -> Pull:
    return fed.open_pull(M, files, branch=f"attack/{name}", **options)


def of_record(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Attack:
    """A submission whose record says something else than it should; the pointer goes with it."""

    def attack(fed: Fed, name: str) -> Pull:
        values = change(json.loads(dump_json(good(fed))))
        record = Record.model_validate_json(json.dumps(values))
        return pull_of(fed, name, {**fed.handed_in(record)})

    return attack


def of_text(text: bytes | Callable[[bytes], bytes], path: RepoPath = RECORD) -> Attack:
    """Other bytes in the place of one of the two files."""

    def attack(fed: Fed, name: str) -> Pull:
        files: Files = dict(fed.handed_in(good(fed)))
        before = files[path]
        assert before is not None
        files[path] = text if isinstance(text, bytes) else text(before)
        return pull_of(fed, name, files)

    return attack


def of_pointer(old: bytes, new: bytes) -> Attack:
    """A pointer that leads elsewhere than its record."""

    def change(data: bytes) -> bytes:
        assert old in data
        return data.replace(old, new)

    return of_text(change, POINTER)


def of_bytes(data: bytes | Callable[[], bytes], **options: Any) -> Attack:
    """A submission of these model bytes, with a record that describes them."""

    def attack(fed: Fed, name: str) -> Pull:
        record = fed.upload(M, 0, data if isinstance(data, bytes) else data(), **options)
        return pull_of(fed, name, fed.handed_in(record))

    return attack


def of_tree(change: Callable[[dict[str, tuple[str, bytes]]], None]) -> Attack:
    """A commit of any tree, as no honest tool writes it."""

    def attack(fed: Fed, name: str) -> Pull:
        repository = fed.repositories[M]
        main = fed.main(M)
        tree = {str(p): (e.mode, repository.read(e.blob, max_bytes=2**20)) for p, e in main.files.items()}
        tree |= {str(p): ("100644", d) for p, d in fed.handed_in(good(fed)).items() if d is not None}
        change(tree)
        head = plant(repository, [main.commit], tree, fed)
        return fed.forge(M).submit_pull(head, f"attack/{name}", "attack", "")

    return attack


def plant(
    repository: Any,
    parents: list[CommitId],
    tree: Mapping[str, tuple[str, bytes]],
    fed: Fed,
    *,
    key: Path | None = None,
) -> CommitId:
    """Commit any tree."""
    if isinstance(repository, FakeRepository):
        return repository.plant(parents, tree, at=fed.clock.now(), key=key)
    assert isinstance(repository, GitRepository)

    def git(*args: str, stdin: bytes = b"") -> str:
        command = ["env", f"GIT_INDEX_FILE={repository.path / 'planted'}", "git", "-C", str(repository.path), *args]
        return subprocess.run(command, input=stdin, capture_output=True, check=True).stdout.decode().strip()

    rows = []
    for path, (mode, data) in tree.items():
        name = data.decode() if mode == "160000" else git("hash-object", "-w", "--stdin", stdin=data)
        rows.append(f"{mode} {name}\t".encode() + path.encode("utf-8", "surrogateescape") + b"\0")
    git("read-tree", "--empty")
    git("update-index", "-z", "--index-info", stdin=b"".join(rows))
    above = [argument for parent in parents for argument in ("-p", parent)]
    signing = [] if key is None else [f"-S{key}"]
    return CommitId(git("-c", "gpg.format=ssh", "commit-tree", *signing, git("write-tree"), *above, "-m", "planted"))


def put(path: str, mode: str, data: bytes) -> Callable[[dict[str, tuple[str, bytes]]], None]:
    return lambda tree: tree.update({path: (mode, data)})


def rename(old: str, new: str) -> Callable[[dict[str, tuple[str, bytes]]], None]:
    return lambda tree: tree.update({new: tree.pop(old)})


def remove_record(tree: dict[str, tuple[str, bytes]]) -> None:
    tree.pop(f"sites/{M}/submission.json")


def remove_readme(tree: dict[str, tuple[str, bytes]]) -> None:
    tree.pop("README.md")


def two_commits(fed: Fed, name: str) -> Pull:
    repository = fed.repositories[M]
    files = fed.handed_in(good(fed, 4.0))
    first = repository.write_commit([fed.main(M).commit], files, "one", at=fed.clock.now())
    return pull_of(fed, name, fed.handed_in(good(fed)), parents=[first])


def a_merge(fed: Fed, name: str) -> Pull:
    repository = fed.repositories[M]
    main = fed.main(M).commit
    side = repository.write_commit([main], {RepoPath("y"): b"1"}, "side", at=fed.clock.now())
    return pull_of(fed, name, fed.handed_in(good(fed)), parents=[main, side])


def no_common_ancestor(fed: Fed, name: str) -> Pull:
    return pull_of(fed, name, fed.handed_in(good(fed)), parents=[])


def unsigned(fed: Fed, name: str) -> Pull:
    return pull_of(fed, name, fed.handed_in(good(fed)), signed=False)


def in_anothers_folder(fed: Fed, name: str) -> Pull:
    record = fed.upload("bank-d", 0, arrays(7.0))
    return pull_of(fed, name, fed.handed_in(record))


def by_another_account(fed: Fed, name: str) -> Pull:
    """What the site made and signed itself, handed in by somebody else."""
    theirs = fed.repositories["bank-d"]
    key, files = fed.keys[M].private, fed.handed_in(good(fed))
    head = theirs.write_commit([fed.main("bank-d").commit], files, "submit", at=fed.clock.now(), key=key)
    return fed.forge("bank-d").submit_pull(head, f"attack/{name}", "attack", "")


def of_nobody(fed: Fed, name: str) -> Pull:
    record = fed.upload("nobody", 0, arrays(7.0))
    return pull_of(fed, name, fed.handed_in(record))


def policy_too(fed: Fed, name: str) -> Pull:
    return pull_of(fed, name, {**fed.handed_in(good(fed)), RepoPath("policies/aggregation.yaml"): b"x: 1\n"})


def without_pointer(fed: Fed, name: str) -> Pull:
    return pull_of(fed, name, {RECORD: fed.handed_in(good(fed))[RECORD]})


def missing_object(fed: Fed, name: str) -> Pull:
    record = good(fed, 31.0)
    assert fed.lose(f"sites/{M}", record.manifest, damage=False)  # type: ignore[arg-type]  # a digest of a parsed record
    return pull_of(fed, name, fed.handed_in(record))


def damaged_object(fed: Fed, name: str) -> Pull:
    record = good(fed, 32.0)
    assert fed.lose(f"sites/{M}", "sha256:" + record.sha256, damage=True)  # type: ignore[arg-type]  # well-formed
    return pull_of(fed, name, fed.handed_in(record))


def copied(fed: Fed, name: str) -> Pull:
    [theirs] = [u.data for (site, _), u in fed.uploads.items() if site == "hospital-a"]
    return pull_of(fed, name, fed.handed_in(fed.upload(M, 0, theirs)))


def planted_manifest(change: Callable[[dict[str, Any]], Any]) -> Attack:
    """Manifest bytes that no fedops uploads, named by a record that describes the layer rightly."""

    def attack(fed: Fed, name: str) -> Pull:
        assert isinstance(fed, MemoryFed)
        record = good(fed, 33.0)
        layer = Layer(record.sha256, record.size, "update.safetensors")
        said = update_annotations(
            site=SiteId(M), base_version=0, num_examples=record.num_examples, created_at=record.created_at
        )
        document = json.loads(build_manifest(layer, said))
        change(document)
        digest = fed.store.plant(f"sites/{M}", json.dumps(document, separators=(",", ":")).encode())
        return pull_of(fed, name, fed.handed_in(record.model_copy(update={"manifest": digest})))

    return attack


def npz(array: Any) -> bytes:
    out = io.BytesIO()
    np.savez(out, w=array)
    return out.getvalue()


class Payload:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("unpickled",))


def with_metadata() -> bytes:
    return bytes(save({n: np.asarray(a) for n, a in arrays(6.0).items()}, metadata={"note": "a patient's name"}))


def padded(data: bytes) -> bytes:
    """The same model behind a header with more room in it than fedops writes."""
    size = int.from_bytes(data[:8], "little")
    return (size + 64).to_bytes(8, "little") + data[8 : 8 + size] + b" " * 64 + data[8 + size :]


TREES: dict[str, tuple[Attack, str]] = {
    "symlink": (of_tree(put(str(RECORD), "120000", b"../../policies/sites.yaml")), "symlink_refused"),
    "submodule": (of_tree(put(f"sites/{M}/evaluation.json", "160000", b"1" * 40)), "submodule_refused"),
    "executable": (of_tree(put(str(POINTER), "100755", b"outs:\n")), "mode_refused"),
    "twin": (of_tree(put(f"sites/{M}/Submission.json", "100644", b"{}")), "path_case_conflict"),
    "unicode-twin": (of_tree(put(f"sites/{M}/\u017fubmission.json", "100644", b"{}")), "path_case_conflict"),
    "renamed-into": (of_tree(rename("README.md", f"sites/{M}/evaluation.json")), "path_not_allowed"),
    "renamed-site": (of_tree(rename(str(RECORD), "sites/bank-d/submission.json")), "path_not_allowed"),
    "deeper": (of_tree(put(f"sites/{M}/sub/submission.json", "100644", b"{}")), "path_not_allowed"),
    "line-break": (of_tree(put(f"sites/{M}/a\n| b |", "100644", b"{}")), "path_not_allowed"),
    "no-utf8": (of_tree(put(f"sites/{M}/\udcff.json", "100644", b"{}")), "path_not_allowed"),
    "dot-site": (of_tree(put("sites/-x-/submission.json", "100644", b"{}")), "site_id_invalid"),
    "deletion": (of_tree(remove_readme), "path_not_allowed"),
    "no-record": (of_tree(remove_record), "files_missing"),
    "two-commits": (two_commits, "commit_shape"),
    "a-merge": (a_merge, "commit_shape"),
    "no-common-ancestor": (no_common_ancestor, "commit_shape"),
    "unsigned": (unsigned, "signature_invalid"),
    "anothers-folder": (in_anothers_folder, "site_mismatch"),
    "another-account": (by_another_account, "site_mismatch"),
    "nobodys-folder": (of_nobody, "site_unknown"),
    "policy-too": (policy_too, "path_not_allowed"),
    "workflow-too": (of_tree(put(".github/workflows/validate.yml", "100644", b"on: push\n")), "path_not_allowed"),
    "dvc-config": (of_tree(put(".dvc/config", "100644", b"[core]\n    remote = evil\n")), "path_not_allowed"),
    "attributes": (of_tree(put(".gitattributes", "100644", b"*.json filter=evil\n")), "path_not_allowed"),
    "own-attributes": (of_tree(put(f"sites/{M}/.gitattributes", "100644", b"* eol=crlf\n")), "path_not_allowed"),
    "no-pointer": (without_pointer, "files_missing"),
    "huge-record": (of_text(b" " * 20_000), "file_too_large"),
    "huge-pointer": (of_text(b"#" * 5_000, POINTER), "file_too_large"),
}
# What git itself, or a work tree, could stumble over, and what is not a submission at all.
OF_GIT = ("symlink", "submodule", "executable", "twin", "unicode-twin", "policy-too", "attributes")
IN_GIT = (*OF_GIT, "line-break", "no-utf8", "two-commits", "no-common-ancestor", "huge-record")
ON_GITHUB = (*OF_GIT, "anothers-folder", "another-account", "workflow-too", "dvc-config")
DOCUMENTS: dict[str, tuple[Attack, str]] = {
    "no-json": (of_text(b"\xff\xfe"), "metadata_invalid_json"),
    "ten-thousand-lines": (of_text(b"{\n" + b"\n" * 10_000 + b"}\n"), "metadata_schema"),
    "deep": (of_text(b"[" * 9_000), "metadata_invalid_json"),
    "twice": (of_text(lambda data: data.replace(b"{", b'{"site": "bank-d",', 1)), "metadata_invalid_json"),
    "surrogate": (of_text(lambda data: data.replace(M.encode(), b"\\ud800")), "metadata_invalid_json"),
    "a-number": (of_text(b"7"), "metadata_schema"),
    "more-fields": (of_text(lambda data: data.replace(b"{", b'{"patient": "Jane Roe",', 1)), "metadata_schema"),
    "nan-metric": (of_text(lambda data: data.replace(b"0.25", b"NaN")), "metadata_invalid_json"),
    "huge-number": (of_text(lambda data: data.replace(b"0.25", b"1" * 400)), "metadata_invalid_json"),
    "crlf-pointer": (of_text(lambda data: data.replace(b"\n", b"\r\n"), POINTER), "dvc_schema"),
    "yaml-pointer": (of_text(b"outs: &a [*a]\n", POINTER), "dvc_schema"),
    "other-registry": (of_pointer(b'repository: "sites/', b'repository: "evil.example/fed/sites/'), "dvc_schema"),
    "other-remote": (of_pointer(b"remote: sites-clinic-c", b"remote: https://evil.example/fed"), "dvc_schema"),
    "no-remote": (of_pointer(b", remote: sites-clinic-c", b""), "dvc_schema"),
    "other-site": (of_record(lambda r: r | {"site": "bank-d"}), "site_mismatch"),
    "markdown-metric": (
        of_record(lambda r: r | {"metrics": {"<img src=x> [a](http://x) @lena": 1.0}}),
        "metrics_invalid",
    ),
    "many-examples": (of_record(lambda r: r | {"num_examples": 10**8}), "num_examples_invalid"),
    "future-base": (of_record(lambda r: r | {"base_version": 7}), "base_version_unknown"),
    "other-base": (of_record(lambda r: r | {"base_sha256": "0" * 64}), "hash_mismatch"),
    "delta": (of_record(lambda r: r | {"payload": "delta"}), "payload_refused"),
    "opaque": (of_record(lambda r: r | {"format": "opaque"}), "metadata_schema"),
    "large": (of_record(lambda r: r | {"size": 3_000_000_000}), "file_too_large"),
}
STORED: dict[str, tuple[Attack, str]] = {
    "missing-object": (missing_object, "object_missing"),
    "damaged-object": (damaged_object, "hash_mismatch"),
    "copied": (copied, "duplicate_submission"),
    "other-sha256": (of_record(lambda r: r | {"sha256": "1" * 64}), "hash_mismatch"),
    "other-md5": (of_record(lambda r: r | {"md5": "1" * 32}), "hash_mismatch"),
    "other-size": (of_record(lambda r: r | {"size": 161}), "size_mismatch"),
    "other-time": (of_record(lambda r: r | {"created_at": "2026-03-02T09:30:01Z"}), "annotation_mismatch"),
    "annotations": (of_bytes(lambda: save(dict(arrays(8.0))), annotations={"patient": "x"}), "annotation_mismatch"),
    "config": (of_bytes(lambda: save(dict(arrays(9.0))), config=b'{"patients": []}'), "foreign_layer_refused"),
    "pickle": (of_bytes(pickle.dumps(Payload())), "pickle_refused"),
    "object-array": (of_bytes(lambda: npz(np.array([Payload()], object))), "pickle_refused"),
    "html": (of_bytes(b"<!DOCTYPE html><title>Log in</title>" * 9), "format_unknown"),
    "cut-off": (of_bytes(lambda: save(dict(arrays(9.0)))[:-1]), "file_corrupt"),
    "nan": (of_bytes(lambda: save(dict(arrays(float("nan"))))), "non_finite"),
    "infinity": (of_bytes(lambda: save(dict(arrays(float("inf"))))), "non_finite"),
    "shape": (of_bytes(lambda: save({**arrays(1.0), "w": np.zeros(3, np.float32)})), "shape_mismatch"),
    "dtype": (of_bytes(lambda: save({**arrays(1.0), "w": np.zeros(2, np.float64)})), "dtype_mismatch"),
    "one-more": (of_bytes(lambda: save({**arrays(1.0), "x": np.zeros(2, np.float32)})), "unexpected_keys"),
    "one-less": (of_bytes(lambda: save({"w": np.zeros(2, np.float32)})), "missing_keys"),
    "metadata": (of_bytes(with_metadata), "unexpected_keys"),
    "padding": (of_bytes(lambda: padded(save(dict(arrays(9.0))))), "unexpected_keys"),
}
MANIFESTS: dict[str, tuple[Attack, str]] = {
    "two-layers": (planted_manifest(lambda m: m["layers"].append(m["layers"][0])), "foreign_layer_refused"),
    "elsewhere": (planted_manifest(lambda m: m["layers"][0].update(urls=["http://x"])), "foreign_layer_refused"),
    "title": (
        planted_manifest(lambda m: m["layers"][0]["annotations"].update({"org.opencontainers.image.title": "../x"})),
        "layer_title_invalid",
    ),
    "numbers": (planted_manifest(lambda m: m["annotations"].update({"fl.num-examples": 7})), "annotation_mismatch"),
    "spaces": (planted_manifest(lambda m: m.update(schemaVersion=2, zzz=1)), "foreign_layer_refused"),
}


@pytest.fixture(params=[MemoryFed, GitFed])
def any_fed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fed]:
    fed: Fed = request.param(tmp_path, rules={"trigger": {"quorum": 2}})
    yield fed
    fed.close()


def told(fed: Fed, pull: Pull) -> list[str]:
    """Slugs of the findings that the one comment on a pull request gives."""
    [text] = fed.forge("lena").comments(pull.number)
    assert "**Rejected**" in text
    slugs = {rule.id: slug for slug, rule in CATALOGUE.items()}
    return [slugs[number] for number in re.findall(r"\\?\[(FO-\d+)\\?\]", text)]


def attack_all(fed: Fed, attacks: Mapping[str, tuple[Attack, str]]) -> None:
    """Open all attacks between two good pull requests, reconcile once, and look at what each was told."""
    fed.commit({"README.md": b"hello\n"})
    first = fed.submit("hospital-a", 1.0)
    opened = {name: attack(fed, name) for name, (attack, _) in attacks.items()}
    last = fed.submit("hospital-b", 2.0)
    done = fed.reconcile()
    forge = fed.forge("lena")
    assert [m.judgement.pull.number for m in done.merged if m.outcome == "merged"] == [first.number, last.number]
    assert [v.version for v in done.published] == [1]
    assert done.findings == []
    wrong = {}
    for name, pull in opened.items():
        state, _ = forge.status(pull.head, "fedops/verdict") or ("none", "")
        said = told(fed, pull)
        if attacks[name][1] not in said or state != "failure":
            wrong[name] = (state, attacks[name][1], said)
        assert forge.pull(pull.number).state == "open"
    assert not wrong, wrong


@pytest.mark.parametrize(
    "attacks", [DOCUMENTS, STORED, MANIFESTS], ids=["documents", "bytes", "manifests"]
)  # fmt: skip
def test_each_attack_is_refused_by_name_and_stops_no_good_pull(tmp_path: Path, attacks: Any) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 2}})
    attack_all(fed, attacks)
    check_all(fed, rerun=lambda: fed.reconcile().changed, damaged=[f"sites/{M}"])


@pytest.mark.parametrize("any_fed", [MemoryFed, GitFed, pytest.param(GitHubFed, marks=pytest.mark.long)], indirect=True)
def test_each_attack_by_a_tree_is_refused_by_name_and_stops_no_good_pull(any_fed: Fed) -> None:
    attacks = dict(TREES)
    if isinstance(any_fed, GitHubFed):
        attacks = {name: attacks[name] for name in ON_GITHUB}
    elif isinstance(any_fed, GitFed):  # a minute for all of them
        attacks = {name: attacks[name] for name in IN_GIT}
        # Whose commit it is, is known by its signature alone.
        attacks["unsigned"] = (unsigned, "site_mismatch")
    attack_all(any_fed, attacks)
    check_all(any_fed, rerun=lambda: any_fed.reconcile().changed)


def test_a_head_of_which_an_object_is_missing_is_refused(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 1}})
    pull = pull_of(fed, "corrupt", fed.handed_in(good(fed)))
    [blob] = [e.blob for e in fed.repositories[M].entries(pull.head, RECORD)]
    for objects in (fed.origin.objects, *(r.objects for r in fed.repositories.values())):  # type: ignore[attr-defined]
        objects.pop(blob, None)
    fed.submit("hospital-a", 1.0)
    done = fed.reconcile()
    assert [v.version for v in done.published] == [1]
    assert told(fed, pull) == ["object_corrupt"]


def test_an_account_of_no_site_is_refused(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path)
    stranger = FakeForge(fed.hub, fed.repositories[M], Account("mallory", 666), fed.clock)
    head = fed.repositories[M].write_commit([fed.main(M).commit], fed.handed_in(good(fed)), "x", at=fed.clock.now())
    pull = stranger.submit_pull(head, "submit/clinic-c", "let me in", "")
    fed.reconcile()
    assert told(fed, pull) == ["site_mismatch"]


def test_a_suspended_site_is_refused_until_it_is_active_again(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 1}})
    fed.set_state(M, "suspended")
    pull = fed.submit(M, 4.0)
    fed.reconcile()
    assert told(fed, pull) == ["site_suspended"]
    fed.set_state(M, "active")
    assert [v.version for v in fed.reconcile().published] == [1]


def test_a_change_that_touches_no_site_is_left_to_people(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path)
    pull = pull_of(fed, "readme", {RepoPath("README.md"): b"better\n"})
    before = fed.state()
    fed.reconcile()
    assert fed.forge("lena").pull(pull.number).state == "open"
    assert fed.forge("lena").comments(pull.number) == ()
    assert before != fed.state(), "signals of v0 were sent"


def test_of_two_pulls_with_the_same_bytes_the_later_one_is_refused_in_the_same_run(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 1}})
    one = fed.submit("hospital-a", 1.0)
    two = fed.submit("hospital-b", 1.0)
    done = fed.reconcile()
    assert {m.judgement.pull.number: m.outcome for m in done.merged} == {one.number: "merged", two.number: "rejected"}
    assert told(fed, two) == ["duplicate_submission"]


def test_a_submission_on_a_main_where_the_sites_files_were_others_is_refused_and_rebuilt(tmp_path: Path) -> None:
    """git would ask a person to resolve the conflict; fedops asks the site to submit on the present main."""
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 1}})
    old = fed.main().commit
    fed.submit(M, 1.0)
    fed.reconcile()
    late = fed.submit(M, 2.0, base=1, parents=[old])
    done = fed.reconcile()
    assert (done.again, [m.outcome for m in done.merged]) == (False, ["rejected"])
    assert told(fed, late) == ["commit_shape"]
    fed.submit(M, 2.0, base=1)
    assert [v.version for v in fed.reconcile().published] == [2]
    check_all(fed, rerun=lambda: fed.reconcile().changed)


BROKEN_ON_MAIN: dict[str, dict[str, bytes]] = {
    "garbage": {str(RECORD): b"{nonsense", str(POINTER): b"outs:\n"},
    "no pointer": {str(RECORD): b"{}\n"},
    "huge record": {str(RECORD): b" " * 2_000_000, str(POINTER): b"outs:\n"},
    "huge pointer": {str(RECORD): b"{}", str(POINTER): b"#" * 2_000_000},
    "deeper": {f"sites/{M}/old/submission.json": b"{}"},
    "impossible name": {"sites/-no-/submission.json": b"{}"},
    "case twin": {"sites/Clinic-C/submission.json": b"{}"},
    "unicode twin": {"sites/clinic-\u0441/submission.json": b"{}"},
    "case twin of a file": {f"sites/{M}/Submission.json": b"{}"},
    "unicode twin of a file": {f"sites/{M}/\u017fubmission.json": b"{}"},
    "file for a folder": {f"sites/{M}": b"x"},
    "ten thousand lines": {
        str(RECORD): b'{"metrics": {\n' + b'"a": 1,\n' * 10_000 + b'"b": 1}}\n',
        str(POINTER): b"outs:\n",
    },
}


@pytest.mark.parametrize("files", BROKEN_ON_MAIN.values(), ids=BROKEN_ON_MAIN)
def test_what_a_person_broke_on_main_stops_no_other_site(tmp_path: Path, files: dict[str, bytes]) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 2}})
    fed.commit(dict(files))
    fed.submit("hospital-a", 1.0)
    fed.submit("hospital-b", 2.0)
    done = fed.reconcile()
    assert [v.version for v in done.published] == [1]
    check_all(fed, rerun=lambda: fed.reconcile().changed)


@pytest.mark.parametrize("name", ["-no-", "Clinic-C", "clinic-\u0441", "latest"])
def test_a_folder_on_main_that_can_be_no_sites_is_reported(tmp_path: Path, name: str) -> None:
    fed = MemoryFed(tmp_path)
    fed.commit({f"sites/{name}/submission.json": b"{}"})
    [fault] = merged_state(fed.repositories["lena"], fed.main()).faults
    assert (fault.slug, fault.where) == ("record_unreadable", f"sites/{name}")


def test_a_site_that_a_person_renamed_on_main_is_reported_and_stops_no_other(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 2}})
    fed.submit(M, 1.0)
    fed.reconcile()
    main = fed.main()
    moved = {p: main.bytes_of(p) for p in (RECORD, POINTER)}
    files: dict[str, bytes | None] = {str(p): None for p in moved}
    fed.commit(files | {str(p).replace(M, "bank-d"): data for p, data in moved.items()})
    [fault] = merged_state(fed.repositories["lena"], fed.main()).faults
    assert (fault.slug, fault.where, fault.got) == (
        "record_unreadable",
        "sites/bank-d/submission.json",
        [M, "safetensors"],
    )
    fed.submit("hospital-a", 2.0)
    fed.submit("hospital-b", 3.0)
    assert [v.version for v in fed.reconcile().published] == [1]
    assert not fed.reconcile().changed
    assert [errors(checked.findings) for checked in fed.verify()] == [(), ()]


def test_a_record_of_ten_thousand_metrics_makes_a_short_report(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path, submission={"limits": {"record_bytes": 1_000_000}, "metrics": {"max_count": 16}})
    metrics = {f"m{n}\n": float(n) for n in range(10_000)}
    pull = pull_of(fed, "metrics", fed.handed_in(good(fed, metrics=metrics)))
    fed.reconcile()
    assert "metrics_invalid" in told(fed, pull)
    [text] = fed.forge("lena").comments(pull.number)
    assert len(text) < 20_000


@pytest.mark.parametrize("mode", ["120000", "160000", "100755"])
def test_a_record_on_main_that_is_no_plain_file_stops_no_other_site(tmp_path: Path, mode: str) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 1}})
    repository, main = fed.repositories["lena"], fed.main()
    assert isinstance(repository, FakeRepository)
    tree = {str(p): (e.mode, repository.read(e.blob, max_bytes=2**20)) for p, e in main.files.items()}
    record = good(fed)
    tree |= {
        str(RECORD): (mode, b"1" * 40),
        str(POINTER): ("100644", render_pointer(update_pointer(record, "safetensors"))),
    }
    head = repository.plant([main.commit], tree, at=fed.clock.now())
    assert repository.push([RefUpdate("refs/heads/main", main.commit, head)])
    fed.submit("hospital-a", 1.0)
    assert [v.version for v in fed.reconcile().published] == [1]
    [_] = [i for i in fed.forge("lena").issues(frozenset({f"site:{M}"})) if "record_unreadable" in i.body]


@pytest.mark.parametrize(
    ("attack", "slug"),
    [
        (of_bytes(lambda: save(dict(arrays(float("nan"))))), "non_finite"),
        (of_bytes(lambda: save({**arrays(1.0), "x": np.zeros(2, np.float32)})), "unexpected_keys"),
        (of_bytes(pickle.dumps(Payload())), "pickle_refused"),
        (of_bytes(lambda: save(dict(arrays(9.0))), config=b'{"patients": []}'), "foreign_layer_refused"),
        (of_bytes(lambda: save(dict(arrays(8.0))), annotations={"patient": "x"}), "annotation_mismatch"),
        (planted_manifest(lambda m: m["layers"].append(m["layers"][0])), "foreign_layer_refused"),
        (planted_manifest(lambda m: m["annotations"].update({"fl.num-examples": 7})), "annotation_mismatch"),
    ],
)
@pytest.mark.parametrize("is_due", [True, False])
def test_bytes_that_a_person_merged_unseen_are_excluded_and_the_site_is_told(
    tmp_path: Path, attack: Attack, slug: str, is_due: bool
) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 1 if is_due else 2}})
    fed.merge_by_hand(attack(fed, "by hand").number)
    fed.submit("hospital-a", 1.0)
    done = fed.reconcile()
    bodies = [i.body for i in fed.forge("lena").issues(frozenset({f"site:{M}"}))]
    assert any(f"<!-- fedops:reason {slug} -->" in body for body in bodies)
    if is_due:
        [made] = done.published
        assert [(e.site, e.slug, e.judged) for e in made.excluded] == [(M, slug, "bytes")]
        assert made.consumed == {M: 0, "hospital-a": 0}
    else:
        assert done.published == []
    before = fed.state()
    assert not fed.reconcile().changed
    assert fed.state() == before


def test_a_fault_of_the_forge_with_one_pull_stops_none_of_the_others(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 1}})
    bad = fed.submit("hospital-a", 1.0)
    fed.submit("hospital-b", 2.0)
    own = fed.new_clone("bot")
    inner = fed.forge("bot", own)

    class Failing:
        cause: Any = "temporary"

        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        def upsert_comment(self, number: int, *rest: Any) -> bool:
            if number == bad.number:
                raise ForgeError("500", cause=self.cause)
            return inner.upsert_comment(number, *rest)

    failing = Failing()
    done = fed.reconcile(fed.context(repository=own, forge=failing))
    assert [[c.site for c in v.contributions] for v in done.published] == [["hospital-b"]]
    assert [(f.slug, f.where) for f in done.findings] == [("github_rejected", f"pull/{bad.number}")]
    failing.cause = "auth"
    with pytest.raises(ForgeError):
        fed.reconcile(fed.context(repository=own, forge=failing))
