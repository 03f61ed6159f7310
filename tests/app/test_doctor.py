from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fedops.app.doctor import Patient, attempt, clone_checks, machine_checks
from fedops.core.errors import ConfigError, FedopsError, ForgeError, GitError, StoreError
from fedops.core.facts import RefUpdate
from fedops.core.forge_settings import ForgeSettings
from fedops.core.health import Attributes, Check, KeyFacts, WorkTree
from fedops.core.ids import Digest, RepoPath, SiteId
from fedops.core.records import Source
from tests.core.forge_samples import WELL
from tests.doctor_report import bad as not_well
from tests.doctor_report import by_name, whole
from tests.fakes_store import FakeStore
from tests.site_world import World, first, git_world, memory_world

A = SiteId("hospital-a")
CLEAN = WorkTree("main", 0, 0, 0, ignored=True)


@dataclass(frozen=True)
class FakeMachine:
    """A machine on which all is well, unless the test says otherwise."""

    public: str = "ssh-ed25519 AAAA x"
    tree: WorkTree = CLEAN
    who: str | None = "Ann <ann@a.example>"
    merge: str = "unspecified"
    autocrlf: str | None = None
    error: Exception | None = None

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def git_version(self) -> str:
        self._check()
        return "git version 2.43.0"

    def ssh_version(self) -> str:
        self._check()
        return "OpenSSH_9.2p1"

    def python_version(self) -> tuple[int, int, int]:
        self._check()
        return (3, 12, 1)

    def distributions(self) -> Mapping[str, str]:
        self._check()
        return {"fedops-git": "0.1.0"}

    def identity(self, folder: Path) -> str | None:
        self._check()
        return self.who

    def work_tree(self, root: Path, main: str) -> WorkTree:
        self._check()
        return self.tree

    def attributes(self, root: Path, paths: Sequence[str]) -> Sequence[Attributes]:
        self._check()
        return [Attributes(p, "set", "lf", self.merge, "unspecified") for p in paths]

    def git_config(self, root: Path, key: str) -> str | None:
        self._check()
        return self.autocrlf

    def key_facts(self, path: Path) -> KeyFacts:
        self._check()
        return KeyFacts(str(path), self.public, open_to_others=False, locked=False)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return memory_world(tmp_path)


def machine(world: World, **more: Any) -> FakeMachine:
    return FakeMachine(**{"public": world.keys[A].public} | more)


def look(
    world: World, seen: FakeMachine | None = None, *, site: SiteId | None = A, key: bool = True
) -> dict[str, Check]:
    patient = Patient(world.ctx(A), seen or machine(world), world.root(A), site, world.key(A) if key else None)
    return by_name(clone_checks(patient))


def bad(checks: Mapping[str, Check]) -> dict[str, str]:
    """What is not well, and how."""
    return not_well(checks.values())


MACHINE_NAMES = ["git", "ssh-keygen", "python", "distribution", "identity"]
NAMES = [
    "origin",
    "main",
    "policies",
    "work tree",
    ".fedops/",
    "git settings",
    "fedops",
    "tags",
    "clock",
    "site",
    "key",
    "store",
    "own store",
]


def test_where_all_is_well_every_question_is_answered_so(world: World) -> None:
    checks = look(world)
    assert (bad(checks), list(checks)) == ({}, NAMES)
    of_machine = by_name(machine_checks(machine(world), world.root(A), A))
    assert (bad(of_machine), list(of_machine)) == ({}, MACHINE_NAMES)


def test_on_real_git_and_a_folder_as_store_too(tmp_path: Path) -> None:
    world = git_world(tmp_path)
    checks = look(world)
    assert (bad(checks), list(checks)) == ({}, NAMES)
    assert checks["own store"].got == "sites/hospital-a: may be written"
    world.close()


def test_nobodys_clone_without_a_key_is_well_too(world: World) -> None:
    checks = look(world, site=None, key=False)
    assert (bad(checks), "own store" in checks) == ({}, False)
    assert [checks[f"store: {name}"].got for name in ("global", "archive")] == [
        "this store cannot be asked without writing"
    ] * 2


