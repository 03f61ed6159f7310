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
from tests.registry.proxy import Answer, FaultProxy, fault_proxy
from tests.registry.server import RegistryServer, registry_server
from tests.registry.worlds import registry_store


class Backend(Protocol):
    """A store, and what its operator or an accident can do to it behind its back."""

    lends: bool  # a copy inside the store shares the bytes, so that they are not looked at

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
    lends = False

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
    lends = False

    def __init__(self) -> None:
        self.store = FakeStore()
        self.lose, self.damage, self.plant = self.store.lose, self.store.damage, self.store.plant


class RegistryBackend:
    """A real registry behind a proxy, which gives out what no registry would take."""

    lends = True

    def __init__(self, server: RegistryServer, proxy: FaultProxy) -> None:
        self.store = registry_store(proxy.host)
        self._server, self._proxy = server, proxy

    def lose(self, repository: str, digest: Digest) -> None:
        self._server.blob(digest).unlink()

    def damage(self, repository: str, digest: Digest) -> None:
        path = self._server.blob(digest)
        data = bytearray(path.read_bytes())
        # A registry opens manifests: it would not give out one that is no JSON any more.
        data[data.find(b"update") if data.startswith(b'{"schemaVersion"') else -1] ^= 1
        path.write_bytes(data)

    def plant(self, repository: str, manifest: bytes) -> Digest:
        digest = Digest("sha256:" + hashlib.sha256(manifest).hexdigest())
        self._proxy.plan("GET", f"/{repository}/manifests/{digest}$", Answer(200, body=manifest), times=9)
        return digest


def _registry(folder: Path) -> Iterator[Backend]:
    with registry_server(folder / "registry") as server, fault_proxy(server.host) as proxy:
        backend = RegistryBackend(server, proxy)
        yield backend
        backend.store.close()


def _layout(folder: Path) -> Iterator[Backend]:
    yield LayoutBackend(folder / "store")


def _fake(folder: Path) -> Iterator[Backend]:
    yield FakeBackend()


BACKENDS: dict[str, Callable[[Path], Iterator[Backend]]] = {"layout": _layout, "fake": _fake, "registry": _registry}
# Those in which uploading again replaces a damaged blob; registries keep the one they have.
HEALING = ("layout", "fake")
