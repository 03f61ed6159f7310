"""The real registry of the CNCF distribution project, as Debian packages it, on loopback and in a folder of the test."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from fedops.core.ids import Digest

_LISTENING = re.compile(rb"listening on 127\.0\.0\.1:([0-9]+)")


class RegistryServer:
    """A running registry.

    Attributes:
        host: "127.0.0.1:<port>".
        root: its storage.
    """

    def __init__(self, host: str, root: Path) -> None:
        self.host, self.root = host, root

    def blob(self, digest: Digest) -> Path:
        """The file with the bytes of a blob, a manifest, config or layer, of whichever repository."""
        hex_digits = digest.removeprefix("sha256:")
        return self.root / "docker" / "registry" / "v2" / "blobs" / "sha256" / hex_digits[:2] / hex_digits / "data"


@contextmanager
def registry_server(
    folder: Path, *, auth: Mapping[str, Any] | None = None, delete: bool = True
) -> Iterator[RegistryServer]:
    """Run a registry for the length of the block.

    Args:
        folder: for its configuration and data; made if it is absent.
        auth: the `auth:` section of its configuration.
        delete: whether it lets anything be deleted.
    """
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("no docker-registry on this machine: apt-get install docker-registry")
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "version": "0.1",
        "log": {"level": "info", "accesslog": {"disabled": True}},
        # NOTE: no cache of descriptors: tests lose and damage blobs behind the registry's back.
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": delete}},
        "http": {"addr": "127.0.0.1:0", "secret": "of this test"},
        **({"auth": dict(auth)} if auth else {}),
    }
    path = folder / "config.json"  # JSON is YAML
    path.write_text(json.dumps(config))
    with subprocess.Popen(
        [program, "serve", str(path)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        try:
            port = _port(process.stderr)
            # What it says must be taken off its hands, or it stops when the pipe is full.
            drain = threading.Thread(target=process.stderr.read, daemon=True)
            drain.start()
            yield RegistryServer(f"127.0.0.1:{port}", folder / "data")
        finally:
            process.kill()
        drain.join()


def _port(log: IO[bytes]) -> int:
    said = b""
    for line in log:
        if match := _LISTENING.search(line):
            return int(match[1])
        said += line
    raise AssertionError(f"docker-registry did not start: {said.decode(errors='replace')}")
