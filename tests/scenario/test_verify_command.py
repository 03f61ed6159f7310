"""`fedops verify` and `fedops ci audit` as typed: what they look at, what they say, how they end, what they cost."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedops.adapters.forge_git import GitForge
from fedops.adapters.git_process import GitProcess, Output
from fedops.adapters.git_signing import no_ssh_keygen
from fedops.adapters.store_layout import LayoutStore
from fedops.core.errors import ForgeError, StoreError
from fedops.core.facts import Layer
from tests.scenario.auditing import Auditor, flip, unpack
from tests.scenario.test_verify_forged import VERSION, dump, record, set_record
from tests.verify_world import NEWEST

# ---------------------------------------------------------------- which versions


def numbers(auditor: Auditor, clone: Path, *arguments: str) -> list[int]:
    return [row["version"] for row in auditor.verify(*arguments, clone=clone).document["versions"]]


def test_the_current_version_is_the_default_and_others_are_named(auditor: Auditor) -> None:
    clone = auditor.clone()
    assert numbers(auditor, clone, "--no-fetch") == [NEWEST]
    assert numbers(auditor, clone, "v2") == [2]
    assert numbers(auditor, clone, "v3", "v0", "global@v1.0.0") == [0, 1, 3]
    assert numbers(auditor, clone, "--all") == list(range(NEWEST + 1))


def test_only_the_versions_asked_for_are_judged(auditor: Auditor) -> None:
    set_record(auditor.forger(), 2, lambda r: r.update(denominator=1.0))
    clone = auditor.clone()
    assert auditor.verify("v1", clone=clone).code == 0
    assert auditor.verify("v2", clone=clone).code == 3
    assert auditor.verify("v1", "v2", clone=clone).failed == [2]


def test_a_version_that_does_not_exist_is_an_answer_and_a_word_that_is_none_a_mistake(auditor: Auditor) -> None:
    clone = auditor.clone()
    report = auditor.verify("v9", clone=clone)
    assert (report.code, report.failed, report.slugs(9)) == (3, [9], ["lineage_broken"])
    code, _, err = auditor.call(clone, "verify", "nine")
    assert code == 2
    assert "'nine': not a version -> v5" in err


def test_the_newest_version_is_the_default_although_its_record_cannot_be_read(auditor: Auditor) -> None:
    forger = auditor.forger()
    forger.rewrite({forger.version(NEWEST): {VERSION: b"{}"}})
    report = auditor.verify("--no-fetch")
    assert (report.code, report.failed) == (3, [NEWEST])


def test_what_was_fetched_is_judged_not_what_is_checked_out(auditor: Auditor) -> None:
    clone = auditor.clone()
    (clone / "global" / "version.json").write_text("{}")
    assert auditor.verify(clone=clone).code == 0


def test_fetch_brings_what_was_forged_since_the_clone(auditor: Auditor) -> None:
    clone = auditor.clone()
    auditor.forger().set_ref("refs/tags/global@v1.0.0", None)
    assert auditor.verify("--all", "--no-fetch", clone=clone).code == 0
    assert auditor.verify("--all", clone=clone).failed == [1]


def test_a_shallow_clone_says_what_to_do(auditor: Auditor) -> None:
    clone = auditor.folder / "shallow"
    subprocess.run(
        ["git", "clone", "-q", "--depth=3", f"file://{auditor.origin}", str(clone)], check=True, capture_output=True
    )
    report = auditor.verify("--no-fetch", clone=clone)
    assert report.code == 3
    assert any("--unshallow" in str(f["expected"]) for f in report.findings)


# ---------------------------------------------------------------- what it says


def test_text_has_one_line_for_each_version_and_findings_on_stderr(auditor: Auditor) -> None:
    set_record(auditor.forger(), 2, lambda r: r.update(denominator=1.0), new_tag=True)
    forger = auditor.forger()
    commits = [forger.version(n)[:12] for n in range(NEWEST + 1)]
    code, out, err = auditor.call(auditor.clone(), "verify", "--all")
    assert code == 3
    assert out.splitlines() == [
        f"v0  {commits[0]}  ok (inputs)",
        f"v1  {commits[1]}  ok (inputs)",
        f"v2  {commits[2]}  FAILED",
        f"v3  {commits[3]}  FAILED",
        f"v4  {commits[4]}  FAILED",
        "5 versions verified, 3 failed",
    ]
    assert (
        "v2: the version record does not follow from the repository (field denominator), 1.0 -> 170.0 [FO-403]" in err
    )
    assert "  hint: see the fields named; ask the lead what happened" in err


def test_json_is_the_frame_and_one_row_for_each_version(auditor: Auditor) -> None:
    commit = auditor.forger().version(1)
    auditor.forger().set_ref("refs/tags/global@v1.0.0", None)
    finding = {
        "id": "FO-407",
        "slug": "tag_missing",
        "severity": "error",
        "where": "global@v1.0.0",
        "got": None,
        "expected": commit,
        "detail": None,
    }
    assert auditor.verify("v1").document == {
        "schema": "fedops.verify/v1",
        "ok": False,
        "changed": False,
        "findings": [finding],
        "versions": [{"version": 1, "commit": commit, "level": "none", "ok": False, "findings": [finding]}],
    }


def test_a_warning_is_told_and_changes_no_answer(auditor: Auditor) -> None:
    shutil.copytree(auditor.kept / "clinic-c", auditor.store / "sites" / "clinic-c", dirs_exist_ok=True)
    code, out, err = auditor.call(auditor.clone(), "verify")
    assert code == 0
    assert out.splitlines()[-1] == "1 version verified, 0 failed"
    assert "warning: v4: an update that a version left out as unavailable is in the store, whole" in err


def test_damage_beside_the_versions_is_told_as_such(auditor: Auditor) -> None:
    clone = auditor.clone()
    auditor.verify(clone=clone)
    forge = auditor.forger().refs["refs/fedops/forge"]
    git = clone / ".git"
    unpack(git)
    path = git / "objects" / forge[:2] / forge[2:]
    flip(path, path.stat().st_size // 2)
    code, out, err = auditor.call(clone, "verify", "--all", "--no-fetch")
    assert code == 3
    assert out.splitlines()[-1] == "5 versions verified, 0 failed, and more is wrong"
    assert forge in err


# ---------------------------------------------------------------- how it ends


def failing(monkeypatch: pytest.MonkeyPatch, method: str, error: StoreError, *, repository: str = "") -> None:
    """Let the store fail, for all repositories or for one."""
    honest: Callable[..., Any] = getattr(LayoutStore, method)

    def broken(self: LayoutStore, name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith(repository):
            raise error
        return honest(self, name, *arguments, **options)

    monkeypatch.setattr(LayoutStore, method, broken)


def without_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store be one whose files are elsewhere, as a registry's are."""
    failing(monkeypatch, "layer_file", StoreError("not here", slug="object_missing"))


