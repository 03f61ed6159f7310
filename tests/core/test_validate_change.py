"""Stage one: paths, modes, twins, authors, the commit and its signature."""

from __future__ import annotations

import datetime as dt

import pytest

from fedops.core.documents import validate
from fedops.core.facts import Account, Change, Commit
from fedops.core.findings import Finding
from fedops.core.ids import BlobId, CommitId, RepoPath, SiteId
from fedops.core.settings import Sites, SubmissionPolicy
from fedops.core.validate import is_submission, validate_change, validate_commit, validate_signature
from fedops.core.validate_change import foreign_files, is_for_people

KEY_A, KEY_B = "ssh-ed25519 AAAA alice", "ssh-ed25519 BBBB bo"
SITES = validate(
    {
        "schema": "fedops.sites/v1",
        "sites": {
            "hospital-a": {"accounts": [{"login": "alice-a", "id": 1001}], "keys": [KEY_A]},
            "hospital-b": {"accounts": [{"login": "bo-b", "id": 1002}], "keys": [KEY_B]},
            "clinic-c": {"accounts": [{"login": "cy-c", "id": 1003}], "state": "suspended"},
        },
    },
    Sites,
    "sites",
)
ALICE, BO, CY, MALLORY = (
    Account("alice-a", 1001),
    Account("bo-b", 1002),
    Account("cy-c", 1003),
    Account("alice-a", 6666),
)


def change(path: str, status: str = "M", mode: str = "100644") -> Change:
    return Change(RepoPath(path), status, mode, None if status == "D" else BlobId("0" * 40))  # type: ignore[arg-type]  # a test's literal


def honest(site: str = "hospital-a") -> list[Change]:
    return [change(f"sites/{site}/submission.json"), change(f"sites/{site}/update.safetensors.dvc")]


def judge(
    changes: list[Change], author: Account = ALICE, base: tuple[str, ...] = (), extension: str = "safetensors"
) -> tuple[str | None, list[tuple[str, str]]]:
    site, found = validate_change(changes, author, SITES, extension=extension, base_paths=base)
    return site, [(f.slug, f.where) for f in found]


def test_the_known_files_of_the_authors_site_are_allowed() -> None:
    assert judge(honest()) == ("hospital-a", [])


def test_a_file_that_nobody_checks_is_not_carried_to_main() -> None:
    path = "sites/hospital-a/evaluation.json"
    assert judge([*honest(), change(path, "A")]) == ("hospital-a", [("path_not_allowed", path)])


def test_the_record_alone_is_a_submission() -> None:
    assert judge(honest()[:1]) == ("hospital-a", [])


def test_the_extension_of_the_federation_fixes_the_pointers_name() -> None:
    assert judge(honest(), extension="bin")[1] == [("path_not_allowed", "sites/hospital-a/update.safetensors.dvc")]
    opaque = [honest()[0], change("sites/hospital-a/update.bin.dvc")]
    assert judge(opaque, extension="bin") == ("hospital-a", [])


@pytest.mark.parametrize(
    "path",
    [
        ".github/workflows/validate.yml",
        "policies/sites.yaml",
        "sites/hospital-b/submission.json",
        "sites/hospital-a/update.npz.dvc",
        "sites/hospital-a/sub/submission.json",
        "sites/README.md",
        "global/version.json",
        "sites/hospital-a/.gitignore",
        "sites/hospital-a/evaluation.json ",
    ],
)
def test_any_other_path_is_refused_by_name(path: str) -> None:
    site, found = judge([*honest(), change(path, "A")])
    assert (site, found) == ("hospital-a", [("path_not_allowed", path)])


def test_every_fault_is_told_not_the_first() -> None:
    _, found = judge([*honest(), change("b.txt"), change("a.txt"), change("sites/hospital-b/submission.json")])
    assert found == [
        ("path_not_allowed", "a.txt"),
        ("path_not_allowed", "b.txt"),
        ("path_not_allowed", "sites/hospital-b/submission.json"),
    ]


