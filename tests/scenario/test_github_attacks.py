"""Attacks and well-meant clicks on GitHub, one test each; what the forge shows is never what decides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedops.core.facts import Pull
from fedops.core.findings import errors
from fedops.core.ids import CommitId, RepoPath
from tests.github_face.fed import GitHubFed, token_of
from tests.github_face.rest import Call
from tests.github_face.rest_pulls import merge_pull, update_branch
from tests.render.goldens import HOSTILE
from tests.scenario.fed import ACCOUNTS, Fed, GitFed, MemoryFed, arrays

A, B = "hospital-a", "hospital-b"
PEOPLE = ("lena", A, B)


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[GitHubFed]:
    made = GitHubFed(tmp_path, rules={"trigger": {"quorum": 1}}, people=PEOPLE, sites=(A, B))
    yield made
    made.close()


def outcomes(fed: Fed) -> dict[int, str]:
    return {m.judgement.pull.number: m.outcome for m in fed.reconcile().merged}


def slugs(fed: Fed, number: int) -> set[str]:
    """What a pull request is told is wrong."""
    text = "".join(fed.forge("lena").comments(number))
    return {slug for slug in ("commit_shape", "signature_invalid", "site_mismatch", "path_not_allowed") if slug in text}


def clicked(fed: GitHubFed, who: str, pull: Pull, handler: Any, **body: Any) -> None:
    """A person presses a button on the page of a pull request."""
    hub = fed.hub
    with hub.lock:
        handler(Call(hub, hub.users[token_of(who)], hub.upstream, "", {}, body, (str(pull.number),)))


def test_a_forged_status_merges_nothing_and_is_overwritten(fed: GitHubFed) -> None:
    pull = fed.submit(A, 1.0, signed=False)
    fed.forge("lena").set_status(pull.head, "success", "fedops/verdict", "accepted")
    assert outcomes(fed) == {pull.number: "rejected"}
    state, text = fed.forge("lena").status(pull.head, "fedops/verdict") or ("", "")
    assert state == "failure"
    assert "signature_invalid" in text
    assert fed.version.version == 0


def test_a_commit_that_another_writer_pushes_to_a_site_s_branch_is_refused(fed: GitHubFed) -> None:
    for site in (A, B):
        fed.hub.upstream.writers.add(ACCOUNTS[site].login)  # level L0: sites may write, and push anywhere
    pull = fed.submit(A, 1.0)
    assert fed.forge(A).pull(pull.number).same_repository is True
    # hospital-b pushes an update of its own making to hospital-a's branch; the pull request's author stays hospital-a.
    record = fed.upload(A, 0, {"steps": fed.model()["steps"], "w": 9 * fed.model()["w"]})
    forged = fed.repositories[B]
    forged.fetch()
    head = forged.write_commit(
        [fed.main(B).commit], fed.handed_in(record), "submit", at=fed.clock.now(), key=fed.keys[B].private
    )
    assert isinstance(fed.repositories[B].resolve(head), str)
    fed.repositories[B].send(f"{fed.server.web}/fed-org/demo.git", head, f"submit/{A}")  # type: ignore[attr-defined]  # of a real clone
    moved = fed.forge("lena").pull(pull.number)
    assert (moved.head, moved.author.login) == (head, ACCOUNTS[A].login)
    assert outcomes(fed) == {pull.number: "rejected"}
    assert slugs(fed, pull.number) == {"signature_invalid"}


def test_a_quiet_run_asks_little(fed: GitHubFed) -> None:
    """A job's token has 1,000 requests an hour, and a run comes every half hour and after each pull request."""
    fed.submit(A, 1.0)
    fed.submit(B, 2.0)
    fed.reconcile()
    before = len(fed.hub.exchanges)
    assert not fed.reconcile().changed
    asked = fed.hub.exchanges[before:]  # not cleared: at the end all are held to GitHub's description
    assert len(asked) <= 8, [f"{e.method} {e.path}" for e in asked]
    assert {(e.method, e.status) for e in asked} == {("GET", 200)}


def test_the_button_update_branch_voids_what_was_handed_in(fed: GitHubFed) -> None:
    pull = fed.submit(A, 1.0)
    fed.commit({"README.md": b"x\n"})
    clicked(fed, A, pull, update_branch)
    assert fed.forge("lena").pull(pull.number).head != pull.head
    assert outcomes(fed) == {pull.number: "rejected"}
    assert "commit_shape" in slugs(fed, pull.number)
    again = fed.submit(A, 1.0)
    assert (again.number, outcomes(fed)) == (pull.number, {pull.number: "merged"})


