"""A model cut into chunks: the same cuts for every file, since all have the same tensors in the same canonical order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from fedops.core.facts import Dtype, Specs
from fedops.core.norms import BLOCK
from fedops.core.settings import IntegerRule, Integers
from fedops.core.tensors import DTYPES, Placed, element_count, is_float


@dataclass(frozen=True)
class Piece:
    """A run of elements of one tensor."""

    name: str
    start: int  # elements from the beginning of the tensor; a multiple of BLOCK if the chunks are at least that large
    count: int


@dataclass(frozen=True)
class Chunk:
    """Neighbouring pieces of one dtype and one rule: a run of bytes in the canonical data."""

    index: int  # 0, 1, … without gaps: together the chunks are the whole data, in order
    position: int  # bytes from the beginning of the data
    dtype: Dtype
    rule: IntegerRule | None  # None: float
    pieces: tuple[Piece, ...]

    @cached_property
    def count(self) -> int:
        """Elements."""
        return sum(piece.count for piece in self.pieces)

    @property
    def is_float(self) -> bool:
        return DTYPES[self.dtype].kind == "float"


def integer_rules(policy: Integers, specs: Specs) -> Mapping[str, IntegerRule]:
    """The rule of each integer and bool tensor: of its exact name, else of the first glob in the policy's order."""
    rules: dict[str, IntegerRule] = {}
    for name, spec in specs.items():
        if not is_float(spec):
            globs = (rule for glob, rule in policy.tensors.items() if fnmatchcase(name, glob))
            rules[name] = policy.tensors[name] if name in policy.tensors else next(globs, policy.default)
    return rules


def plan_chunks(
    layout: tuple[Placed, ...], rules: Mapping[str, IntegerRule], elements: int, integer_elements: int | None = None
) -> Iterator[Chunk]:
    """Cut a model into chunks; small tensors share one.

    Args:
        layout: the canonical layout.
        rules: of the integer and bool tensors.
        elements: the most in a float chunk, at least 1. From BLOCK on no block of a norm is cut in two.
        integer_elements: the most in another one; None: the same.
    """
    index = position = held = 0
    pieces: list[Piece] = []
    kind: tuple[Dtype, IntegerRule | None] | None = None
    for placed in layout:
        most = elements if integer_elements is None or is_float(placed.spec) else integer_elements
        step = min(most, BLOCK)
        total = element_count(placed.spec)
        for start in range(0, total, step):
            piece = Piece(placed.name, start, min(step, total - start))
            here = (placed.spec.dtype, rules.get(placed.name))
            if kind is not None and (here != kind or held + piece.count > most):
                yield Chunk(index, position, *kind, tuple(pieces))
                index, position = index + 1, position + held * DTYPES[kind[0]].itemsize
                pieces, held = [], 0
            kind = here
            pieces.append(piece)
            held += piece.count
    if kind is not None:
        yield Chunk(index, position, *kind, tuple(pieces))
