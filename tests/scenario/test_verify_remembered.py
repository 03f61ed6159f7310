"""`fedops verify --remembered`, `--level`, and what an archive that lost a copy is told: on real git and a real store."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fedops.app.work import Work
from tests.scenario.auditing import Auditor, flip
from tests.scenario.test_verify_damage import drop, retain
from tests.scenario.test_verify_forged import record
from tests.verify_world import NEWEST

HOUR = 3600


@pytest.fixture
def settled(auditor: Auditor) -> Auditor:
    """A store that nobody has written to for an hour."""
    for path in auditor.store.rglob("*"):
        if path.is_file():
            age(path)
    return auditor


def age(path: Path) -> None:
    now = path.stat().st_mtime
    os.utime(path, (now - HOUR, now - HOUR))


def layer(auditor: Auditor, repository: str, sha256: str) -> Path:
    return auditor.store / repository / "blobs" / "sha256" / sha256


def spared(auditor: Auditor, clone: Path) -> tuple[int, int, int]:
    """Exit code of `verify --all --remembered`, files and bytes that it did not read."""
    report = auditor.verify("--all", "--remembered", clone=clone)
    told = report.document["remembered"]
    return report.code, told["files"], told["bytes"]


def model_files(auditor: Auditor) -> list[Path]:
    blobs = (p for p in auditor.store.rglob("blobs/sha256/*") if p.read_bytes()[:1] != b"{")
    return sorted(blobs)


def test_a_second_look_reads_nothing_that_lies_as_it_lay(settled: Auditor) -> None:
    clone = settled.clone()
    assert spared(settled, clone) == (0, 0, 0)  # nothing is known yet
    code, files, size = spared(settled, clone)
    # All but v3, whose exclusion rests on bytes that are judged again each time.
    assert code == 0
    assert files > 10
    assert size > sum(p.stat().st_size for p in model_files(settled)) / 2
    assert settled.verify("--all", "--remembered", clone=clone).levels == ["inputs"] * (NEWEST + 1)


def test_it_says_how_many_it_did_not_read_and_the_default_says_nothing(settled: Auditor) -> None:
    clone = settled.clone()
    _, out, _ = settled.call(clone, "verify", "--all")
    assert out.splitlines()[-1] == f"{NEWEST + 1} versions verified, 0 failed"
    _, out, _ = settled.call(clone, "verify", "v1", "--remembered")
    *_, summary, told = out.splitlines()
    assert summary == "1 version verified, 0 failed"
    # v1: two contributions, here and in the archive; its model and its base; a superseded update; each with its manifest,
    # all with the one empty config of each repository, and the proposal of v1.
    assert told.endswith(" not read again: as an earlier verification left them")
    assert int(told.split()[0]) == 4 + 2 + 1 + 7 + len(("archive", "hospital-a", "hospital-b", "v0", "v1"))
    assert "remembered" not in settled.verify("--all", clone=clone).document


def test_bytes_that_changed_are_read_again_and_named(settled: Auditor) -> None:
    clone = settled.clone()
    settled.verify(clone=clone)
    used = record(2, settled.forger())["contributions"][0]
    path = layer(settled, "archive", used["sha256"])
    flip(path, 100)
    report = settled.verify("--all", "--remembered", clone=clone)
    assert (report.code, report.failed) == (3, [2])
    assert report.names(2, "hash_mismatch", where="v2: archive", site=used["site"])


def test_who_sets_the_time_back_is_seen_by_the_default_and_by_audits_alone(settled: Auditor) -> None:
    """That is what is given up for speed, and why nobody gets it without asking."""
    clone = settled.clone()
    settled.verify(clone=clone)
    used = record(2, settled.forger())["contributions"][0]
    path = layer(settled, "archive", used["sha256"])
    before = path.stat()
    flip(path, 100)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert settled.verify("--all", "--remembered", clone=clone).code == 0
    assert settled.verify("--all", clone=clone).failed == [2]
    code, out, _ = settled.call(clone, "ci", "audit", "--format", "json")
    assert (code, [r["version"] for r in json.loads(out)["versions"] if not r["ok"]]) == (3, [2])


@pytest.mark.parametrize("what", ["layer", "manifest", "another inode"])
def test_a_version_is_looked_at_anew_where_any_of_its_files_is_another(settled: Auditor, what: str) -> None:
    clone = settled.clone()
    settled.verify(clone=clone)
    used = record(1, settled.forger())["contributions"][0]
    name = used["manifest"].removeprefix("sha256:") if what == "manifest" else used["sha256"]
    path = layer(settled, f"sites/{used['site']}", name)
    if what == "another inode":
        copy = path.with_name("copy")
        copy.write_bytes(path.read_bytes())
        os.utime(copy, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
        copy.replace(path)
        assert settled.verify("--all", "--remembered", clone=clone).code == 0
        return
    path.unlink()
    report = settled.verify("--all", "--remembered", clone=clone)
    assert (report.code, report.levels[1]) == (0, "inputs")  # a site may delete its own


def test_git_is_asked_anew_for_tags_and_strays(settled: Auditor) -> None:
    clone = settled.clone()
    settled.verify(clone=clone)
    settled.forger().set_ref("refs/tags/global@v1.0.0", None)
    assert settled.verify("--all", "--remembered", clone=clone).slugs(1) == ["tag_missing"]


def test_a_history_that_was_forged_since_is_another_one(settled: Auditor) -> None:
    clone = settled.clone()
    settled.verify(clone=clone)
    forger = settled.forger()
    commit = forger.version(2)
    told = json.loads(forger.read(commit, "global/version.json"))
    told["denominator"] = 1.0
    data = (json.dumps(told, indent=2, ensure_ascii=False) + "\n").encode()
    forger.rewrite({commit: {"global/version.json": data}})
    assert 2 in settled.verify("--all", "--remembered", clone=clone).failed


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"schema": "fedops.verified/v9"}', b"\xff" * 100])
def test_a_memory_that_is_no_memory_is_none(settled: Auditor, text: bytes) -> None:
    clone = settled.clone()
    settled.verify(clone=clone)
    Work(clone).verified.write_bytes(text)
    assert spared(settled, clone) == (0, 0, 0)
    assert spared(settled, clone)[1] > 0  # and is written anew


def test_a_run_that_fails_leaves_no_memory(settled: Auditor) -> None:
    settled.forger().set_ref("refs/tags/global@v1.0.0", None)
    clone = settled.clone()
    assert settled.verify(clone=clone).code == 3
    assert not Work(clone).verified.exists()


def test_a_store_that_was_just_written_to_is_not_remembered(auditor: Auditor) -> None:
    """Its files might change again within the same tick of the clock."""
    for path in auditor.store.rglob("*"):
        if path.is_file():
            os.utime(path)
    clone = auditor.clone()
    auditor.verify(clone=clone)
    listed = json.loads(Work(clone).verified.read_bytes())
    assert (listed["files"], listed["proofs"]) == ([], {})


# ---------------------------------------------------------------- levels


def test_a_level_may_be_asked_for(settled: Auditor) -> None:
    clone = settled.clone()
    assert settled.verify("--all", "--level", "inputs", clone=clone).code == 0
    forger = settled.forger()
    for used in record(1, forger)["contributions"]:
        drop(settled, used["sha256"], "archive", f"sites/{used['site']}")
    retain(settled, 2)
    assert settled.verify("--all", clone=clone).code == 0
    assert settled.verify("--all", "--level", "lineage", clone=clone).code == 0
    report = settled.verify("--all", "--level", "inputs", clone=clone)
    assert (report.code, report.failed, report.levels[1]) == (3, [1], "lineage")
    assert report.names(1, "level_not_reached", where="v1", got="lineage", expected="inputs")
    _, out, _ = settled.call(clone, "verify", "v1", "--level", "inputs")
    assert out.splitlines()[0].endswith("FAILED (only lineage)")


def test_what_was_deleted_under_a_shorter_policy_stays_explained(settled: Auditor) -> None:
    """The lead keeps everything from now on; v1 was too old before that, as the policy at v3 says."""
    forger = settled.forger()
    for used in record(1, forger)["contributions"]:
        drop(settled, used["sha256"], "archive", f"sites/{used['site']}")
    assert settled.verify().failed == [1]
    commit = forger.commit("merge(hospital-a): update on v2")
    text = forger.read(commit, "federation.yaml")
    assert b"retain_updates: null" in text
    # Nothing but the policy of then is forged here, so that the versions after it fail, and v1 does not.
    edits = {
        c: {"federation.yaml": text.replace(b"retain_updates: null", b"retain_updates: 2")}
        for c in forger.line()
        if c in after(forger.line(), commit)
    }
    edits[forger.line()[-1]] = {"federation.yaml": text}
    forger.rewrite(edits)
    report = settled.verify()
    assert report.of(1) == []
    assert report.levels[1] == "lineage"


def after(line: list[str], commit: str) -> list[str]:
    return line[line.index(commit) :]


def test_an_archive_that_lost_a_copy_which_the_site_still_has_is_a_warning(settled: Auditor) -> None:
    used = record(2, settled.forger())["contributions"][0]
    drop(settled, used["sha256"], "archive")
    report = settled.verify()
    assert (report.code, report.levels) == (0, ["inputs"] * (NEWEST + 1))
    assert report.names(2, "archive_missing", site=used["site"], got=used["sha256"], severity="warning")
    retain(settled, 2)
    assert settled.verify().of(2) == []