def test_a_million_paths_make_a_short_report() -> None:
    _, found = judge([*honest(), *(change(f"x/{i}") for i in range(2000))])
    assert len(found) == 50


@pytest.mark.parametrize(
    ("status", "mode", "slug"),
    [
        ("T", "120000", "symlink_refused"),
        ("A", "120000", "symlink_refused"),
        ("M", "120000", "symlink_refused"),
        ("T", "160000", "submodule_refused"),
        ("A", "160000", "submodule_refused"),
        ("M", "100755", "mode_refused"),
        ("A", "100755", "mode_refused"),
        ("A", "100664", "mode_refused"),
        ("T", "100644", "mode_refused"),
        ("D", "000000", "path_not_allowed"),
    ],
)
def test_only_plain_files_may_be_added_or_modified(status: str, mode: str, slug: str) -> None:
    pointer = "sites/hospital-a/update.safetensors.dvc"
    assert judge([honest()[0], change(pointer, status, mode)]) == ("hospital-a", [(slug, pointer)])


def test_a_list_of_submodules_is_refused_as_such() -> None:
    _, found = judge([*honest(), change(".gitmodules", "A"), change("vendor", "A", "160000")])
    assert ("submodule_refused", ".gitmodules") in found
    assert ("submodule_refused", "vendor") in found


def test_a_link_at_a_strange_path_is_both() -> None:
    _, found = judge([*honest(), change("sites/hospital-a/link", "A", "120000")])
    assert {slug for slug, _ in found} == {"symlink_refused", "path_not_allowed"}


def test_an_executable_at_a_strange_path_is_both() -> None:
    _, found = judge([*honest(), change("run.sh", "A", "100755")])
    assert [slug for slug, _ in found] == ["path_not_allowed", "mode_refused"]


def test_the_deletion_of_the_record_is_no_submission() -> None:
    _, found = judge([change("sites/hospital-a/submission.json", "D", "000000"), honest()[1]])
    assert found == [("path_not_allowed", "sites/hospital-a/submission.json")]


def test_the_record_must_be_among_the_changes() -> None:
    record = "sites/hospital-a/submission.json"
    assert judge(honest()[1:]) == ("hospital-a", [("files_missing", record)])


def test_a_change_without_a_site_folder_names_no_site() -> None:
    site, found = judge([change(".github/workflows/x.yml")])
    assert site is None
    assert found == [("path_not_allowed", ".github/workflows/x.yml")]
    assert judge([]) == (None, [("files_missing", "sites/<site>/submission.json")])


def test_the_author_of_another_site_is_a_mismatch() -> None:
    site, found = validate_change(honest(), BO, SITES, extension="safetensors")
    assert site == "hospital-a"
    assert [(f.slug, f.got, f.expected) for f in found] == [("site_mismatch", "hospital-b", "hospital-a")]


def test_an_account_is_its_number_not_its_login() -> None:
    site, found = validate_change(honest(), MALLORY, SITES, extension="safetensors")
    assert site == "hospital-a"
    assert [(f.slug, f.got) for f in found] == [("site_mismatch", "an account of no site")]
    assert found[0].detail == {"author": "alice-a", "id": 6666}


def test_who_has_no_account_is_told_that_the_key_is_meant() -> None:
    _, found = validate_change(honest("hospital-a"), Account("claimed:seed", -1), SITES, extension="safetensors")
    assert [(f.slug, f.got, f.expected) for f in found] == [
        (
            "site_mismatch",
            "unsigned, or signed by a key that is not on the roster",
            "a key of hospital-a in policies/sites.yaml",
        )
    ]
    assert found[0].detail == {"author": "claimed:seed"}


def test_a_stranger_in_an_unknown_folder_is_an_unknown_site() -> None:
    assert judge(honest("rogue-x"), MALLORY) == ("rogue-x", [("site_unknown", "sites/rogue-x")])


