"""A lone pointer is one plain form; whatever DVC would do with another is not tried out."""

from __future__ import annotations

import pytest

from fedops.core.findings import Finding
from fedops.core.parse_pointer import leaves_folder
from fedops.core.records import Pointer
from fedops.core.validate import parse_pointer

MD5, SHA, MANIFEST = "533d8f7397131fc27204d981208792f5", "a" * 64, "sha256:" + "c" * 64
PLACE = "sites/hospital-a/update.safetensors.dvc"
FLOW = (
    f"outs:\n- {{md5: {MD5}, size: 30, hash: md5, path: update.safetensors, remote: sites-hospital-a}}\n"
    f'meta:\n  fedops: {{repository: "sites/hospital-a", manifest: "{MANIFEST}", sha256: {SHA}}}\n'
)
BLOCK = f"""outs:
- md5: {MD5}
  size: 30
  hash: md5
  path: update.safetensors
  remote: sites-hospital-a
meta:
  fedops:
    repository: sites/hospital-a
    manifest: {MANIFEST}
    sha256: {SHA}
"""
FACTS = Pointer("update.safetensors", MD5, 30, SHA, MANIFEST, "hospital-a")  # type: ignore[arg-type]  # a test's literal


def judge(text: str, placed_at: str = PLACE) -> list[Finding]:
    pointer, found = parse_pointer(text.encode(), "x.dvc", placed_at)
    assert (pointer is None) == bool(found)
    assert all(f.where == "x.dvc" for f in found)
    return list(found)


def faults(text: str, placed_at: str = PLACE) -> list[tuple[str, str | None]]:
    return [(f.slug, (f.detail or {}).get("field")) for f in judge(text, placed_at)]


@pytest.mark.parametrize("text", [FLOW, BLOCK, BLOCK.replace("\n", "\r\n")], ids=["flow", "block", "crlf"])
def test_style_and_line_ends_do_not_matter(text: str) -> None:
    assert parse_pointer(text.encode(), "x.dvc", PLACE) == (FACTS, ())


def test_the_pointer_of_the_global_model_has_no_remote() -> None:
    text = FLOW.replace(", remote: sites-hospital-a", "").replace("update.s", "model.s")
    text = text.replace("sites/hospital-a", "global")
    pointer, found = parse_pointer(text.encode(), "x.dvc", "global/model.safetensors.dvc")
    assert found == ()
    assert pointer is not None
    assert pointer.site is None
    with_remote = text.replace(", path", ", remote: x, path")
    assert faults(with_remote, "global/model.safetensors.dvc") == [("dvc_schema", "outs.0.remote")]


@pytest.mark.parametrize(
    "path",
    [
        "../../.github/workflows/x.yml",
        "../hospital-b/update.safetensors",
        "a/../../x",
        "/outside/update.safetensors",
        "..\\hospital-b\\update.safetensors",
        "C:update.safetensors",
        "s3://bucket/update.safetensors",
        "~/x",
        "..",
    ],
)
def test_an_output_that_leaves_its_folder_is_an_escape_and_nothing_else(path: str) -> None:
    assert faults(BLOCK.replace("update.safetensors", f"'{path}'")) == [("dvc_path_escape", "outs.0.path")]


@pytest.mark.parametrize("path", ["sub/update.safetensors", "./update.safetensors", "weights.bin", "''", "..x", "7"])
def test_an_output_of_another_name_is_not_the_plain_form(path: str) -> None:
    assert faults(BLOCK.replace("update.safetensors", path)) == [("dvc_schema", "outs.0.path")]


