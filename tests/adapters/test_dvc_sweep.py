from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from dvc_objects.fs.utils import tmp_fname

from fedops.adapters.durable import part
from fedops.adapters.dvc_sweep import STALE_SECONDS, is_left, sweep

UNIQUE = "XpCzS8TYRaTdEn5v-jVN_w"
REST = "d6c92fa7f1ed1a8dfe26c6aa7283b3"  # of an md5, behind the two digits that are the folder
CACHE = ".dvc/cache/files/md5"
# What a kill at each write of `fedops dvc pull` left, with DVC 3.67.
LEFT = [
    f"{CACHE}/19/.{UNIQUE}.tmp.part-2f964aaceacf778d",
    f"{CACHE}/19/.{UNIQUE}.tmp",
    f"{CACHE}/19/{REST}.{UNIQUE}.tmp",
    f"{CACHE}/.{UNIQUE}.tmp",
    f"global/.{UNIQUE}.tmp",
    f"global/model.safetensors.{UNIQUE}.tmp",
    f"sites/hospital-a/.{UNIQUE}.tmp",
    f"sites/hospital-a/update.bin.{UNIQUE}.tmp",
]
KEPT = [
    f"{CACHE}/19/{REST}",
    f"{CACHE}/19/notes.tmp",
    f"{CACHE}/19/{REST}.{UNIQUE}.tmp.old",
    f"{CACHE}/other/.{UNIQUE}.tmp",
    f".dvc/tmp/.{UNIQUE}.tmp",
    "global/model.safetensors",
    "global/model.safetensors.dvc",
    f"global/mine.{UNIQUE}.tmp",
    f"global/deeper/.{UNIQUE}.tmp",
    f"policies/.{UNIQUE}.tmp",
    f".{UNIQUE}.tmp",
]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    root = tmp_path / "clone"
    for name in (*LEFT, *KEPT):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half a model")
    return root


def there(root: Path) -> set[str]:
    return {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}


def tomorrow() -> float:
    return time.time() + STALE_SECONDS + 60


def test_what_a_killed_dvc_left_is_removed_and_nothing_else(clone: Path) -> None:
    assert sweep(clone, now=tomorrow()) == len(LEFT)
    assert there(clone) == set(KEPT)
    assert sweep(clone, now=tomorrow()) == 0


def test_what_may_still_be_written_stays(clone: Path) -> None:
    for name in LEFT:  # as a hard link has the time of the file that it is a link to
        os.utime(clone / name, (0, 0))
    assert sweep(clone, now=time.time()) == 0
    assert there(clone) == {*LEFT, *KEPT}


def test_a_cache_that_others_may_use_is_left_alone(clone: Path) -> None:
    shared = clone.parent / "shared"
    (clone / ".dvc" / "cache").rename(shared)
    (clone / ".dvc" / "cache").symlink_to(shared)
    before = there(shared)
    sweep(clone, now=tomorrow())
    assert there(shared) == before


def test_links_and_folders_of_such_a_name_stay(clone: Path) -> None:
    name = f".{'x' * 22}.tmp"
    (clone / "global" / name).symlink_to(clone / KEPT[0])
    (clone / "sites" / "hospital-a" / name).mkdir()
    sweep(clone, now=tomorrow())
    assert (clone / "global" / name).is_symlink()
    assert (clone / "sites" / "hospital-a" / name).is_dir()


def test_a_folder_without_any_of_it_is_no_fault(tmp_path: Path) -> None:
    assert sweep(tmp_path, now=tomorrow()) == 0


@pytest.mark.parametrize("prefix", ["", REST, "model.safetensors", "update.bin"])
def test_the_names_are_those_that_dvc_and_the_stores_give(prefix: str, tmp_path: Path) -> None:
    """Of the DVC that is installed: another one may choose others."""
    for _ in range(50):
        name = tmp_fname(prefix)
        assert is_left(name)
        with part(tmp_path / name) as path:
            assert is_left(path.name)
    assert not is_left(prefix)
