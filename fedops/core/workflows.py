"""Workflow files as data: what they use, which event starts which of them, and in which concurrency group it runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedops.core.documents import Json
from fedops.core.errors import ConfigError
from fedops.core.ids import CommitId
from fedops.core.workflow_patterns import matches
from fedops.core.yaml_reader import parse_yaml

FOLDER = ".github/workflows"
# What GitHub calls the account behind a job's token; nothing that it pushes starts a workflow.
JOB_AUTHOR = ("github-actions[bot]", "41898282+github-actions[bot]@users.noreply.github.com")
RUNNER = "ubuntu-latest"  # the one label that a local run knows
# What a workflow gets without `types:`.
_DEFAULT_TYPES = {"pull_request": ("opened", "synchronize", "reopened")}
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_LOOKUP = re.compile(r"github(?:\.[A-Za-z_][A-Za-z0-9_-]*)+\Z")


@dataclass(frozen=True)
class Event:
    """Something that starts workflows.

    Args:
        action: "opened", "submitted", …; empty for events without.
        paths: a push: what it changes.
        workflow: workflow_run: the name of the workflow that ended; workflow_dispatch: the file that is asked for.
        cron: schedule: the line that is due.
        ref, sha: `github.ref` and `github.sha`.
        payload: `github.event`.
    """

    name: str
    ref: str
    sha: CommitId
    action: str = ""
    branch: str = "main"
    paths: tuple[str, ...] = ()
    workflow: str = ""
    cron: str = ""
    payload: Mapping[str, Json] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """`pull_request #3`, `schedule`: for tables of runs."""
        pull = self.payload.get("pull_request", {}).get("number")
        return f"{self.name} #{pull}" if pull is not None else self.name


@dataclass(frozen=True)
class Workflow:
    """One file.

    Attributes:
        on: event name -> its filters.
        group: of `concurrency`, with its expressions; empty if there is none.
        jobs: ids in the file's order.
        uses: actions, each once, as `owner/name@ref`.
        faults: what a local run cannot do, in words.
    """

    file: str
    name: str
    on: Mapping[str, Mapping[str, Json]]
    group: str
    jobs: tuple[str, ...]
    uses: tuple[str, ...]
    faults: tuple[str, ...]

    @property
    def crons(self) -> tuple[str, ...]:
        """The lines of `on.schedule`."""
        return tuple(self.on.get("schedule", {}).get("crons", ()))


def parse_workflow(file: str, data: bytes) -> Workflow:
    """Read a workflow file.

    Raises:
        ConfigError: not strict YAML, or no workflow.
    """
    where = f"{FOLDER}/{file}"
    value, _ = parse_yaml(data, where)
    jobs = value.get("jobs") if isinstance(value, dict) else None
    if not isinstance(jobs, dict) or not jobs or not all(isinstance(job, dict) for job in jobs.values()):
        raise ConfigError(f"{where}: no jobs -> a workflow")
    concurrency = value.get("concurrency") or {}
    group = concurrency.get("group", "") if isinstance(concurrency, dict) else concurrency
    used = [step["uses"] for _, step in _steps(jobs) if "uses" in step]
    return Workflow(
        file=file,
        name=str(value.get("name", where)),
        on=_on(where, value.get("on")),
        group=str(group),
        jobs=tuple(jobs),
        uses=tuple(dict.fromkeys(str(u) for u in used)),
        faults=tuple(_faults(jobs)),
    )


def _on(where: str, on: Json) -> Mapping[str, Mapping[str, Json]]:
    """The three ways to write `on:` as one."""
    if isinstance(on, str):
        on = [on]
    if isinstance(on, list):
        on = dict.fromkeys(on)
    if not isinstance(on, dict) or not on:
        raise ConfigError(f"{where}: on: missing -> the events that start it")
    out: dict[str, Mapping[str, Json]] = {}
    for event, filters in on.items():
        crons = {"crons": [str(entry.get("cron", "")) for entry in filters or ()]} if event == "schedule" else {}
        out[str(event)] = crons or filters or {}
    return out


def _steps(jobs: Mapping[str, Json]) -> Iterator[tuple[str, Mapping[str, Json]]]:
    for job, body in jobs.items():
        for step in body.get("steps") or ():
            yield job, step


def _faults(jobs: Mapping[str, Json]) -> Iterator[str]:
    for job, body in jobs.items():
        if "uses" in body:
            yield f"job {job}: a reusable workflow"
        elif body.get("runs-on") != RUNNER:
            # NOTE: act silently skips a job with a label that it does not know, and reports success.
            yield f"job {job}: runs-on {body.get('runs-on')} -> {RUNNER}"
        for word in ("container", "services"):
            if word in body:
                yield f"job {job}: {word}"


def starts(workflow: Workflow, event: Event) -> bool:
    """True if the event starts the workflow, by its `on:` and the filters there."""
    filters = workflow.on.get(event.name)
    if filters is None:
        return False
    types = _list(filters.get("types")) or _DEFAULT_TYPES.get(event.name, ())
    if types and event.action not in types:
        return False
    match event.name:
        case "workflow_run":
            return event.workflow in _list(filters.get("workflows")) and _branch_passes(filters, event)
        case "workflow_dispatch":
            return event.workflow == workflow.file
        case "schedule":
            return event.cron in workflow.crons
        case "push":
            only_tags = "tags" in filters and not {"branches", "branches-ignore"} & set(filters)
            return not only_tags and _branch_passes(filters, event) and _paths_pass(filters, event.paths)
        case "pull_request":
            return _branch_passes(filters, event) and _paths_pass(filters, event.paths)
    return True


def _branch_passes(filters: Mapping[str, Json], event: Event) -> bool:
    wanted, unwanted = _list(filters.get("branches")), _list(filters.get("branches-ignore"))
    return (not wanted or matches(wanted, event.branch)) and not matches(unwanted, event.branch)


def _paths_pass(filters: Mapping[str, Json], paths: Collection[str]) -> bool:
    wanted, unwanted = _list(filters.get("paths")), _list(filters.get("paths-ignore"))
    if wanted:
        return any(matches(wanted, path) for path in paths)
    return not unwanted or any(not matches(unwanted, path) for path in paths)


def _list(value: Json) -> Sequence[str]:
    return [value] if isinstance(value, str) else list(value or ())


def group_of(workflow: Workflow, event: Event) -> str:
    """The concurrency group of one run, its expressions filled in; a run without `concurrency` is alone: "".

    Raises:
        ConfigError: an expression that is no plain `github.…`.
    """
    github: dict[str, Any] = {"event": event.payload, "ref": event.ref, "sha": event.sha, "workflow": workflow.name}

    def value(match: re.Match[str]) -> str:
        if not _LOOKUP.match(match[1]):
            raise ConfigError(f"{FOLDER}/{workflow.file}: concurrency: {match[0]} -> a plain github.… value")
        found: Any = github
        for name in match[1].split(".")[1:]:
            found = found.get(name) if isinstance(found, Mapping) else None
        return "" if found is None else str(found)

    return _EXPRESSION.sub(value, workflow.group)
