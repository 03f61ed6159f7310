"""What must hold of a folder in OCI image layout, read without the code under test."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from oras.layout import Layout


def index_of(folder: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((folder / "index.json").read_bytes())["manifests"]
    return entries


def tags_of(folder: Path) -> dict[str, str]:
    return {e["annotations"]["org.opencontainers.image.ref.name"]: e["digest"] for e in index_of(folder)}


def assert_valid(folder: Path) -> None:
    """The rules of the OCI image layout, and that every tag leads to whole bytes; a folder without marker is no layout."""
    for blob in (folder / "blobs" / "sha256").iterdir():
        assert blob.name == hashlib.sha256(blob.read_bytes()).hexdigest(), "a blob is always whole"
    if not (folder / "oci-layout").exists():
        return
    assert (folder / "oci-layout").read_bytes() == b'{"imageLayoutVersion":"1.0.0"}'
    Layout(str(folder)).validate()
    for entry in index_of(folder):
        blobs = folder / "blobs" / "sha256"
        manifest = (blobs / entry["digest"].removeprefix("sha256:")).read_bytes()
        assert entry["size"] == len(manifest)
        assert entry["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
        for part in (json.loads(manifest)["config"], *json.loads(manifest)["layers"]):
            assert (blobs / part["digest"].removeprefix("sha256:")).stat().st_size == part["size"]
