"""Which model files have the same bytes, without hashing those of which a glance shows that they differ."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fedops.core.tensors import data_bytes
from fedops.ports import OpenModel

_SAMPLES = 16
_SAMPLE_BYTES = 1024


def name_bytes(files: Sequence[tuple[OpenModel, str | None]]) -> tuple[str, ...]:
    """A name for the bytes of each file: two names are equal if and only if the bytes are.

    Models of different trainings differ all over, so that a few samples tell them apart; only files that are equal
    there are hashed, and of those only the ones without a digest.

    Args:
        files: open models, each with the sha256 that somebody states of it, which is believed; or None.

    Returns:
        The sha256 of files that may be equal to another one; any other text for the rest.
    """
    alike: dict[object, list[int]] = {}
    for place, (model, _) in enumerate(files):
        alike.setdefault(_glance(model), []).append(place)
    names = [f"unlike any other: {place}" for place in range(len(files))]
    for places in alike.values():
        if len(places) > 1:
            for place in places:
                model, stated = files[place]
                names[place] = stated or model.sha256()
    return tuple(names)


def _glance(model: OpenModel) -> object:
    """What equal files have in common: format, size, and a few samples of the data."""
    total = data_bytes(model.specs)
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_SAMPLE_BYTES))
    for start in range(0, total, max(1, _SAMPLE_BYTES, total // _SAMPLES)):
        here = buffer[: min(_SAMPLE_BYTES, total - start)]
        model.read_into(start, here)
        digest.update(here)
    return model.format, model.size, digest.hexdigest()
