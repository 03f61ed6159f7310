"""Tokens of workflows' jobs: minted for one job, with the rights that its file on main states, and gone with it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager

from fedops.core.workflows import FOLDER
from tests.github_face.hub import Hub, Item, PullItem, Repo
from tests.github_face.rights import Rights, allows, jobs_of, needed

_COUNT = itertools.count(1)


@contextmanager
def minted(hub: Hub, file: str, job: str) -> Iterator[str]:
    """A token for one run of a job."""
    token = f"ghs_{file.partition('.')[0]}_{job}_{next(_COUNT)}"
    hub.add_job(token, rights_on_main(hub, file)[job])
    hub.minted.append(token)
    try:
        yield token
    finally:
        del hub.jobs[token]


def rights_on_main(hub: Hub, file: str) -> dict[str, Rights]:
    """job -> rights, by a workflow file as main has it."""
    return jobs_of(hub.git(hub.upstream, "show", f"main:{FOLDER}/{file}") + "\n")


def may(hub: Hub, token: str, repo: Repo, method: str, path: str) -> bool:
    """False if this is the token of a job that has not the right for a request; what people may do the handlers say.

    Args:
        method: of HTTP; "FETCH" and "PUSH" are git's.
        path: below the repository.
    """
    job = hub.jobs.get(token)
    if job is None:
        return True
    if repo is not hub.upstream:  # somebody's fork, which is public
        return method in ("GET", "FETCH")
    allowed = allows(job.rights, needed(method, path, on_pull=isinstance(_item_at(hub, path), PullItem)))
    if not allowed:
        hub.refused.append((token, method, path))
    return allowed


def _item_at(hub: Hub, path: str) -> Item | None:
    """The issue or pull request that a path leads to."""
    comment, item = re.match(r"/issues/comments/(\d+)", path), re.match(r"/issues/(\d+)", path)
    known = hub.comments.get(int(comment[1])) if comment else None
    return hub.items.get(known.number if known else int(item[1]) if item else 0)
