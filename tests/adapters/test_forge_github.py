"""What only GitHub does: pages, faults, roles, forks, and people who press its buttons. PyGithub against a loopback GitHub."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from fedops.adapters import github_graph, github_http
from fedops.adapters.forge_github import Clone, GitHubForge
from fedops.adapters.github_people import JOB_TOKEN
from fedops.adapters.github_retry import Answer
from fedops.core.errors import ConfigError, FedopsError, ForgeError
from fedops.core.facts import Account, Marker, RefUpdate, Review
from fedops.core.github_hosts import Host, host_of
from fedops.core.ids import CommitId, RepoPath, SiteId
from fedops.ports import Forge, Releases
from tests.forge_worlds import (
    ACCOUNTS,
    START,
    ManualClock,
    forge,
    main_of,
    push_main,
    submission,
)
from tests.github_face.hub import NAME, OWNER, Comment, Fault, Item, ReviewItem, StatusItem
from tests.github_face.world import FaceWorld, github_world, token_of
from tests.sshkeys import SshKey

SIGNAL = Marker("signal", "train/hospital-a/v9")
VERDICT = Marker("submission", "pull-1")
FEDOPS = frozenset({"fedops"})
A = SiteId("hospital-a")


@pytest.fixture
def world(keys: Mapping[str, SshKey], template: Path, tmp_path: Path) -> Iterator[FaceWorld]:
    yield from github_world(keys, template, tmp_path)


def made(
    world: FaceWorld,
    who: str = "lena",
    *,
    token: str | None = "",
    clock: ManualClock | None = None,
    host: Host | None = None,
    name: str = f"{OWNER}/{NAME}",
    bot: str = JOB_TOKEN,
) -> GitHubForge:
    """A person's forge with something of its own."""
    own = GitHubForge(
        cast("Clone", world.repository(who)),
        host=host or host_of(world.server.api),
        name=name,
        token=token_of(who) if token == "" else token,
        clock=clock or ManualClock(),
        bot=bot,
        pace=(0, 0),
    )
    world.stack.callback(own.close)
    return own


def opened(world: FaceWorld, who: str = "alice", content: str = "1") -> CommitId:
    """Hand in a submission; returns its head. The first one is pull request 1."""
    head = submission(world, who, content)
    forge(world, who).submit_pull(head, f"submit/{who}", "t", "b")
    return head


def tagged(world: FaceWorld) -> None:
    """Push the tag of v1."""
    repository = world.repository("lena")
    tag = repository.write_tag("global@v1.0.0", main_of(repository), "v1")
    assert repository.push([RefUpdate("refs/tags/global@v1.0.0", None, tag)])


def asked(world: FaceWorld, method: str, path: str) -> int:
    """How often something was asked of the API; the path's end decides."""
    return sum(m == method and p.split("?")[0].endswith(path) for m, p, _ in world.hub.requests)


# ---------------------------------------------------------------- lists


def test_every_page_of_a_list_is_read(world: FaceWorld) -> None:
    for number in range(1, 251):
        body = Marker("signal", str(number)).stamp("b")
        world.hub.items[number] = Item(
            number, world.hub.users[token_of("lena")], "t", body, START, START, labels=["fedops"]
        )
    lena = made(world)
    assert [i.number for i in lena.issues(FEDOPS)] == list(range(1, 251))
    assert lena.ensure_issue(Marker("signal", "250"), "t", "b", FEDOPS).number == 250
    assert len(world.hub.items) == 250
    for number in range(250):
        world.hub.comments[number] = Comment(number, 7, world.hub.users[token_of("lena")], f"{number}", START)
    assert list(lena.comments(7)) == [f"{number}" for number in range(250)]


def test_statuses_of_many_contexts_are_all_seen(world: FaceWorld) -> None:
    head = opened(world)
    lena = world.hub.users[token_of("lena")]
    for number in range(150):
        world.hub.statuses.append(StatusItem(number, head, f"context {number}", "success", f"{number}", lena))
    assert made(world).status(head, "context 149") == ("success", "149")
    assert made(world).status(head, "context 150") is None


def test_old_signals_are_not_asked_for_again_and_again(world: FaceWorld) -> None:
    lena = made(world)
    lena.ensure_issue(SIGNAL, "t", "b", FEDOPS)
    lena.close_issue(1)
    assert [i.number for i in lena.issues(FEDOPS, open=False, since=START)] == [1]
    assert list(lena.issues(FEDOPS, open=False, since=START.replace(year=2027))) == []