def test_folders_are_left_by_climbing_not_by_dots_in_names() -> None:
    assert not leaves_folder("a..b/c...d")


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (MD5, MD5.upper(), "outs.0.md5"),
        (MD5, "''", "outs.0.md5"),
        (MD5, MD5 + ".dir", "outs.0.md5"),
        (MD5, "null", "outs.0.md5"),
        ("size: 30", "size: 0", "outs.0.size"),
        ("size: 30", "size: true", "outs.0.size"),
        ("size: 30", "size: 30.0", "outs.0.size"),
        ("size: 30", "size: '30'", "outs.0.size"),
        ("size: 30", "size: -1", "outs.0.size"),
        ("  size: 30\n", "", "outs.0.size"),
        ("hash: md5", "hash: etag", "outs.0.hash"),
        ("  hash: md5\n", "", "outs.0.hash"),
        ("remote: sites-hospital-a", "remote: sites-hospital-b", "outs.0.remote"),
        ("  remote: sites-hospital-a\n", "", "outs.0.remote"),
        ("  hash: md5", "  hash: md5\n  cache: false", "outs.0.cache"),
        ("repository: sites/hospital-a", "repository: global", "meta.fedops.repository"),
        (f"manifest: {MANIFEST}", f"manifest: {SHA}", "meta.fedops.manifest"),
        (f"sha256: {SHA}", "sha256: x", "meta.fedops.sha256"),
        (f"    sha256: {SHA}\n", "", "meta.fedops.sha256"),
        ("meta:\n", "meta:\n  other: 1\n", "meta.other"),
        ("  fedops:\n", "  fedops2:\n", "meta.fedops"),
        ("outs:\n", "frozen: true\nouts:\n", "frozen"),
        ("outs:\n", "deps: []\nouts:\n", "deps"),
    ],
)
def test_each_departure_from_the_plain_form_is_named(old: str, new: str, field: str) -> None:
    changed = BLOCK.replace(old, new, 1) if "sha256: a" not in old else BLOCK.replace(old, new)
    assert changed != BLOCK
    assert ("dvc_schema", field) in faults(changed)


def test_every_fault_of_a_pointer_is_told() -> None:
    text = BLOCK.replace("size: 30", "size: 0").replace("hash: md5", "hash: x").replace("- md5", "- md5sum")
    assert {field for _, field in faults(text)} == {"outs.0.size", "outs.0.hash", "outs.0.md5", "outs.0.md5sum"}


def test_two_outputs_are_refused_and_both_paths_looked_at() -> None:
    second = "- md5: x\n  path: ../../.git/hooks/post-checkout\nmeta"
    assert faults(BLOCK.replace("meta", second, 1)) == [("dvc_path_escape", "outs.1.path"), ("dvc_schema", "outs")]


def test_another_working_folder_is_an_escape() -> None:
    assert set(faults("wdir: ../..\n" + BLOCK)) == {("dvc_schema", "wdir"), ("dvc_path_escape", "wdir")}
    assert faults("wdir: .\n" + BLOCK) == [("dvc_schema", "wdir")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("outs: x\nmeta: x\n", [("dvc_schema", "outs"), ("dvc_schema", "meta")]),
        ("outs: []\nmeta:\n", [("dvc_schema", "outs"), ("dvc_schema", "meta")]),
        ("outs: [x]\nmeta: {fedops: 1}\n", [("dvc_schema", "outs.0"), ("dvc_schema", "meta.fedops")]),
        ("[]\n", [("dvc_schema", "")]),
        ("a: 1\n", [("dvc_schema", "outs"), ("dvc_schema", "meta"), ("dvc_schema", "a")]),
    ],
)
def test_another_shape_of_file_is_refused(text: str, found: list[tuple[str, str | None]]) -> None:
    assert [(slug, field or "") for slug, field in faults(text)] == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "outs: [",
        "outs: &a []\nmeta: *a\n",
        "outs: !!python/object:os.system x\n",
        "outs: []\nouts: []\n",
        "a: 007\n",
    ],
    ids=["empty", "cut", "anchor", "tag", "twice", "octal"],
)
def test_what_is_not_strict_yaml_is_refused(text: str) -> None:
    assert faults(text) == [("dvc_schema", None)]


@pytest.mark.parametrize(
    ("placed_at", "slug"),
    [
        ("sites/Hospital-A/update.safetensors.dvc", "site_id_invalid"),
        ("sites/global/update.safetensors.dvc", "site_id_reserved"),
        ("sites/hospital-a/sub/update.safetensors.dvc", "path_not_allowed"),
        ("update.safetensors.dvc", "path_not_allowed"),
        ("sites/hospital-a/update.safetensors", "path_not_allowed"),
    ],
)
def test_a_place_that_no_pointer_can_have_is_refused(placed_at: str, slug: str) -> None:
    assert faults(BLOCK, placed_at)[0] == (slug, "placed_at")


def test_a_pointer_of_junk_makes_a_short_report() -> None:
    assert len(judge(BLOCK + "".join(f"k{i}: 1\n" for i in range(500)))) == 50
