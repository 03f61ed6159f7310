"""A short seeded run over every reader of strangers' bytes; `make soak` does the same with a million inputs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.mutation import mutate
from tests.fuzz.readers import READERS, Reader

INPUTS = 1500


@pytest.mark.parametrize("name", READERS)
def test_each_seed_is_taken_as_the_reference_reads_it(name: str) -> None:
    assert all(READERS[name].check(seed) for seed in READERS[name].seeds)


@pytest.mark.parametrize("name", READERS)
def test_damaged_bytes_crash_no_reader_and_are_never_taken_for_something_else(name: str) -> None:
    reader, rng = READERS[name], random.Random(11)
    taken = 0
    for number in range(INPUTS):
        data = mutate(rng, reader.seeds, reader.words)
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
