"""Files that hold a secret for a while."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedops.adapters.private_file import write_private


@pytest.mark.parametrize("mask", [0, 0o077, 0o777])
def test_its_owner_alone_may_read_it_whatever_the_umask(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        write_private(tmp_path / "key", "é\nend")
    finally:
        os.umask(before)
    mode = (tmp_path / "key").stat().st_mode & 0o777
    assert mode == 0o600 & ~mask
    (tmp_path / "key").chmod(0o600)
    assert (tmp_path / "key").read_bytes() == "é\nend".encode()


def test_what_is_there_already_is_never_written_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        write_private(tmp_path / "link", "secret")
    assert not (tmp_path / "elsewhere").exists()
