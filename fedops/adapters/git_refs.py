"""Reads refs of a clone by their full names, and the tags of global versions."""

from __future__ import annotations

from fedops.adapters.git_objects import METADATA_BYTES, ObjectReader, RawObject, corrupt
from fedops.adapters.git_process import GitProcess, failure
from fedops.core.facts import VersionTag
from fedops.core.ids import CommitId, GlobalVersion


def commit_of_ref(git: GitProcess, objects: ObjectReader, ref: str) -> CommitId | None:
    """The commit behind exactly this ref; None if there is no such ref, or it names no commit.

    Raises:
        GitError: object_corrupt, if the ref is there but broken, or its object is.
    """
    # NOTE: not rev-parse, which for a missing refs/pull/7/head would take a tag named refs/tags/refs/pull/7/head.
    output = git.run("for-each-ref", "--format=%(objectname) %(refname)", ref)
    if output.code != 0 or ref in output.err.split():  # a broken ref is left out, with a warning that names it
        raise failure(f"git: {ref} is broken", output, hint="fetch again, or see `git fsck`", slug="object_corrupt")
    for line in output.out.decode("utf-8", "replace").splitlines():
        name, _, found = line.partition(" ")
        if found == ref:
            commit = objects.peel(name)
            if commit is None and objects.damaged(name):
                raise corrupt(name)
            return commit
    return None


def refs_below(git: GitProcess, under: str) -> dict[str, str]:
    """Refs below a folder: full name -> object id; broken ones are left out."""
    output = git.run("for-each-ref", "--format=%(objectname) %(refname)", f"{under.rstrip('/')}/")
    if output.code != 0:
        raise failure("git for-each-ref", output)
    lines = (line.partition(" ") for line in output.out.decode("utf-8", "replace").splitlines())
    return {ref: name for name, _, ref in lines}


def version_tags(git: GitProcess, objects: ObjectReader, above: int = -1) -> tuple[VersionTag, ...]:
    """Tags global@vN.0.0 by number; a tag that names no commit shows its object's id in place of the commit's.

    Args:
        above: those of greater numbers alone; no other tag is read.
    """
    form = "--format=%(objectname) %(objecttype) %(refname:lstrip=2)"
    output = git.run("for-each-ref", form, "refs/tags/global@v*")
    if output.code != 0:
        raise objects.explain("git for-each-ref", output, [])
    tags = []
    for line in output.out.decode("utf-8", "replace").splitlines():
        name, kind, tag = line.split(" ", 2)
        version = GlobalVersion.from_tag(tag)
        if version is None or version.number <= above:
            continue
        annotated = kind == "tag"
        message = RawObject.parse(objects.read(name, "tag", max_bytes=METADATA_BYTES)).text if annotated else ""
        commit = objects.peel(name) or CommitId(name)
        tags.append(VersionTag(version.number, tag, name, commit, annotated, message))
    return tuple(sorted(tags, key=lambda tag: tag.version))
