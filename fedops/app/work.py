"""A site's own folder `.fedops/` in its clone: cached models, work in progress, and the journal; it never leaves."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fedops.app.snapshot import time_text
from fedops.core.disk import about
from fedops.core.documents import BadJson, Document, Json, dump_json, load_json_document, parse_json
from fedops.core.errors import ConfigError
from fedops.core.findings import Finding, finding
from fedops.core.ids import GlobalVersion
from fedops.core.records import Hex64, Metrics
from fedops.core.settings import Natural, Positive

JournalStep = Literal["pulled", "trained", "stored", "submitted"]
STALE_SECONDS = 7 * 86_400.0  # nothing tells a run that was killed from one that still trains
PART_SECONDS = 3600.0
_RUN = re.compile(r"run-[0-9a-f]{8}\Z")
_PART = re.compile(r"\.part-[0-9a-f]{16}\Z|\A\..+\.[0-9a-f]{8}\Z")  # a model's, and those of `write_through`


class NotFinite(Document):
    """A tensor with NaN or infinity: the first such value and its index, and how many of all values are so."""

    tensor: str
    index: Natural
    values: Positive
    of: Positive
    got: str


class Trained(Document):
    """result.json beside an update: what the training said of it; written last, so that it marks a whole result."""

    schema_: Literal["fedops.training-result/v1"] = Field(default="fedops.training-result/v1", alias="schema")
    site: str
    base_version: Natural
    num_examples: Positive
    metrics: Metrics
    sha256: Hex64
    size: Positive

    @property
    def facts(self) -> dict[str, Json]:
        """What the journal says of it."""
        return {
            "site": self.site,
            "version": self.base_version,
            "sha256": self.sha256,
            "num_examples": self.num_examples,
        }


class Diverged(Document):
    """refused.json: why an update was put aside at the end of its training; it keeps `run` from training the same again."""

    schema_: Literal["fedops.refused-training/v1"] = Field(default="fedops.refused-training/v1", alias="schema")
    site: str
    base_version: Natural
    hyperparameters: dict[str, Any]  # other ones are worth another training
    tensors: tuple[NotFinite, ...] = Field(min_length=1)

    def findings(self, where: str) -> tuple[Finding, ...]:
        """What `train` said of the update."""
        details = (t.model_dump(exclude={"got"}) for t in self.tensors)
        return tuple(
            finding("non_finite", where, got=t.got, detail=detail)
            for t, detail in zip(self.tensors, details, strict=True)
        )


@dataclass(frozen=True)
class Work:
    """Paths below one clone's `.fedops/`, and what is written there.

    Args:
        root: the federation's root folder.
        extension: of the federation's model files.
    """

    root: Path
    extension: str = "safetensors"

    @property
    def folder(self) -> Path:
        return self.root / ".fedops"

    def version(self, number: int) -> Path:
        """The folder of all work on one base version."""
        return self.folder / "versions" / GlobalVersion(number).short

    def model(self, number: int) -> Path:
        return self.version(number) / f"model.{self.extension}"

    def update(self, number: int) -> Path:
        return self.version(number) / f"update.{self.extension}"

    def result(self, number: int) -> Path:
        return self.version(number) / "result.json"

    def refused(self, number: int) -> Path:
        """The last update that `train` would not take, for looking at it; `refused.json` beside it says why."""
        return self.version(number) / f"refused.{self.extension}"

    def log(self, number: int) -> Path:
        return self.version(number) / "train.log"

    def draft(self, number: int) -> Path:
        """The record that the last `submit` made; its time is kept while nothing else changes."""
        return self.version(number) / "submit" / "submission.json"

    def outgoing(self, number: int) -> Path:
        """The canonical bytes that are handed in."""
        return self.version(number) / "submit" / f"update.{self.extension}"

    def cached(self, sha256: str) -> Path:
        return self.folder / "cache" / "sha256" / sha256

    @property
    def verified(self) -> Path:
        """What earlier verifications of this clone have read."""
        return self.folder / "cache" / "verified.json"

    @property
    def journal(self) -> Path:
        return self.folder / "journal.jsonl"

    def versions(self) -> tuple[int, ...]:
        """Versions that have a work folder, ascending."""
        folder = self.folder / "versions"
        names = [p.name for p in folder.iterdir() if p.is_dir()] if folder.is_dir() else []
        found = [GlobalVersion.from_short(name) for name in names]
        return tuple(sorted(v.number for v in found if v is not None))

    def pulled(self) -> tuple[int, ...]:
        """Versions whose model lies in a work folder, ascending."""
        return tuple(n for n in self.versions() if self.model(n).is_file())

    def trained(self, number: int) -> Trained | None:
        """What the finished training on a version said; None if there is none, or if it cannot be read."""
        path = self.result(number)
        if not path.is_file() or not self.update(number).is_file():
            return None
        try:
            return load_json_document(path.read_bytes(), Trained, self.show(path))
        except ConfigError:
            return None

    def diverged(self, number: int) -> Diverged | None:
        """Why the last update trained on a version was put aside; None if there is none, or if it cannot be read."""
        path = self._refusal(number)
        try:
            return load_json_document(path.read_bytes(), Diverged, self.show(path)) if path.is_file() else None
        except ConfigError:
            return None

    def put_aside(self, update: Path, number: int, why: Diverged) -> None:
        """Keep an update that is no good, in the place of an earlier one."""
        move_durably(update, self.refused(number))
        write_document(self._refusal(number), why)

    def forget_refused(self, number: int) -> None:
        """A good training came after it."""
        for path in (self._refusal(number), self.refused(number)):
            path.unlink(missing_ok=True)

    def _refusal(self, number: int) -> Path:
        return self.version(number) / "refused.json"

    def show(self, path: Path) -> str:
        """A path as messages name it: relative to the clone if it lies there."""
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)

    @contextmanager
    def run(self, number: int) -> Iterator[Path]:
        """A new folder for one run of the site's code; it is kept if an update is still in it at the end.

        Those that killed runs left are removed first, as `tidy` does.
        """
        folder = self.version(number)
        folder.mkdir(parents=True, exist_ok=True)
        self._remove_dead_runs(folder)
        fresh = folder / f"run-{secrets.token_hex(4)}"
        fresh.mkdir()
        try:
            yield fresh
        finally:
            if not self._holds_update(fresh):
                shutil.rmtree(fresh, ignore_errors=True)

    def tidy(self) -> None:
        """Remove what killed commands left: folders of runs, and files half written.

        A file touched in the last hour may still be written, a run of the last week may still train.
        """
        for number in self.versions():
            self._remove_dead_runs(self.version(number))
        of_versions = ((self.version(n), self.outgoing(n).parent) for n in self.versions())
        oldest = time.time() - PART_SECONDS
        for folder in (self.cached("0").parent, *(folder for pair in of_versions for folder in pair)):
            for path in folder.iterdir() if folder.is_dir() else ():
                if _PART.search(path.name) and path.is_file() and path.lstat().st_mtime < oldest:
                    path.unlink(missing_ok=True)

    def _remove_dead_runs(self, folder: Path) -> None:
        """Remove the folders of runs that hold no update and are a week old; one with an update is for its site to judge."""
        oldest = time.time() - STALE_SECONDS
        for old in folder.iterdir():
            with suppress(FileNotFoundError):  # its run ends in this moment
                if _RUN.match(old.name) and old.stat().st_mtime < oldest and not self._holds_update(old):
                    shutil.rmtree(old, ignore_errors=True)

    def _holds_update(self, folder: Path) -> bool:
        update = folder / f"update.{self.extension}"
        return update.is_file() and update.stat().st_size > 0

    def note(self, step: JournalStep, at: dt.datetime, facts: Mapping[str, Json]) -> None:
        """Append one line to the journal and make it durable; to be called after the step's effect."""
        self.folder.mkdir(exist_ok=True)
        line = json.dumps({"at": time_text(at), "step": step, **facts}, separators=(",", ":")) + "\n"
        with about(self.journal), self.journal.open("a+b") as out:
            # A kill may have torn the line before; this one must stand alone.
            if out.tell() and _last_byte(self.journal) != b"\n":
                line = "\n" + line
            out.write(line.encode())
            out.flush()
            os.fsync(out.fileno())

    def noted(self) -> tuple[Mapping[str, Json], ...]:
        """All whole lines of the journal, oldest first."""
        lines = self.journal.read_bytes().splitlines() if self.journal.is_file() else []
        return tuple(entry for entry in map(_entry, lines) if entry)

    def noted_of(self, site: str, number: int) -> tuple[Mapping[str, Json], ...]:
        """What the journal says of a site's update on a version, from its last training on; oldest first.

        Without a training: everything, for the update may have come from elsewhere.
        """
        lines = [e for e in self.noted() if (e.get("site"), e.get("version")) == (site, number)]
        last = max((i for i, e in enumerate(lines) if e.get("step") == "trained"), default=0)
        return tuple(lines[last:])


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1)


def _entry(line: bytes) -> Mapping[str, Json]:
    try:
        value = parse_json(line)
    except BadJson:
        return {}
    return value if isinstance(value, dict) else {}


def write_through(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a new file beside `path`, then rename it there: a kill leaves the old or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with about(path):
            write(part)
        move_durably(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_document(path: Path, document: Document) -> None:
    """Write a document's canonical bytes whole."""
    write_through(path, lambda part: part.write_bytes(dump_json(document)))


def move_durably(source: Path, target: Path) -> None:
    """Rename a finished file over another on the same disk, its bytes made durable first."""
    with about(target), source.open("r+b") as stream:
        os.fsync(stream.fileno())
    source.replace(target)
