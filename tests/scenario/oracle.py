"""What must hold of a federation after any story, worked out from the trees alone, without the code under test."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedops.core.errors import StoreError
from fedops.core.facts import Commit, Issue
from fedops.core.findings import errors
from fedops.core.ids import BlobId, CommitId, Digest, RepoPath
from fedops.ports import Repository
from tests.scenario.fed import Fed

DAMAGE = ("hash_mismatch", "digest_mismatch")
LOST = (*DAMAGE, "object_missing", "size_mismatch")
NOTHING = "nothing handed in"
REASON = re.compile(r"^<!-- fedops:reason ([a-z_]+) -->$", re.MULTILINE)
SIGNAL = re.compile(r"^<!-- fedops:signal train/([a-z0-9-]+)/v([0-9]+)(/[a-z_]+)? -->$", re.MULTILINE)


@dataclass(frozen=True)
class Handed:
    """A site's record in a tree, whatever became of it."""

    site: str
    base: int
    num_examples: int
    blob: str
    sha256: str
    manifest: str
    signed: bool
    merged_at: dt.datetime


# A commit's id says all of its tree, so it does not matter whose clone it was read from.
_TREES: dict[CommitId, Mapping[RepoPath, BlobId]] = {}


def _files(repository: Repository, commit: CommitId) -> Mapping[RepoPath, BlobId]:
    """Path -> blob; the same few commits are looked at again and again."""
    if commit not in _TREES:
        if len(_TREES) > 500:
            _TREES.clear()
        _TREES[commit] = {e.path: e.blob for e in repository.entries(commit)}
    return _TREES[commit]


class Tree:
    """One commit's files, read as an auditor with git and a JSON reader would."""

    def __init__(self, repository: Repository, commit: CommitId) -> None:
        self.repository, self.commit = repository, commit
        self.files = _files(repository, commit)

    def json(self, path: str) -> Any:
        return json.loads(self.repository.read(self.files[RepoPath(path)], max_bytes=2**24))

    @property
    def version(self) -> Any:
        return self.json("global/version.json")

    @property
    def rules(self) -> Any:
        return self.json("policies/aggregation.yaml")

    @property
    def sites(self) -> Any:
        return self.json("policies/sites.yaml")["sites"]

    @property
    def active(self) -> set[str]:
        return {s for s, entry in self.sites.items() if entry["state"] == "active"}

    def ruled(self) -> dict[str, str]:
        prefixes = ("global/", "policies/")
        return {p: b for p, b in self.files.items() if p.startswith(prefixes) or p == "federation.yaml"}

    def record(self, site: str) -> Any | None:
        """A site's record, if it is one at all."""
        path = RepoPath(f"sites/{site}/submission.json")
        if path not in self.files or RepoPath(f"sites/{site}/update.safetensors.dvc") not in self.files:
            return None
        try:
            record = self.json(path)
        except ValueError:
            return None
        return record if isinstance(record, dict) and record.get("schema") == "fedops.submission/v1" else None

    def handed(self, *, current: int, consumed: Mapping[str, int]) -> list[Handed]:
        """The records that are neither used up nor of a version that is not there yet."""
        out = []
        folders = sorted({p.split("/")[1] for p in self.files if p.startswith("sites/")})
        for site in folders:
            record = self.record(site)
            if record is not None and consumed.get(site, -1) < record["base_version"] <= current:
                out.append(self._handed(site, record))
        return out

    def _handed(self, site: str, record: Any) -> Handed:
        path = RepoPath(f"sites/{site}/submission.json")
        blob = self.files[path]
        merge = self._brought(path, blob)
        at = Tree(self.repository, merge.parents[0]) if merge.parents else None
        keys = at.sites[site]["keys"] if at is not None and site in at.sites else []
        second = [p for p in merge.parents[1:2] if Tree(self.repository, p).files.get(path) == blob]
        signed = self.repository.signer((second or [merge.id])[0], keys) is not None
        return Handed(
            site=site,
            base=record["base_version"],
            num_examples=record["num_examples"],
            blob=blob,
            sha256=record["sha256"],
            manifest=record["manifest"],
            signed=signed,
            merged_at=merge.committed_at,
        )

    def _brought(self, path: RepoPath, blob: BlobId) -> Commit:
        """The newest first-parent commit after whose parent the blob is there."""
        for commit in self.repository.commits(None, self.commit):
            before = Tree(self.repository, commit.parents[0]).files.get(path) if commit.parents else None
            if Tree(self.repository, commit.id).files.get(path) == blob != before:
                return commit
        raise AssertionError(path)

    def why_not(self, one: Handed, handed: list[Handed]) -> set[str]:
        """Every reason for which a rule excludes a record, by the words of the contract; empty: it is to be used."""
        version, reasons = self.version, self._refused(one)
        if reasons:
            return reasons
        if one.site not in self.sites:
            reasons.add("site_unknown")
        elif one.site not in self.active:
            reasons.add("site_suspended")
        limit = self.rules.get("staleness", {}).get("max", 5)
        if limit is not None and version["version"] - one.base > limit:
            reasons.add("too_stale")
        fresh = {h.site for h in handed}
        folders = sorted({p.split("/")[1] for p in self.files if p.startswith("sites/")} - fresh)
        used_up = {record["sha256"]: site for site in folders if (record := self.record(site)) is not None}
        owners = used_up | {c["sha256"]: c["site"] for c in version["contributions"]}
        earlier = [
            h
            for h in handed
            if h.sha256 == one.sha256 and (h.merged_at, h.site) < (one.merged_at, one.site) and not self._refused(h)
        ]
        if owners.get(one.sha256, one.site) != one.site or (one.sha256 not in owners and earlier):
            reasons.add("duplicate_submission")
        return reasons

    def _refused(self, one: Handed) -> set[str]:
        """What the submission policy has against a record; such a record is nobody's original either."""
        submission = self.json("policies/submission.yaml")
        if submission.get("require_signed", True) and not one.signed:
            return {"signature_invalid"}
        return {"num_examples_invalid"} if one.num_examples > submission.get("num_examples_max", 10_000_000) else set()


