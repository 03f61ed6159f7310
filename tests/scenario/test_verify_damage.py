"""One raw byte changed in the store or in a git object, bytes that are gone: `fedops verify` names them."""

from __future__ import annotations

import json
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedops.adapters.git_repo import GitRepository
from fedops.core.errors import GitError
from tests.forgery import Forger
from tests.scenario.auditing import Auditor, Report, flip, unpack
from tests.scenario.test_verify_forged import VERSION, record
from tests.verify_world import NEWEST, SITES

REPOSITORIES = ("global", "archive", *(f"sites/{site}" for site in SITES))


def blobs(auditor: Auditor, repository: str) -> list[Path]:
    return sorted((auditor.store / repository / "blobs" / "sha256").iterdir())


def kind_of(path: Path) -> str:
    """manifest, config or layer."""
    data = path.read_bytes()
    if data[:1] != b"{":
        return "layer"
    return "manifest" if b'"layers"' in data else "config"


def named(report: Report, repository: str, word: str) -> list[int]:
    """Versions with an error that says the repository and the digest."""
    return [
        row["version"]
        for row in report.document["versions"]
        for f in row["findings"]
        if f["severity"] == "error" and f["where"] == f"v{row['version']}: {repository}" and word in str(f["got"])
    ]


# ---------------------------------------------------------------- one byte of the store


def users_of(auditor: Auditor) -> dict[tuple[str, str], int]:
    """(repository, sha256) of every blob -> the first version that it belongs to, from the records and git alone."""
    forger = auditor.forger()
    found: dict[tuple[str, str], int] = {}
    current = 0
    for commit in forger.line():
        files = forger.files(commit)
        if VERSION in files:
            current = json.loads(forger.objects[files[VERSION][1]][1])["version"]
        for site in SITES:
            path = f"sites/{site}/submission.json"
            if path in files:
                handed_in = json.loads(forger.objects[files[path][1]][1])
                for repository in (f"sites/{site}", "archive"):
                    for digest in (handed_in["sha256"], handed_in["manifest"].removeprefix("sha256:")):
                        found.setdefault((repository, digest), current + 1)
    for number in range(NEWEST + 1):
        model = record(number, forger)["model"]
        for digest in (model["sha256"], model["manifest"].removeprefix("sha256:")):
            found.setdefault(("global", digest), number)
    for (repository, digest), number in list(found.items()):
        manifest = auditor.store / repository / "blobs" / "sha256" / digest
        if manifest.exists() and kind_of(manifest) == "manifest":
            config = json.loads(manifest.read_bytes())["config"]["digest"].removeprefix("sha256:")
            found[repository, config] = min(number, found.get((repository, config), number))
    return found


@pytest.mark.parametrize("where", [0.0, 0.5, 1.0], ids=["first", "middle", "last"])
@pytest.mark.parametrize("kind", ["layer", "manifest", "config"])
def test_one_byte_of_every_blob_is_named_with_version_and_repository(auditor: Auditor, kind: str, where: float) -> None:
    """All blobs of a kind at once: each must be named for itself, also where a second copy is whole."""
    users = users_of(auditor)
    damaged = [(r, path) for r in REPOSITORIES for path in blobs(auditor, r) if kind_of(path) == kind]
    assert len(damaged) >= 5
    for _, path in damaged:
        flip(path, int(where * (path.stat().st_size - 1)))
    report = auditor.verify()
    assert report.code == 3
    for repository, path in damaged:
        slug_word = path.name
        assert named(report, repository, slug_word)[:1] == [users[repository, path.name]], (repository, path)


def test_a_damaged_archive_copy_is_named_although_the_sites_copy_is_good(auditor: Auditor) -> None:
    used = record(2, auditor.forger())["contributions"][0]
    flip(auditor.store / "archive" / "blobs" / "sha256" / used["sha256"], 100)
    report = auditor.verify()
    assert (report.code, report.failed) == (3, [2])
    assert report.names(2, "hash_mismatch", where="v2: archive", site=used["site"])
    assert len(report.of(2)) == 1


def test_a_global_model_swapped_for_another_valid_one(auditor: Auditor) -> None:
    forger = auditor.forger()
    old, new = (record(n, forger)["model"]["sha256"] for n in (2, 3))
    folder = auditor.store / "global" / "blobs" / "sha256"
    shutil.copy(folder / new, folder / old)
    report = auditor.verify()
    assert (report.code, report.failed) == (3, [2, 3])
    assert report.names(2, "hash_mismatch", where="v2: global")
    assert report.names(3, "hash_mismatch", what="a model that it rests on")


