"""The catalogue is complete, its ids are unique, and its messages are safe to show."""

from __future__ import annotations

from fedops.core.catalogue import CATALOGUE, SLUGS
from fedops.core.findings import as_json, errors, finding, hint, message


def test_every_slug_has_exactly_one_entry_and_ids_are_unique() -> None:
    assert set(CATALOGUE) == set(SLUGS)
    ids = [rule.id for rule in CATALOGUE.values()]
    assert len(set(ids)) == len(ids)


def test_every_entry_says_what_why_and_what_next() -> None:
    for slug, rule in CATALOGUE.items():
        assert rule.text, slug
        assert rule.hint, slug
        assert rule.why.endswith("."), slug


def test_ids_of_the_contract_are_kept() -> None:
    fixed = {"format_unknown": 201, "empty_update": 210, "shape_mismatch": 214, "non_finite": 218, "metadata_invalid_json": 220,
             "too_stale": 226, "site_unknown": 230, "path_not_allowed": 240, "dvc_schema": 250, "no_weight": 301, "tag_moved": 401,
             "credential_scope": 501}  # fmt: skip
    for slug, number in fixed.items():
        assert CATALOGUE[slug].id == f"FO-{number}"  # type: ignore[index]  # keys of the table above


def test_a_message_says_where_what_got_and_expected() -> None:
    f = finding("shape_mismatch", "a.safetensors", got=[4, 2], expected=[3, 2], detail={"tensor": "head.weight"})
    assert message(f) == (
        "a.safetensors: a tensor has another shape than in the base model (tensor head.weight), [4, 2] -> [3, 2] [FO-214]"
    )
    assert hint(f) == CATALOGUE["shape_mismatch"].hint
    assert message(finding("non_finite", "x", got="nan")).endswith(", got nan [FO-218]")
    assert message(finding("non_finite", "x", expected=1)).endswith(", expected 1 [FO-218]")
    assert message(finding("non_finite", "x")).endswith("infinity [FO-218]")


def test_a_unit_stands_behind_the_numbers() -> None:
    found = finding("file_corrupt", "a.npz", got=8, expected=24, detail={"tensor": "w", "unit": "bytes"})
    assert message(found).endswith(" (tensor w), 8 -> 24 bytes [FO-202]")


def test_text_of_a_site_cannot_steer_a_terminal_or_flood_it() -> None:
    text = message(finding("site_unknown", "a\x1b[2J\n", got="x" * 500))
    assert "\x1b" not in text
    assert "\n" not in text
    assert "\\x1b" in text
    assert len(text) < 400


def test_json_keeps_types_and_warnings_are_no_errors() -> None:
    f = finding("share_capped", "policies", got=0.1, detail={"site": "a"})
    assert as_json(f) == {"id": "FO-306", "slug": "share_capped", "severity": "warning", "where": "policies", "got": 0.1,
                          "expected": None, "detail": {"site": "a"}}  # fmt: skip
    assert as_json(finding("no_weight", "x"))["detail"] is None
    assert errors([f, finding("no_weight", "x")]) == (finding("no_weight", "x"),)
