"""Identifiers: what is written is read back, and nothing else is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.core import ids
from fedops.core.ids import Digest, GlobalVersion, SiteId, StoreRef


@given(st.integers(min_value=0, max_value=9_999_999_999))
def test_a_version_reads_back_from_each_of_its_written_forms(number: int) -> None:
    version = GlobalVersion(number)
    assert GlobalVersion.from_tag(version.tag) == version
    assert GlobalVersion.from_short(version.short) == version


@pytest.mark.parametrize(
    "text",
    [
        "global@v1",
        "global@v01.0.0",
        "global@v1.0.1",
        "global@v1.0.0\n",
        " global@v1.0.0",
        "global@v-1.0.0",
        "global@v٣.0.0",
        "v1",
    ],
)
def test_a_tag_of_another_form_is_no_version(text: str) -> None:
    assert GlobalVersion.from_tag(text) is None


@pytest.mark.parametrize("text", ["1", "v", "v01", "v1.0", "v1\n", "v-1"])
def test_a_short_form_of_another_form_is_no_version(text: str) -> None:
    assert GlobalVersion.from_short(text) is None


_SITES = st.from_regex(r"\A[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z").filter(lambda s: s not in ids.RESERVED_SITES)


@given(st.one_of(st.none(), _SITES), st.integers(min_value=0, max_value=10**9))
def test_a_store_reference_reads_back(site: str | None, version: int) -> None:
    ref = StoreRef(None if site is None else SiteId(site), version)
    assert StoreRef.parse(ref.text) == ref


@pytest.mark.parametrize(
    "text", ["sites/a:v", "sites/a:v03", "sites/A:v1", "sites/global:v1", "sites/a/b:v1", "global:v1 ", "x:v1"]
)
def test_a_reference_of_another_form_is_refused(text: str) -> None:
    assert StoreRef.parse(text) is None


def test_device_names_of_windows_and_our_own_words_are_reserved() -> None:
    assert {ids.site_id_fault(s) for s in ("global", "archive", "latest", "con", "nul", "com1", "lpt9")} == {
        "site_id_reserved"
    }


@pytest.mark.parametrize("text", ["", "A", "a_b", "-a", "a-", "a/b", "a" * 64, "a\n", 7, None])
def test_an_invalid_site_id_is_never_corrected(text: object) -> None:
    assert ids.site_id_fault(text) == "site_id_invalid"


def test_digests_and_bare_hex_are_inverse() -> None:
    digest = ids.digest_of_hex("ab" * 32)
    assert digest == Digest("sha256:" + "ab" * 32)
    assert ids.hex_of_digest(digest) == "ab" * 32
    assert ids.is_digest(digest)
    assert not ids.is_digest("ab" * 32)
    assert not ids.is_digest(digest + "\n")
    assert ids.is_hex("0" * 40, 40)
    assert not ids.is_hex("G" * 32, 32)
    assert not ids.is_hex(5, 64)


def test_paths_and_names_of_a_site_are_fixed_by_its_id() -> None:
    a = SiteId("hospital-a")
    assert ids.site_folder(a) == "sites/hospital-a"
    assert ids.record_path(a) == "sites/hospital-a/submission.json"
    assert ids.update_path(a, "safetensors") == "sites/hospital-a/update.safetensors.dvc"
    assert ids.model_pointer_path("bin") == "global/model.bin.dvc"
    assert ids.submit_branch(a) == "submit/hospital-a"
    assert ids.version_branch(9) == "fedops/v9"
    assert ids.version_branch(9, rollback=True) == "fedops/v9-rollback"
    assert [ids.is_version_branch(b) for b in ("fedops/v9", "fedops/v9-rollback", "submit/a", "main")] == [
        True,
        True,
        False,
        False,
    ]
    assert ids.remote_of(a) == "sites-hospital-a"
    assert ids.repository_of(a) == "sites/hospital-a"
    assert ids.repository_of(None) == "global"


@pytest.mark.parametrize(
    ("path", "site"), [("sites/a/x", "a"), ("sites/a", None), ("global/x/y", None), ("sites/a/b/c", "a")]
)
def test_the_folder_of_a_path_below_sites(path: str, site: str | None) -> None:
    assert ids.site_of_path(path) == site


def test_a_leads_branch_is_neither_a_sites_nor_a_versions() -> None:
    branch = ids.lead_branch("add-hospital-a")
    assert branch == "lead/add-hospital-a"
    assert not ids.is_version_branch(branch)
    assert not branch.startswith(ids.SUBMIT_PREFIX)