def test_a_folder_that_is_nearly_a_sites_is_told_with_that_site() -> None:
    _, found = validate_change(honest("hospital-aa"), MALLORY, SITES, extension="safetensors")
    assert [(f.slug, f.expected) for f in found] == [
        ("site_unknown", "perhaps hospital-a; a site of policies/sites.yaml")
    ]


def test_a_site_that_opens_an_unknown_folder_has_both_faults() -> None:
    assert judge(honest("rogue-x"))[1] == [("site_unknown", "sites/rogue-x"), ("site_mismatch", "sites/rogue-x")]


def test_a_stranger_who_writes_to_two_sites_owns_neither() -> None:
    site, found = judge([*honest("clinic-c"), *honest("hospital-b")], MALLORY)
    assert site == "clinic-c"
    assert found[0] == ("site_mismatch", "sites/clinic-c")
    assert {path for slug, path in found[1:] if slug == "path_not_allowed"} == {c.path for c in honest("hospital-b")}


def test_a_suspended_site_hands_in_nothing() -> None:
    assert judge(honest("clinic-c"), CY) == ("clinic-c", [("site_suspended", "sites/clinic-c")])


@pytest.mark.parametrize(("folder", "slug"), [("Hospital-A", "site_id_invalid"), ("con", "site_id_reserved")])
def test_an_impossible_folder_names_no_site(folder: str, slug: str) -> None:
    assert judge(honest(folder), MALLORY) == (None, [(slug, f"sites/{folder}")])


@pytest.mark.parametrize(
    ("path", "base"),
    [
        ("sites/hospital-a/Submission.json", "sites/hospital-a/submission.json"),
        ("Sites/hospital-a/evaluation.json", "sites/hospital-a/submission.json"),
        ("sites/Hospital-A/evaluation.json", "sites/hospital-a/submission.json"),
        ("sites/hospital-a/caf\u00e9", "sites/hospital-a/cafe\u0301"),
        ("sites/hospital-a/\ufb01le", "sites/hospital-a/file"),
        ("stra\u00dfe", "STRASSE"),
    ],
)
def test_a_twin_by_case_or_unicode_is_refused(path: str, base: str) -> None:
    _, found = judge([*honest(), change(path, "A")], base=(base, "README.md"))
    assert ("path_case_conflict", path) in found


def test_two_twins_in_one_change_are_refused_both() -> None:
    _, found = judge([*honest(), change("a/X", "A"), change("a/x", "A")])
    assert [path for slug, path in found if slug == "path_case_conflict"] == ["a/X", "a/x"]


def test_a_twin_that_the_change_removes_is_still_one_of_the_base() -> None:
    renamed = [
        change("sites/hospital-a/submission.json", "D", "000000"),
        change("sites/hospital-a/Submission.json", "A"),
    ]
    _, found = judge(renamed, base=("sites/hospital-a/submission.json",))
    assert [path for slug, path in found if slug == "path_case_conflict"] == ["sites/hospital-a/Submission.json"]


def test_twins_that_the_change_does_not_touch_are_not_its_fault() -> None:
    assert judge(honest(), base=("docs/A", "docs/a", "sites/hospital-a/submission.json"))[1] == []


def test_a_path_that_is_not_utf8_can_be_reported() -> None:
    _, found = judge([*honest(), change(b"sites/hospital-a/\xff".decode("utf-8", "surrogateescape"), "A")])
    [(slug, path)] = found
    assert slug == "path_not_allowed"
    path.encode()


