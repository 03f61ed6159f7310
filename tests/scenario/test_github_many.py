"""Many open pull requests on GitHub: what a run asks of a forge that gives a job's token 1,000 requests an hour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fedops.app import allowance
from fedops.core.facts import Pull
from fedops.core.ids import RepoPath
from tests.github_face.fed import GitHubFed, token_of
from tests.github_face.hub import Comment, PullItem
from tests.github_face.openapi import Exchange
from tests.scenario.fed import Rules

A, B = "hospital-a", "hospital-b"
PULLS, FEW, MANY = 40, 8, 200
AN_HOUR = 1_000  # requests that GitHub gives the tokens of a repository's jobs in an hour
FETCHES = 10  # of git, in the two passes of a run
FIXED = 9  # requests of a run, however many pull requests are open: lists, the release, who the bot is


def made(folder: Path, rules: Rules, submission: Rules | None = None) -> GitHubFed:
    rules = {"trigger": {"quorum": 1}, **rules}
    return GitHubFed(folder, rules=rules, submission=submission, people=("lena", A, B), sites=(A, B))


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[GitHubFed]:
    with closing(made(tmp_path, {})) as one:
        yield one


def multiply(fed: GitHubFed, pull: Pull, count: int) -> None:
    """So many pull requests in all, each of a commit of its own with the same files; put where GitHub keeps them."""
    hub, first = fed.hub, fed.hub.pull(pull.number)
    assert first is not None
    for number in range(len(hub.items) + 1, count + 1):
        tree, parent = f"{pull.head}^{{tree}}", hub.git(hub.upstream, "rev-parse", f"{pull.head}^")
        head = hub.commit(hub.git(hub.upstream, "rev-parse", tree), [parent], f"submit {number}", first.author, {})
        other = PullItem(number, first.author, f"t{number}", "b", first.at, first.at, source=first.source)
        other.ref, other.head = f"submit/{number}", head
        hub.git(hub.upstream, "update-ref", f"refs/pull/{number}/head", head)
        hub.items[number] = other


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


def test_a_quiet_pull_request_costs_one_request(fed: GitHubFed) -> None:
    multiply(fed, fed.submit(A, 1.0, signed=False), PULLS)
    told, fetches = asked(fed, changed=True)
    assert told["POST /issues/#/comments"] == told["POST /statuses/#"] == PULLS
    assert fetches <= FETCHES, "the heads of all come at once"
    assert {s.description for s in fed.hub.statuses} == {"rejected: signature_invalid"}

    kinds, fetches = asked(fed)
    assert kinds["GET /commits/#/status"] == PULLS
    assert kinds["GET /issues/#/comments"] == 0
    assert kinds["GET /issues/comments"] == 1
    assert kinds.total() <= PULLS + FIXED, kinds
    assert writes(kinds) == 0
    assert fetches <= FETCHES


@pytest.mark.long
def test_a_run_with_two_hundred_open_asks_for_less_than_an_hour_allows(fed: GitHubFed) -> None:
    """About 30 s: one after another, the good one is the newest; what is left of the others is told by the next runs."""
    multiply(fed, fed.submit(A, 1.0, signed=False), MANY - 1)
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


def test_a_leads_quiet_change_costs_one_request_and_nobody_elses_costs_more(fed: GitHubFed) -> None:
    change: dict[RepoPath, bytes | None] = {RepoPath("README.md"): b"new\n"}
    for who, count in (("lena", FEW), (A, 2 * FEW)):
        multiply(fed, fed.open_pull(who, change, branch=f"change/{who}"), count)
    told, _ = asked(fed, changed=True)
    assert (told["POST /statuses/#"], told["POST /issues/#/comments"]) == (FEW, 0)
    assert {s.description for s in fed.hub.statuses} == {"no submission: a lead's change, for people to review"}
    kinds, fetches = asked(fed)
    assert kinds["GET /commits/#/status"] == 2 * FEW, "as many as are open, of whomever: it says whose turn it is"
    assert kinds.total() <= 2 * FEW + FIXED, kinds
    assert writes(kinds) == 0
    assert fetches <= FETCHES


def test_what_waits_for_an_approval_costs_two(tmp_path: Path) -> None:
    rules = {"merge": {"mode": "review", "approvals": 1}}
    with closing(made(tmp_path, rules, {"require_signed": False})) as fed:
        multiply(fed, fed.submit(A, 1.0, signed=False), FEW)
        asked(fed, changed=True)
        kinds, fetches = asked(fed)
    assert kinds["GET /pulls/#/reviews"] == kinds["GET /commits/#/status"] == FEW
    assert kinds.total() <= 2 * FEW + FIXED, kinds
    assert writes(kinds) == 0
    assert fetches <= FETCHES


def test_a_status_that_was_read_to_find_whose_turn_it_is_is_not_read_again(
    fed: GitHubFed, monkeypatch: pytest.MonkeyPatch
) -> None:
    multiply(fed, fed.submit(A, 1.0, signed=False), FEW)
    asked(fed, changed=True)
    monkeypatch.setattr(allowance, "PULLS", FEW - 1)  # whose bytes a pass may read
    kinds, _ = asked(fed)
    assert kinds["GET /commits/#/status"] == FEW


def test_a_comment_that_somebody_deleted_or_changed_is_there_again_after_one_run(fed: GitHubFed) -> None:
    multiply(fed, fed.submit(A, 1.0, signed=False), 5)
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
    multiply(fed, fed.submit(A, 1.0, signed=False), 3)
    asked(fed, changed=True)
    pull = fed.hub.pulls()[1]
    fed.forge("lena").set_status(pull.head, "success", "fedops/verdict", "accepted")  # type: ignore[arg-type]  # a commit
    kinds, _ = asked(fed, changed=True)
    assert kinds["POST /statuses/#"] == 1
    assert (fed.hub.statuses[-1].sha, fed.hub.statuses[-1].state) == (pull.head, "failure")


def test_comments_that_lie_too_far_back_are_asked_for_one_by_one(fed: GitHubFed) -> None:
    multiply(fed, fed.submit(A, 1.0, signed=False), 5)
    asked(fed, changed=True)
    lena, later = fed.hub.users[token_of("lena")], fed.clock.now().replace(year=2030)
    for number in range(100_000, 100_250):
        fed.hub.comments[number] = Comment(number, 1, lena, "chat", later)
    kinds, _ = asked(fed)
    assert kinds["GET /issues/comments"] == 1, "not the talk of all years"
    assert kinds["GET /issues/#/comments"] == 5 + 2, "of the first one there are three pages"
    assert writes(kinds) == 0
