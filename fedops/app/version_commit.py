"""The commit and the tag of one version: exactly those that fedops makes of its record."""

from __future__ import annotations

from collections.abc import Iterator

from fedops.app.snapshot import Snapshot
from fedops.app.version_merge import merge_findings
from fedops.core.facts import Commit, VersionTag
from fedops.core.findings import Finding, finding
from fedops.core.ids import GlobalVersion
from fedops.core.plan import plan_version
from fedops.core.records import MAX_VERSION_BYTES, model_pointer
from fedops.core.steps import Publish
from fedops.ports import Repository


def planned(here: Snapshot, commit: Commit) -> Publish:
    """What publish must have written for the record of this commit."""
    extension = here.federation.extension
    pointer = model_pointer(here.version, extension)
    return plan_version(here.version, pointer, commit.id, extension=extension, at=commit.committed_at)


def tag_findings(repository: Repository, commit: Commit, plan: Publish, tag: VersionTag | None) -> Iterator[Finding]:
    """The tag must be the annotated one that was made with the version, byte for byte; None: there is none."""
    if tag is None:
        yield finding("tag_missing", plan.tag, expected=commit.id)
    elif tag.commit != commit.id:
        yield finding("tag_moved", plan.tag, got=tag.commit, expected=commit.id)
    elif not tag.annotated:
        yield finding("tag_moved", plan.tag, got="a lightweight tag", expected="an annotated tag")
    elif tag.object != repository.tag_id(plan.tag, commit.id, plan.tag_message):
        if tag.message != plan.tag_message:
            detail = {"field": "message"}
            yield finding("tag_moved", plan.tag, got=tag.message[:500], expected=plan.tag_message, detail=detail)
        else:
            expected = f"made by {commit.committer} at {commit.committed_at:%Y-%m-%dT%H:%M:%SZ}, like the commit"
            detail = {"field": "tagger"}
            yield finding("tag_moved", plan.tag, got="another tagger, date or form", expected=expected, detail=detail)


def commit_findings(here: Snapshot, commit: Commit, parent: Snapshot | None, plan: Publish) -> Iterator[Finding]:
    """A version's commit carries exactly its three files, as canonical bytes, and changes nothing else.

    Args:
        parent: None for v0, which brings the whole federation.
    """
    where = GlobalVersion(here.version.version).short
    for path, expected in plan.files.items():
        entry = here.files.get(path)
        if entry is None or entry.mode != "100644":
            got = None if entry is None else f"mode {entry.mode}"
            yield finding("record_mismatch", where, got=got, expected="a plain file", detail={"path": path})
        elif here.repository.read(entry.blob, max_bytes=MAX_VERSION_BYTES) != expected:
            yield finding(
                "record_mismatch", where, got=entry.blob, expected="the record's bytes", detail={"path": path}
            )
    if parent is None:
        return
    if len(commit.parents) != 1:
        yield from merge_findings(here, commit, parent, plan)
    paths = here.files.keys() | parent.files.keys()
    stray = sorted(p for p in paths - plan.files.keys() if here.files.get(p) != parent.files.get(p))
    if stray:
        detail = {"commit": commit.id}
        alone = f"changes of {', '.join(plan.files)} alone"
        yield finding("lineage_broken", where, got=stray[:5], expected=alone, detail=detail)
