"""Stages three and four: the manifest against the record, the tensors against the base, and every value."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedops.core.documents import validate
from fedops.core.facts import Artifact, Dtype, Layer, Specs, TensorSpec
from fedops.core.findings import Finding
from fedops.core.ids import Digest
from fedops.core.norms import BLOCK, BlockNorm
from fedops.core.records import Record
from fedops.core.settings import SubmissionPolicy
from fedops.core.validate import not_finite, validate_artifact, validate_metadata, validate_model, validate_specs
from fedops.core.validate_change import MAX_FINDINGS
from fedops.core.validate_model import CHUNK

DTYPES: dict[str, Dtype] = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "uint8": "U8",
    "bool": "BOOL",
}


class Arrays:
    """A model in memory that notes what is read."""

    def __init__(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        self.tensors = tensors
        self.reads: list[tuple[str, int, int]] = []

    @property
    def specs(self) -> Specs:
        return {k: TensorSpec(DTYPES[v.dtype.name], v.shape) for k, v in self.tensors.items()}

    def read(self, name: str, start: int, count: int) -> NDArray[Any]:
        self.reads.append((name, start, count))
        part = self.tensors[name].reshape(-1)[start : start + count]
        return part.astype(np.float64) if part.dtype.kind == "f" else part


def f32(*values: float, shape: tuple[int, ...] | None = None) -> NDArray[np.float32]:
    return np.array(values, np.float32).reshape(shape if shape is not None else (len(values),))


def policy(**changes: Any) -> SubmissionPolicy:
    return validate(changes, SubmissionPolicy, "policy")


def judge(
    update: Mapping[str, NDArray[Any]],
    base: Mapping[str, NDArray[Any]] | None,
    *,
    limit: float | None = None,
    payload: str = "full",
    want_norm: bool = False,
) -> tuple[list[Finding], float | None]:
    found, norm = validate_model(
        Arrays(update),
        None if base is None else Arrays(base),
        policy(update_norm_max=limit),
        where="a.safetensors",
        payload=payload,
        want_norm=want_norm,
    )
    assert all(f.where == "a.safetensors" for f in found)
    return list(found), norm


BASE = {"fc.weight": f32(0, 0, 0, 0, shape=(2, 2)), "fc.bias": f32(0, 0)}

# ------------------------------------------------------------------ specs


def test_equal_names_shapes_and_dtypes_are_fine() -> None:
    assert judge(BASE, BASE) == ([], None)
    assert judge(dict(reversed(BASE.items())), BASE) == ([], None)


def test_a_missing_tensor_is_named() -> None:
    [found], _ = judge({"fc.weight": BASE["fc.weight"]}, BASE)
    assert (found.slug, found.detail) == ("missing_keys", {"keys": ["fc.bias"]})


def test_an_extra_tensor_is_named() -> None:
    [found], _ = judge(BASE | {"fc.weight.absmax": f32(3)}, BASE)
    assert (found.slug, found.detail) == ("unexpected_keys", {"keys": ["fc.weight.absmax"]})


def test_names_differ_by_case() -> None:
    found, _ = judge({"fc.Weight": BASE["fc.weight"], "fc.bias": BASE["fc.bias"]}, BASE)
    assert [(f.slug, f.detail) for f in found] == [
        ("missing_keys", {"keys": ["fc.weight"]}),
        ("unexpected_keys", {"keys": ["fc.Weight"]}),
    ]


def test_an_update_without_tensors_is_empty_not_incomplete() -> None:
    [found], _ = judge({}, BASE)
    assert found.slug == "empty_update"
    assert judge({}, {}) == ([], None)


@pytest.mark.parametrize("shape", [(4, 2), (6,), (1, 6), (2, 3), (3, 2, 1)])
def test_a_shape_is_neither_stretched_nor_reshaped(shape: tuple[int, ...]) -> None:
    [found], _ = judge({"head": np.zeros(shape, np.float32)}, {"head": np.zeros((3, 2), np.float32)})
    assert (found.slug, found.got, found.expected, found.detail) == (
        "shape_mismatch",
        list(shape),
        [3, 2],
        {"tensor": "head"},
    )


def test_a_scalar_is_not_a_vector_of_one() -> None:
    [found], _ = judge({"n": np.array([7])}, {"n": np.array(7)})
    assert (found.slug, found.got, found.expected) == ("shape_mismatch", [1], [])


def test_a_dtype_is_never_cast() -> None:
    [found], _ = judge({"w": np.zeros(2)}, {"w": f32(0, 0)})
    assert (found.slug, found.got, found.expected, found.detail) == ("dtype_mismatch", "F64", "F32", {"tensor": "w"})


def test_every_difference_is_told() -> None:
    found, _ = judge({"a": np.zeros(3), "b": f32(1), "x": f32(1)}, {"a": f32(0, 0), "b": f32(1), "c": f32(1)})
    assert [f.slug for f in found] == ["missing_keys", "unexpected_keys", "shape_mismatch", "dtype_mismatch"]


def test_a_foreign_model_makes_a_short_report() -> None:
    many = {f"t{i}": TensorSpec("F32", (1,)) for i in range(300)}
    other = {f"t{i}": TensorSpec("F64", (2,)) for i in range(300)}
    assert len(validate_specs(many, other, "x")) == 50
    [missing] = validate_specs({"a": TensorSpec("F32", ())}, many | {"a": TensorSpec("F32", ())}, "x")
    assert missing.detail is not None
    assert len(missing.detail["keys"]) == 50


def test_a_payload_that_this_version_cannot_read_is_refused() -> None:
    [found], _ = judge(BASE, BASE, payload="topk")
    assert (found.slug, found.got) == ("payload_refused", "topk")


# ------------------------------------------------------------------ values


@pytest.mark.parametrize(("value", "shown"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_a_value_that_is_not_finite_is_found_with_its_place(value: float, shown: str) -> None:
    [found], _ = judge({"fc.weight": f32(1, value, 2, value, shape=(2, 2)), "fc.bias": f32(0, 0)}, BASE)
    assert (found.slug, found.got, found.detail) == ("non_finite", shown, {"tensor": "fc.weight", "index": 1})


def test_each_tensor_with_a_bad_value_is_told_once() -> None:
    found, _ = judge({"fc.weight": f32(math.nan, 1, 1, math.inf, shape=(2, 2)), "fc.bias": f32(0, math.nan)}, BASE)
    assert [f.detail for f in found] == [{"tensor": "fc.bias", "index": 1}, {"tensor": "fc.weight", "index": 0}]


def test_half_precision_that_overflowed_is_found() -> None:
    with np.errstate(over="ignore"):
        overflowed = np.array([1, 70000]).astype(np.float16)
    [found], _ = judge({"w": overflowed}, {"w": np.zeros(2, np.float16)})
    assert (found.slug, found.got) == ("non_finite", "inf")


def test_values_are_checked_without_a_base_too() -> None:
    [found], norm = judge({"w": f32(math.nan)}, None, want_norm=True)
    assert (found.slug, norm) == ("non_finite", None)
    assert judge({"w": f32(1)}, None, limit=0.001) == ([], None)


def test_integers_and_tensors_without_elements_are_finite() -> None:
    model = {
        "n": np.array(2**63 - 1),
        "flag": np.array([True, False]),
        "byte": np.array([255], np.uint8),
        "queue": np.zeros((0, 4), np.float32),
        "scale": np.array(4, np.float32),
    }
    assert judge(model, model, want_norm=True) == ([], 0.0)


def test_each_value_is_read_once_in_chunks_of_whole_blocks() -> None:
    size = 2 * CHUNK + 5
    update, base = (
        Arrays({"w": np.zeros(size, np.float32), "n": np.zeros(3, np.int64)}),
        Arrays({"w": np.zeros(size, np.float32), "n": np.zeros(3, np.int64)}),
    )
    assert validate_model(update, base, policy(), where="x", want_norm=True) == ((), 0.0)
    assert update.reads == [("n", 0, 3), ("w", 0, CHUNK), ("w", CHUNK, CHUNK), ("w", 2 * CHUNK, 5)]
    assert base.reads == update.reads[1:]
    assert CHUNK % BLOCK == 0


def test_a_bad_value_behind_the_first_chunk_has_its_place_in_the_whole_tensor() -> None:
    values = np.zeros(CHUNK + 10, np.float32)
    values[CHUNK + 7] = math.nan
    [found], _ = judge({"w": values}, {"w": np.zeros_like(values)})
    assert found.detail == {"tensor": "w", "index": CHUNK + 7}


# ------------------------------------------------------------------ norm


def test_the_norm_is_that_of_the_whole_difference() -> None:
    base = {"a": f32(7), "b": f32(-1), "n": np.array([0])}
    update = {"a": f32(10), "b": f32(3), "n": np.array([10**6])}
    assert judge(update, base) == ([], None)
    assert judge(update, base, want_norm=True) == ([], 5.0)
    assert judge(update, base, limit=5.0) == ([], 5.0)
    [found], norm = judge(update, base, limit=4.999)
    assert (found.slug, found.got, found.expected, norm) == ("norm_exceeded", 5.0, 4.999, 5.0)


def test_a_delta_is_its_own_difference() -> None:
    assert judge({"a": f32(3), "b": f32(4)}, {"a": f32(100), "b": f32(100)}, payload="delta", want_norm=True) == (
        [],
        5.0,
    )
    assert judge({"a": f32(3), "b": f32(4)}, None, payload="delta", want_norm=True) == ([], 5.0)


@pytest.mark.parametrize("value", [1e200, 1.7e308])
def test_a_norm_beyond_float64_is_more_than_any_limit(value: float) -> None:
    [found], norm = judge({"w": np.array([value, -value])}, {"w": np.array([-value, value])}, limit=1e308)
    assert (found.slug, found.got, norm) == ("norm_exceeded", "inf", math.inf)


def test_the_norm_is_right_to_the_last_bits() -> None:
    generator = random.Random(7)
    values = [generator.gauss(0, 1) * 10.0 ** generator.randint(-8, 3) for _ in range(70_000)]
    exact = sum(Fraction(v) ** 2 for v in values)
    norm = BlockNorm()
    norm.add(np.array(values))
    root = norm.value()
    assert abs(Fraction(root) ** 2 - exact) <= exact * Fraction(1, 2**48)


def test_the_norm_does_not_depend_on_the_chunks() -> None:
    values = np.random.default_rng(3).standard_normal(5 * BLOCK + 17)
    lengths = set()
    for step in (BLOCK, 2 * BLOCK, 4 * BLOCK, 8 * BLOCK):
        norm = BlockNorm()
        for start in range(0, values.size, step):
            norm.add(values[start : start + step])
        lengths.add(norm.value())
    assert len(lengths) == 1


def test_a_norm_whose_square_overflows_in_the_sum_is_infinite() -> None:
    norm = BlockNorm()
    norm.add(np.full(1, 1.3e154))
    norm.add(np.full(1, 1.3e154))
    assert norm.value() == math.inf
    assert BlockNorm().value() == 0.0


# ------------------------------------------------------------------ metadata and artifact


def test_free_metadata_is_refused_in_a_repository_and_dropped_from_a_draft() -> None:
    assert validate_metadata(False, "x", draft=False) == ()
    [refused] = validate_metadata(True, "x", draft=False)
    assert (refused.slug, refused.severity) == ("unexpected_keys", "error")
    [dropped] = validate_metadata(True, "x", draft=True)
    assert (dropped.slug, dropped.severity) == ("metadata_dropped", "warning")


RECORD = validate(
    {
        "site": "hospital-a",
        "base_version": 8,
        "num_examples": 150,
        "format": "safetensors",
        "payload": "full",
        "sha256": "a" * 64,
        "md5": "b" * 32,
        "size": 160,
        "manifest": "sha256:" + "c" * 64,
        "metrics": {},
        "created_at": "2026-03-02T09:30:00Z",
    },
    Record,
    "record",
)
ARTIFACT = Artifact(
    "sites/hospital-a@sha256:" + "c" * 64,
    Digest("sha256:" + "c" * 64),
    Layer("a" * 64, 160, "update.safetensors"),
    {
        "fl.client-id": "hospital-a",
        "fl.base-version": "8",
        "fl.num-examples": "150",
        "fl.timestamp": "2026-03-02T09:30:00Z",
    },
    b"{}",
)


def judge_artifact(artifact: Artifact, extension: str = "safetensors", **limits: int) -> list[str]:
    found = validate_artifact(artifact, RECORD, policy(limits=limits), extension=extension)
    assert all(f.where == ARTIFACT.ref for f in found)
    return [f.slug for f in found]


def test_an_artifact_that_says_what_its_record_says_is_fine() -> None:
    assert judge_artifact(ARTIFACT) == []


@pytest.mark.parametrize(
    ("changes", "slug"),
    [
        ({"manifest": Digest("sha256:" + "d" * 64)}, "digest_mismatch"),
        ({"layer": Layer("d" * 64, 160, "update.safetensors")}, "hash_mismatch"),
        ({"layer": Layer("a" * 64, 161, "update.safetensors")}, "size_mismatch"),
        ({"layer": Layer("a" * 64, 160, "model.safetensors")}, "layer_title_invalid"),
        ({"layer": Layer("a" * 64, 160, "update.bin")}, "layer_title_invalid"),
        ({"config": b'{"patients": ["Jane Roe"]}'}, "foreign_layer_refused"),
        ({"config": b"{}\n"}, "foreign_layer_refused"),
        ({"annotations": {**ARTIFACT.annotations, "fl.client-id": "hospital-b"}}, "annotation_mismatch"),
        ({"annotations": {**ARTIFACT.annotations, "fl.base-version": "08"}}, "annotation_mismatch"),
        ({"annotations": {**ARTIFACT.annotations, "fl.num-examples": "9999"}}, "annotation_mismatch"),
        ({"annotations": {**ARTIFACT.annotations, "fl.timestamp": "2026-03-02T09:30:01Z"}}, "annotation_mismatch"),
        ({"annotations": {**ARTIFACT.annotations, "patient": "x"}}, "annotation_mismatch"),
        (
            {"annotations": {k: v for k, v in ARTIFACT.annotations.items() if k != "fl.client-id"}},
            "annotation_mismatch",
        ),
    ],
)
def test_an_artifact_that_tells_another_story_is_refused(changes: dict[str, Any], slug: str) -> None:
    assert judge_artifact(dataclasses.replace(ARTIFACT, **changes)) == [slug]


def test_an_artifact_has_a_largest_size() -> None:
    assert judge_artifact(ARTIFACT, update_bytes=159) == ["file_too_large"]


def test_all_faults_of_an_artifact_are_told_shortly() -> None:
    bad = dataclasses.replace(ARTIFACT, layer=Layer("d" * 64, 1, "x"), annotations={})
    assert judge_artifact(bad) == [
        "hash_mismatch",
        "size_mismatch",
        "layer_title_invalid",
        *["annotation_mismatch"] * 4,
    ]
    many = dataclasses.replace(ARTIFACT, annotations={f"k{i}": "v" for i in range(500)})
    assert len(judge_artifact(many)) == 50


def test_all_that_is_not_finite_is_counted_tensor_by_tensor_also_beyond_the_first_chunk() -> None:
    long = np.zeros(CHUNK + 5)
    long[[CHUNK - 1, CHUNK, CHUNK + 4]] = [np.inf, np.nan, -np.inf]
    update = Arrays({"a": f32(0, 1), "b": f32(1, 2, np.nan, 4), "long": long, "steps": np.array([1, 2])})
    assert [(f.slug, f.where, f.got, f.detail) for f in not_finite(update, "u")] == [
        ("non_finite", "u", "nan", {"tensor": "b", "index": 2, "values": 1, "of": 4}),
        ("non_finite", "u", "inf", {"tensor": "long", "index": CHUNK - 1, "values": 3, "of": CHUNK + 5}),
    ]
    assert not any(name == "steps" for name, _, _ in update.reads)
    assert not_finite(Arrays({"a": f32(0, 1), "empty": f32()}), "u") == ()


def test_of_very_many_tensors_the_first_are_told() -> None:
    many = Arrays({f"t{number:04d}": f32(np.nan) for number in range(MAX_FINDINGS + 3)})
    found = not_finite(many, "u")
    assert [dict(f.detail or {})["tensor"] for f in found] == [f"t{number:04d}" for number in range(MAX_FINDINGS)]
    assert len(many.reads) == MAX_FINDINGS, "what is not told is not read"
