"""Version tags that somebody deleted come back as they were, if their versions hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedops.app.inspect import refreshed
from fedops.app.retag import restore_tags
from fedops.core.errors import GitError
from tests.founding_world import Wrapped
from tests.scenario.fed import MemoryFed

A, B = "hospital-a", "hospital-b"


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[MemoryFed]:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 1}})
    for number in range(3):
        fed.submit((A, B)[number % 2], number + 1.0)
        fed.reconcile()
    assert fed.version.version == 3
    yield fed
    fed.close()


def ref(number: int) -> str:
    return f"refs/tags/global@v{number}.0.0"


def delete(fed: MemoryFed, *numbers: int) -> dict[str, str]:
    """Delete tags at origin; gives back what they were."""
    before = {ref(n): fed.origin.refs[ref(n)] for n in numbers}
    for name in before:
        del fed.origin.refs[name]
    return before


def test_deleted_tags_are_made_again_byte_for_byte(fed: MemoryFed) -> None:
    before = delete(fed, 0, 2)
    done = fed.reconcile()
    assert done.mended == ["global@v0.0.0: made again", "global@v2.0.0: made again"]
    assert {name: fed.origin.refs[name] for name in before} == before
    assert [f for one in fed.verify() for f in one.findings] == []
    assert not fed.reconcile().changed


def test_the_newest_versions_tag_comes_back_once_its_bytes_are_verified_too(fed: MemoryFed) -> None:
    before = delete(fed, 3)
    fed.reconcile()
    assert {name: fed.origin.refs[name] for name in before} == before


def test_nothing_is_read_but_the_names_of_tags_where_none_is_missing(fed: MemoryFed) -> None:
    ctx = fed.context()
    main = refreshed(ctx)
    told = restore_tags(fed.context(repository=Wrapped(ctx.repository, touched=None, push=None)), main)
    assert (told.numbers, told.findings) == ((), ())


def test_another_run_that_is_faster_is_no_error(fed: MemoryFed) -> None:
    delete(fed, 1)
    ctx = fed.context()
    main = refreshed(ctx)
    told = restore_tags(fed.context(repository=Wrapped(ctx.repository, push=lambda _: False)), main)
    assert (told.numbers, [f.where for f in told.findings]) == ((), ["global@v1.0.0"])


def test_a_tag_that_a_push_under_way_brings_is_not_missing(fed: MemoryFed) -> None:
    ctx = fed.context()
    before = delete(fed, 1)
    main = refreshed(ctx)
    fed.origin.refs |= before
    assert restore_tags(ctx, main).numbers == ()


@pytest.mark.parametrize(("slug", "passes"), [("push_refused", True), ("git_failed", False)])
def test_a_server_that_lets_nobody_make_tags_is_told_of_and_stops_nothing(
    fed: MemoryFed, slug: str, passes: bool
) -> None:
    delete(fed, 1, 2)
    ctx = fed.context()
    main = refreshed(ctx)

    def push(_: object) -> bool:
        raise GitError("origin: push refused, GH013: Cannot create ref", slug=slug)

    broken = fed.context(repository=Wrapped(ctx.repository, push=push))
    if not passes:
        with pytest.raises(GitError, match="GH013"):
            restore_tags(broken, main)
        return
    told = restore_tags(broken, main)
    assert told.numbers == ()
    assert [(f.slug, f.where) for f in told.findings] == [
        ("tag_missing", "global@v1.0.0"),
        ("tag_missing", "global@v2.0.0"),
    ]
    assert all("GH013" in str(f.got) for f in told.findings)
