"""Equal names if and only if equal bytes, and no file is hashed without need."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from fedops.adapters.model_files import ModelFile, ModelFiles
from fedops.app.same_bytes import name_bytes
from fedops.core.settings import Limits

LENGTH = 50_000


class Files:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack

    def open(self, data: bytes) -> ModelFile:
        path = self.folder / str(len(list(self.folder.iterdir())))
        path.write_bytes(data)
        model, _ = ModelFiles().open(path, Limits(), path.name)
        assert model is not None
        self.stack.callback(model.close)
        return model


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    with ExitStack() as stack:
        yield Files(tmp_path, stack)


def model(changed: int | None = None, metadata: dict[str, str] | None = None) -> bytes:
    """Many equal numbers, one of them changed."""
    values = np.ones(LENGTH, np.float32)
    if changed is not None:
        values[changed] = 2
    data: bytes = save({"w": values}, metadata)
    return data


def hex256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_equal_files_and_only_they_have_equal_names(files: Files) -> None:
    # 0 is seen in a sample, 777 is not; the last is equal in all tensors but not in its bytes.
    kinds = [model(), model(0), model(777), model(), model(777), model(metadata={"a": "b"})]
    names = name_bytes([(files.open(data), None) for data in kinds])
    assert [names.index(name) for name in names] == [0, 1, 2, 0, 2, 5]
    assert (names[0], names[4]) == (hex256(model()), hex256(model(777)))


def test_a_glance_is_enough_for_files_that_differ_all_over(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    opened = [files.open(save({"w": rng.standard_normal(LENGTH)})) for _ in range(3)]
    opened.append(files.open(save({"w": np.zeros(LENGTH + 1)})))
    monkeypatch.setattr(ModelFile, "sha256", lambda self: pytest.fail("hashed without need"))
    assert len(set(name_bytes([(m, None) for m in opened]))) == 4


def test_a_stated_digest_is_not_taken_again(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    twice = [(files.open(model()), hex256(model())) for _ in range(2)]
    with monkeypatch.context() as patched:
        patched.setattr(ModelFile, "sha256", lambda self: pytest.fail("hashed without need"))
        assert name_bytes(twice) == (hex256(model()),) * 2
    mixed = [(files.open(model()), None), *twice]
    assert name_bytes(mixed) == (hex256(model()),) * 3


def test_models_without_a_value_may_be_equal_too(files: Files) -> None:
    empty = save({"w": np.zeros((0, 4), np.float32)})
    assert len(set(name_bytes([(files.open(empty), None), (files.open(empty), None)]))) == 1
    assert name_bytes([]) == ()