def test_a_draft_is_not_handed_in_yet(world: FaceWorld) -> None:
    opened(world)
    pull = world.hub.pull(1)
    assert pull is not None
    pull.draft = True
    assert list(made(world).open_pulls()) == []


def test_a_next_page_on_another_host_gets_no_token(world: FaceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    away = '<http://127.0.0.1:1/api/v3/repos/fed-org/demo/issues?page=2>; rel="next"'
    lena = made(world)
    lena.issues(FEDOPS)
    call = lena._api._once

    def meddled(*args: Any) -> Answer:
        return replace(call(*args), headers={"link": away})

    monkeypatch.setattr(lena._api, "_once", meddled)
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:1") as raised:
        lena.issues(FEDOPS)
    assert raised.value.slug == "credential_scope"


# ---------------------------------------------------------------- faults


CREATIONS: dict[str, tuple[str, Callable[[Forge, FaceWorld], object]]] = {
    "issue": (r"/issues$", lambda f, _: f.ensure_issue(SIGNAL, "t", "b", FEDOPS)),
    "comment": (r"/comments$", lambda f, _: f.upsert_comment(1, VERDICT, "b")),
    "review": (r"/reviews$", lambda f, w: f.review(1, cast("CommitId", w.hub.pulls()[0].head), "approved", "ok")),
    "release": (r"/releases$", lambda f, _: cast("Releases", f).ensure_release("global@v1.0.0", "t", "b")),
    "label": (r"/labels$", lambda f, _: f.ensure_issue(SIGNAL, "t", "b", FEDOPS)),
    "status": (r"/statuses/", lambda f, w: f.set_status(CommitId(w.hub.pulls()[0].head), "success", "c", "t")),
}


@pytest.mark.parametrize("status", [502, 0], ids=["502", "cut"])
@pytest.mark.parametrize("after", [True, False], ids=["done", "not done"])
@pytest.mark.parametrize("what", CREATIONS)
def test_what_got_no_answer_is_there_once(world: FaceWorld, what: str, status: int, after: bool) -> None:
    opened(world)
    tagged(world)
    path, call = CREATIONS[what]
    clock = ManualClock()
    lena = made(world, clock=clock)
    lena.whoami()
    world.hub.faults.append(Fault("POST", path, status, after=after))
    call(lena, world)
    assert clock.slept, "it waits before it looks again"
    before = world.state()
    call(lena, world)
    assert world.state() == before
    hub = world.hub
    counts = {
        "issue": len(hub.items) - 1, "comment": len(hub.comments), "review": len(hub.reviews), "label": len(hub.labels),
        "release": len(hub.releases), "status": len({(s.sha, s.context) for s in hub.statuses}),
    }  # fmt: skip
    assert counts[what] == 1


@pytest.mark.parametrize("after", [True, False], ids=["done", "not done"])
def test_a_pull_request_that_got_no_answer_is_there_once(world: FaceWorld, after: bool) -> None:
    world.hub.faults.append(Fault("POST", "/pulls$", 502, after=after))
    opened(world)
    assert [p.number for p in world.hub.pulls()] == [1]


@pytest.mark.parametrize("after", [True, False], ids=["done", "not done"])
def test_a_merge_that_got_no_answer_is_made_once(world: FaceWorld, after: bool) -> None:
    head = opened(world)
    base = main_of(world.repository("lena"))
    world.hub.faults.append(Fault("PUT", "/merge$", 502, after=after))
    assert made(world).merge(1, head, "m") == ("already_merged" if after else "merged")
    repository = world.repository("lena")
    assert [c.parents for c in repository.commits(base, main_of(repository))] == [(base, head)]


def test_faults_that_do_not_end_are_told_and_nothing_is_made_twice(world: FaceWorld) -> None:
    clock = ManualClock()
    world.hub.faults.append(Fault("POST", "/issues$", 502, times=99))
    with pytest.raises(ForgeError) as raised:
        made(world, clock=clock).ensure_issue(SIGNAL, "t", "b", FEDOPS)
    assert raised.value.cause == "temporary"
    assert sum(clock.slept) < 60
    world.hub.faults = [Fault("GET", "/issues", 500, times=99)]
    with pytest.raises(ForgeError):
        made(world).issues(FEDOPS)
    assert asked(world, "GET", "/issues") < 12


@pytest.mark.parametrize("status", [401, 403, 404, 422])
def test_a_refusal_is_asked_for_once(world: FaceWorld, status: int) -> None:
    world.hub.faults.append(Fault("GET", "/issues", status, message="no", times=99))
    clock = ManualClock()
    with pytest.raises(ForgeError, match="no"):
        made(world, clock=clock).issues(FEDOPS)
    assert asked(world, "GET", "/issues") == 1
    assert clock.slept == []


def test_a_limit_is_waited_out_by_the_clock(world: FaceWorld) -> None:
    clock = ManualClock()
    world.hub.faults.append(Fault("POST", "/issues$", 429, headers={"Retry-After": "7"}, message="slow down"))
    assert made(world, clock=clock).ensure_issue(SIGNAL, "t", "b", FEDOPS).number == 1
    assert clock.slept == [7.0]
    assert len(world.hub.items) == 1


def test_a_page_that_is_no_document_is_a_fault(world: FaceWorld) -> None:
    lena = made(world)
    call = lena._api._github.requester.requestJson
    lena._api._github.requester.requestJson = lambda *a, **k: (*call(*a, **k)[:2], "<html>proxy</html>")  # type: ignore[method-assign]
    with pytest.raises(ForgeError, match="no JSON") as raised:
        lena.issues(FEDOPS)
    assert raised.value.cause == "temporary"


def test_a_redirection_to_another_host_is_not_followed(world: FaceWorld) -> None:
    away = {"Location": "http://localhost:1/api/v3/repositories/1"}
    world.hub.faults.append(Fault("GET", "/repos/", 301, headers=away, message="Moved Permanently"))
    with pytest.raises(ForgeError, match="another host"):
        made(world).open_pulls()
    world.hub.faults.append(Fault("GET", "/pulls", 307, message="Temporary Redirect"))
    with pytest.raises(ForgeError, match="307"):
        made(world).open_pulls()
    world.hub.exchanges.clear()  # such answers are no part of the description


def test_a_list_that_does_not_end_is_given_up(world: FaceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(github_http, "_MAX_PAGES", 2)
    for number in range(1, 302):
        world.hub.labels[f"{number}"] = ""
    with pytest.raises(ForgeError, match="more than 2 pages"):
        made(world).ensure_issue(SIGNAL, "t", "b", FEDOPS)


def test_what_is_refused_as_there_and_is_not_is_told(world: FaceWorld) -> None:
    tagged(world)
    world.hub.faults.append(Fault("POST", "/releases$", 422, message="Validation Failed"))
    with pytest.raises(ForgeError, match="Validation Failed"):
        made(world).ensure_release("global@v1.0.0", "t", "b")


# ---------------------------------------------------------------- who


def test_a_job_s_token_has_no_user_and_is_known_by_its_login(world: FaceWorld) -> None:
    bot = world.hub.add_job("job-token", {})
    assert made(world, token="job-token").whoami() == Account(bot.login, bot.id)
    app = world.hub.add_job("app-token", {}, "ours[bot]", 77)
    assert made(world, token="app-token", bot="ours[bot]").whoami() == Account(app.login, 77)


def test_a_token_that_begins_as_a_job_s_does_is_not_asked_for_its_user(world: FaceWorld) -> None:
    bot = world.hub.add_job("ghs_of_a_job", {})
    job = made(world, token="ghs_of_a_job")
    assert [job.whoami(), job.whoami()] == [Account(bot.login, bot.id)] * 2
    assert (asked(world, "GET", "/user"), world.hub.refused) == (0, [])


def test_without_a_token_what_is_public_can_be_read_and_no_more(world: FaceWorld) -> None:
    opened(world)
    anybody = made(world, token=None)
    assert [p.number for p in anybody.open_pulls()] == [1]
    for call in (anybody.whoami, lambda: anybody.ensure_issue(SIGNAL, "t", "b", frozenset())):
        with pytest.raises(ForgeError) as raised:
            call()
        assert raised.value.cause == "auth"


def test_a_token_that_nobody_has_is_an_error_of_its_own(world: FaceWorld) -> None:
    with pytest.raises(ForgeError, match="401") as raised:
        made(world, token="stale").open_pulls()
    assert (raised.value.slug, raised.value.cause) == ("auth_failed", "auth")


def test_a_token_is_in_no_message_and_no_log(world: FaceWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ForgeError) as raised:
        made(world, token="s3cr3t-t0k3n").open_pulls()
    opened(world)
    assert "s3cr3t-t0k3n" not in f"{raised.value.message}{raised.value.hint}{caplog.text}"
    assert token_of("alice") not in caplog.text


@pytest.mark.parametrize("name", ["demo", "a/b/c", "fed-org/..", "fed-org/demo/../../user", "fed-org/demo?x"])
def test_a_name_that_is_none_is_refused(world: FaceWorld, name: str) -> None:
    with pytest.raises(ConfigError, match="owner/name"):
        made(world, name=name)


def test_a_repository_that_is_not_there_says_so(world: FaceWorld) -> None:
    with pytest.raises(ForgeError, match="fed-org/other") as raised:
        made(world, name="fed-org/other").open_pulls()
    assert raised.value.cause == "permanent"


def test_a_renamed_repository_is_named_anew_by_a_person(world: FaceWorld) -> None:
    # GitHub redirects; PyGithub follows, and forgets the filters of a list on the way.
    world.hub.repos["fed-org/old"] = world.hub.upstream
    with pytest.raises(ForgeError, match="now fed-org/demo") as raised:
        made(world, name="fed-org/old").issues(FEDOPS)
    assert "forge.repository: fed-org/demo" in raised.value.hint


# ---------------------------------------------------------------- handing in


def test_a_site_hands_in_from_its_fork_and_a_lead_from_a_branch(world: FaceWorld) -> None:
    head = opened(world)
    assert made(world).pull(1).same_repository is False
    assert world.hub.ref(world.hub.repos["alice-a/demo"], "refs/heads/submit/alice") == head
    policy = world.repository("lena").write_commit(
        (main_of(world.repository("lena")),), {RepoPath("policies/x.yaml"): b"x\n"}, "policy", at=START
    )
    pull = made(world).submit_pull(policy, "policy/x", "t", "b")
    assert pull.same_repository is True
    assert world.hub.ref(world.hub.upstream, "refs/heads/policy/x") == policy


def test_a_job_hands_in_from_a_branch(world: FaceWorld) -> None:
    world.hub.add_job("job-token", {"pull-requests": "write"})
    repository = world.repository("lena")
    head = repository.write_commit((main_of(repository),), {RepoPath("global/x"): b"x\n"}, "v9", at=START)
    pull = made(world, token="job-token").submit_pull(head, "version/v9", "v9", "b")
    assert (pull.same_repository, pull.author.login) == (True, JOB_TOKEN)


def test_nobody_may_push_to_a_site_s_pull_request(world: FaceWorld) -> None:
    opened(world)
    [sent] = [e.body for e in world.hub.exchanges if (e.method, e.path.endswith("/pulls")) == ("POST", True)]
    assert sent["maintainer_can_modify"] is False


def test_the_remote_fork_says_where_to_hand_in(world: FaceWorld) -> None:
    repository = cast("Any", world.repository("lena"))
    world.hub.fork(world.hub.users[token_of("lena")])
    repository._git.check("remote", "add", "fork", f"{world.server.web}/lena/demo.git")
    head = submission(world, "lena")
    assert made(world).submit_pull(head, "submit/lena", "t", "b").same_repository is False
    assert world.hub.ref(world.hub.repos["lena/demo"], "refs/heads/submit/lena") == head
    repository._git.check("remote", "set-url", "fork", "https://elsewhere.example/lena/demo.git")
    with pytest.raises(ForgeError, match="fork"):
        made(world).submit_pull(submission(world, "lena", "2"), "submit/lena", "t", "b")


def test_a_fork_of_another_name_is_found(world: FaceWorld) -> None:
    fork = world.hub.repos.pop("alice-a/demo")
    fork.name = "demo-1"
    world.hub.repos["alice-a/demo-1"] = fork
    opened(world)
    assert [p.source for p in world.hub.pulls()] == [fork]


def test_a_repository_of_the_same_name_that_is_no_fork_is_left_alone(world: FaceWorld) -> None:
    world.hub.repos["alice-a/demo"].parent = None
    with pytest.raises(ForgeError, match="no fork") as raised:
        opened(world)
    assert raised.value.hint.endswith("/fed-org/demo/fork")
    del world.hub.repos["alice-a/demo"]
    with pytest.raises(ForgeError, match="no fork"):
        opened(world)


def test_a_head_that_github_shows_late_is_waited_for(world: FaceWorld) -> None:
    opened(world)
    hub, late = world.hub, [3]
    notice = hub.notice

    def slowly() -> None:
        late[0] -= 1
        if late[0] < 0:
            notice()

    hub.notice = slowly  # type: ignore[method-assign]
    head = submission(world, "alice", "2")
    clock = ManualClock()
    pull = made(world, "alice", clock=clock).submit_pull(head, "submit/alice", "t", "b")
    assert (pull.number, pull.head) == (1, head)
    assert clock.slept
    late[0] = 10**6
    last = submission(world, "alice", "3")
    assert made(world, "alice").submit_pull(last, "submit/alice", "t", "b").head == last, "it is pushed all the same"


def test_a_pull_request_that_is_merged_meanwhile_is_not_taken_for_the_new_one(world: FaceWorld) -> None:
    head = opened(world)
    hub = world.hub
    alice = made(world, "alice")
    listed = alice._pulls._of

    def merged_after(name: str) -> Any:
        found = listed(name)
        forge(world, "lena").merge(1, head, "m")
        return found

    alice._pulls._of = merged_after  # type: ignore[method-assign]
    with pytest.raises(ForgeError, match="merged") as raised:
        alice.submit_pull(submission(world, "alice", "2"), "submit/alice", "t", "b")
    assert raised.value.cause == "temporary"
    assert len(hub.pulls()) == 1


def test_a_pull_request_of_a_deleted_fork_keeps_its_head(world: FaceWorld) -> None:
    head = opened(world)
    pull = world.hub.pull(1)
    assert pull is not None
    pull.source = None
    assert (made(world).pull(1).head, made(world).pull(1).same_repository) == (head, False)


def test_a_head_that_the_clone_does_not_have_is_fetched(world: FaceWorld) -> None:
    head = opened(world)
    repository = world.repository("lena")
    lena = made(world)
    assert repository.resolve(head) is None
    assert [p.head for p in lena.open_pulls()] == [head]
    assert repository.resolve(head) == head


def test_of_an_open_pull_request_what_can_be_fetched_is_its_head(world: FaceWorld) -> None:
    head = opened(world)
    pull = world.hub.pull(1)
    assert pull is not None
    pull.head = "1" * 40  # the API knows of a push before git does
    world.hub.notice = lambda: None  # type: ignore[method-assign]
    assert [p.head for p in made(world).open_pulls()] == [head]
    world.hub.git(world.hub.upstream, "update-ref", "-d", "refs/pull/1/head")
    assert list(made(world).open_pulls()) == []
    assert made(world).pull(1).head == "1" * 40


# ---------------------------------------------------------------- merging


def test_a_merge_that_a_rule_forbids_says_what_github_says(world: FaceWorld) -> None:
    head = opened(world)
    world.hub.faults.append(Fault("PUT", "/merge$", 405, message="At least 1 approving review is required", times=9))
    with pytest.raises(ForgeError, match="approving review") as raised:
        made(world).merge(1, head, "m")
    assert raised.value.cause == "permanent"
    assert asked(world, "PUT", "/merge") == 1


def test_a_main_that_moves_all_the_time_is_told(world: FaceWorld) -> None:
    head = opened(world)
    clock = ManualClock()
    world.hub.before_merge = [lambda: push_main(world.repository("bob"), {RepoPath("x"): b"x"})] * 9
    with pytest.raises(ForgeError, match="moved") as raised:
        made(world, clock=clock).merge(1, head, "m")
    assert raised.value.cause == "temporary"
    assert len(clock.slept) == 4


def test_a_site_cannot_merge(world: FaceWorld) -> None:
    head = opened(world)
    with pytest.raises(ForgeError) as raised:
        made(world, "alice").merge(1, head, "m")
    assert raised.value.cause == "auth"


# ---------------------------------------------------------------- reviews, statuses, comments, issues


def test_a_dismissed_review_counts_no_more_and_a_comment_takes_nothing_back(world: FaceWorld) -> None:
    head = opened(world)
    lena = made(world)
    lena.review(1, head, "approved", "fine")
    user = world.hub.users[token_of("lena")]
    world.hub.reviews.append(ReviewItem(99, 1, user, "by the way", "COMMENTED", head))
    assert list(lena.reviews(1)) == [Review(ACCOUNTS["lena"], head, "approved")]
    world.hub.reviews[0].state = "DISMISSED"
    assert list(lena.reviews(1)) == [Review(ACCOUNTS["lena"], head, "dismissed")]
    assert lena.review(1, head, "approved", "fine") is True
    assert list(lena.reviews(1)) == [Review(ACCOUNTS["lena"], head, "approved")]


def test_a_review_whose_commit_is_gone_says_nothing_any_more(world: FaceWorld) -> None:
    head = opened(world)
    lena = made(world)
    lena.review(1, head, "approved", "")
    user = world.hub.users[token_of("lena")]
    world.hub.reviews.append(ReviewItem(99, 1, user, "", "APPROVED", cast("str", None)))
    assert list(lena.reviews(1)) == []


def test_nobody_approves_what_they_handed_in(world: FaceWorld) -> None:
    head = opened(world)
    with pytest.raises(ForgeError, match="own pull request"):
        made(world, "alice").review(1, head, "approved", "")


def test_a_rejection_without_words_gets_some(world: FaceWorld) -> None:
    head = opened(world)
    lena = made(world)
    assert lena.review(1, head, "changes_requested", "") is True
    assert lena.review(1, head, "changes_requested", "") is False


def test_a_long_status_is_cut_and_set_once(world: FaceWorld) -> None:
    head = opened(world)
    lena = made(world)
    for _ in range(2):
        lena.set_status(head, "failure", "fedops/verdict", "x" * 200)
    assert [s.description for s in world.hub.statuses] == ["x" * 139 + "…"]


def single(world: FaceWorld) -> int:
    """How often the status of one commit was asked for."""
    return asked(world, "GET", "/status")


def test_statuses_read_together_are_given_out_once_and_then_asked_for_again(world: FaceWorld) -> None:
    one, two = opened(world), opened(world, "bob", "2")
    lena = made(world)
    lena.set_status(one, "pending", "fedops/verdict", "looking")
    lena.set_status(two, "success", "another", "seen")

    before = single(world)
    assert dict(lena.statuses({one, two}, "fedops/verdict")) == {one: ("pending", "looking")}
    assert lena.status(one, "fedops/verdict") == ("pending", "looking")
    assert lena.status(two, "fedops/verdict") is None
    assert (single(world) - before, world.hub.questions) == (0, [2])
    made(world).set_status(one, "success", "fedops/verdict", "accepted")
    assert lena.status(one, "fedops/verdict") == ("success", "accepted"), "who waits for it sees the change"
    # What one sets oneself is never taken from what was read before.
    lena.statuses({one, two}, "fedops/verdict")
    lena.set_status(two, "failure", "fedops/verdict", "no")
    assert lena.status(two, "fedops/verdict") == ("failure", "no")


def test_of_many_open_pull_requests_all_statuses_are_read_with_the_first(
    world: FaceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(github_graph, "AT_ONCE", 2)
    heads = [opened(world, who, content) for who, content in (("alice", "1"), ("bob", "2"), ("lena", "3"))]
    lena = made(world)
    lena.set_status(heads[1], "failure", "fedops/verdict", "no")
    lena.open_pulls()
    before = single(world)
    assert [lena.status(head, "fedops/verdict") for head in heads] == [None, ("failure", "no"), None]
    assert (single(world) - before, world.hub.questions) == (0, [2, 1])
    lena.set_status(heads[2], "failure", "fedops/verdict", "no")
    assert single(world) == before, "it was read a moment ago"
    lena.set_status(heads[2], "failure", "fedops/verdict", "no")
    assert (single(world), len(world.hub.statuses)) == (before + 1, 2), "done twice it changes nothing"
    assert lena.status(heads[1], "fedops/verdict") == ("failure", "no")
    assert single(world) == before + 2
    lena.open_pulls()
    assert lena.status(heads[2], "fedops/verdict") == ("failure", "no")
    assert (single(world), world.hub.questions) == (before + 2, [2, 1, 2, 1]), "the next look reads all anew"


FAULTS = {"absent": 404, "broken": 502, "cut": 0, "limited": 403}


@pytest.mark.parametrize("fault", FAULTS)
def test_where_graphql_does_not_answer_each_is_asked_for_alone_and_it_is_tried_once(
    world: FaceWorld, fault: str
) -> None:
    one, two = opened(world), opened(world, "bob", "2")
    lena = made(world)
    lena.set_status(one, "pending", "fedops/verdict", "looking")
    lena.review(1, one, "approved", "")
    world.hub.faults.append(Fault("POST", "/graphql", FAULTS[fault], message="API rate limit exceeded"))
    lena.open_pulls()
    before = single(world)
    assert lena.status(one, "fedops/verdict") == ("pending", "looking")
    assert dict(lena.statuses({one, two}, "fedops/verdict")) == {one: ("pending", "looking")}
    assert [r.state for r in lena.reviews(1)] == ["approved"]
    assert list(lena.reviews(2)) == []
    assert single(world) - before == 3
    assert asked(world, "GET", "/reviews") == 3, "one of them before the review"
    assert (asked(world, "POST", "/graphql"), world.hub.questions) == (1, [])


def test_what_a_job_may_not_ask_together_it_asks_alone(world: FaceWorld) -> None:
    opened(world), opened(world, "bob", "2")
    world.hub.add_job("ghs_without", {"contents": "read", "pull-requests": "read"})
    job = made(world, token="ghs_without")
    heads = [pull.head for pull in job.open_pulls()]
    assert list(job.reviews(1)) == []
    with pytest.raises(ForgeError, match="not accessible") as raised:
        job.statuses(heads, "fedops/verdict")
    assert raised.value.cause == "auth"
    assert [path.rpartition("/")[2] for _, _, path in world.hub.refused] == ["graphql", "status"]


def test_without_a_token_nothing_is_asked_together(world: FaceWorld) -> None:
    heads = [opened(world), opened(world, "bob", "2")]
    anybody = made(world, token=None)
    anybody.open_pulls()
    assert [anybody.status(head, "fedops/verdict") for head in heads] == [None] * 2
    assert asked(world, "POST", "/graphql") == 0


def test_a_commit_that_the_repository_does_not_have_has_no_status(world: FaceWorld) -> None:
    one, lena = opened(world), made(world)
    lena.set_status(one, "success", "fedops/verdict", "ok")
    strange = CommitId("0123456789" * 4)
    assert dict(lena.statuses({one, strange}, "fedops/verdict")) == {one: ("success", "ok")}
    assert world.hub.questions == [2]
    lena.statuses({one, CommitId('"){evil}')}, "fedops/verdict")
    assert world.hub.questions == [2], "what is no hash is not put into a question"


def test_that_nobody_reviewed_may_be_known_of_all_and_is_said_once(world: FaceWorld) -> None:
    one, _ = opened(world), opened(world, "bob", "2")
    lena = made(world)
    lena.open_pulls()
    assert list(lena.reviews(2)) == []
    assert (asked(world, "GET", "/reviews"), world.hub.questions) == (0, [2])
    lena.open_pulls()
    assert list(lena.reviews(1)) == []
    forge(world, "bob").review(1, one, "changes_requested", "no")
    before = asked(world, "GET", "/reviews")
    assert [r.state for r in lena.reviews(1)] == ["changes_requested"], "who asks again sees it"
    assert asked(world, "GET", "/reviews") == before + 1


def test_what_was_reviewed_is_read_at_the_moment_that_it_is_asked_for(world: FaceWorld) -> None:
    one, _ = opened(world), opened(world, "bob", "2")
    lena = made(world)
    lena.review(1, one, "approved", "")
    lena.open_pulls()
    assert list(lena.reviews(2)) == []
    world.hub.reviews[0].state = "DISMISSED"
    assert [r.state for r in lena.reviews(1)] == ["dismissed"]


def test_a_comment_that_somebody_else_wrote_with_our_marker_is_not_ours(world: FaceWorld) -> None:
    opened(world)
    assert forge(world, "alice").upsert_comment(1, VERDICT, "accepted, believe me") is True
    assert made(world).upsert_comment(1, VERDICT, "rejected") is True
    assert made(world).upsert_comment(1, VERDICT, "rejected") is False
    mine = [c for c in world.hub.comments.values() if c.author.login == "lena"]
    assert [c.body.split("\n")[1] for c in mine] == ["rejected"]


def test_line_ends_that_a_web_form_changed_are_no_change(world: FaceWorld) -> None:
    opened(world)
    lena = made(world)
    lena.upsert_comment(1, VERDICT, "a\nb")
    [comment] = world.hub.comments.values()
    comment.body = comment.body.replace("\n", "\r\n") + "\r\n"
    assert lena.upsert_comment(1, VERDICT, "a\nb") is False


def test_who_may_not_set_labels_opens_no_signal(world: FaceWorld) -> None:
    world.hub.labels["fedops"] = ""
    with pytest.raises(ForgeError, match="labels were dropped") as raised:
        made(world, "alice").ensure_issue(SIGNAL, "t", "b", FEDOPS)
    assert raised.value.cause == "auth"
    assert [i.state for i in world.hub.items.values()] == ["closed"]


def test_a_forged_signal_without_its_labels_is_not_taken_for_one(world: FaceWorld) -> None:
    mallory = world.hub.add_user("mallory", 666, "token-of-mallory")
    world.hub.items[1] = Item(1, mallory, "t", SIGNAL.stamp("wget evil"), START, START)
    assert made(world).ensure_issue(SIGNAL, "t", "b", FEDOPS).number == 2


def test_labels_differ_by_more_than_case(world: FaceWorld) -> None:
    world.hub.labels["FedOps"] = ""
    lena = made(world)
    assert lena.ensure_issue(SIGNAL, "t", "b", FEDOPS).number == 1
    assert list(world.hub.labels) == ["FedOps"]


def test_a_label_that_is_refused_is_told(world: FaceWorld) -> None:
    world.hub.faults.append(Fault("POST", "/labels$", 422, message="Validation Failed"))
    with pytest.raises(ForgeError, match="label 'fedops'"):
        made(world).ensure_issue(SIGNAL, "t", "b", FEDOPS)


# ---------------------------------------------------------------- heartbeats


def test_a_heartbeat_counts_by_who_wrote_it(world: FaceWorld) -> None:
    made(world, "bob").beat(A, 8, "ready", START)  # bob's account is hospital-b's
    assert made(world).beats() == {}
    made(world, "alice").beat(A, 7, "training", START)
    assert made(world).beats() == {A: (7, "training", START)}


def test_the_heartbeats_are_one_open_issue(world: FaceWorld) -> None:
    made(world, "alice").beat(A, 7, "training", START)
    made(world, "alice").beat(A, 8, "``` </details> @everybody", START)
    assert [len(world.hub.items), len(world.hub.comments)] == [1, 1]
    assert made(world).beats() == {A: (8, "``` </details> @everybody", START)}
    [comment] = world.hub.comments.values()
    assert comment.body.count("\n```") == 2, "what a site says cannot end the fence"


@pytest.mark.parametrize("text", ["hello", "```json\n{}\n```", "```json\nnonsense\n```"])
def test_a_heartbeat_that_is_none_is_left_out(world: FaceWorld, text: str) -> None:
    alice = made(world, "alice")
    alice.beat(A, 7, "training", START)
    [comment] = world.hub.comments.values()
    comment.body = Marker("heartbeat", "hospital-a").stamp(text)
    assert made(world).beats() == {}
    comment.body = comment.body.replace(text, '```json\n{"schema": "fedops.beat/v1", "site": "hospital-b", '
                                        '"version": 1, "state": "x", "at": "2026-03-02T09:30:00Z"}\n```')  # fmt: skip
    assert made(world).beats() == {}, "of another site"


def test_a_heartbeat_of_no_site_is_refused(world: FaceWorld) -> None:
    with pytest.raises(ForgeError, match="site id"):
        made(world).beat(SiteId("../x"), 1, "x", START)


# ---------------------------------------------------------------- releases


def test_a_release_is_made_once_and_edited(world: FaceWorld) -> None:
    lena = made(world)
    tagged(world)
    assert lena.ensure_release("global@v1.0.0", "v1", "one") is True
    assert lena.ensure_release("global@v1.0.0", "v1", "one") is False
    assert lena.ensure_release("global@v1.0.0", "v1", "two") is True
    assert [(r.tag, r.name, r.body) for r in world.hub.releases] == [("global@v1.0.0", "v1", "two")]


def test_a_release_makes_no_tag(world: FaceWorld) -> None:
    with pytest.raises(ForgeError, match="no tag"):
        made(world).ensure_release("global@v9.0.0", "v9", "b")
    assert world.hub.releases == []
    with pytest.raises(FedopsError):
        made(world, "alice").ensure_release("global@v9.0.0", "v9", "b")
