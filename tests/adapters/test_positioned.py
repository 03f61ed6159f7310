"""A file read at any place: what cannot be read as it was is an error, never other bytes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from fedops.adapters.positioned import PositionedFile
from fedops.core.errors import ConfigError, StoreError


@pytest.fixture(params=["positioned reads", "seek and read"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "seek and read":  # as on a system without preadv
        monkeypatch.setattr("fedops.adapters.positioned._POSITIONED", False)


@pytest.mark.usefixtures("how")
def test_reads_at_any_place_from_several_threads(tmp_path: Path) -> None:
    data = bytes(range(256)) * 64
    (tmp_path / "f").write_bytes(data)
    file = PositionedFile.open(tmp_path / "f")
    wrong: list[int] = []

    def look(start: int) -> None:
        buffer = bytearray(100)
        for at in range(start, len(data) - 100, 37):
            file.read_into(at, memoryview(buffer))
            if bytes(buffer) != data[at : at + 100]:
                wrong.append(at)

    threads = [threading.Thread(target=look, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert file.size == len(data)
    assert file.read(len(data) - 3, 10) == data[-3:]
    assert file.read(len(data) + 5, 10) == b""
    file.check_unchanged()
    file.close()


@pytest.mark.usefixtures("how")
def test_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(1000))
    file = PositionedFile.open(path)
    os.truncate(path, 500)
    with pytest.raises(StoreError, match=r"changed while it was read, 500 bytes -> at least 600") as e:
        file.read_into(400, memoryview(bytearray(200)))
    assert (e.value.slug, e.value.cause) == ("file_changed", "temporary")
    with pytest.raises(StoreError, match="changed"):
        file.check_unchanged()
    file.close()


def test_file_that_was_written_to_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(1000))
    file = PositionedFile.open(path)
    os.utime(path, (1, 1))
    with pytest.raises(StoreError, match="changed"):
        file.check_unchanged()
    file.close()


def test_file_that_was_removed_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    file = PositionedFile.open(path)
    path.unlink()
    assert file.read(0, 3) == b"abc"
    file.check_unchanged()
    file.close()


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("absent", ".", "pipe"):
        with pytest.raises(ConfigError, match=r"cannot open|not a regular file"):
            PositionedFile.open(tmp_path / name)


def test_broken_disk_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    file = PositionedFile.open(tmp_path / "f")
    os.close(file._file.fileno())
    with pytest.raises(StoreError, match="cannot read it"):
        file.read(0, 3)
    with pytest.raises(StoreError, match="cannot look at it"):
        file.check_unchanged()
    with pytest.raises(OSError, match="descriptor"):
        file.close()