def test_a_manifest_replaced_by_another_valid_one(auditor: Auditor) -> None:
    forger = auditor.forger()
    old, new = (record(n, forger)["model"]["manifest"].removeprefix("sha256:") for n in (2, 3))
    folder = auditor.store / "global" / "blobs" / "sha256"
    shutil.copy(folder / new, folder / old)
    report = auditor.verify()
    assert report.failed == [2, 3]
    assert report.names(2, "digest_mismatch", where="v2: global")


def test_a_global_model_that_is_gone(auditor: Auditor) -> None:
    digest = record(NEWEST, auditor.forger())["model"]["sha256"]
    (auditor.store / "global" / "blobs" / "sha256" / digest).unlink()
    report = auditor.verify()
    assert report.failed == [NEWEST]
    assert report.names(NEWEST, "object_missing", where=f"v{NEWEST}: global")


def drop(auditor: Auditor, digest: str, *repositories: str) -> None:
    for repository in repositories:
        (auditor.store / repository / "blobs" / "sha256" / digest).unlink()


def test_one_copy_of_a_contribution_is_enough(auditor: Auditor) -> None:
    used = record(2, auditor.forger())["contributions"]
    drop(auditor, used[0]["sha256"], "archive")
    drop(auditor, used[1]["sha256"], f"sites/{used[1]['site']}")
    report = auditor.verify()
    assert (report.code, report.levels) == (0, ["inputs"] * (NEWEST + 1))


def test_a_contribution_of_which_no_copy_is_left(auditor: Auditor) -> None:
    used = record(2, auditor.forger())["contributions"][0]
    drop(auditor, used["sha256"], "archive", f"sites/{used['site']}")
    report = auditor.verify()
    assert (report.code, report.failed) == (3, [2])
    assert report.names(2, "update_missing", site=used["site"], got=used["sha256"])
    assert report.levels == ["inputs", "inputs", "none", "inputs", "inputs"]


def retain(auditor: Auditor, versions: int) -> None:
    """The lead's present policy keeps the inputs of so many versions."""
    forger = auditor.forger()
    tip = forger.refs["refs/heads/main"]
    text = forger.read(tip, "federation.yaml")
    assert b"retain_updates: null" in text
    new = text.replace(b"retain_updates: null", b"retain_updates: %d" % versions)
    files = forger.files(tip) | {"federation.yaml": ("100644", forger.put("blob", new))}
    forger.set_ref("refs/heads/main", forger.recommit(tip, files, [tip]))


def test_inputs_that_are_no_longer_kept_leave_the_lineage(auditor: Auditor) -> None:
    forger = auditor.forger()
    for number in (1, 2):
        for used in record(number, forger)["contributions"]:
            drop(auditor, used["sha256"], "archive", f"sites/{used['site']}")
    retain(auditor, 2)
    report = auditor.verify()
    assert (report.code, report.findings) == (0, [])
    assert report.levels == ["inputs", "lineage", "lineage", "inputs", "inputs"]


def test_inputs_that_must_still_be_kept_are_missed(auditor: Auditor) -> None:
    used = record(3, auditor.forger())["contributions"][0]
    drop(auditor, used["sha256"], "archive", f"sites/{used['site']}")
    retain(auditor, 2)
    report = auditor.verify()
    assert (report.code, report.failed) == (3, [3])
    assert report.slugs(3) == ["update_missing"]


def test_an_exclusion_by_bytes_that_are_gone_is_a_warning(auditor: Auditor) -> None:
    forger = auditor.forger()
    commit = forger.commit("merge(hospital-b): update on v1")
    drop(auditor, json.loads(forger.read(commit, "sites/hospital-b/submission.json"))["sha256"], "sites/hospital-b")
    report = auditor.verify()
    assert (report.code, report.levels) == (0, ["inputs"] * (NEWEST + 1))
    assert report.names(3, "exclusion_unchecked", site="hospital-b", got="norm_exceeded", severity="warning")


def test_unavailable_bytes_that_came_back_are_a_warning_for_each_version_that_missed_them(auditor: Auditor) -> None:
    shutil.copytree(auditor.kept / "clinic-c", auditor.store / "sites" / "clinic-c", dirs_exist_ok=True)
    report = auditor.verify()
    assert report.code == 0
    assert [report.slugs(n) for n in (3, 4)] == [["unavailable_present"]] * 2
    assert report.names(3, "unavailable_present", site="clinic-c", got="object_missing", severity="warning")


