"""A lead's own pull request, which is no submission: it gets the status that level 2 requires, and nobody else's does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedops.app.inspect import refreshed
from fedops.app.merge import merge_pull
from fedops.app.pull_pass import inspect_all
from fedops.core.errors import ForgeError, MainFileError
from fedops.core.facts import Pull
from fedops.core.ids import CommitId, RepoPath
from tests.github_face.fed import GitHubFed
from tests.github_face.level2 import level_2
from tests.scenario.fed import ACCOUNTS, Fed, GitFed, MemoryFed

A, B, STRANGER = "hospital-a", "hospital-b", "clinic-c"
PEOPLE = ("lena", "leo", A, B, STRANGER)
VERDICT = "fedops/verdict"
GREEN = ("success", "no submission: a lead's change, for people to review")
POLICY, RECORD = "policies/training.yaml", f"sites/{A}/submission.json"
CHANGE = b"schema: fedops.training/v1\nhyperparameters: {rate: 0.1}\n"


def made(kind: type[Fed], folder: Path) -> Fed:
    return kind(folder, rules={"trigger": {"quorum": 2}}, people=PEOPLE, sites=(A, B))


@pytest.fixture(params=[MemoryFed, GitFed, pytest.param(GitHubFed, marks=pytest.mark.long)])
def fed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fed]:
    with closing(made(request.param, tmp_path)) as one:
        yield one


@pytest.fixture
def github(tmp_path: Path) -> Iterator[GitHubFed]:
    with closing(made(GitHubFed, tmp_path)) as one:
        assert isinstance(one, GitHubFed)
        yield one


def propose(fed: Fed, who: str, *paths: str, **options: Any) -> Pull:
    """A pull request that writes these files."""
    files: Mapping[RepoPath, bytes | None] = {RepoPath(path): CHANGE for path in paths}
    return fed.open_pull(who, files, branch=f"lead/{who}-{len(paths)}-{paths[-1].replace('/', '-')}", **options)


def status(fed: Fed, head: CommitId) -> tuple[str, str] | None:
    return fed.forge("lena").status(head, VERDICT)


def outcomes(fed: Fed) -> dict[int, str]:
    return {row["pull"]: row["outcome"] for row in fed.reconcile().merged_rows()}


def test_a_leads_change_of_the_policies_is_told_once_that_ci_has_nothing_to_say(fed: Fed) -> None:
    pull = propose(fed, "lena", POLICY, "sites/README.md", ".github/workflows/validate.yml")
    rows = fed.reconcile().merged_rows()
    assert rows == [{"pull": pull.number, "site": None, "head": pull.head, "outcome": "ignored", "reason": GREEN[1]}]
    assert status(fed, pull.head) == GREEN
    assert fed.forge("lena").comments(pull.number) == ()
    before = fed.state()
    assert not fed.reconcile().changed
    assert fed.state() == before
    assert fed.forge("lena").pull(pull.number).state == "open", "people merge it"


def test_a_newer_commit_of_a_leads_change_is_told_anew(fed: Fed) -> None:
    old = propose(fed, "lena", POLICY)
    fed.reconcile()
    new = fed.open_pull(
        "lena", {RepoPath(POLICY): CHANGE + b"# more\n"}, branch=f"lead/lena-1-{POLICY.replace('/', '-')}"
    )
    assert (new.number, new.head != old.head, status(fed, new.head)) == (old.number, True, None)
    fed.reconcile()
    assert status(fed, new.head) == GREEN


def test_nobody_elses_change_of_a_policy_is_told_anything(fed: Fed) -> None:
    pulls = [propose(fed, who, POLICY) for who in (A, STRANGER)]
    assert outcomes(fed) == {}
    assert [status(fed, pull.head) for pull in pulls] == [None] * 2
    assert not fed.reconcile().changed


def test_what_somebody_only_says_to_be_a_leads_is_told_nothing(tmp_path: Path) -> None:
    """On the git forge the signature is the account: a name alone is anybody's."""
    with closing(made(GitFed, tmp_path)) as fed:
        pull = propose(fed, "lena", POLICY, signed=False)
        assert outcomes(fed) == {}
        assert status(fed, pull.head) is None


