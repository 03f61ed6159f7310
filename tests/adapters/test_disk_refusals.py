"""Writers that put the system's words into their own: what a full disk says is temporary, what a person must change is not."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedops.adapters import durable, dvc_hook
from fedops.adapters.private_file import write_private
from fedops.adapters.ssh_keygen import make_key
from fedops.adapters.training_process import CommandTrainer
from fedops.app.aggregate import _unwritable
from fedops.cli.demo import _failed
from fedops.cli.init import _store
from fedops.cli.job_values import write_outputs
from fedops.core.disk import DiskError
from fedops.core.errors import ConfigError, FedopsError, StoreError
from fedops.core.ids import SiteId
from fedops.ports import TrainingJob

CODES = [(errno.ENOSPC, "temporary"), (errno.EDQUOT, "temporary"), (errno.EACCES, "permanent")]


def failing(code: int) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return call


@pytest.mark.parametrize(("code", "cause"), CODES)
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("open", lambda folder: write_outputs(folder / "out", {"due": "true"})),
        ("write_text", dvc_hook.install),
        ("mkdir", lambda folder: _store("ocidir:store", base=folder, shared=True, dry_run=False)),
    ],
    ids=["job outputs", "hook", "store"],
)
def test_a_writer_tells_whether_it_may_pass(
    name: str, call: Callable[[Path], object], code: int, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, name, failing(code))
        with pytest.raises(FedopsError) as e:
            call(tmp_path)
    assert e.value.cause == cause
    assert isinstance(e.value, DiskError if cause == "temporary" else ConfigError)
    assert str(tmp_path) in e.value.message
    assert os.strerror(code) in e.value.message


@pytest.mark.parametrize(("code", "cause"), [*CODES, (errno.EFBIG, "permanent")])
def test_the_folder_of_an_aggregation_too(code: int, cause: str, tmp_path: Path) -> None:
    told = _unwritable(tmp_path, OSError(code, os.strerror(code)))
    assert (told.cause, told.slug) == (cause, "out_unwritable")


def test_a_file_that_is_too_large_for_its_disk_is_no_matter_of_waiting(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as e, durable.reported(tmp_path, "keep a model"):
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    assert (e.value.cause, "ulimit -f" in e.value.hint) == ("permanent", True)


@pytest.mark.skipif(os.name == "nt", reason="a program of this kind is for another system")
@pytest.mark.parametrize(
    ("said", "cause"),
    [('Saving key "k" failed: No space left on device', "temporary"), ("unknown key type", "permanent")],
)
def test_a_key_that_could_not_be_kept(said: str, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "ssh-keygen"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 255\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    with pytest.raises(FedopsError, match="could not make a key") as e:
        make_key(tmp_path / "k", "x")
    assert (e.value.cause, said in e.value.message) == (cause, True)


def test_a_secret_that_was_written_in_part_is_named(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("only another system has such a file")
    with pytest.MonkeyPatch.context() as patch:
        full = os.open("/dev/full", os.O_WRONLY)
        patch.setattr(os, "open", lambda *_, **__: full)
        with pytest.raises(OSError, match="No space left") as e:
            write_private(tmp_path / "key", "secret")
    assert e.value.filename == str(tmp_path / "key")


@pytest.mark.parametrize(
    ("code", "said", "full", "cause"),
    [
        (1, "fatal: write error: No space left on device", False, "temporary"),
        (128, "error: unable to write file README.md", True, "temporary"),
        (5, "{}", False, "temporary"),
        (1, "bug: KeyError", False, "permanent"),
    ],
)
def test_a_demo_on_a_full_disk_is_not_at_fault(code: int, said: str, full: bool, cause: str) -> None:
    told = _failed("fedops pull in clinic-c", subprocess.CompletedProcess([], code, "out\n", f"{said}\n"), full=full)
    assert told.cause == cause
    assert told.message == f"demo: fedops pull in clinic-c: exit {code}\nout\n{said}"
    assert ("fedops demo --replace" in told.hint) == (full or "No space" in said)


def test_code_that_fails_on_a_full_disk_is_not_at_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    run.mkdir()
    paths = {name: run / name for name in ("model", "update", "result", "fault", "log")}
    job = TrainingJob(site=SiteId("hospital-a"), version=0, config={}, **paths)
    trainer = CommandTrainer(
        [sys.executable, "-c", "raise SystemExit(1)"],
        folder=tmp_path,
        environment=dict(os.environ),
        echo=lambda data: None,
    )
    plain = os.fsync
    monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left") as e:
        trainer.run(job)
    assert e.value.filename == str(run / "room")
    monkeypatch.setattr(os, "fsync", plain)
    with pytest.raises(FedopsError, match="ended with exit code 1"):
        trainer.run(job)
    assert sorted(p.name for p in run.iterdir()) == ["log"]
