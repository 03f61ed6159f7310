"""Reads a first-parent line by a few processes, however long it is, and goes on past what is damaged."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence

from fedops.adapters.git_objects import ObjectReader, object_id, parse_changes
from fedops.adapters.git_process import GitProcess
from fedops.core.errors import GitError
from fedops.core.facts import Change, Touched
from fedops.core.ids import CommitId, RepoPath, is_hex

_log = logging.getLogger(__name__)
# NOTE: a commit-graph is a second copy of history and of what each commit changes; only the objects are believed.
_NO_COPY = ("-c", "core.commitGraph=false")
# Whoever looks for what came lately stops in the first part; who reads all of it pays three processes more.
_CHUNKS = (64, 1024)
_BASES = 8  # merge bases that a person's merges may leave
# A submodule can ask in .gitmodules that its changes be ignored.
_TWO = ("-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--ignore-submodules=none", "--no-ext-diff")
_OPTIONS = ("--stdin", "--root", "--always", "--diff-merges=first-parent", *_TWO)


def touched(git: GitProcess, objects: ObjectReader, until: CommitId, under: Sequence[str]) -> Iterator[Touched]:
    """The first-parent line of `until`, newest first, with what each commit changes below the folders.

    Args:
        git: runs in the clone.
        until: the newest commit.
        under: folders or files.

    Raises:
        GitError: object_corrupt, where the line ends at a commit that cannot be read; the newer ones came before.
    """
    start: CommitId | None = until
    for most in (*_CHUNKS, -1):
        if start is None:
            return
        # One more than is looked at: the first of the next part.
        bound = [f"--max-count={most + 1}"] if most > 0 else []
        listed = git.run(*_NO_COPY, "rev-list", "--first-parent", *bound, object_id(start), "--")
        names = [CommitId(name) for name in listed.out.decode("ascii").split()]
        error: GitError | None = None
        if listed.code != 0:
            error = _go_on(objects, names, start) or objects.explain("git rev-list", listed, [start])
        more = error is None and 0 < most < len(names)
        start = names.pop() if more else None
        yield from _with_changes(git, objects, names, under)
        if error is not None:
            raise error


def changes(git: GitProcess, objects: ObjectReader, base: CommitId, head: CommitId) -> tuple[Change, ...]:
    """What head changes since any of its merge bases with `base`, each path once.

    Raises:
        GitError: lineage_broken, if there is no merge base, or there are very many.
    """
    found = git.run("merge-base", "--all", object_id(base), object_id(head))
    if found.code not in (0, 1):
        raise objects.explain("git merge-base", found, [base, head])
    bases = found.out.decode("ascii").split()
    if not bases:
        raise GitError(f"git: {head} has no ancestor in common with {base}", slug="lineage_broken")
    if len(bases) > _BASES:
        raise GitError(
            f"git: {head} has {len(bases)} merge bases with {base} -> at most {_BASES}",
            hint="rebase it on main",
            slug="lineage_broken",
        )
    changed: dict[RepoPath, Change] = {}
    for since in bases:
        output = git.run("diff-tree", *_TWO, since, head, "--")
        if output.code != 0:
            raise objects.explain("git diff-tree", output, [since, head])
        changed |= {change.path: change for change in parse_changes(output.out)}
    return tuple(changed[path] for path in sorted(changed))


def merged_into(
    git: GitProcess, objects: ObjectReader, tip: CommitId, commits: Collection[CommitId]
) -> frozenset[CommitId]:
    """Those of the commits that are `tip` or come before it, by any parent; one of which something is missing is none."""
    asked = "".join(f"{object_id(name)}\n" for name in sorted(commits)) + f"^{object_id(tip)}\n"
    left = git.run(*_NO_COPY, "rev-list", "--stdin", stdin=asked.encode()) if commits else None
    if left is None:
        return frozenset()
    if left.code == 0:
        return frozenset(commits) - frozenset(CommitId(name) for name in left.out.decode("ascii").split())
    # One of them cannot be followed; the others are looked at alone.
    found = set()
    for name in commits:
        alone = git.run(*_NO_COPY, "merge-base", "--is-ancestor", name, tip)
        if alone.code == 0:
            found.add(name)
        elif alone.code != 1 and not objects.damaged(name):
            _log.info("%s: not known to be merged: %s", name[:12], alone.err.strip()[:200])
    return frozenset(found)


def _go_on(objects: ObjectReader, names: list[CommitId], until: CommitId) -> GitError | None:
    """Add the commits that can be read; git tells of none before it has read its parent too.

    Returns:
        Why the next cannot be read; None: all can.
    """
    try:
        current = objects.commit(names[-1]).parents[:1] if names else (until,)
        while current:
            parents = objects.commit(current[0]).parents
            names.append(current[0])
            current = parents[:1]
    except GitError as e:
        return e
    return None


def _with_changes(
    git: GitProcess, objects: ObjectReader, names: Sequence[CommitId], under: Sequence[str]
) -> Iterator[Touched]:
    left = list(names)
    while left:
        command = (*_NO_COPY, "diff-tree", *_OPTIONS, "--", *under)
        output = git.run(*command, stdin="".join(f"{name}\n" for name in left).encode())
        told = dict(_parse(output.out))
        done = len(left) if output.code == 0 else sum(1 for name in left if name in told)
        for name in left[:done]:
            yield Touched(name, told.get(name))
        if output.code != 0:
            # It died at the commit after the last that it told of.
            error = objects.explain("git diff-tree", output, _compared(objects, left[done]))
            if error.slug != "object_corrupt":
                raise error
            yield Touched(left[done], None)
            done += 1
        left = left[done:]


def _compared(objects: ObjectReader, commit: CommitId) -> list[CommitId]:
    """A commit, and the one that it is compared with."""
    try:
        return [commit, *objects.commit(commit).parents[:1]]
    except GitError:
        return [commit]


def _parse(listing: bytes) -> Iterator[tuple[CommitId, tuple[Change, ...]]]:
    """Read `diff-tree --stdin -z --raw --always`: each commit's id, then pairs of facts and path."""
    fields = iter(listing.split(b"\0")[:-1])
    commit: CommitId | None = None
    pairs: list[bytes] = []
    for field in fields:
        if field.startswith(b":"):
            pairs += [field, next(fields)]
            continue
        if commit is not None:
            yield commit, _changes(pairs)
        name = field.decode("ascii", "replace")
        assert is_hex(name, 40), name
        commit, pairs = CommitId(name), []
    if commit is not None:
        yield commit, _changes(pairs)


def _changes(pairs: Sequence[bytes]) -> tuple[Change, ...]:
    return parse_changes(b"".join(part + b"\0" for part in pairs))
