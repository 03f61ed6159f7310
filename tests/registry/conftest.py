"""Registries of one test: the real one, and a proxy before it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedops.adapters.store_registry import RegistryStore
from tests.registry.proxy import FaultProxy, fault_proxy
from tests.registry.server import RegistryServer, registry_server
from tests.registry.worlds import StillClock, registry_store


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RegistryServer]:
    with registry_server(tmp_path / "registry") as running:
        yield running


@pytest.fixture
def proxy(server: RegistryServer) -> Iterator[FaultProxy]:
    with fault_proxy(server.host) as running:
        yield running


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def store(proxy: FaultProxy, clock: StillClock) -> Iterator[RegistryStore]:
    """The store of the proxy's registry, which asks for no password."""
    made = registry_store(proxy.host, clock=clock)
    yield made
    made.close()


@pytest.fixture
def update(tmp_path: Path) -> Path:
    path = tmp_path / "trained.safetensors"
    path.write_bytes(b"eight floats of hospital-a")
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An empty folder for what is downloaded."""
    folder = tmp_path / "out"
    folder.mkdir()
    return folder
