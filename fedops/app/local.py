"""What GitHub does around a run: which workflows an event starts, one at a time in a group, and what an end starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from fedops.app.local_events import (
    Place,
    Seen,
    dispatch_event,
    ended_event,
    events_since,
    look,
    workflows_of,
)
from fedops.core.errors import ConfigError
from fedops.core.ids import CommitId
from fedops.core.workflows import Event, Workflow, group_of, starts
from fedops.ports import WorkflowRequest, WorkflowResult, WorkflowRunner

MAX_RUNS = 500  # of one drain: workflows that start each other must not go on for ever


@dataclass(frozen=True)
class Ran:
    """One line of the table of runs.

    Attributes:
        result: None: replaced by a newer run of its group before it began.
    """

    workflow: Workflow
    event: Event
    result: WorkflowResult | None

    @property
    def conclusion(self) -> str:
        return self.result.conclusion if self.result is not None else "replaced"


@dataclass(frozen=True)
class _Waiting:
    workflow: Workflow
    event: Event
    group: str


@dataclass
class Driver:
    """Runs what events start, one run after the other.

    Args:
        locked: holds a concurrency group, against other processes on this origin.
        tell: each line of the table, as it comes about.
        only: workflow files that may run; empty: all.
        follow: also run what the end of a run, or a job, starts.
    """

    place: Place
    runner: WorkflowRunner
    locked: Callable[[str], AbstractContextManager[None]]
    tell: Callable[[Ran], None]
    only: Sequence[str] = ()
    follow: bool = True
    _waiting: list[_Waiting] = field(default_factory=list)

    def drain(self, events: Iterable[Event]) -> list[Ran]:
        """Run what the events start, and what that starts, until nothing waits.

        Raises:
            ConfigError: a workflow asks for what a local run cannot do; runs that started each other without end.
        """
        table: list[Ran] = []
        for event in events:
            table += self._start(event)
        for _ in range(MAX_RUNS):
            if not self._waiting:
                return table
            table += self._run(self._waiting.pop(0))
        raise ConfigError(f"local: {MAX_RUNS} runs, and still more wait: workflows start each other")

    def _start(self, event: Event) -> list[Ran]:
        """Let the workflows wait that an event starts; a waiting one of the same group gives way, as on GitHub."""
        main = self._main()
        replaced: list[Ran] = []
        for workflow in workflows_of(self.place.repository, main):
            if not starts(workflow, event) or (self.only and workflow.file not in self.only):
                continue
            group = group_of(workflow, event)
            for old in [w for w in self._waiting if group and w.group == group]:
                self._waiting.remove(old)
                replaced.append(self._told(Ran(old.workflow, old.event, None)))
            self._waiting.append(_Waiting(workflow, event, group))
        return replaced

    def _run(self, waiting: _Waiting) -> list[Ran]:
        with self.locked(waiting.group):
            # What runs is the file of the moment at which it begins: other runs may have moved main.
            self.place.repository.fetch()
            request = WorkflowRequest(waiting.workflow, self._main(), waiting.event)
            result = self.runner.run(request)
        table = [self._told(Ran(waiting.workflow, waiting.event, result))]
        if not self.follow:
            return table
        self.place.repository.fetch()
        for asked in result.dispatches:
            table += self._start(dispatch_event(self.place, self._main(), asked.file, asked.inputs))
        ended = ended_event(self.place, self._main(), waiting.workflow, waiting.event, result.conclusion)
        return table + self._start(ended)

    def _told(self, ran: Ran) -> Ran:
        self.tell(ran)
        return ran

    def _main(self) -> CommitId:
        main = self.place.repository.resolve("main")
        assert main is not None
        return main


def catch_up(driver: Driver, before: Seen | None, keep: Callable[[Seen], None]) -> tuple[list[Ran], Seen]:
    """Look, run what that starts, and look again, until a look finds nothing.

    Args:
        before: what the last look found.
        keep: what was seen, once all that it started has run; a kill before lets it run again, which is harmless.

    Returns:
        The table of runs, and what was seen last.
    """
    table: list[Ran] = []
    while True:
        seen, pulls = look(driver.place)
        workflows = workflows_of(driver.place.repository, seen.main)
        events = list(events_since(driver.place, before, seen, pulls, workflows))
        table += driver.drain(events)
        keep(seen)
        before = seen
        if not events:
            return table, seen
