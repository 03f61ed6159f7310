from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedops.core.documents import validate
from fedops.core.health import (
    NAME_YOURSELF,
    Attributes,
    Check,
    KeyFacts,
    WorkTree,
    cannot,
    check_attributes,
    check_distributions,
    check_git,
    check_identity,
    check_ignored,
    check_key,
    check_no_key,
    check_python,
    check_site,
    check_ssh,
    check_work_tree,
    summary,
)
from fedops.core.ids import SiteId
from fedops.core.settings import Sites
from tests.doctor_report import whole

A, B = SiteId("hospital-a"), SiteId("hospital-b")
KEYS = {who: f"ssh-ed25519 AAAA{who}" for who in ("a", "b", "lena", "stranger")}


def roster(**more: Any) -> Sites:
    site = {"accounts": [{"login": "x", "id": 1001}], "keys": [KEYS["a"] + " alice"], "state": "active"}
    other = {"accounts": [{"login": "y", "id": 1002}], "keys": [KEYS["b"]], "state": "suspended"}
    document = {
        "schema": "fedops.sites/v1",
        "leads": [{"login": "lena", "id": 1, "keys": [KEYS["lena"]]}],
        "sites": {A: site, B: other},
    }
    return validate(document | more, Sites, "sites.yaml")


def states(*checks: Check) -> list[str]:
    return [whole(check).state for check in checks]


# ---------------------------------------------------------------- the machine


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("git version 2.34.0", "ok"),
        ("git version 2.39.5 (Apple Git-154)", "ok"),
        ("git version 3.0.1.windows.1", "ok"),
        ("git version 2.33.9", "broken"),
        ("git version 1.99", "broken"),
        ("git, somehow", "warning"),
    ],
)
def test_git_must_be_new_enough(text: str, state: str) -> None:
    check = check_git(text)
    assert states(check) == [state]
    assert check.expected == ("" if state == "ok" else "2.34 or newer")


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("OpenSSH_9.2p1 Debian-2+deb12u6, OpenSSL 3.0.19 27 Jan 2026", "ok"),
        ("OpenSSH_for_Windows_8.6p1, LibreSSL 3.4.3", "ok"),
        ("OpenSSH_8.2p1", "ok"),
        ("OpenSSH_8.1p1, OpenSSL 1.1.1", "broken"),
        ("unknown, there is no ssh to ask", "warning"),
    ],
)
def test_ssh_must_be_new_enough(text: str, state: str) -> None:
    assert states(check_ssh(text)) == [state]


def test_python_must_be_new_enough() -> None:
    assert states(check_python((3, 11, 0)), check_python((3, 10, 14)), check_python((4, 0, 0))) == [
        "ok",
        "broken",
        "ok",
    ]
    assert check_python((3, 13, 1)).got == "3.13.1"


def test_who_commits_must_have_a_name_where_a_site_commits() -> None:
    checks = [check_identity(who, site) for who in ("Ann <ann@a.example>", None) for site in (A, None)]
    assert states(*checks) == ["ok", "ok", "broken", "warning"]
    assert [c.got for c in checks[:2]] == ["Ann <ann@a.example>"] * 2
    assert {c.next for c in checks[2:]} == {NAME_YOURSELF}
    assert all(f"git config --global user.{what}" in NAME_YOURSELF for what in ("name", "email"))


def test_the_namesake_on_pypi_is_told_from_fedops() -> None:
    both = check_distributions({"fedops": "1.2", "fedops-git": "0.1.0"})
    alone = check_distributions({"fedops": "1.2"})
    assert states(both, alone) == ["broken", "broken"]
    assert "pip uninstall fedops" in both.next
    assert "another project" in both.got
    assert states(check_distributions({"fedops-git": "0.1.0"}), check_distributions({})) == ["ok", "ok"]


# ---------------------------------------------------------------- the clone


def tree(
    branch: str | None = "main", changed: int = 0, ahead: int = 0, behind: int = 0, ignored: bool = True
) -> WorkTree:
    return WorkTree(branch, changed, ahead, behind, ignored)


@pytest.mark.parametrize(
    ("seen", "command"),
    [
        (tree("topic"), "git switch main"),
        (replace(tree(None), unfinished="rebase"), "git rebase --continue, or to give it up: git rebase --abort"),
        (replace(tree(changed=1), unfinished="merge"), "git merge --continue, or to give it up: git merge --abort"),
        (tree(None), "git switch main"),
        (tree(changed=2), "git status"),
        (tree(ahead=1), "git log origin/main.."),
        (tree(behind=1), "git pull --ff-only"),
        (tree(ahead=1, behind=1), "git log origin/main.."),
    ],
)
def test_a_work_tree_that_is_not_mains_is_a_warning(seen: WorkTree, command: str) -> None:
    check = check_work_tree(seen, "main")
    assert (check.state, check.next) == ("warning", command)


