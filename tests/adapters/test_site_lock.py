from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedops.adapters.site_lock import only_one
from fedops.core.errors import BusyError

HOLD = """
import sys, time
from pathlib import Path
from fedops.adapters.site_lock import only_one
with only_one(Path(sys.argv[1]), "fedops run"):
    if len(sys.argv) > 2:
        import subprocess
        child = subprocess.Popen([sys.executable, "-c", "import time; print('x', flush=True); time.sleep(60)"])
        print(child.pid, flush=True)
    print("held", flush=True)
    time.sleep(60)
"""


def hold(path: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", HOLD, str(path), *more], stdout=subprocess.PIPE, text=True)


def wait_for(process: subprocess.Popen[str], word: str) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1] != word:
        line = process.stdout.readline()
        assert line, "ended early"
        lines.append(line.strip())
    return lines


def test_the_second_one_is_told_who_is_at_work(tmp_path: Path) -> None:
    path = tmp_path / ".fedops" / "lock"
    with hold(path) as first:
        wait_for(first, "held")
        with pytest.raises(BusyError) as e, only_one(path, "fedops run"):
            pass
        assert e.value.cause == "temporary"
        assert f"fedops run, process {first.pid} is at work in this clone" in e.value.message
        first.kill()
    with only_one(path, "fedops run"):  # freed by the kill
        assert path.read_text() == f"fedops run, process {os.getpid()}\n"
    with only_one(path, "fedops run"):
        pass


def test_a_program_that_outlives_a_killed_run_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with hold(path, "with a child") as first:
        # The child writes to the same pipe: its word may come first.
        child = next(int(line) for line in wait_for(first, "held") if line.strip().isdigit())
        first.send_signal(signal.SIGKILL)
        first.wait()
        os.kill(child, 0)  # it lives
        with only_one(path, "fedops run"):
            assert path.read_text() == f"fedops run, process {os.getpid()}\n"
        os.kill(child, signal.SIGKILL)


def test_what_the_holder_wrote_is_shown_safely(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with only_one(path, "a\x1b[2Jb"), pytest.raises(BusyError) as e, only_one(path, "fedops run"):
        pass
    assert "a?[2Jb, process" in e.value.message


def test_an_unreadable_holder_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"

    def fails(self: Path, **_: object) -> str:
        raise PermissionError("locked")

    with only_one(path, "fedops run"):
        monkeypatch.setattr(Path, "read_text", fails)
        with pytest.raises(BusyError, match="another fedops run is at work"), only_one(path, "fedops run"):
            pass