def test_a_store_that_is_not_mounted_gives_no_verdict_and_one_without_bytes_fails(auditor: Auditor) -> None:
    elsewhere = auditor.store.rename(auditor.folder / "elsewhere")
    report = auditor.verify()
    assert (report.code, report.document["error"]["cause"]) == (5, "temporary")
    assert "the store's folder is not there" in report.document["error"]["message"]
    assert "versions" not in report.document
    auditor.store.mkdir()
    report = auditor.verify()
    assert (report.code, report.document["error"]["slug"]) == (5, "store_empty")
    auditor.store.rmdir()
    shutil.copytree(elsewhere, auditor.store, ignore=shutil.ignore_patterns("sha256"))
    report = auditor.verify()
    assert (report.code, report.failed) == (3, list(range(NEWEST + 1)))
    shutil.rmtree(auditor.store)
    elsewhere.rename(auditor.store)
    assert auditor.verify().code == 0


# ---------------------------------------------------------------- one byte of git


def version_objects(forger: Forger) -> Iterator[tuple[str, str]]:
    """Name and id of objects of every kind that versions rest on."""
    for number in range(NEWEST + 1):
        commit = forger.version(number)
        yield f"commit of v{number}", commit
        yield f"tree of v{number}", forger.tree_of(commit)
        yield f"record of v{number}", forger.files(commit)[VERSION][1]
        yield f"tag of v{number}", forger.refs[f"refs/tags/global@v{number}.0.0"]
    merge = forger.commit("merge(clinic-c): update on v0")
    yield "a merge", merge
    yield "a site's commit", forger.parents(merge)[1]
    yield "a site's record", forger.files(merge)["sites/clinic-c/submission.json"][1]
    yield "a site's pointer", forger.files(merge)["sites/clinic-c/update.safetensors.dvc"][1]
    yield (
        "a superseded record",
        forger.files(forger.commit("merge(hospital-a): update on v0"))["sites/hospital-a/submission.json"][1],
    )
    tip = forger.refs["refs/heads/main"]
    for path in ("policies/sites.yaml", "policies/aggregation.yaml", "federation.yaml", "README.md"):
        yield path, forger.files(tip)[path][1]
    yield "the forge", forger.refs["refs/fedops/forge"]


FIRST_VERSION = {
    "a merge": 2,
    "a site's commit": 2,
    "a site's record": 2,
    "a site's pointer": 2,
    "a superseded record": 1,
    "policies/sites.yaml": 4,
    "policies/aggregation.yaml": 1,
    "federation.yaml": 0,
    "README.md": 0,
}


def expected_version(what: str) -> int | None:
    return int(what[-1]) if " of v" in what else FIRST_VERSION.get(what)


