"""Two reconcile runs at once, without the lock that `fedops local` and GitHub put around them."""

from __future__ import annotations

import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from fedops.app.local import Ran
from tests.cli_world import World, git
from tests.workflow.runs import driver, reconcile_event

MEETING = """#!/bin/sh
# As python; before `ci publish` a run waits a minute at most for the other one to come as far.
case "$*" in
  *"ci publish"*)
    mkdir {place}/$$
    tries=0
    while [ "$(ls {place} | wc -l)" -lt 2 ] && [ $tries -lt 600 ]; do
      sleep 0.1
      tries=$((tries + 1))
    done ;;
esac
exec {python} "$@"
"""


def test_two_aggregations_at_once_make_one_version(world: World, tmp_path: Path) -> None:
    """About 8 s: two runs of reconcile side by side, which meet when each has a version to publish.

    The atomic push decides, and the one that lost is no failure.
    """
    place = tmp_path / "meeting"
    place.mkdir()
    program = as_python(tmp_path, MEETING.format(python=shlex.quote(sys.executable), place=place))
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        drivers = [stack.enter_context(driver(world, python=program)) for _ in range(2)]
        tables = list(pool.map(lambda one: one.drain([reconcile_event(one)]), drivers))
    for table in tables:
        assert {job: jobs_of(table[0])[job] for job in ("aggregate", "publish")} == {
            "aggregate": "success",
            "publish": "success",
        }
    assert len(list(place.iterdir())) == 2
    results = [table[0].result for table in tables]
    assert git(world.origin, "tag", "--list", "global@*").split() == ["global@v0.0.0", "global@v1.0.0"]
    version = world.version()
    assert (version["version"], [c["site"] for c in version["contributions"]]) == (1, ["hospital-a", "hospital-b"])
    logs = [result.log.read_text() for result in results if result is not None]
    assert sum("published v1" in log for log in logs) == 1
    # Whatever was lost on the way, nothing is left undone and nothing is left half done.
    with driver(world) as one:
        [last] = one.drain([reconcile_event(one)])
    assert last.conclusion == "success"
    assert git(world.origin, "log", "--format=%s", "--first-parent", "-1", "main").startswith("global: v1")
    assert world.json("ci", "verify", "--all")["ok"] is True
    assert len(world.json("lead", "status")["sites"]) == 3


MEDDLER = """#!/bin/sh
# As python; after the first `ci aggregate` a lead changes a policy.
{python} "$@"
code=$?
case "$*" in
  *"ci aggregate"*)
    if mkdir {flag} 2>/dev/null; then
      cd {clone} && git pull -q --rebase && echo "# in between" >>policies/aggregation.yaml &&
      git -c user.name=lena -c user.email=l@example.invalid commit -q -a -m "policy: in between" && git push -q origin main
    fi ;;
esac
exit $code
"""


def test_a_run_that_must_decide_again_starts_the_next_one_by_its_token(world: World, tmp_path: Path) -> None:
    """About 8 s: publish ends with "again", the last job dispatches reconcile, and that one publishes."""
    text = MEDDLER.format(python=shlex.quote(sys.executable), flag=tmp_path / "flag", clone=world.clone("lead"))
    with driver(world, python=as_python(tmp_path, text)) as one:
        first, second = one.drain([reconcile_event(one)])
    assert [jobs_of(ran)["again"] for ran in (first, second)] == ["success", "skipped"]
    assert outputs_of(first)["publish"] == {"again": "true"}
    assert (second.event.name, second.event.payload["inputs"]) == ("workflow_dispatch", {"attempt": "1"})
    assert jobs_of(second)["publish"] == "success"
    assert world.version()["version"] == 1
    assert "# in between" in world.show("policies/aggregation.yaml")


def as_python(folder: Path, text: str) -> str:
    """A script for the runner to start in the place of python."""
    program = folder / "python"
    program.write_text(text)
    program.chmod(0o755)
    return str(program)


def jobs_of(ran: Ran) -> dict[str, str]:
    assert ran.result is not None
    return dict(ran.result.jobs)


def outputs_of(ran: Ran) -> dict[str, dict[str, str]]:
    assert ran.result is not None
    return {job: dict(values) for job, values in ran.result.outputs.items()}
