"""Identity on the git forge is a signature by a key of main's roster; names are claims and say so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from fedops.adapters.forge_git import GitForge
from fedops.adapters.forge_git_people import claimed
from fedops.core.errors import ForgeError, MainFileError
from fedops.core.facts import Account, RefUpdate, Review
from fedops.core.ids import CommitId, RepoPath
from fedops.ports import Repository
from tests.forge_worlds import (
    START,
    ManualClock,
    MemoryGitWorld,
    files_of,
    forge,
    main_of,
    push_main,
    ref_of,
    submission,
)
from tests.sshkeys import SshKey

FORGE = "refs/fedops/forge"
LENA = Account("lena", 1)
SITES = RepoPath("policies/sites.yaml")


@pytest.fixture
def world(keys: Mapping[str, SshKey]) -> MemoryGitWorld:
    return MemoryGitWorld(keys)


def named(world: MemoryGitWorld, name: str, key: SshKey | None = None) -> tuple[GitForge, CommitId]:
    """A forge and a submission of somebody with any git name and key."""
    repository = world.origin.clone(author=(name, "x@example.invalid"))
    private = key.private if key is not None else None
    files: dict[RepoPath, bytes | None] = {RepoPath("sites/hospital-a/submission.json"): b"1"}
    head = repository.write_commit((main_of(repository),), files, "m", at=START, key=private)
    return GitForge(repository, clock=ManualClock(), key=private), head


# ---------------------------------------------------------------- authors


def test_who_does_not_sign_only_claims_a_name(world: MemoryGitWorld) -> None:
    someone, head = named(world, "alice-a")
    assert someone.submit_pull(head, "b", "t", "").author == Account("claimed:alice-a", -1)
    assert someone.whoami() == Account("claimed:alice-a", -1)


def test_a_signature_by_an_unknown_key_is_a_claim_too(world: MemoryGitWorld) -> None:
    someone, head = named(world, "alice-a", world.keys["stranger"])
    assert someone.submit_pull(head, "b", "t", "").author == Account("claimed:alice-a", -1)


def test_the_key_decides_whatever_name_the_commit_has(world: MemoryGitWorld) -> None:
    someone, head = named(world, "alice-a", world.keys["bob"])
    assert someone.submit_pull(head, "b", "t", "").author == Account("bob-b", 1002)
    assert someone.whoami() == Account("bob-b", 1002)


def test_a_lead_is_known_by_key(world: MemoryGitWorld) -> None:
    someone, head = named(world, "whoever", world.keys["lena"])
    assert someone.submit_pull(head, "b", "t", "").author == LENA


@pytest.mark.parametrize(
    ("name", "login"),
    [
        ("Alice Doe <alice@example.org>", "claimed:Alice-Doe"),
        ("alice", "claimed:alice"),
        ("claimed:x", "claimed:claimed-x"),
        ("<img src=x>| `a`\n@lena", "claimed:img-src-x-a-lena"),
        ("\x1b[31mred\u202e", "claimed:31mred"),
        ("", "claimed:unknown"),
        (" <x@y>", "claimed:unknown"),
        ("日本", "claimed:unknown"),
        ("x" * 100, "claimed:" + "x" * 39),
    ],
)
def test_a_claimed_name_is_plain_and_short(name: str, login: str) -> None:
    assert claimed(name) == Account(login, -1)


def two_accounts(world: MemoryGitWorld) -> bytes:
    key, lead = world.keys["alice"].public, world.keys["lena"].public
    return (
        "schema: fedops.sites/v1\n"
        f'leads: [{{login: lena, id: 1, keys: ["{lead}"]}}, {{login: mia, id: 2, keys: ["{key} also hers"]}}]\n'
        "sites:\n"
        f'  hospital-a: {{accounts: [{{login: ann, id: 5}}, {{login: ben, id: 6}}], keys: ["{key}"]}}\n'
    ).encode()


@pytest.mark.parametrize(("name", "account"), [("ann", 5), ("ben", 6), ("mia", 2), ("someone", 5)])
def test_of_several_accounts_of_a_key_the_claimed_one_else_the_first_is_taken(
    world: MemoryGitWorld, name: str, account: int
) -> None:
    push_main(world.repository("lena"), {SITES: two_accounts(world)})
    someone, head = named(world, name, world.keys["alice"])
    assert someone.submit_pull(head, "b", "t", "").author.id == account
    assert someone.whoami().id == account


def test_a_forge_can_be_told_which_of_the_accounts_it_is(world: MemoryGitWorld) -> None:
    push_main(world.repository("lena"), {SITES: two_accounts(world)})
    repository, key = world.origin.clone(), world.keys["alice"].private
    for account in (Account("ben", 6), Account("ann", 5)):
        assert GitForge(repository, clock=ManualClock(), key=key, account=account).whoami() == account
    # but not that it is somebody else
    assert GitForge(repository, clock=ManualClock(), key=key, account=LENA).whoami() == Account("ann", 5)
    assert GitForge(repository, clock=ManualClock(), account=LENA).whoami() == Account("claimed:lena", -1)


def test_authors_follow_the_current_roster(world: MemoryGitWorld) -> None:
    forge(world, "alice").submit_pull(submission(world, "alice"), "b", "t", "")
    lena = forge(world, "lena")
    assert lena.pull(1).author == Account("alice-a", 1001)
    repository = world.repository("lena")
    before = files_of(repository, main_of(repository))[SITES]
    push_main(repository, {SITES: before.replace(b"id: 1001", b"id: 77")})
    assert [p.author for p in lena.open_pulls()] == [Account("alice-a", 77)]
    stranger = world.keys["stranger"].public.encode()
    push_main(repository, {SITES: before.replace(world.keys["alice"].public.encode(), stranger)})
    assert lena.pull(1).author == Account("claimed:alice", -1)
    push_main(repository, {SITES: None})
    assert lena.pull(1).author == Account("claimed:alice", -1)
    push_main(repository, {SITES: before})
    assert lena.pull(1).author == Account("alice-a", 1001)


def test_a_roster_that_cannot_be_used_is_for_a_lead_to_mend_and_who_serves_waits(world: MemoryGitWorld) -> None:
    forge(world, "alice").submit_pull(submission(world, "alice"), "b", "t", "")
    repository = world.repository("lena")
    before = files_of(repository, main_of(repository))[SITES]
    push_main(repository, {SITES: before + b"more: 1\n"})
    with pytest.raises(MainFileError, match=r"policies/sites\.yaml:\d+: more: unknown key") as caught:
        forge(world, "lena").open_pulls()
    assert caught.value.hint == MainFileError.CORRECTED
    push_main(repository, {SITES: before})
    assert forge(world, "lena").pull(1).author == Account("alice-a", 1001)


def test_a_roster_in_the_pull_itself_changes_nothing(world: MemoryGitWorld) -> None:
    repository = world.repository("bob")
    base = main_of(repository)
    mine = files_of(repository, base)[SITES].replace(b"id: 1002", b"id: 1001")
    files: dict[RepoPath, bytes | None] = {SITES: mine}
    head = repository.write_commit((base,), files, "m", at=START, key=world.keys["bob"].private)
    assert forge(world, "bob").submit_pull(head, "b", "t", "").author == Account("bob-b", 1002)


# ---------------------------------------------------------------- reviews


def opened(world: MemoryGitWorld, number: int = 1) -> CommitId:
    head = submission(world, "alice", str(number))
    assert forge(world, "alice").submit_pull(head, f"b{number}", "t", "").number == number
    return head


def test_a_review_needs_the_key_of_a_lead(world: MemoryGitWorld) -> None:
    head = opened(world)
    before = world.state()
    alice = forge(world, "alice")
    nobody = GitForge(world.repository("lena"), clock=ManualClock())
    for someone, message in [(alice, "key alice is no lead's"), (nobody, "got no key -> a lead's SSH key")]:
        with pytest.raises(ForgeError, match=message) as caught:
            someone.review(1, head, "approved", "")
        assert (caught.value.slug, caught.value.cause) == ("auth_failed", "auth")
        assert "fedops review --key" in caught.value.hint
    assert world.state() == before


def put_review(
    world: MemoryGitWorld,
    number: int,
    content: Mapping[str, object] | bytes,
    key: SshKey | None,
    name: str = "review.json",
) -> CommitId:
    """Put any review on the forge, as a program that somebody else wrote would."""
    repository = world.repository("bob")
    tip = ref_of(repository, FORGE)
    assert tip is not None
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    private = key.private if key is not None else None
    signed = repository.write_commit((), {RepoPath(name): data}, "review", at=START, key=private)
    add(repository, tip, {f"reviews/0/{number}/{signed}.json": data}, signed)
    return signed


def add(repository: Repository, tip: CommitId, files: Mapping[str, bytes | None], *parents: CommitId) -> None:
    paths = {RepoPath(p): d for p, d in files.items()}
    commit = repository.write_commit((tip, *parents), paths, "by hand", at=START)
    assert repository.push([RefUpdate(FORGE, tip, commit)])


def review_of(commit: CommitId, **fields: object) -> dict[str, object]:
    content = {"schema": "fedops.review/v1", "pull": 1, "head": commit, "state": "approved", "body": "", "sequence": 1}
    return content | {"at": "2026-03-02T09:30:00Z"} | fields


def test_a_review_put_there_by_other_means_counts_if_a_lead_signed_it(world: MemoryGitWorld) -> None:
    head = opened(world)
    put_review(world, 1, review_of(head), world.keys["lena"])  # the control of the tests below
    assert list(forge(world, "bob").reviews(1)) == [Review(LENA, head, "approved")]


@pytest.mark.parametrize("key", [None, "alice", "bob", "stranger"])
def test_a_review_that_no_lead_signed_does_not_count(world: MemoryGitWorld, key: str | None) -> None:
    head = opened(world)
    put_review(world, 1, review_of(head), world.keys[key] if key else None)
    assert list(forge(world, "lena").reviews(1)) == []


@pytest.mark.parametrize(
    "fields",
    [{"pull": 2}, {"state": "dismissed"}, {"head": "x"}, {"sequence": 0}, {"extra": 1}, {"at": "now"}],
    ids=str,
)
def test_a_signed_review_of_something_else_does_not_count(world: MemoryGitWorld, fields: dict[str, object]) -> None:
    head = opened(world)
    put_review(world, 1, review_of(head, **fields), world.keys["lena"])
    assert list(forge(world, "lena").reviews(1)) == []


def test_a_signed_commit_that_is_no_review_does_not_count(world: MemoryGitWorld) -> None:
    head = opened(world)
    put_review(world, 1, review_of(head), world.keys["lena"], name="other.json")
    put_review(world, 1, b"{", world.keys["lena"])
    repository = world.repository("bob")
    tip = ref_of(repository, FORGE)
    assert tip is not None
    data = json.dumps(review_of(head)).encode()
    add(repository, tip, {f"reviews/0/1/{n}.json": data for n in ("a" * 40, head, "x", "../1", tip) if "/" not in n})
    assert list(forge(world, "lena").reviews(1)) == []


def test_an_approval_copied_to_another_pull_does_not_count_there(world: MemoryGitWorld) -> None:
    head = opened(world)
    opened(world, 2)
    lena = forge(world, "lena")
    lena.review(1, head, "approved", "")
    repository = world.repository("bob")
    tip = ref_of(repository, FORGE)
    assert tip is not None
    path, data = next((p, d) for p, d in files_of(repository, tip).items() if p.startswith("reviews/0/1/"))
    add(repository, tip, {path.replace("/0/1/", "/0/2/"): data})
    assert list(lena.reviews(2)) == []
    assert len(lena.reviews(1)) == 1


def test_what_the_copy_in_the_tree_says_is_without_meaning(world: MemoryGitWorld) -> None:
    head = opened(world)
    lena = forge(world, "lena")
    lena.review(1, head, "changes_requested", "")
    repository = world.repository("bob")
    tip = ref_of(repository, FORGE)
    assert tip is not None
    path = next(p for p in files_of(repository, tip) if p.startswith("reviews/"))
    add(repository, tip, {path: json.dumps(review_of(head)).encode()})
    assert list(lena.reviews(1)) == [Review(LENA, head, "changes_requested")]


def test_reviews_stay_valid_whoever_writes_the_forge_afterwards(world: MemoryGitWorld) -> None:
    head = opened(world)
    forge(world, "lena").review(1, head, "approved", "")
    forge(world, "bob").set_status(head, "success", "c", "t")
    opened(world, 2)
    fresh = world.forge_of("bob", world.new_clone("bob"))
    assert list(fresh.reviews(1)) == [Review(LENA, head, "approved")]


def test_reviews_of_who_is_lead_no_more_do_not_count(world: MemoryGitWorld) -> None:
    head = opened(world)
    lena = forge(world, "lena")
    lena.review(1, head, "approved", "")
    repository = world.repository("lena")
    before = files_of(repository, main_of(repository))[SITES]
    no_leads = before.replace(before.splitlines()[1], b"leads: []")
    push_main(repository, {SITES: no_leads})
    assert list(lena.reviews(1)) == []
    push_main(repository, {SITES: before})
    assert len(lena.reviews(1)) == 1


def test_of_one_lead_the_last_review_counts_of_two_leads_both(world: MemoryGitWorld) -> None:
    push_main(world.repository("lena"), {SITES: two_accounts(world)})
    head = opened(world)
    lena, mia = forge(world, "lena"), forge(world, "alice")
    lena.review(1, head, "approved", "")
    mia.review(1, head, "approved", "")
    lena.review(1, head, "changes_requested", "on second thought")
    assert list(lena.reviews(1)) == [
        Review(Account("mia", 2), head, "approved"),
        Review(LENA, head, "changes_requested"),
    ]
    before = world.state()
    mia.review(1, head, "approved", "")
    assert world.state() == before


def test_only_reviews_carry_the_lead_s_signature(world: MemoryGitWorld, tmp_path: Path) -> None:
    head = opened(world)
    lena = forge(world, "lena")
    lena.review(1, head, "approved", "")
    lena.merge(1, head, "m")
    repository = world.repository("lena")
    public = [world.keys["lena"].public]
    tip = ref_of(repository, FORGE)
    assert tip is not None
    approved = repository.commit(repository.commit(tip).parents[0])
    assert [repository.signer(p, public) is not None for p in approved.parents] == [False, True]
    assert repository.signer(main_of(repository), public) is None
