from __future__ import annotations

import datetime as dt
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from fedops.app.work import Trained, Work, move_durably, write_document, write_through

AT = dt.datetime(2026, 3, 2, 9, 30, tzinfo=dt.UTC)


def trained(version: int, sha256: str = "0" * 64) -> Trained:
    return Trained(site="hospital-a", base_version=version, num_examples=5, metrics={}, sha256=sha256, size=3)


def write(path: Path, data: bytes = b"abc") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def test_everything_lies_below_the_ignored_folder(tmp_path: Path) -> None:
    work = Work(tmp_path, "bin")
    paths = [work.model(9), work.update(9), work.result(9), work.log(9), work.draft(9), work.outgoing(9), work.journal]
    assert all(p.is_relative_to(tmp_path / ".fedops") for p in paths)
    assert work.model(9) == tmp_path / ".fedops/versions/v9/model.bin"
    assert work.cached("ab") == tmp_path / ".fedops/cache/sha256/ab"


def test_versions_are_told_from_other_folders_and_sorted_by_number(tmp_path: Path) -> None:
    work = Work(tmp_path)
    assert (work.versions(), work.pulled()) == ((), ())
    for name in ("v10", "v9", "v09", "notes", "v"):
        (tmp_path / ".fedops/versions" / name).mkdir(parents=True)
    (tmp_path / ".fedops/versions/v3").touch()
    write(work.model(9))
    assert work.versions() == (9, 10)
    assert work.pulled() == (9,)


def test_a_result_counts_only_with_its_update_and_if_it_can_be_read(tmp_path: Path) -> None:
    work = Work(tmp_path)
    write_document(work.result(9), trained(9))
    assert work.trained(9) is None
    write(work.update(9))
    assert work.trained(9) == trained(9)
    work.result(9).write_text('{"num_examples": 5')
    assert work.trained(9) is None


def test_a_path_is_shown_relative_to_the_clone_if_it_lies_there(tmp_path: Path) -> None:
    work = Work(tmp_path / "clone")
    assert work.show(work.update(3)) == ".fedops/versions/v3/update.safetensors"
    assert work.show(tmp_path / "elsewhere") == str(tmp_path / "elsewhere")


