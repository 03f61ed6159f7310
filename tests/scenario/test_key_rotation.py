"""A site's key is replaced by a lead's pull request, with real SSH signatures: what was merged before keeps its worth."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedops.core.facts import Pull
from fedops.core.findings import errors
from tests.cli_world import begun, fresh
from tests.github_face.fed import GitHubFed
from tests.scenario.fed import Fed, GitFed
from tests.scenario.oracle import check_all
from tests.sshkeys import SshKey, make_key

A, B, C = "hospital-a", "hospital-b", "clinic-c"
SITES_FILE = "policies/sites.yaml"


@pytest.fixture(params=[GitFed, GitHubFed])
def fed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fed]:
    made: Fed = request.param(tmp_path, people=("lena", A, B, C), sites=(A, B, C))
    yield made
    made.close()


def rotate(fed: Fed) -> SshKey:
    """Replace hospital-a's key on the roster, by a pull request that its lead merges; the old key."""
    old, fed.keys[A] = fed.keys[A], make_key(fed.folder / "keys", "hospital-a-2027")
    files = {path: data for path, data in fed.policy_files().items() if path == SITES_FILE}
    pull = fed.open_pull("lena", files, branch="new-key")
    assert fed.merge_by_hand(pull.number)
    roster = fed.main().sites.sites[A]
    assert (old.public in roster.keys, roster.keys) == (False, (fed.keys[A].public,))
    return old


def hand_in(fed: Fed, key: SshKey, value: float) -> Pull:
    """An update of hospital-a on the current version, signed by this key."""
    now, fed.keys[A] = fed.keys[A], key
    try:
        return fed.submit(A, value)
    finally:
        fed.keys[A] = now


def outcomes(fed: Fed) -> dict[int, tuple[str, list[str]]]:
    """What one reconcile did with each pull request, and the findings that it names."""
    done = fed.reconcile().merged
    return {m.judgement.pull.number: (m.outcome, [f.slug for f in errors(m.judgement.verdict.findings)]) for m in done}


def used(fed: Fed) -> tuple[int, list[str]]:
    """The current version, and whose updates are in it."""
    return fed.version.version, [c.site for c in fed.version.contributions]


def all_verified(fed: Fed) -> bool:
    checked = fed.verify()
    assert [c.version for c in checked] == list(range(fed.version.version + 1))
    assert {c.level for c in checked[1:]} == {"inputs"}, "recomputed bit for bit; v0 was given, not computed"
    return all(not errors(c.findings) for c in checked)


def test_what_the_old_key_signed_before_counts_and_after_only_the_new_one_does(fed: Fed) -> None:
    first = fed.submit(A, 1.0)
    assert outcomes(fed)[first.number] == ("merged", [])
    assert used(fed) == (0, []), "one update does not make a version"

    old = rotate(fed)
    assert outcomes(fed).get(first.number) is None
    fed.submit(B, 3.0)
    fed.reconcile()
    assert used(fed) == (1, [A, B]), "it was merged under the roster of its time"
    assert all_verified(fed)

    late = hand_in(fed, old, 2.0)
    # Where git itself is the forge the key is the account too, so that this is nobody's pull request.
    refused = "signature_invalid" if isinstance(fed, GitHubFed) else "site_mismatch"
    assert outcomes(fed)[late.number] == ("rejected", [refused])
    assert refused in "".join(fed.forge("lena").comments(late.number))

    again = fed.submit(A, 2.0)
    assert again.number == late.number, "the new key's commit takes the place of the old one's"
    assert outcomes(fed)[again.number] == ("merged", [])
    fed.submit(B, 4.0)
    fed.reconcile()
    assert used(fed) == (2, [A, B])
    assert all_verified(fed)
    check_all(fed, rerun=lambda: fed.reconcile().changed)


@pytest.mark.parametrize("fed", [GitFed], indirect=True)
def test_an_old_keys_commit_is_not_used_even_if_a_person_merges_it(fed: Fed) -> None:
    old = rotate(fed)
    assert fed.merge_by_hand(hand_in(fed, old, 9.0).number)
    fed.submit(B, 3.0)
    fed.submit(C, 4.0)
    fed.reconcile()
    assert used(fed) == (1, [C, B])
    assert [(e.site, e.slug) for e in fed.version.excluded] == [(A, "signature_invalid")]
    assert all_verified(fed)


def test_the_commands_of_a_rotation_lose_no_open_pull_request(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As the guide for sites says: `join` with a new key, the lead's line, the old key's line deleted, `submit` again."""
    world = fresh(begun, tmp_path_factory.getbasetemp(), tmp_path / "world")
    old = (world.clone(A) / ".fedops/id_ed25519.pub").read_text().split()[1]
    key = tmp_path / "hospital-a-2027"
    joined = world.json(A, "join", A, "--key", str(key), "--generate-key")
    new = joined["public_key"].split()[1]
    assert (joined["key_known"], joined["state"], old != new) == (False, "active", True)
    world("lead", *shlex.split(joined["line"])[1:])
    roster = world.show(SITES_FILE)
    assert old in roster
    assert new in roster, "`site add` takes nothing away"
    world.edit(SITES_FILE, lambda text: "".join(line for line in text.splitlines(True) if old not in line))

    rows = {row["pull"]: row for row in world.json("ci", "ci", "reconcile")["pulls"]}
    assert (rows[1]["outcome"], rows[1]["reason"], rows[2]["outcome"]) == ("rejected", "site_mismatch", "merged")
    said = world.json(A, "submit")
    assert (said["outcome"], said["pull"], said["uploaded"]) == ("moved", 1, False)
    world("ci", "ci", "reconcile")
    assert [c["site"] for c in world.version()["contributions"]] == [A, B]
    assert world.json("ci", "verify", "--all")["ok"]