def test_changes_below_sites_make_a_submission() -> None:
    assert is_submission(honest())
    assert is_submission([change("sites", "A", "120000")])
    assert not is_submission([change("policies/sites.yaml"), change("sitesx/a/submission.json")])
    assert not is_submission([])


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([], True),
        (["policies/sites.yaml", "federation.yaml", ".github/workflows/validate.yml"], True),
        (["globals/x", "docs/global/x", "policies/sites/x"], True),
        (["policies/sites.yaml", "global/metrics.json"], False),
        (["sites/hospital-a/submission.json"], False),
        (["sites/README.md", "federation.yaml"], True),
        (["sites/readme.md"], False),
        (["sites/README.md/x"], False),
        (["sites/hospital-a"], False),
        (["global"], False),
        (["Global/version.json"], False),
        (["SITES/hospital-a/submission.json"], False),
        (["\uff47lobal/version.json"], False),  # a full-width g, which some file systems take for one
    ],
)
def test_what_ci_brings_is_not_for_people_however_it_is_spelled(paths: list[str], expected: bool) -> None:
    assert is_for_people([change(path) for path in paths]) is expected
    assert is_for_people([change(path, "D") for path in paths]) is expected


@pytest.mark.parametrize(
    "path",
    [
        *(
            "sites.",
            "sites /a",
            "global. ./version.json",
            "sites\\hospital-a\\submission.json",
            "SITES~1/x",
            "global~2",
        ),
        *("si\u200ctes/hospital-a/submission.json", "glob\u00adal/x", "\uff53\uff49\uff54\uff45\uff53/x"),
    ],
)
def test_what_some_file_system_takes_for_the_sites_or_models_folder_is_not_for_people(path: str) -> None:
    assert not is_for_people([change(path)])


def test_the_guide_of_the_sites_is_for_people_as_a_plain_file_alone() -> None:
    assert not is_for_people([change("sites/README.md", "T", "120000")])
    assert not is_for_people([change("sites/README.md", "A", "160000")])


def commit(*parents: str) -> Commit:
    at = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)
    return Commit(CommitId("c" * 40), tuple(CommitId(p * 40) for p in parents), "a", "a", at, "m")


def test_a_submission_is_one_commit_on_an_ancestor_of_main() -> None:
    assert validate_commit(commit("a"), on_main=True) == ()
    for bad, on_main in ((commit("a", "b"), True), (commit(), True), (commit("a"), False)):
        [found] = validate_commit(bad, on_main)
        assert found.slug == "commit_shape"


def signed(
    signer: str | None, *, required: bool, same_repository: bool, site: str = "hospital-a"
) -> tuple[Finding, ...]:
    policy = validate({"require_signed": required}, SubmissionPolicy, "policy")
    return validate_signature(signer, SiteId(site), SITES, policy, same_repository=same_repository)


@pytest.mark.parametrize(("required", "same_repository"), [(True, False), (True, True), (False, True)])
def test_a_signature_of_the_site_is_asked_for_by_policy_and_for_branches_of_the_same_repository(
    required: bool, same_repository: bool
) -> None:
    assert signed(KEY_A, required=required, same_repository=same_repository) == ()
    for bad, site in ((None, "hospital-a"), (KEY_B, "hospital-a"), (KEY_A, "unknown-x")):
        [found] = signed(bad, required=required, same_repository=same_repository, site=site)
        assert (found.slug, found.detail) == ("signature_invalid", {"site": site})


def test_a_fork_need_not_sign_unless_the_policy_says_so() -> None:
    assert signed(None, required=False, same_repository=False) == ()


def test_files_that_fedops_does_not_write_are_found_below_sites_alone() -> None:
    ours = [
        "sites/README.md",
        "sites/hospital-a/submission.json",
        "sites/hospital-a/update.safetensors.dvc",
        "global/version.json",
        "global/metrics.json",
        "global/model.safetensors.dvc",
        "globals/a.csv",
        "patients.csv",
        "sitesx/a.csv",
    ]
    others = [
        "global/archive/patients.csv",
        "global/model.bin.dvc",
        "sites/.gitkeep",
        "sites/hospital-a/patients.csv",
        "sites/hospital-a/update.npz.dvc",
        "sites/hospital-a/x/submission.json",
        "sites/hospital-b/update.safetensors",
        "sites/readme.md",
    ]
    assert foreign_files([RepoPath(p) for p in reversed(ours + others)], "safetensors") == tuple(others)