def test_a_site_that_got_a_leads_number_is_no_lead_of_the_git_forge(tmp_path: Path) -> None:
    with closing(made(GitFed, tmp_path)) as fed:
        roster = RepoPath("policies/sites.yaml")
        text = fed.main().bytes_of(roster).decode()
        theirs = f'"id": {ACCOUNTS[A].id}}}'
        assert text.count(theirs) == 1
        fed.commit({roster: text.replace(theirs, '"id": 1}').encode()})
        pull = propose(fed, A, POLICY)
        assert pull.author.id == fed.main().sites.leads[0].id
        assert outcomes(fed) == {}
        assert status(fed, pull.head) is None


def test_a_leads_change_that_touches_the_models_folder_too_is_told_nothing(fed: Fed) -> None:
    pulls = [propose(fed, "lena", POLICY, path) for path in ("global/metrics.json", "Global/version.json")]
    gone = {path: None for path in fed.main().files if path.startswith("global/")}
    assert gone
    pulls.append(fed.open_pull("lena", {**gone, RepoPath(POLICY): CHANGE}, branch="lead/global"))
    assert outcomes(fed) == {}
    assert [status(fed, pull.head) for pull in pulls] == [None] * 3


def test_the_guide_in_the_sites_folder_is_for_leads_to_change_alone(fed: Fed) -> None:
    pulls = [propose(fed, who, "sites/README.md") for who in (A, STRANGER)]
    assert outcomes(fed) == {pull.number: "rejected" for pull in pulls}


def test_a_leads_change_that_touches_a_sites_folder_too_is_refused(fed: Fed) -> None:
    pulls = [propose(fed, "lena", POLICY, path) for path in (RECORD, "sites/new/x")]
    assert outcomes(fed) == {pull.number: "rejected" for pull in pulls}
    said = [status(fed, pull.head) for pull in pulls]
    assert [s[0] if s is not None else "" for s in said] == ["failure"] * 2


def test_who_is_no_lead_any_more_is_told_nothing(fed: Fed) -> None:
    fed.leads = ("leo",)
    fed.push_policies()
    pull = propose(fed, "lena", POLICY)
    assert outcomes(fed) == {}
    assert status(fed, pull.head) is None


def test_the_status_is_taken_back_when_its_author_leaves_the_roster(fed: Fed) -> None:
    pull = propose(fed, "lena", POLICY)
    fed.reconcile()
    assert status(fed, pull.head) == GREEN
    fed.leads = ("leo",)
    fed.push_policies()
    assert outcomes(fed) == {pull.number: "ignored"}, "it was told something"
    assert status(fed, pull.head) == ("failure", "no lead's change any more")
    assert outcomes(fed) == {}


def test_who_makes_oneself_a_lead_is_none_before_it_is_merged(fed: Fed) -> None:
    text = fed.main().bytes_of(RepoPath("policies/sites.yaml")).decode()
    mine = text.replace(
        '"leads": [', f'"leads": [{{"login": "me", "id": {ACCOUNTS[A].id}, "keys": ["{fed.keys[A].public}"]}}, ', 1
    )
    assert mine != text
    pull = fed.open_pull(A, {RepoPath("policies/sites.yaml"): mine.encode()}, branch="lead/me")
    assert outcomes(fed) == {}
    assert status(fed, pull.head) is None


def test_at_level_2_a_leads_change_is_merged_by_an_approval_and_without_a_bypass(github: GitHubFed) -> None:
    pull = propose(github, "lena", POLICY)
    level_2(github.server, None).require_pull_request()
    leo = github.forge("leo")
    with pytest.raises(ForgeError, match="your own pull request"):
        github.forge("lena").review(pull.number, pull.head, "approved", "")
    leo.review(pull.number, pull.head, "approved", "")
    with pytest.raises(ForgeError, match="status check"):
        leo.merge(pull.number, pull.head, "policy: rate")
    github.reconcile()
    assert leo.pull(pull.number).state == "open"
    assert leo.merge(pull.number, pull.head, "policy: rate") == "merged"
    assert github.main().bytes_of(RepoPath(POLICY)) == CHANGE


