"""An auditor with a copy of a federation that somebody may have forged, and what `fedops verify` tells them."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fedops.cli.main import run
from tests.forgery import Forger

Found = dict[str, Any]


@dataclass(frozen=True)
class Report:
    """Exit code and JSON document of one `fedops verify`."""

    code: int
    document: dict[str, Any]

    @property
    def failed(self) -> list[int]:
        """Versions with an error."""
        return [row["version"] for row in self.document["versions"] if not row["ok"]]

    @property
    def levels(self) -> list[str]:
        return [row["level"] for row in self.document["versions"]]

    @property
    def findings(self) -> list[Found]:
        found: list[Found] = self.document["findings"]
        return found

    def of(self, number: int | None) -> list[Found]:
        """Findings of a version; None: those of none."""
        rows = self.document["versions"]
        if number is None:
            told = [f for row in rows for f in row["findings"]]
            return [f for f in self.findings if f not in told]
        return [f for row in rows if row["version"] == number for f in row["findings"]]

    def slugs(self, number: int | None) -> list[str]:
        return [f["slug"] for f in self.of(number)]

    def names(self, number: int | None, slug: str, **detail: Any) -> bool:
        """Whether a version has this finding, with at least these details; `where` and `got` are looked at as well."""
        return any(
            f["slug"] == slug and all({**f, **(f["detail"] or {})}.get(key) == value for key, value in detail.items())
            for f in self.of(number)
        )


@dataclass
class Auditor:
    """Everything in a folder of its own: the origin with its store, and clones of it.

    Attributes:
        kept: site -> its store as it was before its bytes were deleted; never to be changed.
    """

    folder: Path
    kept: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    count: Iterator[int] = field(default_factory=itertools.count)

    @property
    def origin(self) -> Path:
        return self.folder / "origin.git"

    @property
    def store(self) -> Path:
        return self.origin / "store"

    def forger(self) -> Forger:
        return Forger(self.origin)

    def clone(self) -> Path:
        """A fresh clone of the origin as it is."""
        target = self.folder / f"clone{next(self.count)}"
        command = ["git", "clone", "--quiet", str(self.origin), str(target)]
        subprocess.run(command, check=True, capture_output=True)
        return target

    def call(self, clone: Path, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a command line in a clone."""
        self.monkeypatch.chdir(clone)
        self.capsys.readouterr()
        code = run(arguments)
        out, err = self.capsys.readouterr()
        return code, out, err

    def verify(self, *arguments: str, clone: Path | None = None) -> Report:
        """`fedops verify --all`, or with other arguments, in a fresh clone."""
        code, out, _ = self.call(clone or self.clone(), "verify", *(arguments or ("--all",)), "--format", "json")
        return Report(code, json.loads(out))


def copied(past: Path, folder: Path) -> Path:
    """A copy of the origin that may be damaged."""
    return Path(shutil.copytree(past, folder / "origin.git"))


def flip(path: Path, offset: int) -> bytes:
    """Change one byte of a file; returns the bytes that were there."""
    good = path.read_bytes()
    data = bytearray(good)
    data[offset] ^= 0xFF
    path.chmod(0o644)
    path.write_bytes(data)
    return good


def unpack(repository: Path) -> None:
    """Every object as a file of its own."""
    for pack in list((repository / "objects" / "pack").glob("*.pack")):
        kept = repository / pack.name
        pack.rename(kept)
        for other in pack.parent.glob(f"{pack.stem}.*"):
            other.unlink()
        with kept.open("rb") as data:
            subprocess.run(["git", "-C", str(repository), "unpack-objects", "-q"], stdin=data, check=True)
        kept.unlink()