def test_a_clean_work_tree_is_well() -> None:
    assert states(check_work_tree(tree(), "main"), check_work_tree(tree("trunk"), "trunk")) == ["ok", "ok"]


def test_a_folder_of_keys_that_git_would_add_is_broken() -> None:
    assert states(check_ignored(tree()), check_ignored(tree(ignored=False))) == ["ok", "broken"]


def attributes(**values: str) -> Attributes:
    return Attributes(
        **{"path": "a.dvc", "text": "set", "eol": "lf", "merge": "unspecified", "filter": "unspecified"} | values
    )


@pytest.mark.parametrize(
    ("seen", "autocrlf", "state"),
    [
        (attributes(), None, "ok"),
        (attributes(), "true", "ok"),  # eol=lf stands above it
        (attributes(text="unset", eol="unspecified"), "true", "ok"),
        (attributes(text="unspecified", eol="unspecified"), None, "ok"),
        (attributes(text="unspecified", eol="unspecified"), "false", "ok"),
        (attributes(text="unspecified", eol="unspecified"), "true", "broken"),
        (attributes(text="auto", eol="unspecified"), "input", "broken"),
        (attributes(eol="crlf"), None, "broken"),
        (attributes(merge="union"), None, "broken"),
        (attributes(merge="binary"), None, "ok"),
        (attributes(filter="lfs"), None, "broken"),
        (attributes(filter="unset"), None, "ok"),
    ],
)
def test_git_must_keep_the_bytes_of_records_and_pointers(seen: Attributes, autocrlf: str | None, state: str) -> None:
    check = check_attributes([attributes(), seen], autocrlf)
    assert states(check) == [state]


# ---------------------------------------------------------------- the site


def test_a_site_is_active_suspended_or_unknown() -> None:
    checks = [check_site(site, roster()) for site in (A, B, SiteId("clinic-x"), None)]
    assert states(*checks) == ["ok", "warning", "broken", "ok"]
    assert checks[1].next == "a lead: fedops site activate hospital-b"
    assert checks[2].expected == "one of hospital-a, hospital-b"
    assert check_site(A, roster(sites={})).expected == "one of none"


def key(who: str, *, opened: bool = False, locked: bool = False) -> KeyFacts:
    return KeyFacts("/keys/k", f"{KEYS[who]} another comment", opened, locked)


@pytest.mark.parametrize(
    ("facts", "site", "state", "says"),
    [
        (key("a"), A, "ok", "of hospital-a"),
        (key("lena"), None, "ok", "of lead lena"),
        (key("a"), None, "ok", "of hospital-a"),
        (key("lena"), A, "broken", "a key of lead lena"),
        (key("b"), A, "broken", "a key of hospital-b"),
        (key("stranger"), A, "broken", "not on the roster"),
        (key("stranger"), None, "warning", "not on the roster"),
        (key("a", opened=True), A, "broken", "others may read it"),
        (key("a", locked=True), A, "warning", "needs a passphrase"),
    ],
)
def test_a_key_must_be_the_sites_and_of_use(facts: KeyFacts, site: SiteId | None, state: str, says: str) -> None:
    check = check_key(facts, site, roster())
    assert states(check) == [state]
    assert says in check.got


def test_a_site_without_a_key_is_broken_only_where_it_must_sign() -> None:
    checks = [check_no_key(A, needed=True), check_no_key(A, needed=False), check_no_key(None, needed=True)]
    assert states(*checks) == ["broken", "ok", "ok"]
    assert checks[0].next == "fedops join hospital-a --generate-key"


# ---------------------------------------------------------------- the sum


def test_what_cannot_be_asked_is_broken_with_its_reason_and_a_step() -> None:
    assert cannot("store", "not mounted", "mount it") == Check("store", "broken", "not mounted", next="mount it")
    assert whole(cannot("store", "not mounted")).next.startswith("federation.yaml: store.url")
    assert whole(cannot("anything", "disk")).next == "mend what it says, then again: fedops doctor"


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ([], "all well"),
        (["ok", "ok"], "all well"),
        (["broken"], "1 broken"),
        (["warning"], "1 warning"),
        (["broken", "warning", "warning", "ok"], "1 broken, 2 warnings"),
    ],
)
def test_the_summary_counts(seen: list[Any], words: str) -> None:
    assert summary([Check("x", state, "y") for state in seen]) == words