def version_commits(repository: Repository, tip: CommitId) -> list[tuple[Commit, Tree]]:
    """The first-parent commits of main that changed global/version.json, oldest first."""
    line = [(c, Tree(repository, c.id)) for c in repository.commits(None, tip)][::-1]
    path = RepoPath("global/version.json")
    before: list[BlobId | None] = [None, *[t.files.get(path) for _, t in line]]
    return [(c, t) for (c, t), old in zip(line, before, strict=False) if t.files.get(path) != old]


def check_lineage(fed: Fed) -> list[tuple[Commit, Tree]]:
    """One commit for each number, 0, 1, 2, …, and its annotated tag; returns them."""
    repository = fed.repositories["lena"]
    main = fed.main()
    made = version_commits(repository, main.commit)
    numbers = [t.version["version"] for _, t in made]
    assert numbers == list(range(len(made))), f"versions {numbers}"
    tags = {t.version: t for t in repository.versions()}
    assert sorted(tags) == numbers, f"tags {sorted(tags)}"
    for commit, tree in made:
        tag = tags[tree.version["version"]]
        assert (tag.commit, tag.annotated) == (commit.id, True), tag.tag
    return made


def check_inputs(fed: Fed, made: list[tuple[Commit, Tree]]) -> None:
    """The invariant of CONTRACTS section 2, version by version, and its arithmetic of `consumed`."""
    used: Counter[str] = Counter()
    excluded: Counter[str] = Counter()
    for (before, was), (commit, tree) in itertools.pairwise(made):
        record, previous = tree.version, was.version
        number = record["version"]
        pinned = Tree(was.repository, record["witness"]["input_commit"])
        line = {c.id for c in was.repository.commits(before.id, commit.parents[0])} | {before.id}
        assert pinned.commit in line, f"v{number}: input_commit is not on main since v{number - 1}"
        assert pinned.ruled() == Tree(was.repository, commit.parents[0]).ruled(), f"v{number}: not what it rests on"
        check_merge(was.repository, commit, tree, record, pinned)
        touched = {p for p, b in tree.files.items() if Tree(was.repository, commit.parents[0]).files.get(p) != b}
        assert all(p.startswith("global/") for p in touched), f"v{number}: touches {touched}"

        if record["kind"] == "rollback":
            check_rollback(record, previous, [t.version for _, t in made])
            continue
        handed = pinned.handed(current=number - 1, consumed=previous["consumed"])
        by_blob = {h.blob: h for h in handed}
        use = {c["record_blob"] for c in record["contributions"]}
        out = {e["record_blob"]: e["slug"] for e in record["excluded"]}
        lost = {u["record_blob"] for u in record["witness"]["unavailable"]}
        assert use | out.keys() | lost == by_blob.keys(), f"v{number}: every eligible record is used, excluded or lost"
        assert len(use) + len(out) + len(lost) == len(by_blob), f"v{number}: one thing each"
        for blob in use | lost:
            assert not pinned.why_not(by_blob[blob], handed), f"v{number}: {by_blob[blob]} should be excluded"
        for blob, slug in out.items():
            assert slug in pinned.why_not(by_blob[blob], handed), f"v{number}: {by_blob[blob]} excluded as {slug}"
        expected = dict(previous["consumed"])
        for blob in use | out.keys():
            expected[by_blob[blob].site] = by_blob[blob].base
        assert record["consumed"] == expected, f"v{number}: consumed"
        assert all(record["consumed"][s] >= n for s, n in previous["consumed"].items())
        check_trigger(record, pinned, [by_blob[b] for b in use])
        used.update(use)
        excluded.update(out.keys())
    assert not [b for b, n in (used + excluded).items() if n > 1], "a submission is consumed at most once"