@pytest.mark.parametrize("who", [A, STRANGER])
def test_at_level_2_an_approval_alone_merges_nobody_elses_change(github: GitHubFed, who: str) -> None:
    pull = propose(github, who, POLICY)
    level_2(github.server, None).require_pull_request()
    leo = github.forge("leo")
    leo.review(pull.number, pull.head, "approved", "")
    github.reconcile()
    with pytest.raises(ForgeError, match="status check"):
        leo.merge(pull.number, pull.head, "policy: rate")


def test_a_status_that_somebody_else_set_is_set_right_in_one_run(github: GitHubFed) -> None:
    pull = propose(github, "lena", POLICY)
    github.forge("leo").set_status(pull.head, "failure", VERDICT, "no")
    assert outcomes(github) == {pull.number: "ignored"}
    assert status(github, pull.head) == GREEN


def test_a_run_that_may_write_no_more_leaves_it_to_the_next(github: GitHubFed, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedops.app import allowance, pull_pass, reconcile

    pull = propose(github, "lena", POLICY)
    with monkeypatch.context() as patch:
        spent = lambda began: allowance.Allowance(began, writes=allowance.KEPT)  # noqa: E731 one line of a test
        patch.setattr(reconcile, "Allowance", spent)
        patch.setattr(pull_pass, "Allowance", spent)
        done = github.reconcile()
    assert (done.again, done.merged, status(github, pull.head)) == (True, [], None)
    github.reconcile()
    assert status(github, pull.head) == GREEN


def test_beside_it_submissions_are_merged_as_always(fed: Fed) -> None:
    theirs = fed.submit(A, 1.0)
    pull = propose(fed, "lena", POLICY)
    assert outcomes(fed) == {theirs.number: "merged", pull.number: "ignored"}


# ---------------------------------------------------------------- policies that cannot be used


RULES = RepoPath("policies/aggregation.yaml")
ROSTER = RepoPath("policies/sites.yaml")


def broken(fed: Fed, path: RepoPath) -> bytes:
    """A file of main with a key that nothing knows, in its third line."""
    text = fed.main().bytes_of(path)
    assert text.startswith(b"{")
    return b'# first\n# second\n{"triger": 1, ' + text[1:]


def test_a_leads_change_that_brings_a_policy_that_cannot_be_used_is_told_where(fed: Fed) -> None:
    pull = fed.open_pull("lena", {RULES: broken(fed, RULES), RepoPath(POLICY): CHANGE}, branch="lead/rules")
    assert outcomes(fed) == {pull.number: "ignored"}
    said = status(fed, pull.head)
    assert said is not None
    assert said[0] == "failure"
    assert said[1].startswith(f"{RULES}:3: triger: unknown key"), said
    before = fed.state()
    assert not fed.reconcile().changed
    assert fed.state() == before
    mended = fed.open_pull("lena", {RULES: fed.main().bytes_of(RULES) + b"# why\n"}, branch="lead/rules")
    assert mended.number == pull.number
    fed.reconcile()
    assert status(fed, mended.head) == GREEN


@pytest.mark.parametrize(
    ("path", "content", "says"),
    [
        (POLICY, None, "not in"),
        (RULES, b"schema: fedops.aggregation/v1\nstrategy: {name: magic}\n", "magic"),
        ("federation.yaml", b"schema: fedops.federation/v1\nname: [\n", "federation.yaml:"),
        (ROSTER, b"schema: fedops.sites/v1\nleads: []\nsites: {a: {}}\n", "policies/sites.yaml:"),
        (RULES, b"# " + b"x" * 2_000_000, "aggregation.yaml"),
    ],
    ids=["deleted", "of no known strategy", "federation", "roster", "large"],
)
def test_what_main_could_not_be_used_with_gets_no_green_status(
    fed: Fed, path: str, content: bytes | None, says: str
) -> None:
    pull = fed.open_pull("lena", {RepoPath(path): content}, branch="lead/any")
    fed.reconcile()
    said = status(fed, pull.head)
    assert said is not None
    assert (said[0], says in said[1]) == ("failure", True), said


def test_two_files_that_cannot_be_used_are_both_counted(fed: Fed) -> None:
    pull = fed.open_pull("lena", {RULES: b"[\n", ROSTER: b"[\n"}, branch="lead/two")
    fed.reconcile()
    said = status(fed, pull.head)
    assert said is not None
    assert said[1].startswith("policies/sites.yaml:")
    assert said[1].endswith(" and 1 more")


@pytest.mark.parametrize("path", [RULES, ROSTER, RepoPath("policies/submission.yaml")])
def test_a_main_that_cannot_be_used_is_mended_by_a_leads_change_and_nothing_else_moves(
    fed: Fed, path: RepoPath
) -> None:
    if isinstance(fed, GitFed) and not isinstance(fed, GitHubFed) and path == ROSTER:
        return  # there the roster says who anybody is, and leads push what mends it
    right, wrong = fed.main().bytes_of(path), broken(fed, path)
    theirs = fed.submit(A, 1.0)
    stranger = fed.open_pull(B, {path: right + b"# mine\n"}, branch="lead/me")
    fed.commit({path: wrong}, "policy: by hand")
    mending = fed.open_pull("lena", {path: right + b"# again\n"}, branch="lead/mend")
    beside = propose(fed, "leo", "docs/page.md")
    worse = fed.open_pull("leo", {path: wrong + b"# more\n"}, branch="lead/worse")
    main = fed.main().commit
    for _ in range(2):
        with pytest.raises(MainFileError, match="triger: unknown key"):
            fed.reconcile()
    assert [status(fed, p.head) for p in (mending, beside)] == [GREEN] * 2
    said = status(fed, worse.head)
    assert said is not None
    assert said[0] == "failure"
    assert [status(fed, p.head) for p in (theirs, stranger)] == [None] * 2
    assert fed.main().commit == main
    assert fed.forge("lena").pull(theirs.number).state == "open"
    assert fed.forge("lena").merge(mending.number, mending.head, "policy: mend") == "merged"
    assert outcomes(fed)[theirs.number] == "merged"


def test_at_level_2_a_main_that_cannot_be_used_is_mended_without_a_bypass(github: GitHubFed) -> None:
    right = github.main().bytes_of(RULES)
    github.commit({RULES: broken(github, RULES)}, "policy: by hand")
    pull = github.open_pull("lena", {RULES: right}, branch="lead/mend")
    level_2(github.server, None).require_pull_request()
    leo = github.forge("leo")
    leo.review(pull.number, pull.head, "approved", "")
    with pytest.raises(ForgeError, match="status check"):
        leo.merge(pull.number, pull.head, "policy: mend")
    with pytest.raises(MainFileError):
        github.reconcile()
    assert leo.merge(pull.number, pull.head, "policy: mend") == "merged"
    assert not github.reconcile().merged


def test_who_left_the_roster_before_it_was_broken_mends_nothing(github: GitHubFed) -> None:
    fed = github
    fed.leads = ("leo",)
    fed.push_policies()
    right = fed.main().bytes_of(ROSTER)
    fed.commit({ROSTER: broken(fed, ROSTER)}, "policy: by hand")
    pulls = [fed.open_pull(who, {ROSTER: right}, branch=f"lead/{who}") for who in ("lena", "leo", A)]
    with pytest.raises(MainFileError):
        fed.reconcile()
    assert [status(fed, pull.head) for pull in pulls] == [None, GREEN, None]


def test_a_verdict_of_before_merges_nothing_into_a_main_that_cannot_be_used(fed: Fed) -> None:
    """Inspected while main was right, merged when it is not any more."""
    theirs = fed.submit(A, 1.0)
    ctx = fed.context()
    judged = inspect_all(ctx, refreshed(ctx), ctx.forge.open_pulls())
    assert [j.verdict.state for j in judged] == ["accepted"]
    fed.commit({RULES: broken(fed, RULES)}, "policy: by hand")
    refreshed(ctx)
    assert [merge_pull(ctx, one).outcome for one in judged] == ["lost"]
    assert fed.forge("lena").pull(theirs.number).state == "open"


def test_without_a_leads_change_nothing_is_inspected_by_a_main_that_cannot_be_used(fed: Fed) -> None:
    fed.submit(A, 1.0)
    fed.commit({RULES: broken(fed, RULES)}, "policy: by hand")
    ctx = fed.context()
    with pytest.raises(MainFileError, match="triger"):
        inspect_all(ctx, refreshed(ctx), ctx.forge.open_pulls())
