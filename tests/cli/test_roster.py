"""`fedops site …` and `fedops join` at the terminal: a lead's clone and a site's clone of one origin."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fedops.cli.main import run
from tests.sshkeys import make_key


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def lead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    folder = tmp_path / "lead"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert run(["init", "--origin", "../fed.git", "--generator", "zeros", "--tensor", "w:F32:2"]) == 0
    capsys.readouterr()
    return folder


@pytest.fixture
def site(lead: Path, tmp_path: Path) -> Path:
    git(tmp_path, "clone", "-q", "fed.git", "site")
    return tmp_path / "site"


def document(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_site_goes_from_join_to_the_roster(
    lead: Path, site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(site)
    assert run(["join", "hospital-a", "--generate-key"]) == 0
    out, err = capsys.readouterr()
    key = site / ".fedops" / "id_ed25519"
    assert "the roster on main does not have this site yet" in out
    assert str(key) in err
    line = out.splitlines()[-1].strip()
    assert git(site, "status", "--porcelain") == ""

    monkeypatch.chdir(lead)
    assert run(shlex.split(line)[1:]) == 0
    commit = git(lead, "rev-parse", "HEAD")
    assert capsys.readouterr().out == f"hospital-a: active, commit {commit[:12]}\n"
    assert git(lead, "log", "-1", "--format=%s") == "policy: add site hospital-a"
    assert "hospital-a:" in (lead / "policies" / "sites.yaml").read_text()

    monkeypatch.chdir(site)
    assert run(["join", "hospital-a", "--format", "json"]) == 0
    assert document(capsys) == {
        "schema": "fedops.join/v1",
        "ok": True,
        "changed": False,
        "findings": [],
        "site": "hospital-a",
        "clone": str(site),
        "state": "active",
        "key": str(key),
        "public_key": key.with_suffix(".pub").read_text().strip(),
        "key_known": True,
        "line": None,
        "unknown": {},
    }
    assert run(["join", "hospital-a", "--generate-key"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "the roster on main has this site: active, with this key"


def test_no_private_key_is_ever_shown(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(site)
    for arguments in (["--generate-key"], ["--format", "json"], []):
        run(["join", "hospital-a", *arguments])
    secret = (site / ".fedops" / "id_ed25519").read_text().splitlines()[1]
    out, err = capsys.readouterr()
    assert secret not in out + err
    assert run(["site", "add", "x", "--login", "x", "--id", "1", "--key", ".fedops/id_ed25519"]) == 2
    out, err = capsys.readouterr()
    assert "private key" in err
    assert secret not in out + err


def test_join_takes_a_key_that_is_there_and_warns_if_others_may_read_it(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(site)
    key = make_key(tmp_path, "id")
    key.private.chmod(0o644)
    assert run(["join", "hospital-a", "--key", str(key.private), "--login", "alice", "--id", "9"]) == 0
    out, err = capsys.readouterr()
    assert f"--login alice --id 9 --key {shlex.quote(key.public)}" in out
    assert f"chmod 600 {key.private}" in err
    assert run(["join", "hospital-a", "--key", str(tmp_path / "other")]) == 2
    assert "no such key" in capsys.readouterr().err
    assert run(["join", "hospital-b"]) == 2
    assert "this clone is hospital-a's" in capsys.readouterr().err


def test_a_clone_without_a_key_signs_nothing(
    lead: Path, site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["site", "add", "hospital-a", "--login", "alice-a", "--id", "1001"])
    monkeypatch.chdir(site)
    capsys.readouterr()
    assert run(["join", "hospital-a"]) == 0
    out, err = capsys.readouterr()
    assert out == (
        "this clone is hospital-a's; it has no key and signs nothing\nthe roster on main has this site: active\n"
    )
    assert "FO-236" in err
    assert "fedops join SITE --generate-key" in err
    assert run(["join", "hospital-a", "--generate-key"]) == 0
    out = capsys.readouterr().out
    assert "active, but not this key" in out
    assert out.splitlines()[-1].startswith("  fedops site add hospital-a --key 'ssh-ed25519 ")


def test_a_site_without_a_key_is_told_before_it_trains(
    lead: Path, site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line for the lead is not shown where it would put a site on the roster that can hand in nothing."""
    monkeypatch.chdir(site)
    assert run(["join", "hospital-a"]) == 0
    out, err = capsys.readouterr()
    assert ("fedops site add" in out, "FO-236" in err) == (False, True)
    assert run(["join", "hospital-a", "--format", "json"]) == 0
    assert [f["slug"] for f in document(capsys)["findings"]] == ["key_missing"]
    monkeypatch.chdir(lead)
    add = ["site", "add", "hospital-a", "--login", "a", "--id", "5"]
    assert run([*add, "--format", "json"]) == 0
    done = document(capsys)
    assert (done["ok"], [(f["id"], f["severity"]) for f in done["findings"]]) == (True, [("FO-236", "warning")])
    assert run(add) == 0
    assert "warning: policies/sites.yaml: hospital-a: the site has no key" in capsys.readouterr().err
    monkeypatch.chdir(site)
    assert run(["join", "hospital-a", "--generate-key"]) == 0
    out, err = capsys.readouterr()
    assert "FO-236" not in err
    monkeypatch.chdir(lead)
    assert run(shlex.split(out.splitlines()[-1])[1:]) == 0
    assert "FO-236" not in capsys.readouterr().err