def check_merge(repository: Repository, commit: Commit, tree: Tree, record: Any, pinned: Tree) -> None:
    """A version that needs the leads' approval merges the commit that they approved; any other is one commit."""
    reviewed = record["kind"] == "rollback" or pinned.rules.get("publish", {}).get("mode") == "review"
    if len(commit.parents) == 1:  # pushed by CI, or squashed by a lead who signed it
        keys = [lead["keys"][0] for lead in pinned.json("policies/sites.yaml")["leads"]]
        assert not reviewed or repository.signer(commit.id, keys) is not None, (
            f"v{record['version']}: nobody approved it"
        )
        return
    assert reviewed, f"v{record['version']}: a merge"
    proposal = Tree(repository, commit.parents[1])
    assert {p: b for p, b in proposal.files.items() if p.startswith("global/")} == {
        p: b for p, b in tree.files.items() if p.startswith("global/")
    }


def check_rollback(record: Any, previous: Any, versions: list[Any]) -> None:
    """The bytes of an earlier version; what was used up, and all that is carried, stays as it was."""
    source = versions[record["source"]["version"]]
    assert source["version"] < previous["version"]
    assert (record["model"], record["metrics"]) == (source["model"], source["metrics"])
    assert (record["consumed"], record["carried"]) == (previous["consumed"], previous["carried"])
    assert (record["contributions"], record["excluded"], record["rule"]) == ([], [], None)


def check_trigger(record: Any, pinned: Tree, use: list[Handed]) -> None:
    """The version was due when it was decided on."""
    trigger = pinned.rules["trigger"]
    wait = trigger.get("max_wait_hours")
    decided = dt.datetime.fromisoformat(record["witness"]["decided_at"])
    waited = wait is not None and decided >= min(h.merged_at for h in use) + dt.timedelta(hours=wait)
    enough = len(use) >= trigger["quorum"] or (waited and len(use) >= trigger.get("quorum_after_wait", 1))
    assert enough, f"v{record['version']}: {len(use)} used of {trigger['quorum']}"


def check_signals(tip: Tree, issues: Sequence[Issue], lost: set[str]) -> None:
    """Each active site that the contract addresses has one open signal of the current version, and no older one.

    Args:
        issues: open and closed.
        lost: record blobs whose bytes are needed now and cannot be had.
    """
    record = tip.version
    current = record["version"]
    told = Counter((s, int(v)) for i in issues if i.open for s, v, _ in SIGNAL.findall(i.body)[-1:])
    if record["status"] == "final":
        assert not told, "a final version has no signal"
        return
    assert not [v for _, v in told if v > current]
    everybody = record["kind"] in ("init", "rollback") or tip.rules.get("signals", {}).get("to") == "all"
    contributed = {c["site"] for c in record["contributions"]}
    for site in tip.active:
        reasons = why_told(tip, site, lost)
        assert told[site, current] <= 1, f"{site}: {told[site, current]} open signals of v{current}"
        if not (everybody or site in contributed or reasons):
            continue
        assert told[site, current] == 1, f"{site} is not told of v{current}"
        older = [v for s, v in told if s == site and v < current]
        assert not older, f"{site}: signals of {older} are still open"
        mine = [i.body for i in issues if (site, str(current)) in [m[:2] for m in SIGNAL.findall(i.body)[-1:]]]
        given = {reason for body in mine for reason in REASON.findall(body)}
        assert reasons <= {NOTHING} or given & reasons, f"{site} is told of v{current} for {given}, not for {reasons}"