@pytest.mark.parametrize(("site", "state"), [(A, "broken"), (None, "warning")])
def test_a_git_that_knows_nobody_stops_a_site_and_is_worth_a_word_to_others(
    site: SiteId | None, state: str, world: World
) -> None:
    checks = by_name(machine_checks(machine(world, who=None), world.root(A), site))
    assert bad(checks) == {"identity": state}


@pytest.mark.parametrize("error", [GitError("git: gone"), ConfigError("x", hint="do"), OSError("disk"), KeyError("k")])
def test_nothing_is_raised_whatever_the_machine_does(error: Exception, world: World) -> None:
    seen = machine(world, error=error)
    assert bad(by_name(machine_checks(seen, world.root(A)))) == dict.fromkeys(MACHINE_NAMES, "broken")
    checks = look(world, seen)
    assert set(bad(checks)) == {"work tree", "git settings", "key"}
    expected = error.message if isinstance(error, FedopsError) else type(error).__name__
    assert all(expected in checks[name].got for name in bad(checks))


def test_an_origin_that_is_away_leaves_the_rest_to_what_was_fetched(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise GitError("origin: fetch: exit code 128", hint="check the connection", cause="temporary")

    monkeypatch.setattr(world.repositories[A], "fetch", away)
    checks = look(world)
    assert bad(checks) == {"origin": "broken"}
    assert checks["origin"].next == "check the connection"


def test_without_main_what_needs_it_is_not_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.repositories[A], "resolve", lambda ref: None)
    checks = look(world)
    assert bad(checks) == {"main": "broken", "work tree": "broken", "git settings": "broken"}
    assert "no such branch on origin" in checks["main"].got


@pytest.mark.parametrize(
    ("path", "text", "says"),
    [
        (
            "policies/submission.yaml",
            b"schema: fedops.submission-policy/v1\nlimits: {tensors: 0}\n",
            "submission.yaml:2",
        ),
        ("policies/training.yaml", b"schema: fedops.training/v1\nhyper: {}\n", "training.yaml:2"),
        ("policies/aggregation.yaml", b"schema: fedops.aggregation/v1\nstrategy: {name: magic}\n", "'magic' -> one of"),
        ("policies/sites.yaml", b"schema: fedops.sites/v1\nsites: {global: {}}\n", "sites.yaml:2"),
        ("federation.yaml", b"schema: fedops.federation/v1\nname: X\n", "federation.yaml"),
        ("global/version.json", b"{", "global/version.json"),
    ],
)
def test_a_document_that_cannot_be_used_is_named_with_its_line(path: str, text: bytes, says: str, world: World) -> None:
    world.change({path: text})
    checks = look(world)
    assert checks[path].state == "broken"
    assert says in checks[path].got
    assert checks[path].next
    assert "policies" not in checks


def test_several_documents_that_cannot_be_used_are_all_named(world: World) -> None:
    world.change({"policies/submission.yaml": b"x", "policies/training.yaml": b"y"})
    assert {"policies/submission.yaml", "policies/training.yaml"} <= set(bad(look(world)))


def test_what_parses_and_makes_no_sense_is_a_warning(world: World) -> None:
    world.change({"policies/aggregation.yaml": b"schema: fedops.aggregation/v1\ntrigger: {quorum: 3}\n"})
    assert bad(look(world)) == {"quorum": "warning"}
    text = b"schema: fedops.aggregation/v1\ntrigger: {quorum: 2}\npublish: {approvals: 2}\nstop: {max_version: 1}\n"
    world.change({"policies/aggregation.yaml": text})
    assert bad(look(world)) == {"approvals: rollback": "warning"}, "v1 may still come"
    world.publish(first(1))
    assert bad(look(world)) == {"approvals: rollback": "warning", "end": "warning"}


def test_what_can_never_come_is_broken_by_forge_and_keys(world: World) -> None:
    """On the git forge lena has a key; on GitHub her account would do, but not for her own rollback."""
    review = b"schema: fedops.aggregation/v1\ntrigger: {quorum: 2}\npublish: {mode: review, approvals: 2}\n"
    world.change({"policies/aggregation.yaml": review})
    assert bad(look(world)) == {"approvals: publish": "broken"}
    plain = b"schema: fedops.aggregation/v1\ntrigger: {quorum: 2}\n"
    federation = _main(world).bytes_of(RepoPath("federation.yaml"))
    on_github = federation + b"forge: {kind: github, repository: acme/heart}\n"
    world.change({"policies/aggregation.yaml": plain, "federation.yaml": on_github})
    assert bad(look(world)) == {"approvals: rollback": "warning"}


