"""What happened at an origin since the last look, as the events that GitHub would make of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fedops.core.errors import ConfigError, GitError
from fedops.core.facts import Commit, Json, Pull
from fedops.core.ids import CommitId
from fedops.core.workflow_patterns import cron_due
from fedops.core.workflows import FOLDER, JOB_AUTHOR, Event, Workflow, parse_workflow
from fedops.ports import Clock, Forge, Repository

MAX_WORKFLOW_BYTES = 262_144
_BOT = f"{JOB_AUTHOR[0]} <{JOB_AUTHOR[1]}>"


@dataclass(frozen=True)
class Place:
    """The origin that is looked at.

    Args:
        repository: a clone of it.
        name: `github.repository`.
        branch: the main branch's name.
    """

    repository: Repository
    forge: Forge
    clock: Clock
    name: str
    branch: str


@dataclass(frozen=True)
class Seen:
    """What one look found.

    Attributes:
        pulls: open pull requests -> head.
        reviews: open pull requests -> their reviews, each as "account head state".
    """

    at: dt.datetime
    main: CommitId
    pulls: Mapping[int, CommitId]
    reviews: Mapping[int, tuple[str, ...]]


def look(place: Place) -> tuple[Seen, Sequence[Pull]]:
    """Fetch, and note what can start workflows; also the open pull requests themselves.

    Raises:
        ConfigError: there is no main branch.
    """
    place.repository.fetch()
    main = place.repository.resolve("main")
    if main is None:
        raise ConfigError(f"{place.branch}: no such branch on origin", hint="found the federation first: fedops init")
    pulls = place.forge.open_pulls()
    reviews = {
        p.number: tuple(f"{r.author.id} {r.head} {r.state}" for r in place.forge.reviews(p.number)) for p in pulls
    }
    seen = Seen(place.clock.now(), main, {p.number: p.head for p in pulls}, reviews)
    return seen, pulls


def workflows_of(repository: Repository, main: CommitId) -> tuple[Workflow, ...]:
    """The workflow files of a commit of main, by name.

    NOTE: also for pull requests. GitHub runs their own copy in a machine of its own with a token that may only read; here
    it would run as the user, and whoever may open a pull request could run anything.
    """
    files = {e.path.rpartition("/")[2]: e for e in repository.entries(main, FOLDER) if e.path.count("/") == 2}
    names = sorted(f for f in files if f.endswith((".yml", ".yaml")) and files[f].mode == "100644")
    return tuple(parse_workflow(f, repository.read(files[f].blob, max_bytes=MAX_WORKFLOW_BYTES)) for f in names)


# ---------------------------------------------------------------- events


def events_since(
    place: Place, before: Seen | None, now: Seen, pulls: Sequence[Pull], workflows: Sequence[Workflow]
) -> Iterator[Event]:
    """What to run, in the order in which it is best told: pushes, pull requests, reviews, then the clock.

    Args:
        before: None at the very first look: open pull requests are new then, main is not.
    """
    if before is not None and before.main != now.main:
        yield from _push(place, before.main, now.main)
    known = before.pulls if before is not None else {}
    told = before.reviews if before is not None else {}
    for pull in pulls:
        if known.get(pull.number) != pull.head:
            action = "synchronize" if pull.number in known else "opened"
            yield pull_event(place, pull, now.main, "pull_request", action)
        if set(now.reviews.get(pull.number, ())) - set(told.get(pull.number, ())):
            yield pull_event(place, pull, now.main, "pull_request_review", "submitted")
    if before is not None:
        for cron in dict.fromkeys(cron for w in workflows for cron in w.crons):
            if cron_due(cron, before.at, now.at):
                yield schedule_event(place, now.main, cron)


def _push(place: Place, before: CommitId, after: CommitId) -> Iterator[Event]:
    repository = place.repository
    try:
        new: list[Commit] = list(repository.commits(before, after))
        paths = tuple(c.path for c in repository.changes(before, after))
    except GitError as e:
        if e.slug != "lineage_broken":
            raise
        # Main was moved by force: all of it is new.
        new = [repository.commit(after)]
        paths = tuple(e.path for e in repository.entries(after))
    if any(commit.committer != _BOT for commit in new):
        yield push_event(place, before, after, paths)


def _event(place: Place, name: str, main: CommitId, ref: str = "", **payload: Json) -> Event:
    repository = {"full_name": place.name, "default_branch": place.branch}
    return Event(
        name=name,
        ref=ref or f"refs/heads/{place.branch}",
        sha=main,
        branch=place.branch,
        payload={**payload, "repository": repository},
    )


def push_event(place: Place, before: CommitId, after: CommitId, paths: tuple[str, ...]) -> Event:
    facts: dict[str, Json] = {"ref": f"refs/heads/{place.branch}", "before": before, "after": after, "deleted": False}
    return replace(_event(place, "push", after, **facts), paths=paths)


def pull_event(place: Place, pull: Pull, main: CommitId, name: str, action: str) -> Event:
    """A pull request was opened, changed or reviewed; `github.sha` is main's, since no merge commit is made."""
    facts = {
        "number": pull.number,
        "head": {"ref": pull.branch, "sha": pull.head, "repo": {"full_name": place.name}},
        "base": {"ref": place.branch, "sha": main},
        "user": {"login": pull.author.login, "id": pull.author.id},
    }
    event = _event(
        place, name, main, f"refs/pull/{pull.number}/merge", action=action, number=pull.number, pull_request=facts
    )
    paths = tuple(c.path for c in place.repository.changes(main, pull.head)) if name == "pull_request" else ()
    return replace(event, action=action, paths=paths)


def schedule_event(place: Place, main: CommitId, cron: str) -> Event:
    return replace(_event(place, "schedule", main, schedule=cron), cron=cron)


def dispatch_event(place: Place, main: CommitId, file: str, inputs: Mapping[str, str]) -> Event:
    facts: dict[str, Json] = {
        "ref": f"refs/heads/{place.branch}",
        "inputs": dict(inputs),
        "workflow": f"{FOLDER}/{file}",
    }
    return replace(_event(place, "workflow_dispatch", main, **facts), workflow=file)


def ended_event(place: Place, main: CommitId, ended: Workflow, event: Event, conclusion: str) -> Event:
    """A workflow ended."""
    run = {"name": ended.name, "conclusion": conclusion, "event": event.name, "head_branch": place.branch}
    made = _event(place, "workflow_run", main, action="completed", workflow_run=run)
    return replace(made, action="completed", workflow=ended.name)
