"""Many open pull requests on GitHub: what a run asks of a forge that gives a job's token 1,000 requests an hour."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedops.app import allowance
from fedops.core.ids import RepoPath
from tests.github_face.cli_world import GitHubWorld, github_cli
from tests.github_face.fed import GitHubFed, token_of
from tests.github_face.hub import Comment, Fault, Hub, PullItem
from tests.github_face.openapi import Exchange
from tests.scenario.fed import Rules

A, B = "hospital-a", "hospital-b"
PULLS, FEW, MANY = 40, 8, 200
AN_HOUR = 1_000  # requests that GitHub gives the tokens of a repository's jobs in an hour
FETCHES = 10  # of git, in the two passes of a run
FIXED = 9  # requests of a run, however many pull requests are open: lists, the release, who the bot is
OF_JOBS = 13  # the same of the jobs of the workflow, each of which begins anew; lists of 100 are one page
AT_ONCE = 100  # commits that one question of GraphQL is about
AN_HOUR_OF_SECONDS = 3_600


def made(folder: Path, rules: Rules, submission: Rules | None = None) -> GitHubFed:
    rules = {"trigger": {"quorum": 1}, **rules}
    return GitHubFed(folder, rules=rules, submission=submission, people=("lena", A, B), sites=(A, B))


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[GitHubFed]:
    with closing(made(tmp_path, {})) as one:
        yield one


def multiply(hub: Hub, number: int, count: int) -> None:
    """So many pull requests in all, each of a commit of its own with the same files; put where GitHub keeps them."""
    first = hub.pull(number)
    assert first is not None
    tree, parent = (hub.git(hub.upstream, "rev-parse", f"{first.head}^{what}") for what in ("{tree}", "1"))
    for other in range(len(hub.items) + 1, len(hub.items) - len(hub.pulls()) + count + 1):
        head = hub.commit(tree, [parent], f"submit {other}", first.author, {})
        item = PullItem(other, first.author, f"t{other}", "b", first.at, first.at, source=first.source)
        item.ref, item.head = f"submit/{other}", head
        hub.git(hub.upstream, "update-ref", f"refs/pull/{other}/head", head)
        hub.items[other] = item


def asked(fed: GitHubFed, **expected: bool) -> tuple[Counter[str], int]:
    """What one run asks: how often which kind of request, and how often git was asked for refs."""
    hub = fed.hub
    before, requests = len(hub.exchanges), len(hub.requests)
    assert fed.reconcile().changed is expected.get("changed", False)
    kinds = Counter(map(kind, hub.exchanges[before:]))
    fetches = sum("/info/refs" in path for _, path, _ in hub.requests[requests:])
    return kinds, fetches


def kind(one: Exchange) -> str:
    """Method and path without numbers and hashes."""
    path = one.path.partition("?")[0].removeprefix("/repos/fed-org/demo")
    return f"{one.method} " + "/".join("#" if len(p) == 40 or p.isdigit() else p for p in path.split("/"))


def writes(kinds: Counter[str]) -> int:
    return sum(count for name, count in kinds.items() if not name.startswith("GET "))


def test_a_quiet_pull_request_costs_no_request_of_its_own(fed: GitHubFed) -> None:
    multiply(fed.hub, fed.submit(A, 1.0, signed=False).number, PULLS)
    told, fetches = asked(fed, changed=True)
    assert told["POST /issues/#/comments"] == told["POST /statuses/#"] == told["GET /issues/#/comments"] == PULLS
    assert told["GET /commits/#/status"] == 0, "what is set was read with the others"
    assert fetches <= FETCHES, "the heads of all come at once"
    assert {s.description for s in fed.hub.statuses} == {"rejected: signature_invalid"}

    before = len(fed.hub.questions)
    kinds, fetches = asked(fed)
    assert fed.hub.questions[before:] == [PULLS]
    assert kinds["GET /commits/#/status"] == kinds["GET /issues/#/comments"] == 0
    assert kinds["GET /issues/comments"] == 1
    assert kinds.total() <= FIXED, kinds
    assert writes(kinds) == 0
    assert fetches <= FETCHES


@pytest.mark.long
def test_where_graphql_does_not_answer_it_costs_one_request(fed: GitHubFed) -> None:
    fed.hub.has_graph = False
    multiply(fed.hub, fed.submit(A, 1.0, signed=False).number, PULLS)
    told, _ = asked(fed, changed=True)
    assert told["POST /statuses/#"] == PULLS
    assert told["GET /commits/#/status"] == 2 * PULLS, "once in each of its two passes, to compare and to set it"
    questions = sum(path.endswith("/graphql") for _, path, _ in fed.hub.requests)
    kinds, fetches = asked(fed)
    assert sum(path.endswith("/graphql") for _, path, _ in fed.hub.requests) == questions + 1, (
        "it is tried once in a run"
    )
    assert kinds["GET /commits/#/status"] == PULLS
    assert kinds["GET /issues/#/comments"] == 0
    assert kinds["GET /issues/comments"] == 1
    assert kinds.total() <= PULLS + FIXED, kinds
    assert writes(kinds) == 0
    assert fetches <= FETCHES


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubWorld]:
    with github_cli(tmp_path / "world", monkeypatch) as made:
        yield made
        assert made.hub.refused == [], "each job's rights suffice"


def of_jobs(world: GitHubWorld) -> tuple[Counter[str], list[int]]:
    """What the jobs of one run ask: how often which kind of request, and of how many things at once."""
    before, questions = len(world.hub.exchanges), len(world.hub.questions)
    world.jobs()
    return Counter(map(kind, world.hub.exchanges[before:])), world.hub.questions[questions:]


@pytest.mark.long
@pytest.mark.parametrize("has_graph", [True, False], ids=["GraphQL", "REST alone"])
def test_a_steady_run_of_the_jobs_costs_the_same_however_many_were_refused(world: GitHubWorld, has_graph: bool) -> None:
    [number] = world.hand_in(A)
    world.unsign(A, number)
    multiply(world.hub, number, PULLS)
    world.hub.has_graph = has_graph
    world.jobs()
    assert len(world.hub.statuses) == len({s.sha for s in world.hub.statuses}) == PULLS
    before = world.hub.snapshot()
    kinds, questions = of_jobs(world)
    assert world.hub.snapshot() == before
    assert questions == ([PULLS] if has_graph else []), "inspect asks of none: no byte is to be read"
    of_each = 0 if has_graph else 1
    assert kinds["GET /commits/#/status"] == of_each * PULLS
    assert kinds.total() <= of_each * PULLS + OF_JOBS, kinds


@pytest.mark.long
@pytest.mark.parametrize("has_graph", [True, False], ids=["GraphQL", "REST alone"])
def test_a_steady_run_of_the_jobs_costs_the_same_however_many_wait(world: GitHubWorld, has_graph: bool) -> None:
    world.edit("policies/submission.yaml", lambda text: text.replace("require_signed: true", "require_signed: false"))
    world.edit("policies/aggregation.yaml", lambda text: text.replace("mode: auto", "mode: review", 1))
    [number] = world.hand_in(A)
    multiply(world.hub, number, FEW)
    world.hub.has_graph = has_graph
    world.jobs()
    before = world.hub.snapshot()
    kinds, questions = of_jobs(world)
    assert world.hub.snapshot() == before
    assert {s.state for s in world.hub.statuses} == {"pending"}
    assert questions == ([FEW, FEW] if has_graph else [])
    of_each = 0 if has_graph else 2
    assert kinds["GET /commits/#/status"] + kinds["GET /pulls/#/reviews"] == of_each * FEW
    assert kinds.total() <= of_each * FEW + OF_JOBS, kinds

    world.approve(number)
    merged = world.jobs()
    assert merged["changed"] is True
    assert [p.number for p in world.hub.pulls() if p.merged_at is not None] == [number], "the approved one alone"


@dataclass
class Limit(Fault):
    """After so many requests of REST GitHub takes no more for an hour; of GraphQL it has a limit of its own."""

    lets: int = 0

    def strikes(self, method: str, path: str) -> bool:
        if path == "/graphql":
            return False
        self.lets -= 1
        return self.lets < 0


def spent(hub: Hub, lets: int) -> tuple[Limit, str]:
    """The limit, and the moment up to which it lasts."""
    until = int(hub.now().timestamp()) + AN_HOUR_OF_SECONDS
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(until)}
    message = "API rate limit exceeded for installation ID 1."
    clock = f"{until // 3600 % 24:02}:{until // 60 % 60:02}:{until % 60:02}"
    return Limit("", "", 403, headers=headers, message=message, lets=lets), clock


@pytest.mark.long
def test_a_run_that_meets_the_limit_says_until_when_and_the_next_one_goes_on(world: GitHubWorld) -> None:
    [number, good] = world.hand_in(A, B)
    world.unsign(A, number)
    multiply(world.hub, number, FEW)
    hub = world.hub
    met = 0
    for lets in (1, 4, 6, 9, 12, 17):
        limit, until = spent(hub, lets)
        hub.faults = [limit]
        ran = world("ci", "ci", "reconcile", code=5)
        assert f"until {until} UTC" in ran.err
        assert re.search(r"hint: nothing is lost", ran.err), ran.err
        assert limit.lets == -1, "nothing more is asked"
        met += 1
    hub.faults = []
    while world("ci", "ci", "reconcile", "--format", "json").json["again"]:
        pass
    assert met == 6
    assert [p.number for p in hub.pulls() if p.merged_at is not None] == [good]
    told = Counter(c.number for c in hub.comments.values())
    assert set(told.values()) == {1}, "each is told once"
    assert told.keys() == {p.number for p in hub.pulls()}
    assert Counter(s.state for s in hub.statuses) == {"failure": FEW - 1, "success": 1}
    before = hub.snapshot()
    world("ci", "ci", "reconcile")
    assert hub.snapshot() == before


@pytest.mark.long
def test_a_run_with_two_hundred_open_asks_for_less_than_an_hour_allows(fed: GitHubFed) -> None:
    """About 30 s: one after another, the good one is the newest; what is left of the others is told by the next runs."""
    multiply(fed.hub, fed.submit(A, 1.0, signed=False).number, MANY - 1)
    good = fed.submit(B, 2.0)
    before = len(fed.hub.exchanges)
    done = fed.reconcile()
    assert len(fed.hub.exchanges) - before < AN_HOUR
    assert done.again, "some are left"
    assert fed.forge("lena").pull(good.number).state == "merged"
    assert [v.version for v in done.published] == [1]
    told = {c.number for c in fed.hub.comments.values()} - {good.number}
    refused = {s.sha for s in fed.hub.statuses if s.state == "failure"}
    assert {item.head for item in fed.hub.pulls() if item.number in told} == refused
    assert 0 < len(refused) < MANY - 1


def test_a_leads_quiet_change_costs_no_more_than_anybody_elses(fed: GitHubFed) -> None:
    change: dict[RepoPath, bytes | None] = {RepoPath("README.md"): b"new\n"}
    for who, count in (("lena", FEW), (A, 2 * FEW)):
        multiply(fed.hub, fed.open_pull(who, change, branch=f"change/{who}").number, count)
    told, _ = asked(fed, changed=True)
    assert (told["POST /statuses/#"], told["POST /issues/#/comments"]) == (FEW, 0)
    assert {s.description for s in fed.hub.statuses} == {"no submission: a lead's change, for people to review"}
    before = len(fed.hub.questions)
    kinds, fetches = asked(fed)
    assert fed.hub.questions[before:] == [2 * FEW], "as many as are open, of whomever: it says whose turn it is"
    assert kinds.total() <= FIXED, kinds
    assert writes(kinds) == 0
    assert fetches <= FETCHES


def test_what_waits_for_an_approval_costs_no_more(tmp_path: Path) -> None:
    rules = {"merge": {"mode": "review", "approvals": 1}}
    with closing(made(tmp_path, rules, {"require_signed": False})) as fed:
        multiply(fed.hub, fed.submit(A, 1.0, signed=False).number, FEW)
        asked(fed, changed=True)
        before = len(fed.hub.questions)
        kinds, fetches = asked(fed)
        assert fed.hub.questions[before:] == [FEW, FEW], "who has reviewed, and what was said"
    assert kinds.total() <= FIXED, kinds
    assert writes(kinds) == 0
    assert fetches <= FETCHES


def test_a_status_that_was_read_to_find_whose_turn_it_is_is_not_read_again(
    fed: GitHubFed, monkeypatch: pytest.MonkeyPatch
) -> None:
    multiply(fed.hub, fed.submit(A, 1.0, signed=False).number, FEW)
    asked(fed, changed=True)
    monkeypatch.setattr(allowance, "PULLS", FEW - 1)  # whose bytes a pass may read
    before = len(fed.hub.questions)
    kinds, _ = asked(fed)
    assert (kinds["GET /commits/#/status"], fed.hub.questions[before:]) == (0, [FEW])


def test_a_comment_that_somebody_deleted_or_changed_is_there_again_after_one_run(fed: GitHubFed) -> None:
    multiply(fed.hub, fed.submit(A, 1.0, signed=False).number, 5)
    asked(fed, changed=True)
    hub = fed.hub
    first, second, third, *_ = hub.comments.values()
    right = {c.number: c.body for c in hub.comments.values()}
    del hub.comments[first.id]
    second.body = "accepted, believe me"
    # A forged copy by another account is no comment of ours.
    del hub.comments[third.id]
    site = hub.users[token_of(A)]
    hub.comments[9_999] = Comment(9_999, third.number, site, third.body, fed.clock.now())
    kinds, _ = asked(fed, changed=True)
    assert (kinds["POST /issues/#/comments"], kinds["POST /statuses/#"]) == (3, 0)
    assert {c.number: c.body for c in hub.comments.values() if c.author.kind == "Bot"} == right | {
        second.number: right[second.number]
    }
    kinds, _ = asked(fed)
    assert writes(kinds) == 0


def test_a_forged_status_of_an_old_pull_request_is_set_right_in_one_run(fed: GitHubFed) -> None:
    multiply(fed.hub, fed.submit(A, 1.0, signed=False).number, 3)
    asked(fed, changed=True)
    pull = fed.hub.pulls()[1]
    fed.forge("lena").set_status(pull.head, "success", "fedops/verdict", "accepted")  # type: ignore[arg-type]  # a commit
    kinds, _ = asked(fed, changed=True)
    assert kinds["POST /statuses/#"] == 1
    assert (fed.hub.statuses[-1].sha, fed.hub.statuses[-1].state) == (pull.head, "failure")


def test_comments_that_lie_too_far_back_are_asked_for_one_by_one(fed: GitHubFed) -> None:
    multiply(fed.hub, fed.submit(A, 1.0, signed=False).number, 5)
    asked(fed, changed=True)
    lena, later = fed.hub.users[token_of("lena")], fed.clock.now().replace(year=2030)
    for number in range(100_000, 100_250):
        fed.hub.comments[number] = Comment(number, 1, lena, "chat", later)
    kinds, _ = asked(fed)
    assert kinds["GET /issues/comments"] == 1, "not the talk of all years"
    assert kinds["GET /issues/#/comments"] == 5 + 2, "of the first one there are three pages"
    assert writes(kinds) == 0
