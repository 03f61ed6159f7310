"""A short seeded run over every reader of strangers' bytes; `make soak` does the same with a million inputs."""

from __future__ import annotations

import io
import random
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from tests.fuzz.mutation import mutate
from tests.fuzz.readers import LIMITS, READERS, Reader

INPUTS, MEASURED = 1500, 500


@pytest.mark.parametrize("name", READERS)
def test_each_seed_is_taken_as_the_reference_reads_it(name: str) -> None:
    assert all(READERS[name].check(seed) for seed in READERS[name].seeds)


@pytest.mark.parametrize("name", [name for name in READERS if READERS[name].refused])
def test_what_was_taken_once_and_the_reference_refuses_is_refused(name: str) -> None:
    for data in READERS[name].refused:
        with pytest.raises(zipfile.BadZipFile):
            zipfile.ZipFile(io.BytesIO(data))
        assert not READERS[name].check(data)


@pytest.mark.parametrize("name", READERS)
def test_no_damaged_bytes_make_a_reader_take_more_memory_than_the_limits_allow(name: str) -> None:
    """Numbers at the edges are among them: sizes, shapes, offsets and counts of up to 2 ** 64."""
    reader, rng = READERS[name], random.Random(12)
    for seed in reader.corpus:
        reader.check(seed)  # what is imported or cached at first is no input's
    tracemalloc.start()
    try:
        for number in range(MEASURED):
            data = mutate(rng, reader.corpus, reader.words)
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            reader.check(data)
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak < LIMITS.expanded_bytes, f"{name}, input {number}: {peak:,} bytes for {data!r}"
    finally:
        tracemalloc.stop()


def test_what_is_as_large_as_the_limits_allow_is_measured() -> None:
    """So that the test above could fail: a model of half the limit takes at least that much."""
    half = LIMITS.expanded_bytes // 2
    data = save({"w": np.zeros(half // 8, np.float64)})
    tracemalloc.start()
    try:
        assert READERS["safetensors"].check(data)
        assert half < tracemalloc.get_traced_memory()[1] < 8 * LIMITS.expanded_bytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", READERS)
def test_damaged_bytes_crash_no_reader_and_are_never_taken_for_something_else(name: str) -> None:
    reader, rng = READERS[name], random.Random(11)
    taken = 0
    for number in range(INPUTS):
        data = mutate(rng, reader.corpus, reader.words)
        try:
            taken += reader.check(data)
        except BaseException as e:
            e.add_note(f"{name}, input {number}: {data!r}")
            raise
    assert 0 < taken < INPUTS, "inputs that are all refused, or all taken, prove nothing"


@settings(max_examples=300, deadline=None, database=None)
@given(name=st.sampled_from(sorted(READERS)), data=st.binary(max_size=300))
def test_any_bytes_get_an_answer(name: str, data: bytes) -> None:
    READERS[name].check(data)


@settings(max_examples=300, deadline=None, database=None)
@given(name=st.sampled_from(["json", "yaml", "record", "refs"]), text=st.text(max_size=200))
def test_any_text_gets_an_answer(name: str, text: str) -> None:
    reader: Reader = READERS[name]
    reader.check(text.encode("utf-8", "surrogatepass"))
