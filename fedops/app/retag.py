"""Make version tags again that somebody deleted: they follow from the commits on main.

Of versions below the newest tag only: what stands above it was never tagged, and is verified with its bytes first
(`next_version`).
"""

from __future__ import annotations

from dataclasses import dataclass

from fedops.app.context import Context
from fedops.app.inspect import refreshed
from fedops.app.snapshot import Snapshot, snapshot
from fedops.app.verify import verify
from fedops.app.version_commit import planned
from fedops.core.errors import GitError
from fedops.core.facts import RefUpdate
from fedops.core.findings import Finding, errors, finding
from fedops.core.ids import CommitId, GlobalVersion


@dataclass(frozen=True)
class Retagged:
    """Attributes:
    numbers: versions whose tag was made.
    findings: tags that stay missing, and what speaks against each.
    """

    numbers: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()


def restore_tags(ctx: Context, main: Snapshot) -> Retagged:
    """Tag each version below the newest tag that has none, if its commit verifies by git alone: no model is opened.

    The tag is byte for byte the one that was made with the version, so that two runs make the same.

    Args:
        main: as it was just fetched.
    """
    if not _untagged(ctx, main):
        return Retagged()
    # NOTE: looked at twice, since a fetch may see the main of a push that is under way before it sees its tag.
    main = refreshed(ctx)
    untagged = _untagged(ctx, main)
    made: list[int] = []
    kept: list[Finding] = []
    seen = verify(ctx, main, untagged, stored=False) if untagged else ()
    # Of two with one number the newer one is meant: a person took the other one off main again.
    newest = {one.version: one for one in seen}
    for number, one in [(number, newest[number]) for number in untagged]:
        against: list[str] = [f.slug for f in errors(one.findings) if f.slug != "tag_missing"]
        try:
            if not against and _tag(ctx, one.commit):
                made.append(number)
                continue
        except GitError as e:
            if e.slug != "push_refused":  # a rule on tags that this account may not pass is no reason to stop
                raise
            against = [e.message]
        kept.append(finding("tag_missing", GlobalVersion(number).tag, got=", ".join(dict.fromkeys(against)) or None))
    return Retagged(tuple(made), tuple(kept))


def _untagged(ctx: Context, main: Snapshot) -> list[int]:
    names = (ref.removeprefix("refs/tags/") for ref in ctx.repository.refs_below("refs/tags"))
    versions = (GlobalVersion.from_tag(name) for name in names)
    there = {v.number for v in versions if v is not None and v.number <= main.version.version}
    return [number for number in range(max(there, default=0)) if number not in there]


def _tag(ctx: Context, commit: CommitId) -> bool:
    """Push the tag; False: another run made one in between.

    Raises:
        GitError: slug push_refused: the server lets this account make no tag.
    """
    plan = planned(snapshot(ctx.repository, commit), ctx.repository.commit(commit))
    made = ctx.repository.write_tag(plan.tag, commit, plan.tag_message)
    return ctx.repository.push([RefUpdate(f"refs/tags/{plan.tag}", None, made)])
