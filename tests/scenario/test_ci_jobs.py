"""`fedops ci …` as separated jobs, each in a clone of its own, and as the one loop: the same federation comes out."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedops.app import reconcile as reconcile_module
from fedops.app.merge import merge_pull as honest_merge
from fedops.app.reconcile import Reconciled
from fedops.cli.wire import SystemClock
from fedops.core.errors import Cause, FedopsError, ForgeError, GitError, MainFileError, StoreError
from tests.cli_world import BY_CLIENT, Ran, World, begun, fresh, git

NO_DIGEST = "sha256:" + "0" * 64
AT = "2026-03-02T10:00:00Z"


@pytest.fixture
def make(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], World]:
    """Worlds at v0 with two open pull requests (#1 of hospital-a, #2 of hospital-b), and clinic-c's training done."""
    count = itertools.count()
    return lambda: fresh(begun, tmp_path_factory.getbasetemp(), tmp_path / f"world-{next(count)}")


@pytest.fixture
def world(make: Callable[[], World]) -> World:
    return make()


class Jobs:
    """The five jobs as the workflow starts them: each with a new clone, outputs by a file."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.outputs: dict[str, str] = {}

    def run(self, job: str, *options: str, output: bool = True, code: int = 0) -> Ran:
        world, clone = self.world, f"job-{job}-{len(list(self.world.folder.iterdir()))}"
        world.new_clone(clone)
        file = world.folder / f"{clone}.output"
        ran = world(clone, "ci", job, *options, *(("--github-output", str(file)) if output else ()), code=code)
        if output and code == 0:
            for line in file.read_text().splitlines():
                name, equals, value = line.partition("=")
                assert equals, line
                self.outputs[name] = value
        return ran

    @property
    def pinned(self) -> tuple[str, ...]:
        return ("--input-commit", self.outputs["input_commit"], "--decided-at", self.outputs["decided_at"])

    def merge(self) -> Ran:
        self.run("inspect")
        return self.run("merge", "--verdicts", self.outputs["verdicts"])

    def all(self) -> None:
        """In the order and with the conditions of reconcile.yml."""
        self.merge()
        self.outputs |= {"proposal": "", "skipped": ""}
        if self.outputs["due"] == "true":
            self.run("aggregate", *self.pinned)
        if self.outputs["proposal"]:
            self.run("publish", *self.pinned, "--proposal", self.outputs["proposal"])
        self.run("signal", "--skipped", self.outputs["skipped"], output=False)


def refs(world: World) -> dict[str, str]:
    lines = git(world.origin, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return dict(line.split() for line in lines)


@pytest.fixture
def one_moment(monkeypatch: pytest.MonkeyPatch) -> dt.datetime:
    """The clock stands still a little after everything that was done so far."""
    at = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(minutes=1)
    monkeypatch.setattr(SystemClock, "now", lambda self: at)
    return at


def as_it_is(world: World) -> None:
    pass


def with_one_lost(world: World) -> None:
    """clinic-c handed in, and its bytes are gone from the store: the quorum holds without them."""
    world("clinic-c", "submit")
    world("ci", "ci", "merge", "--verdicts", world("ci", "ci", "inspect", "--format", "json").out)
    lose(world, "clinic-c")


def without_quorum(world: World) -> None:
    world("ci", "ci", "merge", "--verdicts", world("ci", "ci", "inspect", "--format", "json").out)
    lose(world, "hospital-a")


def lose(world: World, site: str) -> None:
    shutil.rmtree(world.origin / "store" / "sites" / site)


@pytest.mark.parametrize("prepare", [as_it_is, with_one_lost, without_quorum])
def test_the_jobs_make_what_reconcile_makes(
    prepare: Callable[[World], None], make: Callable[[], World], one_moment: dt.datetime
) -> None:
    loop, jobs = make(), Jobs(make())
    for each in (loop, jobs.world):
        prepare(each)
    assert refs(loop) == refs(jobs.world)
    done = loop.json("ci", "ci", "reconcile")
    jobs.all()
    assert [v["version"] for v in done["published"]] == ([] if prepare is without_quorum else [1])
    assert jobs.world.show("global/version.json") == loop.show("global/version.json")
    # Main and tags, and also the whole history of the forge: comments, statuses, signals.
    assert refs(jobs.world) == refs(loop)
    if done["published"]:
        assert jobs.world.version()["witness"]["decided_at"] == f"{one_moment:%Y-%m-%dT%H:%M:%SZ}"
    before = jobs.world.snapshot()
    jobs.all()
    assert loop.json("ci", "ci", "reconcile")["changed"] is False
    assert jobs.world.snapshot() == before


def test_outputs_are_one_line_each(world: World) -> None:
    jobs = Jobs(world)
    jobs.all()
    assert set(jobs.outputs) == {
        "verdicts",
        "input_commit",
        "decided_at",
        "due",
        "left",
        "proposal",
        "skipped",
        "again",
    }
    assert (jobs.outputs["due"], jobs.outputs["again"], jobs.outputs["skipped"]) == ("true", "false", "{}")
    assert [v["state"] for v in json.loads(jobs.outputs["verdicts"])["verdicts"]] == ["accepted", "accepted"]
    assert jobs.outputs["input_commit"] == world.version()["witness"]["input_commit"]


@pytest.mark.parametrize("how", ["text", "file", "whole result", "file of the whole result"])
def test_verdicts_may_be_text_or_a_file(how: str, world: World) -> None:
    if "whole" in how:
        text = world("ci", "ci", "inspect", "--format", "json").out
    else:
        output = world.folder / "output"
        world("ci", "ci", "inspect", "--github-output", str(output))
        text = output.read_text().removeprefix("verdicts=")
    if "file" in how:
        (world.folder / "verdicts.json").write_text(text)
        text = "../verdicts.json"
    done = world("ci", "ci", "merge", "--verdicts", text)
    assert done.out.splitlines() == ["#1  merged", "#2  merged", "a version is due"]


# ---------------------------------------------------------------- between the jobs


def test_a_head_that_moved_after_inspect_is_not_merged(world: World) -> None:
    jobs = Jobs(world)
    jobs.run("inspect")
    world("hospital-a", *BY_CLIENT, "--again")
    assert world.json("hospital-a", "submit", "--metric", "loss=0.25")["outcome"] == "moved"
    done = jobs.run("merge", "--verdicts", jobs.outputs["verdicts"])
    assert done.out.splitlines()[0] == "#2  merged"
    assert jobs.outputs["due"] == "false"
    assert world.json("lead", "review", "1")["state"] == "open"
    jobs.all()  # the next run judges the new head
    assert world.version()["version"] == 1


def test_verdicts_under_another_policy_merge_nothing(world: World) -> None:
    jobs = Jobs(world)
    jobs.run("inspect")
    world.edit("policies/submission.yaml", lambda text: text + "\n# looked at\n")
    main = world.main()
    jobs.run("merge", "--verdicts", jobs.outputs["verdicts"])
    assert (world.main(), jobs.outputs["due"]) == (main, "false")
    assert world.json("lead", "review", "1")["state"] == "open"
    jobs.all()
    assert world.version()["version"] == 1


def test_a_policy_that_changed_after_the_decision_is_decided_again(world: World) -> None:
    jobs = Jobs(world)
    jobs.merge()
    jobs.run("aggregate", *jobs.pinned)
    world.edit("policies/aggregation.yaml", lambda text: text.replace("kind: inverse", "kind: constant"))
    said = jobs.run("publish", *jobs.pinned, "--proposal", jobs.outputs["proposal"])
    assert jobs.outputs["again"] == "true"
    assert "decide again" in said.out
    assert world.version()["version"] == 0
    jobs.all()
    assert world.version()["rule"]["staleness"]["kind"] == "constant"


def test_a_proposal_of_something_else_is_not_published(world: World) -> None:
    jobs = Jobs(world)
    jobs.merge()
    before = world.snapshot()
    model = world.version()["model"]["manifest"]  # an artifact of the global store, but no proposal
    update = json.loads(world.show("sites/hospital-a/submission.json"))["manifest"]
    for foreign in (NO_DIGEST, model, update):
        said = jobs.run("publish", *jobs.pinned, "--proposal", foreign, code=2)
        assert said.err.startswith("error: "), foreign
        assert "bug" not in said.err
    assert world.snapshot() == before
    jobs.run("aggregate", *jobs.pinned)
    old = jobs.outputs["proposal"]
    jobs.all()  # publishes v1
    world.hand_in("hospital-a", "hospital-b")
    jobs.merge()
    said = jobs.run("publish", *jobs.pinned, "--proposal", old, code=2)
    assert "proposal" in said.err
    assert world.version()["version"] == 1


def test_nothing_due_gives_an_empty_proposal(world: World) -> None:
    world.edit("policies/aggregation.yaml", lambda text: text.replace("quorum: 2", "quorum: 3"))
    jobs = Jobs(world)
    said = jobs.merge()
    assert said.out.splitlines()[-1] == "no version now: waits: the quorum is not reached; missing: clinic-c"
    said = jobs.run("aggregate", *jobs.pinned)
    assert jobs.outputs["proposal"] == ""
    assert said.out == "no version now: waits: the quorum is not reached; missing: clinic-c\n"
    assert world.json("ci", "ci", "aggregate", *jobs.pinned)["changed"] is False
    jobs.all()
    assert world.version()["version"] == 0


def test_the_older_of_two_runs_publishes_nothing_more(world: World) -> None:
    jobs = Jobs(world)
    jobs.merge()
    jobs.run("aggregate", *jobs.pinned)
    world("ci", "ci", "reconcile")
    done = world.json("ci", "ci", "publish", *jobs.pinned, "--proposal", jobs.outputs["proposal"])
    assert (done["changed"], done["again"], done["version"]) == (False, False, None)
    assert world.version()["version"] == 1


def test_a_version_tag_that_nobody_published_stops_the_next_version(world: World) -> None:
    git(world.origin, "tag", "global@v7.0.0", "main")
    jobs = Jobs(world)
    said = jobs.merge()
    assert said.out.splitlines()[-1] == "no version now: version tags that nobody published"
    assert "FO-401" in said.err
    assert jobs.outputs["due"] == "false"
    assert world("ci", "ci", "reconcile").err.count("FO-401") == 1
    git(world.origin, "tag", "-d", "global@v7.0.0")
    jobs.all()
    assert world.version()["version"] == 1


def test_the_site_whose_bytes_are_lost_is_told(world: World) -> None:
    with_one_lost(world)
    jobs = Jobs(world)
    jobs.all()
    assert list(json.loads(jobs.outputs["skipped"]).values()) == ["object_missing"]
    assert [u["site"] for u in world.version()["witness"]["unavailable"]] == ["clinic-c"]
    shown = {line["site"]: line for line in world.json("lead", "status")["sites"]}
    assert shown["clinic-c"]["phase"] != "due"


# ---------------------------------------------------------------- one bad pull request


def nested_record(world: World) -> None:
    """hospital-a's pull request with a record as deep as a parser may be asked to go."""
    clone = world.clone("hospital-a")
    world.git("hospital-a", "fetch", "-q", "origin", "refs/pull/1/head")
    world.git("hospital-a", "checkout", "-q", "--detach", "FETCH_HEAD")
    path = clone / "sites/hospital-a/submission.json"
    record = json.loads(path.read_text())
    deep: Any = 1
    for _ in range(30):
        deep = [deep]
    path.write_text(json.dumps(record | {"num_examples": deep}))
    world.git("hospital-a", "config", "gpg.format", "ssh")
    world.git("hospital-a", "-c", f"user.signingkey={clone}/.fedops/id_ed25519", "commit", "-q", "-S", "--amend", "-a",
              "--no-edit")  # fmt: skip
    head = world.git("hospital-a", "rev-parse", "HEAD")
    world.git("hospital-a", "push", "-q", "--force", "origin", f"{head}:refs/pull/1/head")
    world.git("hospital-a", "checkout", "-q", "main")


def test_what_a_site_writes_into_its_record_does_not_hinder_the_others(world: World) -> None:
    nested_record(world)
    jobs = Jobs(world)
    said = jobs.merge()
    assert "FO-222" in world("ci", "ci", "inspect", "--pull", "1", code=3).err
    assert said.out.splitlines()[:2] == ["#1  rejected", "#2  merged"]
    assert "**Rejected**" in world("lead", "review", "1").out


def failing(monkeypatch: pytest.MonkeyPatch, number: int, error: FedopsError) -> None:
    def merge_pull(ctx: Any, judged: Any) -> Any:
        if judged.pull.number == number:
            raise error
        return honest_merge(ctx, judged)

    monkeypatch.setattr("fedops.app.pull_pass.merge_pull", merge_pull)


def test_a_pull_request_that_the_forge_refuses_stops_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, 1, ForgeError("pull 1: no"))
    jobs = Jobs(world)
    said = jobs.merge()
    assert said.out.splitlines()[0] == "#2  merged"
    assert "pull/1: " in said.err
    assert "FO-505" in said.err
    merged = world.json("ci", "ci", "merge", "--verdicts", jobs.outputs["verdicts"])
    assert merged["ok"] is False


