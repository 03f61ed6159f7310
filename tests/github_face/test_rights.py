"""A job's token may do what its workflow file says, and is refused all else; without that its passing would mean nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import requests

from fedops.core.facts import RefUpdate
from tests.forge_worlds import START, forge, main_of, submission
from tests.github_face import rest, rest_pulls, rest_settings
from tests.github_face.hub import NAME, OWNER, Comment, Item, Release, ReviewItem
from tests.github_face.rights import Rights, allows, jobs_of, needed, workflow
from tests.github_face.world import FaceWorld, github_world, token_of
from tests.sshkeys import SshKey

JOBS: dict[str, Rights] = {
    job: rights
    for file in ("validate.yml", "reconcile.yml", "audit.yml")
    for job, rights in jobs_of(workflow(file)).items()
}
READERS = {"validate", "inspect", "merge", "aggregate", "publish", "signal", "audit"}  # of pull requests
TAG, SHA = "global@v1.0.0", "SHA"
# Method, path, body, and the jobs that may.
REQUESTS: dict[str, tuple[str, str, object, set[str]]] = {
    "read the repository": ("GET", "", None, {*JOBS}),
    "read a release": ("GET", f"/releases/tags/{TAG}", None, {*JOBS}),
    "edit a release": ("PATCH", "/releases/5", {"name": "v1"}, {"merge", "publish"}),
    "make a release": ("POST", "/releases", {"tag_name": TAG}, {"merge", "publish"}),
    "list pull requests": ("GET", "/pulls", None, READERS),
    "read reviews": ("GET", "/pulls/1/reviews", None, READERS),
    "edit a pull request": ("PATCH", "/pulls/1", {"title": "t"}, {"merge", "publish"}),
    "merge": ("PUT", "/pulls/1/merge", {"sha": SHA}, {"merge", "publish"}),
    "dismiss a review": ("PUT", "/pulls/1/reviews/6/dismissals", {"message": "m"}, {"merge", "publish"}),
    "read the status": ("GET", f"/commits/{SHA}/status", None, {"inspect", "merge"}),
    "set a status": ("POST", f"/statuses/{SHA}", {"state": "success", "context": "c"}, {"merge"}),
    "list issues": ("GET", "/issues", None, {"merge", "aggregate", "signal", "audit"}),
    "open an issue": ("POST", "/issues", {"title": "t"}, {"merge", "signal"}),
    "close an issue": ("PATCH", "/issues/2", {"state": "closed"}, {"merge", "signal"}),
    "make a label": ("POST", "/labels", {"name": "n"}, {"merge", "signal"}),
    "comment on an issue": ("POST", "/issues/2/comments", {"body": "b"}, {"merge", "signal"}),
    "comment on a pull request": ("POST", "/issues/1/comments", {"body": "b"}, {"merge", "publish"}),
    "edit a comment on a pull request": ("PATCH", "/issues/comments/7", {"body": "b"}, {"merge", "publish"}),
    "list all comments": ("GET", "/issues/comments", None, {"merge", "signal", "aggregate", "audit"}),
    "start a workflow": ("POST", "/actions/workflows/reconcile.yml/dispatches", {"ref": "main"}, {"again"}),
    "read protection": ("GET", "/branches/main/protection", None, set()),
    "read the workflows' settings": ("GET", "/actions/permissions/workflow", None, set()),
}


@pytest.fixture
def world(keys: Mapping[str, SshKey], template: Path, tmp_path: Path) -> Iterator[FaceWorld]:
    """Pull request 1 of alice, issue 2, and one each of what can be edited; a token of each job, called after it."""
    for made in github_world(keys, template, tmp_path):
        head = submission(made, "alice", "1")
        forge(made, "alice").submit_pull(head, "submit/alice", "t", "b")
        lena = made.repository("lena")
        tag = lena.write_tag(TAG, main_of(lena), "v1")
        assert lena.push([RefUpdate(f"refs/tags/{TAG}", None, tag)])
        hub, user = made.hub, made.hub.users[token_of("lena")]
        hub.items[2] = Item(2, user, "t", "b", START, START)
        hub.comments[7] = Comment(7, 1, user, "b", START)
        hub.releases.append(Release(5, TAG, "v1", "b"))
        hub.reviews.append(ReviewItem(6, 1, user, "b", "APPROVED", head))
        for job, rights in JOBS.items():
            hub.add_job(job, rights)
        yield made


def status(world: FaceWorld, job: str, what: str) -> tuple[int, str]:
    """What a request with the token of a job gets: the status, and GitHub's words."""
    method, path, body, _ = REQUESTS[what]
    head = world.hub.pulls()[0].head
    if isinstance(body, dict):
        body = {key: head if value == SHA else value for key, value in body.items()}
    url = f"{world.server.api}/repos/{OWNER}/{NAME}{path.replace(SHA, head)}"
    answer = requests.request(method, url, json=body, headers={"Authorization": f"Bearer {job}"}, timeout=10)
    said = answer.json() if answer.content else {}
    return answer.status_code, said.get("message", "") if isinstance(said, dict) else ""


def test_each_job_may_do_what_its_rights_say_and_nothing_else(world: FaceWorld) -> None:
    """Not whether it succeeds, which hangs on what others did before it, but whether it is refused for its rights."""
    no = (403, "Resource not accessible by integration")
    for what in REQUESTS:
        may = {job for job in JOBS if status(world, job, what) != no}
        assert may == REQUESTS[what][3], what
    assert len(world.hub.refused) == sum(len(JOBS) - len(may) for _, _, _, may in REQUESTS.values())


@pytest.mark.parametrize("job", JOBS)
def test_a_job_pushes_only_with_the_right_to_write_contents(world: FaceWorld, job: str) -> None:
    for service, may in (("git-upload-pack", {*JOBS}), ("git-receive-pack", {"merge", "publish"})):
        url = f"{world.server.web}/{OWNER}/{NAME}.git/info/refs?service={service}"
        answer = requests.get(url, auth=("x-access-token", job), timeout=10)
        assert answer.status_code == (200 if job in may else 403), service


def test_no_job_may_write_to_a_fork(world: FaceWorld) -> None:
    for path, code in (("git-upload-pack", 200), ("git-receive-pack", 403)):
        url = f"{world.server.web}/alice-a/{NAME}.git/info/refs?service={path}"
        assert requests.get(url, auth=("x-access-token", "publish"), timeout=10).status_code == code
    url = f"{world.server.api}/repos/alice-a/{NAME}"
    said = {"Authorization": "Bearer publish"}
    assert requests.get(url, headers=said, timeout=10).status_code == 200
    assert requests.post(f"{url}/labels", json={"name": "n"}, headers=said, timeout=10).status_code == 403


def test_of_each_operation_it_is_written_down_what_it_needs() -> None:
    for method, pattern, _ in (*rest.ROUTES, *rest_pulls.ROUTES, *rest_settings.ROUTES):
        path = re.sub(r"\([^()]*\)", "1", pattern.pattern.removesuffix(r"\Z")).replace("1", "1" * 40, 1)
        assert pattern.match(path), path
        needed(method, path, on_pull=False)
    with pytest.raises(LookupError, match="which rights"):
        needed("DELETE", "/pulls/1", on_pull=True)


def test_a_higher_right_holds_the_lower_ones() -> None:
    assert allows({"contents": "write"}, (("contents", "read"),))
    assert not allows({"contents": "read"}, (("contents", "write"),))
    assert not allows({}, (("contents", "read"),))
    assert allows({"contents": "none"}, ())