@pytest.mark.parametrize(("cause", "code"), [("temporary", 5), ("auth", 4)])
@pytest.mark.parametrize("method", ["manifest", "layer_file", "get"])
def test_a_store_that_cannot_answer_now_gives_no_verdict(
    auditor: Auditor, monkeypatch: pytest.MonkeyPatch, cause: Any, code: int, method: str
) -> None:
    if method == "get":
        without_places(monkeypatch)
    failing(monkeypatch, method, StoreError("store: it rains", cause=cause))
    report = auditor.verify()
    assert (report.code, report.document["ok"]) == (code, False)
    assert report.document["error"]["message"] == "store: it rains"
    assert "versions" not in report.document


@pytest.mark.parametrize("cause", ["temporary", "auth"])
def test_whoever_may_read_the_archive_alone_verifies_all_the_same(
    auditor: Auditor, monkeypatch: pytest.MonkeyPatch, cause: Any
) -> None:
    failing(monkeypatch, "manifest", StoreError("store: closed", cause=cause), repository="sites/")
    report = auditor.verify()
    assert (report.code, report.levels) == (0, ["inputs"] * (NEWEST + 1))
    assert report.slugs(3) == ["exclusion_unchecked"]


def test_without_the_archive_a_sites_store_that_rains_gives_no_verdict(
    auditor: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = record(2, auditor.forger())["contributions"][0]
    (auditor.store / "archive" / "blobs" / "sha256" / used["sha256"]).unlink()
    failing(monkeypatch, "manifest", StoreError("store: closed", cause="temporary"), repository="sites/")
    assert auditor.verify().code == 5


def test_an_origin_that_is_not_there_gives_no_verdict_and_is_named(auditor: Auditor) -> None:
    clone = auditor.clone()
    auditor.origin.rename(auditor.folder / "elsewhere.git")
    report = auditor.verify(clone=clone)
    assert report.code == 2
    assert (report.document["error"]["slug"], report.document["findings"]) == ("origin_missing", [])
    assert str(auditor.origin) in report.document["error"]["message"]


def test_a_machine_without_ssh_keygen_gives_no_verdict_and_is_no_forgery(
    auditor: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise no_ssh_keygen()

    monkeypatch.setattr("fedops.adapters.git_repo.signer_among", missing)
    report = auditor.verify()
    assert report.code == 2
    assert "ssh-keygen" in report.document["error"]["message"]


def test_a_federation_that_nobody_can_read_is_a_matter_of_configuration(auditor: Auditor) -> None:
    forger = auditor.forger()
    clone = auditor.clone()
    forger.rewrite({forger.version(0): {"federation.yaml": b"a: [1"}})
    report = auditor.verify(clone=clone)
    assert report.code == 2
    assert report.document["error"]["message"].startswith("federation.yaml:1:")


# ---------------------------------------------------------------- read access is enough


@contextmanager
def read_only(*folders: Path) -> Iterator[None]:
    """No right to write below the folders, as far as that binds who runs the tests."""
    paths = [path for folder in folders for path in (folder, *folder.rglob("*")) if not path.is_symlink()]
    modes = {path: path.stat().st_mode for path in paths}
    for path in reversed(paths):
        path.chmod(modes[path] & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    try:
        yield
    finally:
        for path in paths:
            path.chmod(modes[path])


def contents(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file with its time of change and its bytes' digest."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_nothing_is_written_into_origin_and_store(auditor: Auditor) -> None:
    clone = auditor.clone()
    before = contents(auditor.origin)
    with read_only(auditor.origin):
        report = auditor.verify(clone=clone)
    assert (report.code, report.levels) == (0, ["inputs"] * (NEWEST + 1))
    assert contents(auditor.origin) == before


def test_a_clone_that_is_not_fetched_is_not_written_either(auditor: Auditor) -> None:
    set_record(auditor.forger(), 2, lambda r: r.update(denominator=1.0))
    clone = auditor.clone()
    before = contents(clone)
    with read_only(clone):
        assert auditor.verify("--all", "--no-fetch", clone=clone).code == 3
    assert contents(clone) == before


def test_temporary_files_are_gone_afterwards(auditor: Auditor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert auditor.verify().code == 0
    assert list(place.iterdir()) == []


# ---------------------------------------------------------------- what it costs


def test_a_run_walks_history_once_and_copies_nothing_that_it_can_read_where_it_lies(
    auditor: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = auditor.clone()
    auditor.verify(clone=clone)
    commands: Counter[str] = Counter()
    fetched: Counter[tuple[str, str]] = Counter()
    run, get = GitProcess.run, LayoutStore.get

    def counted(self: GitProcess, *arguments: str, **options: Any) -> Output:
        commands[next(a for a in arguments if not a.startswith("-") and "=" not in a)] += 1
        return run(self, *arguments, **options)

    def noted(self: LayoutStore, repository: str, layer: Layer, target: Path, *, md5: str | None = None) -> None:
        fetched[repository, layer.sha256] += 1
        get(self, repository, layer, target, md5=md5)

    monkeypatch.setattr(GitProcess, "run", counted)
    monkeypatch.setattr(LayoutStore, "get", noted)
    assert auditor.verify("--all", "--no-fetch", clone=clone).code == 0
    assert (commands["rev-list"], commands["diff-tree"], commands["fsck"]) == (1, 1, 1)
    # A tree for each version, its parent and its input, and for each submission those that its signature needs.
    submissions = 2 + 2 + 3 + 3
    assert commands["ls-tree"] <= 3 * (NEWEST + 1) + 2 * submissions
    assert sum(commands.values()) <= commands["ls-tree"] + 12
    # What was left out of v3 for its bytes is judged again, on copies: the update, its base v1 and the one before, v2.
    copied = {repository for repository, _ in fetched}
    assert copied == {"global", "sites/hospital-b"}
    assert {sha256 for repository, sha256 in fetched if repository == "global"} == {
        record(n, auditor.forger())["model"]["sha256"] for n in (1, 2)
    }
    assert set(fetched.values()) == {1}


def test_where_files_are_elsewhere_each_model_is_fetched_once(
    auditor: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: Counter[tuple[str, str]] = Counter()
    get = LayoutStore.get

    def noted(self: LayoutStore, repository: str, layer: Layer, target: Path, *, md5: str | None = None) -> None:
        fetched[repository, layer.sha256] += 1
        get(self, repository, layer, target, md5=md5)

    without_places(monkeypatch)
    monkeypatch.setattr(LayoutStore, "get", noted)
    report = auditor.verify()
    assert (report.code, report.levels) == (0, ["inputs"] * (NEWEST + 1))
    assert {name: n for name, n in fetched.items() if name[0] == "global"} == {
        ("global", record(n, auditor.forger())["model"]["sha256"]): 1 for n in range(NEWEST + 1)
    }
    assert set(fetched.values()) == {1}


def test_a_model_is_kept_no_longer_than_versions_need_it(auditor: Auditor, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most the bases of one version lie on disk at once: v2 needs v0, v1 and itself."""
    kept: list[int] = []
    get, place = LayoutStore.get, auditor.folder / "temporary"

    def watched(self: LayoutStore, repository: str, layer: Layer, target: Path, *, md5: str | None = None) -> None:
        if repository == "global":
            kept.append(len(list(place.glob("fedops-*/*.model"))))
        get(self, repository, layer, target, md5=md5)

    place.mkdir()
    without_places(monkeypatch)
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(LayoutStore, "get", watched)
    assert auditor.verify().code == 0
    assert kept == [0, 1, 2, 2, 1]


# ---------------------------------------------------------------- audit


def audited(auditor: Auditor) -> tuple[int, dict[str, Any]]:
    code, out, _ = auditor.call(auditor.clone(), "ci", "audit", "--format", "json")
    return code, json.loads(out)


def test_an_audit_verifies_everything_and_tells_of_the_forge(auditor: Auditor) -> None:
    code, document = audited(auditor)
    assert (code, document["schema"], document["ok"], document["findings"]) == (0, "fedops.audit/v1", True, [])
    assert [row["level"] for row in document["versions"]] == ["inputs"] * (NEWEST + 1)
    assert set(document["forge"]) == {"open_pulls", "open_signals"}
    assert document["forge"]["open_signals"] > 0
    code, out, _ = auditor.call(auditor.clone(), "ci", "audit")
    assert code == 0
    assert out.splitlines()[-2:] == [
        "5 versions verified, 0 failed",
        f"forge: 0 open pull requests, {document['forge']['open_signals']} signals",
    ]


@pytest.mark.parametrize("kind", ["above", "lightweight"])
def test_an_audit_fails_by_a_tag(auditor: Auditor, kind: str) -> None:
    forger = auditor.forger()
    number = NEWEST + 1 if kind == "above" else 2
    forger.set_ref(f"refs/tags/global@v{number}.0.0", forger.version(2))
    code, document = audited(auditor)
    assert code == 3
    assert [f["slug"] for f in document["findings"]] == ["tag_moved"]


def index(auditor: Auditor) -> Path:
    return auditor.store / "global" / "index.json"


def test_an_audit_fails_by_a_display_tag_of_the_store_that_names_another_version(auditor: Auditor) -> None:
    document = json.loads(index(auditor).read_bytes())
    names = {e["annotations"]["org.opencontainers.image.ref.name"]: e for e in document["manifests"]}
    names["v2"]["digest"] = names["v3"]["digest"]
    index(auditor).write_bytes(dump(document))
    code, told = audited(auditor)
    assert code == 3
    (found,) = told["findings"]
    assert (found["slug"], found["where"], found["got"]) == ("tag_moved", "global:v2", names["v3"]["digest"])
    assert all(row["ok"] for row in told["versions"])
    assert auditor.verify().code == 0  # git alone says what v2 is


def test_an_audit_names_an_index_of_the_store_that_is_damaged(auditor: Auditor) -> None:
    index(auditor).write_bytes(b"{")
    code, told = audited(auditor)
    assert code == 3
    assert [f["slug"] for f in told["findings"]] == ["registry_unavailable"]


@pytest.mark.parametrize(("cause", "code"), [("permanent", 3), ("temporary", 5), ("auth", 4)])
def test_an_audit_of_a_forge_that_cannot_be_read(
    auditor: Auditor, monkeypatch: pytest.MonkeyPatch, cause: Any, code: int
) -> None:
    def broken(self: GitForge) -> None:
        raise ForgeError("pulls: nonsense", cause=cause)

    monkeypatch.setattr(GitForge, "open_pulls", broken)
    got, told = audited(auditor)
    assert got == code
    if cause == "permanent":
        assert all(row["ok"] for row in told["versions"])
        assert [(f["slug"], f["where"], f["got"]) for f in told["findings"]] == [
            ("github_rejected", "forge", "pulls: nonsense")
        ]


def test_an_audit_passes_over_the_display_tag_of_a_version_that_cannot_be_read(auditor: Auditor) -> None:
    forger = auditor.forger()
    forger.rewrite({forger.version(NEWEST): {VERSION: b"{}"}})
    code, told = audited(auditor)
    assert code == 3
    assert not [f for f in told["findings"] if str(f["where"]).startswith("global:")]


@pytest.mark.parametrize(("cause", "code"), [("temporary", 5), ("auth", 4)])
def test_an_audit_of_a_store_that_cannot_answer_now_gives_no_verdict(
    auditor: Auditor, monkeypatch: pytest.MonkeyPatch, cause: Any, code: int
) -> None:
    failing(monkeypatch, "resolve", StoreError("store: it rains", cause=cause))
    assert audited(auditor)[0] == code
