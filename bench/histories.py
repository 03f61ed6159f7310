"""Federations with long histories, written by `git fast-import`: what a thousand sites leave behind in years."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from fedops.adapters.git_repo import GitRepository
from fedops.adapters.store_layout import LayoutStore
from fedops.core.documents import dump_json
from fedops.core.facts import Marker, RefUpdate
from fedops.core.ids import CommitId, Digest, GlobalVersion, RepoPath, SiteId, record_path, submit_branch, update_path
from fedops.core.plan import plan_version
from fedops.core.records import (
    Carried,
    Contribution,
    ModelEntry,
    Record,
    TensorEntry,
    VersionRecord,
    Witness,
    model_pointer,
    render_pointer,
    update_pointer,
)
from fedops.core.signals import SIGNAL_LABELS, signal_marker

START = dt.datetime(2026, 1, 5, 8, 0, tzinfo=dt.UTC)
PER_VERSION = 20  # commits of main: nineteen merges, then the version
OPEN = 2  # pull requests, signed and waiting for CI
Files = Mapping[str, bytes]


def _hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _made_up_key(text: str) -> str:
    raw = b"\0\0\0\x0bssh-ed25519\0\0\0 " + hashlib.sha256(text.encode()).digest()
    return f"ssh-ed25519 {base64.b64encode(raw).decode()}"


@dataclass
class History:
    """Writes one bare repository with a git forge and a store in it; the only bytes there are those of one global model.

    Args:
        commits: on main's first-parent line, a multiple of PER_VERSION; those that the sites made come on top.
        folder: for two sites' keys, and a clone.
    """

    sites: int
    commits: int
    folder: Path
    version: int = 0
    consumed: dict[str, int] = field(default_factory=dict)
    used: list[Contribution] = field(default_factory=list)  # merged since the last version
    mark: int = 0
    number: int = 0  # of pulls and issues
    now: int = 0  # commits of main so far
    forge: dict[str, bytes] = field(default_factory=dict)
    heads: dict[int, tuple[int, str]] = field(default_factory=dict)  # pull -> mark of its head, site

    def write(self) -> Path:
        """Make the repository; returns its folder."""
        origin = self.folder / "origin.git"
        self.keys = {self.site(i): self._real_key(self.site(i)) for i in range(OPEN)}
        subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", str(origin)], check=True)
        self.model = self._store_model(origin / "store")
        marks = self._import(origin, self._main())
        for pull, (mark, site) in self.heads.items():
            self._settled(pull, site, marks[mark])
        with GitRepository.clone(str(origin), self.folder / "writer", author=("site", "site@example.invalid")) as clone:
            self._open_pulls(clone)
        self._import(origin, [self._commit("refs/fedops/forge", "all of it", self.forge, self.commits)])
        subprocess.run(["git", "-C", str(origin), "pack-refs", "--all"], check=True)
        return origin

    def _import(self, origin: Path, stream: Iterable[bytes]) -> Mapping[int, str]:
        """Feed git; returns the commit of each mark."""
        marks = self.folder / "marks"
        command = ["git", "-C", str(origin), "fast-import", "--quiet", f"--export-marks={marks}"]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            for part in stream:
                process.stdin.write(part)
        if process.returncode:
            raise SystemExit("git fast-import failed")
        pairs = (line.split() for line in marks.read_text().splitlines())
        return {int(mark.removeprefix(":")): name for mark, name in pairs}

    def _store_model(self, store: Path) -> ModelEntry:
        """The model of every version."""
        data, path = save({"coef": np.zeros((1, 30), np.float32)}), self.folder / "model.safetensors"
        path.write_bytes(data)
        store.mkdir()
        stored = LayoutStore(store).put("global", path, {"fl.version": "0"})
        return ModelEntry(
            format="safetensors",
            size=len(data),
            sha256=stored.layer.sha256,
            md5=hashlib.md5(data, usedforsecurity=False).hexdigest(),
            manifest=stored.manifest,
            tensors={"coef": TensorEntry(dtype="F32", shape=(1, 30))},
        )

    def _real_key(self, site: str) -> str:
        path = self.folder / f"key-{site}"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=True)
        return " ".join(path.with_suffix(".pub").read_text().split()[:2])

    # main

    def _main(self) -> Iterator[bytes]:
        yield self._commit("refs/heads/main", "global: init", self._first(), 0)
        tip = self.mark
        yield self._tag(tip)
        for number in range(1, self.commits):
            self.now = number
            if number % PER_VERSION == 0:
                yield self._commit("refs/heads/main", f"global: v{self.version + 1}", self._next_version(), number, tip)
                tip = self.mark
                yield self._tag(tip)
                continue
            self.number += 1
            site = self.site(number)
            files = self._handed_in(site, self.version)
            yield self._commit(f"refs/pull/{self.number}/head", f"submit({site})", files, number, tip)
            self.heads[self.number] = self.mark, site
            yield self._commit("refs/heads/main", f"merge({site}) (#{self.number})", files, number, tip, self.mark)
            tip = self.mark

    def site(self, number: int) -> str:
        return f"site-{number % self.sites:04}"

    def _first(self) -> Files:
        """Policies, the roster, and a record of every site that is used up."""
        names = [self.site(i) for i in range(self.sites)]
        roster = "".join(
            f"  {name}:\n    accounts: [{{login: {name}, id: {1000 + i}}}]\n"
            f'    keys: ["{self.keys.get(name) or _made_up_key(name)} {name}"]\n    state: active\n'
            for i, name in enumerate(names)
        )
        texts = {
            "federation.yaml": 'schema: fedops.federation/v1\nname: large\nfedops: "0.1.0"\n'
            'store: {url: "ocidir:store"}\n',
            "policies/sites.yaml": f"schema: fedops.sites/v1\nleads: []\nsites:\n{roster}",
            "policies/submission.yaml": "schema: fedops.submission-policy/v1\nrequire_signed: false\n",
            "policies/training.yaml": "schema: fedops.training/v1\n",
            "policies/aggregation.yaml": f"schema: fedops.aggregation/v1\ntrigger: {{quorum: {self.sites}}}\n"
            "staleness: {kind: inverse, max: null}\n",
        }
        files = {path: text.encode() for path, text in texts.items()}
        for name in names:
            files |= self._handed_in(name, 0)
            self.consumed[name] = 0
        self.used.clear()
        return files | self._version_files()

    def _handed_in(self, site: str, base: int) -> dict[str, bytes]:
        """The two files of a submission; noted for the next version."""
        digest = _hex(f"{site} on v{base}")
        record = Record(
            site=site,
            base_version=base,
            num_examples=100,
            format="safetensors",
            payload="full",
            sha256=digest,
            md5=digest[:32],
            size=160,
            manifest=f"sha256:{_hex(digest)}",
            metrics={"loss": 0.25},
            created_at="2026-01-05T08:00:00Z",
        )
        data, pointer = dump_json(record), render_pointer(update_pointer(record, "safetensors"))
        self.used.append(
            Contribution(
                site=site,
                base_version=base,
                staleness=0,
                num_examples=100,
                weight=100.0,
                share=1 / (PER_VERSION - 1),
                delta_norm=None,
                record_blob=_blob_id(data),
                pointer_blob=_blob_id(pointer),
                manifest=record.manifest,
                sha256=record.sha256,
            )
        )
        named = SiteId(site)
        return {str(record_path(named)): data, str(update_path(named, "safetensors")): pointer}

    def _next_version(self) -> Files:
        self.version += 1
        self.consumed |= {c.site: c.base_version for c in self.used}
        files = self._version_files()
        for c in self.used:  # last version's signals are closed by now
            self._signal(c.site, is_open=self.version == (self.commits - 1) // PER_VERSION)
        self.used.clear()
        return files

    def _version_files(self) -> dict[str, bytes]:
        record = VersionRecord(
            version=self.version,
            base_version=self.version - 1 if self.version else None,
            kind="aggregate" if self.version else "init",
            source=None,
            status="running",
            model=self.model,
            rule=None,
            policy=f"sha256:{_hex('policy')}",
            denominator=None,
            contributions=tuple(sorted(self.used, key=lambda c: c.site)),
            excluded=(),
            consumed=dict(self.consumed),
            carried=Carried(),
            metrics={"loss": 0.25},
            witness=Witness(input_commit=None, decided_at=self._time, trigger="quorum", software={}),
        )
        step = plan_version(
            record, model_pointer(record, "safetensors"), CommitId("0" * 40), extension="safetensors", at=START
        )
        return {str(path): data for path, data in step.files.items()}

    # the forge

    def _file(self, kind: str, number: int, fields: dict[str, Any], *, is_open: bool) -> None:
        folder = "open" if is_open else f"closed/{number // 100}"
        self.forge[f"{kind}/{folder}/{number}.json"] = _json(fields)

    def _pull(self, number: int, site: str, head: str, state: str) -> None:
        fields = {"schema": "fedops.pull/v1", "number": number, "state": state, "branch": submit_branch(SiteId(site))}
        text = {"title": f"submit({site})", "body": "", "head": head, "opened_at": self._time}
        self._file("pulls", number, fields | text, is_open=state == "open")

    def _settled(self, number: int, site: str, head: str) -> None:
        """A merged pull with its comment and status."""
        self._pull(number, site, head, "merged")
        marker = Marker("submission", f"pull-{number}")
        comment = {"schema": "fedops.comment/v1", "marker": marker.text, "body": marker.stamp("**Accepted**" * 40)}
        self.forge[f"comments/{number // 100}/{number}/000001.json"] = _json(comment | {"at": self._time})
        status = {"fedops/verdict": {"state": "success", "text": "accepted"}}
        self.forge[f"statuses/{head[:2]}/{head}.json"] = _json({"schema": "fedops.status/v1", "statuses": status})

    def _signal(self, site: str, *, is_open: bool) -> None:
        self.number += 1
        marker = signal_marker(SiteId(site), self.version)
        name = hashlib.sha256(marker.text.encode()).hexdigest()
        self.forge[f"markers/{name[:2]}/{name}.json"] = _json({"schema": "fedops.marker/v1", "number": self.number})
        title = f"Train on {GlobalVersion(self.version).short}: {site}"
        fields = {"schema": "fedops.issue/v1", "number": self.number, "state": "open" if is_open else "closed"}
        text = {"marker": marker.text, "title": title, "body": marker.stamp("Please train. " * 40)}
        labels = sorted(SIGNAL_LABELS | {f"site:{site}"})
        self._file("issues", self.number, fields | text | {"labels": labels, "opened_at": self._time},
                   is_open=is_open)  # fmt: skip

    def _open_pulls(self, clone: GitRepository) -> None:
        main = clone.resolve("main")
        assert main is not None
        for i in range(OPEN):
            site = self.site(i)
            self.number += 1
            files = {RepoPath(path): data for path, data in self._handed_in(site, self.version).items()}
            key = self.folder / f"key-{site}"
            head = clone.write_commit([main], files, f"submit({site})", at=self._at(self.commits), key=key)
            assert clone.push([RefUpdate(f"refs/pull/{self.number}/head", None, head)])
            self._pull(self.number, site, head, "open")

    # git's own format

    @property
    def _time(self) -> str:
        return self._at(self.now).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _at(self, number: int) -> dt.datetime:
        return START + dt.timedelta(minutes=10 * number)

    def _commit(self, ref: str, message: str, files: Files, number: int, *parents: int) -> bytes:
        """Args: parents: marks; the first one's tree is taken, with `files` in it."""
        self.mark += 1
        at = int(self._at(number).timestamp())
        head = f"commit {ref}\nmark :{self.mark}\ncommitter ci <ci@example.invalid> {at} +0000\n"
        parts = [head.encode(), _data(message.encode())]
        parts += [f"{word} :{mark}\n".encode() for word, mark in zip(("from", "merge"), parents, strict=False)]
        for path, data in files.items():
            parts += [f"M 100644 inline {path}\n".encode(), _data(data)]
        return b"".join(parts)

    def _tag(self, mark: int) -> bytes:
        at = int(START.timestamp())
        head = f"tag {GlobalVersion(self.version).tag}\nfrom :{mark}\ntagger ci <ci@example.invalid> {at} +0000\n"
        record, model = Digest(f"sha256:{_hex('record')}"), Digest(f"sha256:{_hex('model')}")
        return head.encode() + _data(
            f"global: v{self.version}\n\nFedops-Record: {record}\nFedops-Model: {model}\n".encode()
        )


def _data(data: bytes) -> bytes:
    return f"data {len(data)}\n".encode() + data + b"\n"


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
