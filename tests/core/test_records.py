"""Pointers and settings: one accepted form, values that cannot be misread."""

from __future__ import annotations

import hashlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fedops.core.documents import validate
from fedops.core.errors import ConfigError
from fedops.core.ids import Digest, SiteId
from fedops.core.records import Pointer, Record, render_pointer, update_pointer
from fedops.core.settings import Aggregation, Federation, Sites

_HEX = st.text("0123456789abcdef", min_size=32, max_size=32)


def _record(**over: object) -> Record:
    data: dict[str, object] = {
        "schema": "fedops.submission/v1",
        "site": "hospital-a",
        "base_version": 8,
        "num_examples": 150,
        "format": "safetensors",
        "payload": "full",
        "sha256": "fa" * 32,
        "md5": "1b" * 16,
        "size": 160,
        "manifest": "sha256:" + "ce" * 32,
        "metrics": {"loss": 0.31},
        "created_at": "2026-03-02T09:30:00Z",
    }
    return validate(data | over, Record, "record")


def test_a_pointer_is_rendered_to_fixed_bytes() -> None:
    assert render_pointer(update_pointer(_record(), "safetensors")).decode() == (
        "outs:\n"
        f"- {{md5: {'1b' * 16}, size: 160, hash: md5, path: update.safetensors, remote: sites-hospital-a}}\n"
        "meta:\n"
        f'  fedops: {{repository: "sites/hospital-a", manifest: "sha256:{"ce" * 32}", sha256: {"fa" * 32}}}\n'
    )


def test_the_global_pointer_asks_the_default_remote() -> None:
    text = render_pointer(Pointer("model.safetensors", "ab" * 16, 5, "cd" * 32, Digest("sha256:" + "ef" * 32), None))
    out = yaml.safe_load(text)
    assert out["outs"] == [{"md5": "ab" * 16, "size": 5, "hash": "md5", "path": "model.safetensors"}]
    assert out["meta"]["fedops"]["repository"] == "global"


@given(
    st.one_of(
        _HEX,
        st.from_regex(r"\A[0-9]{32}\Z"),
        st.from_regex(r"\A[0-9]{3}e[0-9]{28}\Z"),
        st.from_regex(r"\A0b[01]{30}\Z"),
    )
)
def test_any_md5_reads_back_as_text_by_every_yaml_reader(md5: str) -> None:
    sha = hashlib.sha256(md5.encode()).hexdigest()
    text = render_pointer(Pointer("update.bin", md5, 1, sha, Digest("sha256:" + sha), SiteId("a"))).decode()
    from ruamel.yaml import YAML

    for out in (yaml.safe_load(text), YAML(typ="safe").load(text)):
        assert out["outs"][0]["md5"] == md5
        assert out["meta"]["fedops"]["sha256"] == sha


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"forge": {"kind": "github"}}, "repository belongs to kind github"),
        ({"forge": {"kind": "git", "repository": "a/b"}}, "repository belongs to kind github"),
        ({"store": {"url": "s3://bucket"}}, "ocidir:PATH or oci://"),
        ({"store": {"url": "ocidir:"}}, "must be ocidir:PATH, got 'ocidir:'"),
        ({"name": "Breast Cancer"}, "pattern"),
        ({"model": {"format": "pickle"}}, "safetensors"),
    ],
)
def test_a_federation_document_says_what_is_wrong(change: dict[str, object], message: str) -> None:
    good: dict[str, object] = {
        "schema": "fedops.federation/v1",
        "name": "x",
        "fedops": "0.1.0",
        "store": {"url": "ocidir:store"},
    }
    validate(good, Federation, "federation.yaml")
    with pytest.raises(ConfigError, match=message):
        validate(good | change, Federation, "federation.yaml")


def test_extension_follows_the_model_format() -> None:
    base: dict[str, object] = {
        "schema": "fedops.federation/v1",
        "name": "x",
        "fedops": "0.1.0",
        "store": {"url": "oci://h/x"},
    }
    assert validate(base, Federation, "f").extension == "safetensors"
    assert validate(base | {"model": {"format": "opaque"}}, Federation, "f").extension == "bin"


def _site(login: str, number: int, *keys: str) -> dict[str, object]:
    return {"accounts": [{"login": login, "id": number}], "keys": list(keys)}


def test_one_account_or_key_cannot_stand_for_two_sites() -> None:
    for b in (_site("x", 1), _site("y", 2, "ssh-ed25519 AAAA other comment")):
        sites = {"a": _site("x", 1, "ssh-ed25519 AAAA mine"), "b": b}
        with pytest.raises(ConfigError, match="already belongs to a"):
            validate({"schema": "fedops.sites/v1", "sites": sites}, Sites, "s")


def test_a_lead_whose_key_signs_for_a_site_does_not_judge_it() -> None:
    leads = [
        {"login": "lena", "id": 8, "keys": ["ssh-ed25519 AAAA lena"]},
        {"login": "li", "id": 9, "keys": ["ssh-ed25519 BBBB li"]},
    ]
    sites = {"a": _site("x", 1, "ssh-ed25519 AAAA other"), "b": _site("y", 2)}
    roster = validate({"schema": "fedops.sites/v1", "leads": leads, "sites": sites}, Sites, "s")
    assert roster.judges_of(SiteId("a")) == {9}
    assert roster.judges_of(SiteId("b")) == {8, 9}
    assert roster.judges_of(SiteId("unknown")) == {8, 9}


def test_the_roster_knows_active_sites_and_owners() -> None:
    sites = {"b": _site("y", 2), "a": _site("x", 1), "c": _site("z", 3) | {"state": "suspended"}}
    roster = validate({"schema": "fedops.sites/v1", "sites": sites}, Sites, "s")
    assert roster.active() == ("a", "b")
    assert roster.site_of(3) == "c"
    assert roster.site_of(9) is None


@pytest.mark.parametrize(
    "staleness",
    [
        {"kind": "polynomial"},
        {"kind": "inverse", "alpha": 1.0},
        {"kind": "hinge", "a": 1.0},
        {"kind": "hinge", "a": 0.0, "b": 1.0},
    ],
)
def test_a_staleness_rule_takes_exactly_its_own_parameters(staleness: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        validate({"staleness": staleness}, Aggregation, "a")