def test_the_clone_is_judged(world: World) -> None:
    seen = machine(world, tree=WorkTree("topic", 0, 0, 0, ignored=False), merge="union")
    assert bad(look(world, seen)) == {"work tree": "warning", ".fedops/": "broken", "git settings": "broken"}


def test_another_fedops_than_ci_runs_is_a_warning(world: World) -> None:
    text = b'schema: fedops.federation/v1\nname: x\nfedops: "0.2.0"\nstore: {url: "ocidir:store"}\n'
    world.change({"federation.yaml": text})
    assert bad(look(world)) == {"fedops": "warning"}


def test_a_tag_above_the_record_is_broken(world: World) -> None:
    repository = world.repositories["lena"]
    main = repository.resolve("main")
    assert main is not None
    name = repository.write_tag("global@v7.0.0", main, "global: v7")
    assert repository.push([RefUpdate("refs/tags/global@v7.0.0", None, name)])
    assert bad(look(world)) == {"tags": "broken"}


def test_a_tag_of_the_current_version_on_another_commit_is_broken(world: World) -> None:
    repository = world.repositories["lena"]
    (tag,) = repository.versions()
    world.change({"README.md": b"x\n"})
    main = repository.resolve("main")
    assert main is not None
    moved = repository.write_tag(tag.tag, main, "global: v0")
    assert repository.push([RefUpdate(f"refs/tags/{tag.tag}", tag.object, moved)])
    assert bad(look(world)) == {"tags": "broken"}


def test_a_clock_that_is_behind_main_is_a_warning(world: World) -> None:
    world.change({"x": b"x"})
    world.clock.at -= dt.timedelta(hours=1)
    assert bad(look(world)) == {"clock": "warning"}


@pytest.mark.parametrize(
    ("site", "expected"), [("clinic-x", {"site": "broken", "key": "broken"}), ("hospital-b", {"key": "broken"})]
)
def test_site_and_key_are_judged_by_the_roster_of_main(site: str, expected: dict[str, str], world: World) -> None:
    assert bad(look(world, site=SiteId(site))) == expected


def test_a_site_without_a_key_is_broken_where_it_must_sign(world: World) -> None:
    assert bad(look(world, key=False)) == {"key": "broken"}


# ---------------------------------------------------------------- the store


def test_a_store_that_does_not_answer_is_broken(world: World) -> None:
    assert isinstance(world.store, FakeStore)
    world.store.fail_next("manifest", StoreError("store: not mounted", hint="mount it", cause="temporary"))
    checks = look(world)
    assert bad(checks) == {"store": "broken"}
    assert (checks["store"].got, checks["store"].next) == ("store: not mounted", "mount it")


def test_a_model_that_the_store_lost_is_broken_unless_it_can_be_generated(world: World) -> None:
    assert isinstance(world.store, FakeStore)
    manifest = _main(world).version.model.manifest
    world.store.lose("global", Digest(manifest))
    assert bad(look(world)) == {"store": "broken"}
    generated = first(1).model_copy(update={"source": Source(generator="normal", seed=3)})
    world.publish(generated)
    world.store.lose("global", Digest(_main(world).version.model.manifest))
    checks = look(world)
    assert (bad(checks), checks["store"].got) == ({}, "answers; v1 is made by its generator")


def _main(world: World) -> Any:
    from fedops.app.snapshot import main_snapshot

    world.repositories["lena"].fetch()
    return main_snapshot(world.repositories["lena"])