def test_a_token_that_is_refused_stops_the_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, 1, ForgeError("the token is not valid", cause="auth"))
    verdicts = world("ci", "ci", "inspect", "--format", "json").out
    assert world("ci", "ci", "merge", "--verdicts", verdicts, code=4).err == "error: the token is not valid\n"


def test_verdicts_that_do_not_fit_into_the_output_are_left_to_the_next_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedops.app.verdicts.MAX_OUTPUT_BYTES", 500)
    jobs = Jobs(world)
    said = jobs.run("inspect")
    assert said.err.splitlines()[-1] == "note: 1 verdict(s) do not fit into the output; the next run is theirs"
    assert len(said.out.splitlines()) == 2
    for number in (1, 2):
        assert jobs.merge().out.splitlines()[0] == f"#{number}  merged"


def test_a_pull_request_that_cannot_be_judged_now_is_neither_good_nor_bad(world: World) -> None:
    (world.origin / "store").rename(world.origin / "away")
    said = world("ci", "ci", "inspect", "--pull", "1", code=5)
    assert "pending  the check could not finish" in said.out
    assert world.json("ci", "ci", "inspect")["verdicts"][0]["state"] == "pending"
    (world.origin / "away").rename(world.origin / "store")
    world("ci", "ci", "inspect", "--pull", "1")