def why_told(tip: Tree, site: str, lost: set[str]) -> set[str]:
    """Why a site must hand in again: any of these reasons is right; NOTHING if it has handed in nothing yet."""
    record = tip.version
    handed_in = tip.record(site)
    blob = tip.files.get(RepoPath(f"sites/{site}/submission.json"))
    if handed_in is None:
        return {NOTHING} if blob is None else {"record_unreadable"}
    read = {e["record_blob"]: e["slug"] for e in record["excluded"] if e["site"] == site}
    read |= {c["record_blob"]: "" for c in record["contributions"] if c["site"] == site}
    fresh = tip.handed(current=record["version"], consumed=record["consumed"])
    mine = [h for h in fresh if h.site == site]
    if handed_in["base_version"] > record["version"]:
        return {"record_unreadable"}
    if reasons := {reason for h in mine for reason in tip.why_not(h, fresh)}:
        return reasons
    if blob in lost | {u["record_blob"] for u in record["witness"]["unavailable"]}:
        return set(LOST)
    if blob in read:
        return {read[blob]} - {""}
    return {"overtaken"} if read and not mine else set()


def usable(fed: Fed, tip: Tree) -> tuple[list[Handed], list[Handed], list[Handed]]:
    """Records that a version could use now; those whose manifest cannot be had, and those that lack the bytes alone."""
    handed = tip.handed(current=tip.version["version"], consumed=tip.version["consumed"])
    by_state: dict[str, list[Handed]] = {"there": [], "manifest": [], "bytes": []}
    for one in handed:
        if not tip.why_not(one, handed):
            by_state[stored(fed, one)].append(one)
    return by_state["there"], by_state["manifest"], by_state["bytes"]


def stored(fed: Fed, one: Handed) -> str:
    """What the site's store does not hand out: the "manifest", the "bytes"; or all is "there"."""
    state = "manifest"
    try:
        artifact = fed.store.manifest(f"sites/{one.site}", Digest(one.manifest))
        state = "bytes"
        fed.store.get(f"sites/{one.site}", artifact.layer, fed.scratch.new() / "x")
    except StoreError:
        return state
    return "there"


def check_all(fed: Fed, *, rerun: Callable[[], bool], damaged: Collection[str] = ()) -> None:
    """Everything that must hold once reconcile found nothing left to do.

    Args:
        rerun: runs reconcile again; True if it says that something changed.
        damaged: repositories of the store in which somebody changed bytes, which verify must see and may say.
    """
    made = check_lineage(fed)
    check_inputs(fed, made)
    repository = fed.repositories["lena"]
    tip = Tree(repository, fed.main().commit)
    there, no_manifest, no_bytes = usable(fed, tip)
    trigger, record = tip.rules["trigger"], tip.version
    last = tip.rules.get("stop", {}).get("max_version")
    stopped = record["status"] == "final" or (last is not None and record["version"] >= last)

    def due(handed: list[Handed]) -> bool:
        if stopped or not handed:
            return False
        wait = trigger.get("max_wait_hours")
        over = wait is not None and fed.clock.now() >= min(h.merged_at for h in handed) + dt.timedelta(hours=wait)
        return len(handed) >= trigger["quorum"] or (over and len(handed) >= trigger.get("quorum_after_wait", 1))

    forge = fed.forge("lena")
    reviewed = [p.branch for p in forge.open_pulls() if p.branch.startswith(f"fedops/v{record['version'] + 1}")]
    rejected = forge.issues(frozenset({"fedops", "version:rejected"}))
    assert reviewed or rejected or not due(there), f"a version is due, but was not made: {there}"
    own = [branch for branch in reviewed if not branch.endswith("-rollback")]
    assert len(own) <= 1
    assert not own or tip.rules.get("publish", {}).get("mode") == "review"
    issues = [i for is_open in (True, False) for i in forge.issues(frozenset({"fedops"}), open=is_open)]
    # Manifests are looked up first; if the quorum cannot hold without those that are gone, no bytes are asked for.
    missed = no_manifest if due(there + no_manifest + no_bytes) else []
    missed = missed + (no_bytes if due(there + no_bytes) else [])
    if reviewed or rejected:
        missed = []  # while a version is under review, or was rejected, bytes may be left unread
    check_signals(tip, issues, {h.blob for h in missed})
    for _, tree in made[1:]:
        short = f"v{tree.version['version']}"
        assert fed.store.resolve(f"global:{short}") == tree.version["model"]["manifest"], f"the registry's {short}"
    bad = [(c.version, f) for c in fed.verify() for f in errors(c.findings)]
    bad = [(n, f) for n, f in bad if not (f.slug in DAMAGE and any(f.where.endswith(d) for d in damaged))]
    assert not bad, f"verify: {bad}"
    before = fed.state()
    assert not rerun(), "another run says that it changed something"
    assert fed.state() == before, "another run changed something"
