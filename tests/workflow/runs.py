"""What the tests of real runs share: a driver of one's own, and workflow files that a lead pushes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from fedops.adapters.act_runner import ActRunner, find_act
from fedops.adapters.forge_git import GitForge
from fedops.adapters.git_repo import GitRepository
from fedops.app.local import Driver
from fedops.app.local_events import Place, dispatch_event, look
from fedops.cli.wire import SystemClock
from fedops.core.ids import CommitId
from fedops.core.workflows import Event, parse_workflow
from fedops.ports import WorkflowRequest
from tests.cli_world import World

Row = tuple[str, str, str]


def runner(world: World, **more: Any) -> ActRunner:
    path = os.environ["PATH"]
    settings: dict[str, Any] = {"repository": "none", "logs": world.folder / "logs", "kept": {}, **more}
    return ActRunner(origin=world.origin, act=find_act(path), path=path, **settings)


@contextmanager
def driver(world: World, **more: Any) -> Iterator[Driver]:
    """As `fedops local` makes one, but without locks of groups: several may run at once."""
    with GitRepository.clone(
        str(world.origin), world.folder / f"watcher-{len(list(world.folder.iterdir()))}"
    ) as repository:
        clock = SystemClock()
        place = Place(repository, GitForge(repository, clock=clock), clock, "none", "main")
        yield Driver(place, runner(world, **more), lambda group: nullcontext(), lambda ran: None)


def reconcile_event(one: Driver) -> Event:
    seen, _ = look(one.place)
    return dispatch_event(one.place, seen.main, "reconcile.yml", {})


def rows(result: Any) -> list[Row]:
    """Workflow, event and result of each run of a `fedops local` document."""
    return [(run["workflow"], run["event"], run["result"]) for run in result["runs"]]


def request(world: World, text: str, file: str = "probe.yml", **payload: Any) -> WorkflowRequest:
    """A lead pushes a workflow file; the request that runs it."""
    world.git("lead", "pull", "-q", "--rebase")
    place = world.clone("lead") / ".github" / "workflows" / file
    place.write_text(text)
    world.git("lead", "add", str(place))
    world.git("lead", "commit", "-q", "-m", "a workflow")
    world.git("lead", "push", "-q", "origin", "main")
    main = CommitId(world.main())
    event = Event("workflow_dispatch", "refs/heads/main", main, workflow=file, payload=payload)
    return WorkflowRequest(parse_workflow(file, text.encode()), main, event)


def probe(*steps: str) -> str:
    """A workflow of one job with these shell steps, each under the id of its number."""
    body = "".join(
        f"      - id: s{i}\n        run: |\n" + "".join(f"          {line}\n" for line in step.splitlines())
        for i, step in enumerate(steps)
    )
    return f"name: probe\non: workflow_dispatch\njobs:\n  look:\n    runs-on: ubuntu-latest\n    steps:\n{body}"


def left_over(folder: Path) -> list[str]:
    """Command lines of processes that still have to do with a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
            if str(folder) in line:
                found.append(line)
    return found
