"""The stores that pass the contract suite; a new adapter adds its Backend to BACKENDS."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from fedops.adapters.store_layout import LayoutStore
from fedops.core.ids import Digest
from fedops.ports import Store
from tests.fakes_store import FakeStore


class Backend(Protocol):
    """A store, and what its operator or an accident can do to it behind its back."""

    heals: bool  # uploading again replaces a damaged blob; registries keep the one they have

    @property
    def store(self) -> Store: ...

    def lose(self, repository: str, digest: Digest) -> None:
        """Delete one blob: a manifest, a config or a layer."""
        ...

    def damage(self, repository: str, digest: Digest) -> None:
        """Change one bit of a blob; its length stays."""
        ...

    def plant(self, repository: str, manifest: bytes) -> Digest:
        """Keep manifest bytes as they are, whose blobs may be absent."""
        ...


class LayoutBackend:
    heals = True

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.store = LayoutStore(root)

    def _blob(self, repository: str, digest: Digest) -> Path:
        return self.store.root / repository / "blobs" / digest.replace(":", "/")

    def lose(self, repository: str, digest: Digest) -> None:
        self._blob(repository, digest).unlink()

    def damage(self, repository: str, digest: Digest) -> None:
        path = self._blob(repository, digest)
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    def plant(self, repository: str, manifest: bytes) -> Digest:
        digest = Digest("sha256:" + hashlib.sha256(manifest).hexdigest())
        path = self._blob(repository, digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(manifest)
        return digest


class FakeBackend:
    heals = True

    def __init__(self) -> None:
        self.store = FakeStore()
        self.lose, self.damage, self.plant = self.store.lose, self.store.damage, self.store.plant


def _layout(folder: Path) -> Iterator[Backend]:
    yield LayoutBackend(folder / "store")


def _fake(folder: Path) -> Iterator[Backend]:
    yield FakeBackend()


BACKENDS: dict[str, Callable[[Path], Iterator[Backend]]] = {"layout": _layout, "fake": _fake}