# ---------------------------------------------------------------- bad input


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def still(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    """One world for all tests of this module that must not change it."""
    folder = shared / "world"
    return World(folder) if folder.exists() else fresh(begun, tmp_path_factory.getbasetemp(), folder)


def other_commit(world: World) -> str:
    return git(world.origin, "rev-parse", "refs/pull/1/head")


def tree(world: World) -> str:
    return git(world.origin, "rev-parse", "main^{tree}")


@pytest.mark.parametrize("job", ["aggregate", "publish"])
@pytest.mark.parametrize(
    ("commit", "says"),
    [
        (lambda w: "main", "'main': not a commit id -> 40 hex digits"),
        (lambda w: "", "'': not a commit id"),
        (lambda w: "A" * 40, "not a commit id"),
        (lambda w: "0" * 40, "000000000000: not a commit of main's first-parent line"),
        (tree, "not a commit of main's first-parent line"),
        (other_commit, "not a commit of main's first-parent line"),
    ],
    ids=["a branch", "empty", "upper case", "unknown", "a tree", "not on main"],
)
def test_only_a_commit_of_mains_own_line_can_be_pinned(
    commit: Callable[[World], str], says: str, job: str, still: World
) -> None:
    options = ["--input-commit", commit(still), "--decided-at", AT, *(["--proposal", NO_DIGEST] * (job == "publish"))]
    before = still.snapshot()
    said = still("ci", "ci", job, *options, code=2)
    assert says in said.err
    assert said.out == ""
    assert still.json("ci", "ci", job, *options, code=2)["error"]["cause"] == "permanent"
    assert still.snapshot() == before


def test_a_merged_head_is_on_main_but_not_on_its_own_line(world: World) -> None:
    head = other_commit(world)
    world("ci", "ci", "reconcile")
    assert git(world.origin, "merge-base", "--is-ancestor", head, "main") == ""
    said = world("ci", "ci", "aggregate", "--input-commit", head, "--decided-at", AT, code=2)
    assert "not a commit of main's first-parent line" in said.err


@pytest.mark.parametrize(
    "moment",
    ["", "now", "2026-03-02", "2026-03-02T10:00:00", "2026-03-02T10:00:00+00:00", "2026-3-2T10:00:00Z", "2026-13-02T10:00:00Z"]
)  # fmt: skip
def test_a_malformed_moment_is_a_usage_error(moment: str, still: World) -> None:
    for job in ("aggregate", "publish"):
        more = ["--proposal", NO_DIGEST] * (job == "publish")
        said = still("ci", "ci", job, "--input-commit", still.main(), "--decided-at", moment, *more, code=2)
        assert f"--decided-at {moment!r}: not a time" in said.err


@pytest.mark.parametrize("digest", ["", "latest", "sha256:", "sha256:" + "g" * 64, "0" * 64, NO_DIGEST + "0"])
def test_a_malformed_digest_is_a_usage_error(digest: str, still: World) -> None:
    said = still(
        "ci", "ci", "publish", "--input-commit", still.main(), "--decided-at", AT, "--proposal", digest, code=2
    )
    assert f"--proposal {digest!r}: not a digest" in said.err


VERDICT = {
    "pull": 1,
    "head": "1" * 40,
    "policy": NO_DIGEST,
    "main": "2" * 40,
    "state": "accepted",
    "findings": [],
    "note": "",
}
FINDING = {
    "id": "FO-218",
    "slug": "non_finite",
    "severity": "error",
    "where": "x",
    "got": "nan",
    "expected": None,
    "detail": None,
}


@pytest.mark.parametrize(
    ("verdicts", "says"),
    [
        ("/no/such/file", "No such file or directory"),
        (".", "Is a directory"),
        ("", "--verdicts"),
        ("a\0b", "not a file name"),
        ("[]", "No such file"),
        ("{", "verdicts: line 1"),
        ("{}", "schema"),
        ('{"schema": "fedops.verdicts/v2", "verdicts": []}', "schema"),
        ('{"schema": "fedops.verdicts/v1", "verdicts": {}}', "verdicts"),
        ('{"schema": "fedops.verdicts/v1", "verdicts": [1]}', "verdicts.0"),
        ('{"schema": "fedops.verdicts/v1", "verdicts": [' + "[" * 40 + "]" * 40 + "]}", "nested"),
        ({"head": "HEAD"}, "verdicts.0.head"),
        ({"pull": "1"}, "verdicts.0.pull"),
        ({"pull": 0}, "verdicts.0.pull"),
        ({"policy": "none"}, "verdicts.0.policy"),
        ({"state": "fine"}, "verdicts.0.state"),
        ({"more": 1}, "unknown key"),
        ({"findings": [FINDING | {"detail": [1]}]}, "detail"),
        ({"findings": [{k: v for k, v in FINDING.items() if k != "got"}]}, "got"),
        ([VERDICT, VERDICT], "two for one head"),
    ],
)  # fmt: skip
def test_verdicts_that_inspect_did_not_write_are_refused(verdicts: Any, says: str, still: World) -> None:
    if isinstance(verdicts, dict):
        verdicts = [VERDICT | verdicts]
    if isinstance(verdicts, list):
        verdicts = json.dumps({"schema": "fedops.verdicts/v1", "verdicts": verdicts})
    before = still.snapshot()
    said = still("ci", "ci", "merge", "--verdicts", verdicts, code=2)
    assert says in said.err
    assert said.out == ""
    assert still.snapshot() == before


def test_verdicts_on_pull_requests_that_are_gone_are_left_out(world: World) -> None:
    verdicts = json.dumps({"schema": "fedops.verdicts/v1", "verdicts": [VERDICT, VERDICT | {"pull": 99}]})
    assert world("ci", "ci", "merge", "--verdicts", verdicts).out.splitlines() == [
        "no version now: waits: no usable submission yet; missing: clinic-c, hospital-a, hospital-b",
        "something is left: run it again",  # pull requests that nobody inspected
    ]


@pytest.mark.parametrize("text", ["{", "[]", '{"x": "object_missing"}', '{"' + "0" * 40 + '": 1}', "\udcff"])
def test_what_aggregate_did_not_write_is_no_list_of_skipped_updates(text: str, still: World) -> None:
    assert "--skipped: " in still("ci", "ci", "signal", "--skipped", text, code=2).err


def test_outputs_that_cannot_be_written_are_told_before_any_result(world: World) -> None:
    said = world("ci", "ci", "inspect", "--github-output", "no/such/folder/file", code=2)
    assert (said.out, "--github-output no/such/folder/file: " in said.err) == ("", True)


def test_no_open_pull_requests_is_a_result_too(world: World) -> None:
    world("ci", "ci", "reconcile")
    assert world("ci", "ci", "inspect").out == "no open pull requests\n"
    assert world("ci", "ci", "signal").out == "nothing to do\n"


# ---------------------------------------------------------------- watch


class Runs:
    """What the loop's runs give, one after the other, in place of the real ones; after the last one the user stops it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *results: Reconciled | Exception) -> None:
        self.left = iter(results)
        self.slept: list[float] = []
        monkeypatch.setattr(reconcile_module, "reconcile", self.run)
        monkeypatch.setattr("time.sleep", self.slept.append)

    def run(self, ctx: Any, *, jitter: Any) -> Reconciled:
        result = next(self.left, None)
        if result is None:
            raise KeyboardInterrupt
        if isinstance(result, Exception):
            raise result
        return result


def test_watch_goes_on_until_it_is_stopped_and_repeats_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, Reconciled(), Reconciled(), Reconciled(signals=["#1: x"], changed=True), Reconciled())
    said = world("ci", "ci", "reconcile", "--watch", "30", code=130)
    assert said.out == "nothing was decided\nsignal #1: x\nnothing was decided\nnothing was decided\n"
    assert runs.slept == [30.0] * 4
    assert "interrupted" in said.err


def test_watch_goes_on_after_what_passes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    away = StoreError("store: cannot be reached", cause="temporary")
    runs = Runs(monkeypatch, away, GitError("origin: no answer", cause="temporary"), Reconciled(again=True))
    said = world("ci", "ci", "reconcile", "--watch", "2", code=130)
    assert said.err.splitlines()[:2] == [
        "error: store: cannot be reached; trying again in 2 s",
        "error: origin: no answer; trying again in 2 s",
    ]
    assert said.out == "nothing was decided\nsomething is left: run it again\n"
    assert runs.slept == [2.0] * 3


def test_watch_waits_while_main_cannot_be_used_and_tells_each_fault_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [MainFileError(f"policies/x.yaml:{n}: unknown key", hint="a lead") for n in (2, 2, 3)]
    runs = Runs(monkeypatch, *faults, Reconciled(), Reconciled())
    said = world("ci", "ci", "reconcile", "--watch", "2", code=130)
    assert said.err.splitlines()[:-1] == [
        "waits until main can be used: policies/x.yaml:2: unknown key",
        "  hint: a lead",
        "waits until main can be used: policies/x.yaml:3: unknown key",
        "  hint: a lead",
        "main can be used again",
    ]
    assert said.out == "nothing was decided\n"
    assert runs.slept == [2.0] * 5


def test_without_watch_a_policy_that_cannot_be_used_ends_it(world: World) -> None:
    world.edit("policies/aggregation.yaml", lambda old: old + "triger: {quorum: 2}\n")
    error = world.json("ci", "ci", "reconcile", code=2)["error"]
    assert error["message"].endswith(": triger: unknown key, did you mean trigger?")
    assert error["hint"] == "a lead corrects it on main; nothing of yours is lost"


@pytest.mark.parametrize(("cause", "code"), [("auth", 4), ("permanent", 2)])
def test_watch_ends_at_what_a_person_must_change(
    cause: Cause, code: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(monkeypatch, ForgeError("forge: no", cause=cause))
    assert world("ci", "ci", "reconcile", "--watch", "2", code=code).err == "error: forge: no\n"
    assert runs.slept == []


def test_without_watch_what_passes_is_told_by_the_exit_code(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    Runs(monkeypatch, StoreError("store: cannot be reached", cause="temporary"))
    said = world.json("ci", "ci", "reconcile", code=5)
    assert (said["schema"], said["error"]["cause"]) == ("fedops.reconcile/v1", "temporary")


@pytest.fixture
def watching(world: World) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "fedops.cli.main", "ci", "reconcile", "--watch", "3600"]
    with subprocess.Popen(
        command, cwd=world.clone("ci"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="another system: no SIGINT between processes there")
def test_a_watching_process_ends_at_sigint_with_130(watching: subprocess.Popen[str]) -> None:
    assert watching.stdout is not None
    assert watching.stdout.readline() == "pull request #1: merged\n"
    while not watching.stdout.readline().startswith("waits: "):
        pass
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=240)
    assert watching.returncode == 130
    assert "Traceback" not in err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e9", "x"])
def test_a_pause_that_is_none_is_a_usage_error(seconds: str, still: World) -> None:
    assert still("ci", "ci", "reconcile", "--watch", seconds, code=2).out == ""


def test_rules_that_are_not_computed_here_stop_the_next_version_alone(world: World) -> None:
    world.edit("policies/aggregation.yaml", lambda text: text.replace("name: fedavg", "name: fedadam"))
    jobs = Jobs(world)
    said = jobs.merge()
    assert said.out.splitlines() == [
        "#1  merged",
        "#2  merged",
        "no version now: main asks for rules that are not computed here",
    ]
    assert "strategy 'fedadam' -> one of " in said.err
    assert jobs.outputs["due"] == "false"
    said = jobs.run("aggregate", *jobs.pinned)
    assert (jobs.outputs["proposal"], said.out) == (
        "",
        "no version now: main asks for rules that are not computed here\n",
    )
    jobs.run("signal", "--skipped", "", output=False)
    loop = world("ci", "ci", "reconcile")
    assert "policies/aggregation.yaml:" in loop.err
    assert "[FO-101]" in loop.err
    assert world.json("ci", "ci", "reconcile")["changed"] is False
    world.edit("policies/aggregation.yaml", lambda text: text.replace("name: fedadam", "name: fedavg"))
    jobs.all()
    assert world.version()["version"] == 1
