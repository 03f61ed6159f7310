"""Version tags that nobody published: nothing is aggregated until they are gone."""

from __future__ import annotations

from collections.abc import Iterable

from fedops.app.snapshot import Snapshot, record_at, version_record
from fedops.app.version_push import on_line
from fedops.core.facts import VersionTag
from fedops.core.findings import Finding, finding
from fedops.core.ids import GlobalVersion


def above(main: Snapshot, tags: Iterable[VersionTag]) -> tuple[Finding, ...]:
    """Those of some tags that stand above the current version."""
    return tuple(_above(main, tag) for tag in tags if tag.version > main.version.version)


def _above(main: Snapshot, tag: VersionTag) -> Finding:
    """Main may have had that version and lost it, which calls for another cure than a tag of none."""
    now, then = f"v{main.version.version}", record_at(main.repository, tag.commit)
    expected = f"no tag above {now}"
    if then is not None and then.version == tag.version:
        reverted = main.repository.is_ancestor(tag.commit, main.commit)
        expected = f"v{tag.version} on main, which {'went back' if reverted else 'was set back'} to {now}"
    return finding("tag_moved", tag.tag, got=tag.commit, expected=expected)


def misplaced(main: Snapshot) -> tuple[Finding, ...]:
    """The tag of the current version, if it names another commit than the one that brought the version to main."""
    number, tag = main.version.version, GlobalVersion(main.version.version).tag
    named = main.repository.resolve(f"refs/tags/{tag}")
    made = version_record(main.repository, main, number) if named is not None else None
    if named is None or made is None or (made[0] == named and on_line(main.repository, named, main.commit)):
        return ()
    return (finding("tag_moved", tag, got=named, expected=f"the commit that brought v{number}"),)
