"""`fedops submit` on a bad day: a registry whose line is cut, a forge that fails; the same command goes on, and says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from fedops.cli.wire import SystemClock
from tests.cli_world import SITES, Ran
from tests.github_face import cli_world
from tests.github_face.cli_world import GitHubWorld, github_cli
from tests.github_face.hub import Fault
from tests.registry.accounts import PATH
from tests.registry.proxy import Answer, CutRequest, FaultProxy, fault_proxy
from tests.registry.server import registry_server

C, A, B = SITES
SIDE = 1024
MODEL_BYTES = 4 * SIDE * SIDE  # of float32, without the file's head
CUT_AFTER = 1_500_000
POSTS = 4  # to open one pull request, before `submit` gives up
FILE = ".fedops/versions/v0/update.safetensors"


@dataclass(frozen=True)
class Fed:
    world: GitHubWorld
    proxy: FaultProxy

    def submit(self, site: str, *, code: int = 0) -> Ran:
        """Run the command; what was asked of the registry before is forgotten."""
        self.proxy.seen.clear()
        return self.world(site, "submit", code=code)

    def announced(self, site: str) -> list[int]:
        """Bytes of the model that the requests of the last run announced to send, in order.

        What is announced and not cut arrives whole: the registry checks it against its digest.
        """
        draft = self.world.clone(site) / ".fedops/versions/v0/submit/submission.json"
        sha256 = json.loads(draft.read_text())["sha256"]
        wanted = ("PUT", "PATCH")
        sent = [s for s in self.proxy.seen if s.method in wanted and "/blobs/uploads/" in s.path]
        assert not [s for s in sent if s.method == "PATCH"], "one request holds all of a blob"
        return [int(s.headers["content-length"]) for s in sent if sha256 in s.path]

    def fail_forge(self) -> None:
        """No pull request can be opened for the length of one run."""
        self.world.hub.faults.append(Fault("POST", "/pulls$", 503, times=POSTS))

    def pulls_of(self, site: str) -> list[int]:
        return [number for number, item in self.world.hub.items.items() if item.author.login == f"{site}-login"]


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fed]:
    """At v0; each test has a site of its own, which has trained."""
    folder = tmp_path_factory.mktemp("submit-resumes")
    with (
        registry_server(folder / "registry") as server,
        fault_proxy(server.host) as proxy,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(SystemClock, "sleep", lambda self, seconds: None)
        patch.setattr(cli_world, "TENSORS", ("--tensor", f"w:F32:{SIDE},{SIDE}"))
        with github_cli(folder / "world", patch, store=f"oci://{proxy.host}/{PATH}") as world:
            for site in SITES:
                world.train(site)
            yield Fed(world, proxy)


def test_what_arrived_is_not_sent_again_and_both_runs_say_how_far_it_is(fed: Fed) -> None:
    fed.proxy.plan("PUT", "/blobs/uploads/", CutRequest(CUT_AFTER))
    fed.proxy.plan("PUT", "/blobs/uploads/", Answer(503))
    fed.fail_forge()

    first = fed.submit(A, code=5)
    cut, refused, whole = fed.announced(A)
    assert cut == refused == whole > MODEL_BYTES
    assert "/pulls: 503" in first.err
    assert f"so far: {FILE} is safe, its bytes are in the store, the pull request is not confirmed" in first.err
    assert first.err.rstrip().endswith("go on with: fedops submit")
    assert (first.out, fed.pulls_of(A)) == ("", [])

    second = fed.submit(A)
    assert fed.announced(A) == []
    [number] = fed.pulls_of(A)
    assert f"submitted: PR #{number} ({A}, update on v0)" in second.out
    assert "the bytes were already there" in second.out
    assert "uploaded" not in second.out
    assert "upload" not in second.err, "no bar where nothing is sent"

    third = fed.submit(A)
    assert f"already submitted: PR #{number}" in third.out
    assert (fed.announced(A), fed.pulls_of(A)) == ([], [number])


def test_an_upload_that_failed_is_made_by_the_next_run(fed: Fed) -> None:
    fed.proxy.plan("PUT", "/blobs/uploads/", CutRequest(CUT_AFTER))
    fed.proxy.plan("PUT", "/blobs/uploads/", Answer(503), times=2)

    first = fed.submit(B, code=5)
    assert len(fed.announced(B)) == 3
    assert f"so far: {FILE} is safe, the upload is not confirmed, there is no pull request for it" in first.err
    assert first.err.rstrip().endswith("go on with: fedops submit")
    assert fed.pulls_of(B) == []

    second = fed.submit(B)
    [sent] = fed.announced(B)
    assert sent > MODEL_BYTES
    [number] = fed.pulls_of(B)
    assert f"submitted: PR #{number} ({B}, update on v0)" in second.out
    assert second.out.splitlines()[1].endswith("uploaded")
    bars = [line for line in second.err.splitlines() if line.startswith("upload")]
    assert bars == [f"upload to sites/{B}: {sent} bytes"], "one bar, of the bytes that moved"


def test_a_failure_is_told_as_json_too_and_before_anything_was_sent(fed: Fed) -> None:
    fed.world.hub.faults.append(Fault("GET", "/pulls", 503, times=3))
    failed = fed.world(C, "submit", "--format", "json", code=5).json
    assert failed["error"]["hint"].endswith(
        f"so far: {FILE} is safe, this run sent nothing yet; go on with: fedops submit"
    )
    fed.submit(C)
    assert len(fed.announced(C)) == 1