def test_one_byte_of_a_loose_object_is_named_with_its_version(auditor: Auditor) -> None:
    unpack(auditor.origin)
    forger, clone = auditor.forger(), auditor.clone()
    auditor.verify(clone=clone)  # fetches what a plain clone leaves out
    for what, name in version_objects(forger):
        path = clone / ".git" / "objects" / name[:2] / name[2:]
        if not path.exists():  # in a pack, which fetch made
            unpack(clone / ".git")
        good = flip(path, path.stat().st_size // 2)
        report = auditor.verify(clone=clone)
        path.write_bytes(good)
        assert report.code == 3, what
        assert name in json.dumps(report.document), what
        number = expected_version(what)
        if number is not None:
            assert number in report.failed, (what, report.failed)
            assert report.names(number, "object_corrupt"), what
    assert auditor.verify(clone=clone).code == 0


@pytest.mark.parametrize("damage", ["commit", "tree", "blob", "tag"])
def test_a_damaged_origin_is_never_verified(auditor: Auditor, damage: str) -> None:
    """By a transport that reads objects the clone fails; a copy of the folder is damaged, and verify says so."""
    unpack(auditor.origin)
    forger = auditor.forger()
    commit = forger.version(2)
    name = {
        "commit": commit,
        "tree": forger.tree_of(commit),
        "blob": forger.files(commit)[VERSION][1],
        "tag": forger.refs["refs/tags/global@v2.0.0"],
    }[damage]
    path = auditor.origin / "objects" / name[:2] / name[2:]
    flip(path, path.stat().st_size // 2)
    with pytest.raises(GitError) as caught:
        GitRepository.clone(f"file://{auditor.origin}", auditor.folder / "far").close()
    assert name in caught.value.message or "corrupt" in caught.value.message
    if damage == "tag":  # which every clone follows
        with pytest.raises(subprocess.CalledProcessError) as failed:
            auditor.clone()
        assert name in failed.value.stderr.decode()
        return
    report = auditor.verify()
    assert report.code == 3
    assert name in json.dumps(report.document)
    assert report.names(2, "object_corrupt")


def owners(forger: Forger) -> dict[str, int]:
    """Id of an object -> the first version that needs it: what came to main since the one before, merges too; its tag."""
    versions = {forger.version(n): n for n in range(NEWEST + 1)}
    found: dict[str, int] = {}
    since: list[str] = []
    for commit in forger.line():
        since += [commit, *forger.parents(commit)[1:]]
        if commit in versions:
            number = versions[commit]
            of_commits = {name for one in since for name in (one, *trees(forger, forger.tree_of(one)))}
            of_commits |= {name for one in since for _, name in forger.files(one).values()}
            for name in (*of_commits, forger.refs[f"refs/tags/global@v{number}.0.0"]):
                found.setdefault(name, number)
            since = []
    return found


def trees(forger: Forger, top: str) -> Iterator[str]:
    """A tree and those below it."""
    yield top
    data = forger.objects[top][1]
    while data:
        head, data = data.split(b"\0", 1)
        if head.startswith(b"40000 "):
            yield from trees(forger, data[:20].hex())
        data = data[20:]


@pytest.mark.parametrize("suffix", [".pack", ".idx"])
@pytest.mark.parametrize("where", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
def test_one_byte_of_a_pack_is_named_with_the_version_that_needs_it(
    auditor: Auditor, suffix: str, where: float
) -> None:
    forger = auditor.forger()
    clone = auditor.clone()
    auditor.verify(clone=clone)
    (path,) = sorted((clone / ".git" / "objects" / "pack").glob(f"*{suffix}"), key=lambda p: p.stat().st_size)[-1:]
    flip(path, int(where * (path.stat().st_size - 1)))
    code, out, err = auditor.call(clone, "verify", "--all", "--format", "json")
    document = json.loads(out)
    assert document["ok"] is False
    needed_by = owners(forger)
    if code == 2:  # nothing in the pack can be read any more, and so no version be told: what is told is a version's
        assert document["error"]["slug"] == "object_corrupt"
        assert [name for name in needed_by if name in document["error"]["message"]]
        assert path.stem in err
        return
    assert code == 3
    report = Report(code, document)
    told = [f for f in report.findings if f["slug"] == "object_corrupt" and not str(f["got"]).startswith("git fsck")]
    assert told or path.stem in out  # git alone minds a wrong checksum in an index
    # One byte may damage all that git keeps as a difference from that object; then not each is named by its version.
    for name in {name for f in told for name in needed_by if name in str(f["got"])}:
        assert "object_corrupt" in report.slugs(needed_by[name]), (name, needed_by[name])


def lead_astray(index: Path, name: str) -> None:
    """Let a pack's index say that an object lies beyond the pack's end."""
    data = bytearray(index.read_bytes())
    assert data[:8] == b"\xfftOc\0\0\0\2"
    count = int.from_bytes(data[8 + 255 * 4 : 8 + 256 * 4], "big")
    names = 8 + 256 * 4
    at = next(n for n in range(count) if data[names + 20 * n : names + 20 * (n + 1)].hex() == name)
    offset = names + 24 * count + 4 * at
    data[offset : offset + 4] = b"\x7f\xff\xff\xff"
    index.chmod(0o644)
    index.write_bytes(data)


@pytest.mark.parametrize("what", ["commit", "top tree", "tree", "record"])
def test_an_index_that_leads_beyond_its_pack_is_named_with_the_version_that_needs_the_object(
    auditor: Auditor, what: str
) -> None:
    """Git dies of it without a word on which object it looked for."""
    forger = auditor.forger()
    clone = auditor.clone()
    commit = forger.version(2)
    record = forger.files(commit)[VERSION][1]
    below = [n for n in trees(forger, forger.tree_of(commit)) if bytes.fromhex(record) in forger.objects[n][1]]
    name = {"commit": commit, "top tree": forger.tree_of(commit), "tree": below[0], "record": record}[what]
    auditor.verify(clone=clone)
    indexes = [i for i in (clone / ".git/objects/pack").glob("*.idx") if bytes.fromhex(name) in i.read_bytes()]
    for index in indexes:
        lead_astray(index, name)
    report = auditor.verify(clone=clone)
    assert (report.code, report.failed[:1]) == (3, [2])
    assert [f for f in report.of(2) if f["slug"] == "object_corrupt" and name in str(f["got"])]


def test_a_damaged_clone_is_judged_as_it_is_when_it_cannot_fetch(
    auditor: Auditor,
) -> None:
    unpack(auditor.origin)
    clone = auditor.clone()
    auditor.verify(clone=clone)
    forger = auditor.forger()
    tip = forger.refs["refs/heads/main"]
    forger.set_ref("refs/heads/main", forger.recommit(tip, forger.files(tip), [tip]))
    flip(clone / ".git" / "objects" / tip[:2] / tip[2:], 10)
    code, out, err = auditor.call(clone, "verify", "--all", "--format", "json")
    assert code == 3
    assert tip in out
    assert "damaged" in err


def test_a_commit_under_the_name_of_another_is_named(auditor: Auditor) -> None:
    """It inflates without complaint, so that only its hash tells."""
    unpack(auditor.origin)
    forger, clone = auditor.forger(), auditor.clone()
    auditor.verify(clone=clone)
    name = forger.commit("merge(clinic-c): update on v0")
    data = forger.objects[name][1].replace(b"merge(clinic-c)", b"merge(clinic-d)")
    path = clone / ".git" / "objects" / name[:2] / name[2:]
    if not path.exists():
        unpack(clone / ".git")
    path.chmod(0o644)
    path.write_bytes(zlib.compress(f"commit {len(data)}\0".encode() + data))
    report = auditor.verify("--all", "--no-fetch", clone=clone)
    assert (report.code, report.failed) == (3, [2])
    assert report.names(2, "object_corrupt", got=name)


def test_a_version_right_before_another_whose_commit_is_damaged(auditor: Auditor) -> None:
    """No commit stands between them that would show the lost record."""
    forger = auditor.forger()
    line = forger.line()
    between = line[line.index(forger.version(3)) + 1 : line.index(forger.version(4))]
    forger.rewrite(drop=between)
    unpack(auditor.origin)
    name = forger.version(3)
    clone = auditor.clone()
    path = clone / ".git" / "objects" / name[:2] / name[2:]
    flip(path, path.stat().st_size // 2)
    report = auditor.verify("--all", "--no-fetch", clone=clone)
    assert report.code == 3
    assert sorted(report.failed) == [3, 4]
    assert report.names(3, "object_corrupt")
    assert name in str(report.of(3)[0]["got"])


@pytest.mark.parametrize("harm", ["deleted", "moved"])
def test_beside_a_broken_tag_the_others_are_still_judged_as_far_as_they_can(auditor: Auditor, harm: str) -> None:
    clone = auditor.clone()
    auditor.verify(clone=clone)
    tags = clone / ".git" / "refs" / "tags"
    tags.mkdir(parents=True, exist_ok=True)
    (tags / "global@v2.0.0").write_text("1" * 40 + "\n")
    other = "refs/tags/global@v3.0.0"
    command = ["update-ref", "-d", other] if harm == "deleted" else ["update-ref", other, auditor.forger().version(1)]
    subprocess.run(["git", "-C", str(clone), *command], check=True)
    report = auditor.verify("--all", "--no-fetch", clone=clone)
    assert (report.code, report.failed) == (3, [2, 3])
    assert report.slugs(3) == ["tag_missing" if harm == "deleted" else "tag_moved"]


@pytest.mark.parametrize("change", [lambda p: p.write_text("nonsense\n"), lambda p: p.write_text("1" * 40 + "\n")])
def test_a_tag_ref_that_is_broken(auditor: Auditor, change: Callable[[Path], object]) -> None:
    clone = auditor.clone()
    auditor.verify(clone=clone)
    ref = clone / ".git" / "refs" / "tags" / "global@v2.0.0"
    ref.parent.mkdir(parents=True, exist_ok=True)
    change(ref)
    for arguments in (("--all", "--no-fetch"), ("--all",)):  # a broken ref stops a fetch, or is mended by it
        report = auditor.verify(*arguments, clone=clone)
        if arguments == ("--all",) and report.code == 0:
            continue
        assert report.code == 3
        assert any(f["slug"] == "object_corrupt" for f in report.findings)
        assert report.failed == [2]