@pytest.mark.parametrize(("method", "used"), [("merge", True), ("squash", False), ("rebase", False)])
def test_a_person_s_merge_counts_as_long_as_its_signature_is_kept(fed: GitHubFed, method: str, used: bool) -> None:
    pull = fed.submit(A, 1.0)
    fed.commit({"README.md": b"x\n"})  # so that a rebase makes a new commit
    clicked(fed, "lena", pull, merge_pull, merge_method=method, commit_title=HOSTILE.split("\n")[0])
    done = fed.reconcile()
    assert fed.version.version == (1 if used else 0)
    assert [r.version for r in done.published] == ([1] if used else [])
    if used:
        assert not [f for c in fed.verify() for f in errors(c.findings)]
    else:
        told = [i.body for i in fed.hub.items.values() if f"site:{A}" in i.labels and "signature_invalid" in i.body]
        assert told, "the site is told why its record is not used"
    assert not fed.reconcile().changed


def test_a_squashed_submission_counts_where_no_signature_is_asked_for(tmp_path: Path) -> None:
    rules = {"trigger": {"quorum": 1}}
    unsigned = {"require_signed": False}
    with closing(GitHubFed(tmp_path, rules=rules, submission=unsigned, people=PEOPLE, sites=(A, B))) as made:
        pull = made.submit(A, 1.0, signed=False)
        clicked(made, "lena", pull, merge_pull, merge_method="squash")
        assert [r.version for r in made.reconcile().published] == [1]


@pytest.fixture(params=[MemoryFed, GitFed, GitHubFed])
def any_fed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fed]:
    made: Fed = request.param(tmp_path, rules={"trigger": {"quorum": 1}}, people=PEOPLE, sites=(A, B))
    yield made
    made.close()


def test_a_second_pull_request_of_a_site_adds_nothing_to_the_first(any_fed: Fed) -> None:
    first = any_fed.submit(A, 1.0)
    record = any_fed.upload(A, 0, any_fed.model() | {"w": 3 * any_fed.model()["w"]})
    second = any_fed.open_pull(A, any_fed.handed_in(record), branch="submit/again")
    assert second.number != first.number
    assert outcomes(any_fed) == {first.number: "merged", second.number: "rejected"}
    assert [c.site for c in any_fed.version.contributions] == [A]
    assert any_fed.version.version == 1
    assert not any_fed.reconcile().changed


def test_free_texts_of_a_pull_request_reach_no_page_and_no_command(fed: GitHubFed) -> None:
    """What a site writes freely: title, text and branch of the pull request, message and author of its commit."""
    proof = fed.folder / "pwned"  # an absolute path: made wherever a shell may run
    command = f"$(touch${{IFS}}{proof});`touch${{IFS}}{proof}`"
    text = f"{HOSTILE} {command}"
    for site in (A, B):
        fed.repositories[site]._author = (text, f"{site}@example.invalid")  # type: ignore[attr-defined]  # of a real clone
    pull = fed.open_pull(A, fed.handed_in(fed.upload(A, 0, arrays(1.0))), branch=f"submit/{A}", message=text)
    item = fed.hub.pull(pull.number)
    assert item is not None
    item.title, item.body = text, text
    record = fed.upload(B, 0, arrays(2.0), metrics={HOSTILE: 1.0})
    files = fed.handed_in(record) | {RepoPath(f"sites/{B}/<img src=x>.md"): b"x"}
    other = fed.open_pull(B, files, branch=f"submit/{command}", message=text)
    for site, head in ((A, pull.head), (B, other.head)):
        made = fed.repositories[site].commit(head)
        assert made.message == text
        assert command in made.author
        assert "](javascript:" in made.author
    done = outcomes(fed)
    assert done[pull.number] == "merged"
    assert done[other.number] == "rejected"
    written = [c.body for c in fed.hub.comments.values()] + [r.body for r in fed.hub.releases]
    written += [i.body for i in fed.hub.items.values() if i.number not in (pull.number, other.number)]
    message = fed.main().repository.commit(CommitId(fed.hub.pull(pull.number).merge_commit or "")).message  # type: ignore[union-attr]  # it is there
    for shown in (*written, message):
        assert "<img" not in shown.replace("\\<img", "")
        assert "](javascript:" not in shown.replace("\\]", "")
        assert shown.count("<!-- fedops:") == shown.count(" -->")
    assert not proof.exists()