def test_an_unfinished_rebase_is_named_and_left(lead: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lead / "README.md").write_text("mine\n")
    git(lead, "commit", "-qam", "mine")
    git(lead, "checkout", "-q", "--detach", "HEAD~1")
    (lead / "README.md").write_text("theirs\n")
    git(lead, "commit", "-qam", "theirs")
    with pytest.raises(subprocess.CalledProcessError):
        git(lead, "rebase", "-q", "HEAD", "main")
    assert run(["site", "add", "clinic", "--login", "c", "--id", "3"]) == 0
    err = capsys.readouterr().err
    assert "the work tree was left as it is: a rebase is not finished in it" in err
    assert "git rebase --continue, or to give it up: git rebase --abort" in err


def test_suspend_activate_and_list(lead: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["site", "list"]) == 0
    assert capsys.readouterr().out == "no sites yet\n"
    for name, number in (("hospital-b", "2"), ("clinic", "3")):
        assert run(["site", "add", name, "--login", f"{name}-x", "--id", number]) == 0
    capsys.readouterr()
    assert run(["site", "suspend", "clinic", "--dry-run"]) == 0
    assert capsys.readouterr().out == "clinic: would be suspended; would change policies/sites.yaml\n"
    assert run(["site", "suspend", "clinic"]) == 0
    capsys.readouterr()
    assert run(["site", "suspend", "clinic"]) == 0
    assert capsys.readouterr().out == "clinic: suspended, nothing to do\n"
    assert run(["site", "list"]) == 0
    assert capsys.readouterr().out == (
        "clinic      suspended  clinic-x (3)  0 key(s)\nhospital-b  active     hospital-b-x (2)  0 key(s)\n"
    )
    assert run(["site", "activate", "clinic", "--format", "json"]) == 0
    assert document(capsys) == {
        "schema": "fedops.site/v1",
        "ok": True,
        "changed": True,
        "findings": [],
        "commit": git(lead, "rev-parse", "HEAD"),
        "pull": None,
        "files": ["policies/sites.yaml"],
        "work_tree": "fast_forwarded",
        "site": "clinic",
        "state": "active",
        "accounts": [{"login": "clinic-x", "id": 3}],
        "keys": [],
        "store": None,
    }
    assert run(["site", "list", "--format", "json"]) == 0
    assert [s["site"] for s in document(capsys)["sites"]] == ["clinic", "hospital-b"]


def test_a_work_tree_with_changes_is_left_as_it_is(lead: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lead / "policies" / "sites.yaml").write_text("in the middle of something\n")
    assert run(["site", "add", "clinic", "--login", "c", "--id", "3"]) == 0
    assert "the work tree was left as it is: it has changes" in capsys.readouterr().err
    assert (lead / "policies" / "sites.yaml").read_text() == "in the middle of something\n"
    assert "clinic:" in git(lead, "show", "origin/main:policies/sites.yaml")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add", "x", "--login", "x", "--id", "1", "--key", "nowhere.pub"], "nowhere.pub: no such file"),
        (["add", "x", "--login", "x"], "--login and --id together"),
        (["add", "global", "--login", "x", "--id", "1"], "reserved name"),
        (["suspend", "x"], "no site x"),
    ],
)
def test_a_wrong_command_line_is_explained(
    lead: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(["site", *arguments]) == 2
    assert said in capsys.readouterr().err
