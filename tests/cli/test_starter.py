"""`fedops site add --bundle` and `fedops join --bundle`: from a lead's clone to a site's machine by one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedops.cli.main import run
from tests.cli.test_roster import document, git, lead

__all__ = ["lead"]

ADD = ["site", "add", "hospital-a", "--login", "alice", "--id", "1001"]


@pytest.fixture
def starter(lead: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "hospital-a.yaml"
    assert run([*ADD, "--bundle", str(path)]) == 0
    capsys.readouterr()
    return path


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder at the site."""
    folder = tmp_path / "desk"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_one_file_and_one_command_make_a_sites_clone(
    starter: Path, desk: Path, lead: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["join", "--bundle", str(starter), "--generate-key", "--format", "json"]) == 0
    said = document(capsys)
    clone = desk / lead.name
    assert (said["site"], said["clone"], said["state"]) == ("hospital-a", str(clone), "active")
    assert said["line"].startswith("fedops site add hospital-a --key 'ssh-ed25519 ")
    assert git(clone, "rev-parse", "HEAD") == git(lead, "rev-parse", "HEAD")


def test_a_second_time_changes_nothing(starter: Path, desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for changed in (True, False):
        assert run(["join", "--bundle", str(starter), "--generate-key", "--format", "json"]) == 0
        assert document(capsys)["changed"] is changed


def test_the_shared_block_is_the_same_bytes_for_a_site_with_a_store_of_its_own(
    starter: Path, lead: Path, tmp_path: Path
) -> None:
    other = tmp_path / "hospital-b.yaml"
    own = "oci://ghcr.io/bob-b/heart"
    arguments = ["site", "add", "hospital-b", "--login", "bob", "--id", "1002", "--store", own, "--bundle", str(other)]
    assert run(arguments) == 0
    heads, blocks = zip(*(path.read_bytes().split(b"\nshared:") for path in (starter, other)), strict=True)
    assert blocks[0] == blocks[1]
    assert b'\n  store: "ocidir:' in blocks[0], "the federation's"
    assert f'\nstore: "{own}"'.encode() in heads[1]
    assert b"\nstore:" not in heads[0]


def test_a_starter_with_a_store_of_its_own_makes_a_clone_too(
    lead: Path, desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(lead)
    path = tmp_path / "own.yaml"
    assert run([*ADD, "--store", "ocidir:/srv/alice", "--bundle", str(path)]) == 0
    monkeypatch.chdir(desk)
    capsys.readouterr()
    assert run(["join", "--bundle", str(path), "--generate-key", "--format", "json"]) == 0
    assert document(capsys)["state"] == "active"


def test_the_same_starter_is_written_again_and_another_file_is_kept(
    starter: Path, lead: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = starter.read_bytes()
    assert run([*ADD, "--bundle", str(starter)]) == 0
    assert starter.read_bytes() == before
    starter.write_text("mine")
    assert run([*ADD, "--bundle", str(starter)]) == 2
    assert starter.read_text() == "mine"
    assert "with other content" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_named(lead: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ADD, "--bundle", "nowhere/a.yaml"]) == 2
    assert "nowhere/a.yaml: cannot be written: No such file or directory" in capsys.readouterr().err


def test_another_federation_of_the_same_name_is_refused(
    starter: Path, desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other" / "lead"
    other.mkdir(parents=True)
    monkeypatch.chdir(other)
    assert run(["init", "--origin", "../fed.git", "--generator", "normal", "--tensor", "w:F32:2"]) == 0
    capsys.readouterr()
    assert run(["join", "--bundle", str(starter)]) == 2
    assert "this clone: federation lead with v0 at" in capsys.readouterr().err
    assert not (other / ".fedops" / "site.yaml").exists()


def test_another_forge_than_the_starter_names_is_refused_before_a_token_could_go_there(
    starter: Path, desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = starter.read_text()
    named = '{"kind": "github", "repository": "acme/fed", "api_url": null}'
    starter.write_text(text.replace('{"kind": "git", "repository": null, "api_url": null}', named))
    assert starter.read_text() != text
    monkeypatch.setattr("fedops.cli.wire.open_context", None)
    assert run(["join", "--bundle", str(starter)]) == 2
    assert "another forge than the starter says" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["join"], "which site?"),
        (["join", "hospital-a", "--bundle", "STARTER"], "--bundle says which site"),
        (["join", "--bundle", "STARTER", "--login", "alice"], "--bundle says which site"),
        (["join", "--bundle", "nowhere.yaml"], "no such file"),
    ],
)
def test_bad_input_is_refused(
    starter: Path, desk: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([str(starter) if word == "STARTER" else word for word in arguments]) == 2
    assert said in capsys.readouterr().err
    assert list(desk.iterdir()) == []


def test_an_origin_that_is_gone_leaves_no_clone(starter: Path, desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    starter.write_text(starter.read_text().replace("fed.git", "gone.git"))
    assert run(["join", "--bundle", str(starter)]) != 0
    assert "git clone" in capsys.readouterr().err
    assert list(desk.iterdir()) == []
