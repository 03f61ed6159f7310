"""What `fedops doctor` judges of forks on GitHub: whether sites can have them, and how the workflows in them run; pure."""

from __future__ import annotations

from collections.abc import Iterator

from fedops.core.forge_settings import ForgeSettings, Unread
from fedops.core.health import Check
from fedops.core.health_level_2 import unread

_RUNS = "workflows of forks"


def check_forks(seen: ForgeSettings) -> Iterator[Check]:
    """Of a private repository GitHub has other switches than of a public one."""
    if not seen.private:
        yield _public(seen)
        return
    if seen.may_fork is None:
        yield unread("forks", "GitHub does not say whether they are allowed", seen.page)
    elif not seen.may_fork:
        got = "not allowed: a site that has none yet cannot hand in"
        step = f"Features, Allow forking (an organization must allow it too, Member privileges): {seen.page}"
        yield Check("forks", "warning", got, "allowed", step)
    else:
        yield Check("forks", "ok", "allowed")
    yield _private(seen)


def _public(seen: ForgeSettings) -> Check:
    page = f"{seen.page}/actions"
    if isinstance(seen.first_runs, Unread):
        return unread(_RUNS, seen.first_runs, page)
    if seen.first_runs == "first_time_contributors_new_to_github":
        got = "run unasked, but for accounts that are new to GitHub"
        return Check(_RUNS, "warning", got, "Require approval for first-time contributors", page)
    return Check(_RUNS, "ok", f"wait for approval: {seen.first_runs}")


def _private(seen: ForgeSettings) -> Check:
    page, found = f"{seen.page}/actions", seen.fork_runs
    if isinstance(found, Unread):
        return unread(_RUNS, found, page)
    if not found.on:
        got = "do not run: an update waits for the schedule, and has no verdict of validate before"
        return Check(_RUNS, "warning", got, "Run workflows from fork pull requests", f"Fork pull requests: {page}")
    wrong: dict[str, str] = {}  # with what they run -> the switch
    if found.write_tokens:
        wrong["a token that may write"] = "Send write tokens to workflows from pull requests: off"
    if found.secrets:
        wrong["the repository's secrets"] = "Send secrets to workflows from pull requests: off"
    if wrong:
        got = f"run with {' and '.join(wrong)}, in a copy that the fork can edit"
        return Check(_RUNS, "warning", got, "; ".join(wrong.values()), f"Fork pull requests: {page}")
    return Check(_RUNS, "ok", "run with a read-only token, and no secrets")