@pytest.mark.parametrize(("fault", "state"), [(None, "ok"), ("/srv/store: no right to write", "broken")])
def test_a_store_that_can_be_asked_says_whether_the_site_may_write(
    fault: str | None, state: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def write_fault(repository: str) -> str | None:
        asked.append(repository)
        return fault

    monkeypatch.setattr(world.store, "write_fault", write_fault, raising=False)
    checks = look(world)
    assert bad(checks) == ({} if state == "ok" else {"own store": state})
    assert asked == ["sites/hospital-a"]


@pytest.mark.parametrize("readable", [True, False])
def test_a_clone_of_no_site_is_told_whether_it_may_write_what_ci_must(
    readable: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = {"global": None, "archive": "/srv/store/archive: no right to write"}
    monkeypatch.setattr(world.store, "write_fault", faults.pop, raising=False)
    if not readable:
        assert isinstance(world.store, FakeStore)
        world.store.fail_next("manifest", StoreError("store: not mounted", cause="temporary"))
    checks = look(world, site=None, key=False)
    assert bad(checks) == {"store: archive": "warning"} | ({} if readable else {"store": "broken"})
    assert checks["store: global"].got == "may be written"
    assert checks["store: archive"].got == "read-only here: /srv/store/archive: no right to write"
    assert faults == {}, "each is asked about once"


def test_a_store_that_does_not_answer_is_no_lack_of_rights(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_fault(repository: str) -> str | None:
        raise StoreError("store: not mounted", cause="temporary")

    monkeypatch.setattr(world.store, "write_fault", write_fault, raising=False)
    checks = look(world, site=None, key=False)
    assert bad(checks) == {"stores of CI": "broken"}
    assert checks["stores of CI"].got == "store: not mounted"


# ---------------------------------------------------------------- the forge


def test_a_forge_with_settings_is_asked_for_them_and_judged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def settings(branch: str, tag: str, packages: Sequence[tuple[str, str]], *, for_lead: bool) -> ForgeSettings:
        asked.append((branch, tag, packages, for_lead))
        return replace(WELL, default_branch="trunk")

    text = b'schema: fedops.federation/v1\nname: x\nfedops: "0.1.0"\nstore: {url: "oci://ghcr.io/acme/heart"}\n'
    world.change({"federation.yaml": text})
    monkeypatch.setattr(world.forges[A], "settings", settings, raising=False)
    assert bad(look(world, site=None, key=False)) == {"default branch": "broken"}
    question = ("main", "global@v0.0.0", (("acme", "heart/global"), ("acme", "heart/archive")))
    assert asked == [(*question, True)]
    assert "rules and rights" in look(world), "a site's clone asks nothing of the leads' business"
    assert asked[1:] == [(*question, False)]


@pytest.mark.parametrize(("mode", "state"), [("push", "ok"), ("review", "broken")])
def test_jobs_must_be_allowed_to_open_pulls_where_versions_are_reviewed(
    mode: str, state: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"schema: fedops.aggregation/v1\ntrigger: {{quorum: 2}}\npublish: {{mode: {mode}}}\n"
    world.change({"policies/aggregation.yaml": text.encode()})
    monkeypatch.setattr(world.forges[A], "settings", lambda *_, for_lead: WELL, raising=False)
    assert look(world, site=None, key=False)["workflow permissions"].state == state


def test_settings_that_cannot_be_asked_for_are_one_broken_line(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def settings(branch: str, tag: str, packages: Sequence[tuple[str, str]], *, for_lead: bool) -> ForgeSettings:
        raise ForgeError("GitHub: 502", cause="temporary")

    monkeypatch.setattr(world.forges[A], "settings", settings, raising=False)
    assert bad(look(world)) == {"forge": "broken"}


def test_nothing_is_written_but_what_a_fetch_brings(world: World) -> None:
    assert isinstance(world.store, FakeStore)
    before = dict(world.store.calls)
    files = sorted(world.folder.rglob("*"))
    look(world)
    assert {k for k in world.store.calls if world.store.calls[k] != before.get(k, 0)} == {"manifest"}
    assert sorted(world.folder.rglob("*")) in (
        files,
        sorted([*files, *world.folder.glob("scratch"), *world.folder.glob("scratch/*")]),
    )


def test_an_answer_that_comes_in_parts_and_then_fails_is_one_broken_line() -> None:
    def halfway() -> Iterator[Check]:
        yield Check("x", "ok", "y")
        raise StoreError("gone")

    (check,) = attempt("x", halfway)
    assert (whole(check).name, check.state, check.got) == ("x", "broken", "gone")
