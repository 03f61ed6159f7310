"""The rules of level 2 hold on the loopback GitHub, so that who passes there has what they demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fedops.core.errors import ForgeError
from tests.forge_worlds import forge, submission
from tests.github_face.level2 import VERDICT, level_2
from tests.github_face.world import FaceWorld, github_world
from tests.sshkeys import SshKey


@pytest.fixture
def world(keys: Mapping[str, SshKey], template: Path, tmp_path: Path) -> Iterator[FaceWorld]:
    yield from github_world(keys, template, tmp_path)


def test_a_merge_needs_an_approval_of_its_head_by_who_may_write_and_the_verdict(world: FaceWorld) -> None:
    face, lena = level_2(world.server, None), forge(world, "lena")
    head = submission(world, "alice")
    pull = forge(world, "alice").submit_pull(head, "submit/hospital-a", "t", "")
    face.require_pull_request()
    main = world.hub.ref(world.hub.upstream, "refs/heads/main")

    def refused() -> str:
        with pytest.raises(ForgeError) as caught:
            lena.merge(pull.number, pull.head, "m")
        assert world.hub.ref(world.hub.upstream, "refs/heads/main") == main
        return caught.value.message

    lena.set_status(pull.head, "success", VERDICT, "accepted")
    assert "At least 1 approving review is required" in refused()
    forge(world, "bob").review(pull.number, pull.head, "approved", "")
    assert "At least 1 approving review is required" in refused(), "bob may not write"
    lena.review(pull.number, pull.head, "approved", "")
    lena.set_status(pull.head, "pending", VERDICT, "waits")
    assert 'status check "fedops/verdict" is expected' in refused()
    lena.set_status(pull.head, "success", VERDICT, "accepted")
    assert lena.merge(pull.number, pull.head, "m") == "merged"