def test_half_written_files_go_once_they_are_an_hour_old_and_nothing_else_does(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.tidy()
    left = [
        work.outgoing(7).with_name("update.safetensors.part-888f6f927af5336a"),
        work.draft(7).with_name(".submission.json.0a1b2c3d"),
        work.model(9).with_name(".model.safetensors.0a1b2c3d"),
        work.cached("ab" * 32 + ".part-888f6f927af5336a"),
    ]
    young = work.outgoing(9).with_name("update.safetensors.part-0123456789abcdef")
    others = [
        work.outgoing(7), work.draft(7), work.model(9), work.log(9), work.journal, work.cached("ab" * 32),
        work.version(9) / "notes.part-1", work.version(9) / ".hidden",
    ]  # fmt: skip
    for path in (*left, young, *others):
        write(path)
        os.utime(path, (time.time() - 3601,) * 2)
    os.utime(young, (time.time() - 3590,) * 2)
    folder = work.version(9) / ".folder.0a1b2c3d"
    folder.mkdir()
    os.utime(folder, (time.time() - 3601,) * 2)
    work.tidy()
    assert [path for path in left if path.exists()] == []
    assert [path for path in (young, *others) if not path.exists()] == []
    assert folder.is_dir()


def test_a_run_folder_goes_unless_it_holds_an_update(tmp_path: Path) -> None:
    work = Work(tmp_path)
    with work.run(4) as gone:
        (gone / "request.json").touch()
        (gone / "update.safetensors").touch()  # empty: nothing was written
    with suppress(KeyError), work.run(4) as kept:
        (kept / "update.safetensors").write_bytes(b"trained for days")
        raise KeyError
    assert not gone.exists()
    assert (kept / "update.safetensors").read_bytes() == b"trained for days"


@pytest.mark.parametrize("by", ["another run", "tidy"])
def test_folders_of_killed_runs_go_after_a_week_but_never_with_an_update(by: str, tmp_path: Path) -> None:
    work = Work(tmp_path)
    names = {"old": "run-00000001", "full": "run-00000002", "young": "run-00000003", "other": "run-mine"}
    for name in names.values():
        (work.version(4) / name).mkdir(parents=True)
    write(work.version(4) / names["full"] / "update.safetensors")
    for name in ("old", "full", "other"):
        os.utime(work.version(4) / names[name], (0, 0))
    if by == "tidy":
        work.tidy()
    else:
        with work.run(4):
            pass
    assert sorted(p.name for p in work.version(4).iterdir()) == sorted({*names.values()} - {names["old"]})


def test_a_run_that_ends_while_its_folder_is_looked_at_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work(tmp_path)
    gone, dead = (work.version(4) / f"run-0000000{n}" for n in (1, 2))
    dead.mkdir(parents=True)
    os.utime(dead, (0, 0))
    # As listed in the moment before one of them went.
    monkeypatch.setattr(
        Path, "iterdir", lambda path: iter([gone, dead] if path == work.version(4) else [work.version(4)])
    )
    work.tidy()
    assert not dead.exists(), "what comes after it is looked at all the same"


def test_the_journal_keeps_one_line_for_each_step(tmp_path: Path) -> None:
    work = Work(tmp_path)
    assert work.noted() == ()
    work.note("pulled", AT, {"version": 9})
    work.note("trained", AT, {"version": 9, "sha256": "ab"})
    first, second = work.noted()
    assert first == {"at": "2026-03-02T09:30:00Z", "step": "pulled", "version": 9}
    assert second == {"at": "2026-03-02T09:30:00Z", "step": "trained", "version": 9, "sha256": "ab"}
    assert work.journal.read_bytes().count(b"\n") == 2


@pytest.mark.parametrize("torn", [b'{"at":"2026-03', b"[1]\n", b"\xff\n", b'{"a":1'])
def test_a_line_torn_by_a_kill_costs_neither_the_lines_before_nor_after(torn: bytes, tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.note("pulled", AT, {"version": 8})
    with work.journal.open("ab") as out:
        out.write(torn)
    work.note("pulled", AT, {"version": 9})
    assert [line["version"] for line in work.noted() if "version" in line] == [8, 9]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "result.json"

    def half(part: Path) -> None:
        part.write_bytes(b"ha")
        raise OSError("disk full")

    write_through(path, lambda part: part.write_bytes(b"whole"))
    with pytest.raises(OSError, match="disk full"):
        write_through(path, half)
    assert path.read_bytes() == b"whole"
    assert list(path.parent.iterdir()) == [path]


def test_a_finished_file_replaces_another(tmp_path: Path) -> None:
    write(tmp_path / "new", b"new")
    write(tmp_path / "old", b"old")
    move_durably(tmp_path / "new", tmp_path / "old")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("old", b"new")]


def test_what_the_journal_says_of_an_update_begins_with_its_last_training(tmp_path: Path) -> None:
    work = Work(tmp_path)
    assert work.noted_of("hospital-a", 9) == ()
    rows = [
        ("pulled", None, 9),
        ("submitted", "hospital-a", 9),  # from a file of one's own
        ("trained", "hospital-a", 9),
        ("submitted", "hospital-a", 9),
        ("trained", "hospital-a", 8),
        ("trained", "hospital-b", 9),
        ("trained", "hospital-a", 9),
        ("stored", "hospital-a", 9),
        ("submitted", "hospital-a", 8),
    ]
    for step, site, version in rows[:2]:
        work.note(step, AT, {"site": site, "version": version} if site else {"version": version})  # type: ignore[arg-type]
    assert [e["step"] for e in work.noted_of("hospital-a", 9)] == ["submitted"]
    for step, site, version in rows[2:]:
        work.note(step, AT, {"site": site, "version": version})  # type: ignore[arg-type]
    assert [e["step"] for e in work.noted_of("hospital-a", 9)] == ["trained", "stored"]
    assert [e["step"] for e in work.noted_of("hospital-a", 8)] == ["trained", "submitted"]
