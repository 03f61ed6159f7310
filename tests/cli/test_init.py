"""The command `fedops init`: options, both forms of the result, exit codes, and the work tree afterwards."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from fedops.adapters.store_registry import RegistryStore
from fedops.cli.init import _store as open_store
from fedops.cli.main import run
from fedops.core.documents import load_document
from fedops.core.errors import ConfigError
from fedops.core.settings import Federation, Sites, SubmissionPolicy, Training
from tests.sshkeys import make_key

ZEROS = ("--generator", "zeros", "--tensor", "coef:F32:1,3", "--tensor", "intercept:F32:1")


@pytest.fixture
def lead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run in."""
    folder = tmp_path / "my Fed"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def init(*arguments: str, origin: bool = True) -> int:
    return run(["init", *(["--origin", "../fed.git"] if origin else []), *arguments])


def result(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_one_command_makes_a_federation_out_of_an_empty_folder(
    lead: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(*ZEROS, "--lead", "lena:1", "--quorum", "2") == 0
    out, err = capsys.readouterr()
    commit = git(tmp_path / "fed.git", "rev-parse", "main")
    assert out == f"v0 of my-fed: commit {commit[:12]}, tag global@v0.0.0, 28 files\n"
    assert "fedops site add" in err
    assert git(lead, "status", "--porcelain") == ""
    assert git(lead, "rev-parse", "HEAD") == commit
    federation = load_document((lead / "federation.yaml").read_bytes(), Federation, "f")
    assert (federation.name, federation.store.url) == ("my-fed", "ocidir:store")
    assert (tmp_path / "fed.git" / "store" / "global" / "index.json").is_file()


def test_again_it_says_that_there_is_nothing_to_do(lead: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init(*ZEROS)
    capsys.readouterr()
    assert init(*ZEROS) == 0
    assert capsys.readouterr().out == "my-fed is at v0: nothing to do\n"
    assert init(origin=False) == 0
    assert capsys.readouterr().out == "my-fed is at v0: nothing to do\n"


def test_the_json_result(lead: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(*ZEROS, "--format", "json") == 0
    first = result(capsys)
    record = json.loads((lead / "global" / "version.json").read_text())
    assert first == {
        "schema": "fedops.init/v1",
        "ok": True,
        "changed": True,
        "findings": [],
        "name": "my-fed",
        "version": 0,
        "tag": "global@v0.0.0",
        "commit": git(tmp_path / "fed.git", "rev-parse", "main"),
        "sha256": record["model"]["sha256"],
        "manifest": record["model"]["manifest"],
        "files": git(lead, "ls-files").splitlines(),
        "work_tree": "fast_forwarded",
    }
    assert init(*ZEROS, "--format", "json") == 0
    assert result(capsys) == {**first, "changed": False, "files": [], "work_tree": "up_to_date"}


def test_a_dry_run_leaves_nothing_behind(lead: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(*ZEROS, "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "would write federation.yaml" in lines
    assert lines[-1] == "v0 of my-fed: would be tagged global@v0.0.0, 28 files"
    assert list(lead.iterdir()) == []
    assert not (tmp_path / "fed.git").exists()
    init(*ZEROS)
    capsys.readouterr()
    assert init(*ZEROS, "--dry-run", "--format", "json") == 0
    assert result(capsys)["changed"] is False


def test_a_store_that_lost_v0_is_filled_again(lead: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init(*ZEROS)
    (tmp_path / "fed.git" / "store").rename(tmp_path / "lost")
    capsys.readouterr()
    assert init(origin=False) == 0
    assert capsys.readouterr().out == "my-fed is at v0: put the bytes of v0 back into the store\n"
    (tmp_path / "fed.git" / "store").rename(tmp_path / "lost-too")
    (tmp_path / "fed.git" / "store").mkdir()
    assert init("--dry-run", origin=False) == 0
    assert "would put the bytes" in capsys.readouterr().out


def test_options_end_up_in_the_files(lead: Path, tmp_path: Path) -> None:
    key = make_key(tmp_path, "lena")
    assert (
        init(
            *("--name", "fed", "--store", "ocidir:../shared", "--lead", "lena:1"),
            *("--lead-key", str(key.private.with_suffix(".pub")), "--lead-key", key.public.replace("lena", "again")),
            *("--generator", "normal", "--seed", "3", "--tensor", "w:F64:2"),
            *("--hyperparameter", "lr=0.1", "--hyperparameter", "name=sgd", "--hyperparameter", "fast=true"),
        )
        == 0
    )
    sites = load_document((lead / "policies" / "sites.yaml").read_bytes(), Sites, "s")
    assert sites.leads[0].keys == (key.public, key.public.replace("lena", "again"))
    training = load_document((lead / "policies" / "training.yaml").read_bytes(), Training, "t")
    assert training.hyperparameters == {"lr": 0.1, "name": "sgd", "fast": True}
    record = json.loads((lead / "global" / "version.json").read_text())
    assert record["source"] == {"generator": "normal", "seed": 3}
    assert (tmp_path / "shared" / "global").is_dir()


def test_a_model_file_becomes_v0(lead: Path, tmp_path: Path) -> None:
    save_file({"w": np.ones(2, np.float32)}, tmp_path / "m.safetensors")
    assert init("--model", str(tmp_path / "m.safetensors")) == 0
    record = json.loads((lead / "global" / "version.json").read_text())
    assert record["model"]["tensors"] == {"w": {"dtype": "F32", "shape": [2]}}


def test_a_bad_model_is_answered_with_no(lead: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_file({"w": np.array([np.inf])}, tmp_path / "m.safetensors")
    assert init("--model", str(tmp_path / "m.safetensors")) == 3
    out, err = capsys.readouterr()
    assert out == "no federation: nothing was written\n"
    assert "FO-218" in err
    assert git(tmp_path / "fed.git", "for-each-ref") == ""


NOBODY = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "user.useConfigOnly", "GIT_CONFIG_VALUE_0": "true"}


def forget_who_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """git knows nobody and guesses nothing."""
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.delenv(f"GIT_{who}_NAME")
        monkeypatch.delenv(f"GIT_{who}_EMAIL")
    for name, value in NOBODY.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--store", "ocidir:../store")])
def test_who_commits_must_be_known_before_anything_is_made(
    options: tuple[str, ...],
    lead: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    forget_who_commits(monkeypatch)
    assert init(*ZEROS, *options) == 2
    out, err = capsys.readouterr()
    assert (out, list(lead.iterdir()), list(tmp_path.iterdir())) == ("", [], [lead])
    assert f"{lead}: git does not know who writes the commits" in err
    assert 'hint: git config --global user.name "NAME"; git config --global user.email ADDRESS' in err
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert init(*ZEROS) == 0, "in a job fedops itself names the author"


def test_in_a_clone_nothing_is_stored_before_it_is_known_who_commits(
    lead: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "fed.git")
    git(lead, "init", "-q", "-b", "main")
    git(lead, "remote", "add", "origin", "../fed.git")
    before = sorted(tmp_path.rglob("*"))
    forget_who_commits(monkeypatch)
    assert init(*ZEROS, origin=False) == 2
    assert sorted(tmp_path.rglob("*")) == before
    git(lead, "config", "user.name", "Ann")
    git(lead, "config", "user.email", "ann@a.example")
    assert init(*ZEROS, origin=False) == 0
    assert git(lead, "log", "-1", "--format=%cn <%ce>") == "Ann <ann@a.example>"


def test_what_is_founded_already_needs_nobody_who_commits(
    lead: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    init(*ZEROS)
    forget_who_commits(monkeypatch)
    capsys.readouterr()
    assert init(*ZEROS) == 0
    assert capsys.readouterr().out == "my-fed is at v0: nothing to do\n"


def test_the_commit_is_signed_by_the_leads_key(lead: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDOPS_KEY", str(make_key(tmp_path, "lena").private))
    assert init(*ZEROS) == 0
    assert "-----BEGIN SSH SIGNATURE-----" in git(lead, "cat-file", "commit", "HEAD")


def test_on_github_sites_hand_in_from_forks_unsigned(lead: Path, tmp_path: Path) -> None:
    store = tmp_path / "abs"
    assert init(*ZEROS, "--forge", "github:acme/fed", "--store", f"ocidir:{store}") == 0
    federation = load_document((lead / "federation.yaml").read_bytes(), Federation, "f")
    assert federation.forge.repository == "acme/fed"
    policy = load_document((lead / "policies" / "submission.yaml").read_bytes(), SubmissionPolicy, "s")
    assert policy.require_signed is False
    assert store.is_dir()


def test_a_folder_that_is_no_clone_gets_the_commands(lead: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(*ZEROS, origin=False) == 2
    err = capsys.readouterr().err
    assert "not a git repository" in err
    assert "git remote add origin URL" in err


def test_a_relative_store_needs_a_folder_as_origin(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this origin is none") as caught:
        open_store("ocidir:store", base=tmp_path, shared=False, dry_run=False)
    assert "ocidir:/an/absolute/path" in caught.value.hint
    assert list(tmp_path.iterdir()) == []
    open_store(f"ocidir:{tmp_path}/store", base=tmp_path, shared=False, dry_run=False)
    assert (tmp_path / "store").is_dir()


def test_other_stores_are_not_folders(tmp_path: Path) -> None:
    store = open_store("oci://registry.example/ns", base=tmp_path, shared=False, dry_run=False)
    assert isinstance(store, RegistryStore)
    assert store.address.url == "oci://registry.example/ns"
    assert list(tmp_path.iterdir()) == []


def test_the_example_needs_no_options(lead: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init("--example") == 0
    assert capsys.readouterr().out.startswith("v0 of breast-cancer: commit ")


def test_a_work_tree_on_another_branch_is_left_and_said(lead: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(lead, "init", "-q", "-b", "other")
    assert init(*ZEROS) == 0
    assert "it is on another branch" in capsys.readouterr().err
    assert not (lead / "federation.yaml").exists()


def test_a_file_that_is_kept_is_a_warning(lead: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lead / "README.md").write_text("mine\n")
    assert init(*ZEROS) == 0
    assert "warning: README.md: the file is there already" in capsys.readouterr().err
    assert (lead / "README.md").read_text() == "mine\n"


def test_a_store_folder_that_cannot_be_made_is_named(
    lead: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert init(*ZEROS, "--store", f"ocidir:{tmp_path / 'file' / 'store'}") == 2
    assert "the folder cannot be made" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "exactly one of --model FILE"),
        ((*ZEROS, "--model", "x"), "got --model and --generator"),
        (("--tensor", "a:F32:1"), "belongs to --generator"),
        (("--generator", "zeros"), "at least one tensor"),
        ((*ZEROS, "--tensor", "coef:F32:1"), "a name is given twice"),
        ((*ZEROS, "--name", "My Fed"), "not a name"),
        ((*ZEROS, "--forge", "gitlab:a/b"), "git, or github:OWNER/NAME"),
        ((*ZEROS, "--forge", "github:a'b/c"), "git, or github:OWNER/NAME"),
        ((*ZEROS, "--forge", "github:acme/fed@http://ghe.example"), "forge.api_url"),
        ((*ZEROS, "--forge", "github:acme/fed"), "needed on forge github"),
        ((*ZEROS, "--store", "/srv/x"), "not a store"),
        ((*ZEROS, "--lead", "lena"), "LOGIN:ID"),
        ((*ZEROS, "--lead", "le na:1"), "LOGIN:ID"),
        ((*ZEROS, "--lead-key", "x.pub"), "whose key?"),
        ((*ZEROS, "--lead", "lena:1", "--lead-key", "x.pub"), "no such file"),
        ((*ZEROS, "--hyperparameter", "lr"), "NAME=VALUE"),
        ((*ZEROS, "--hyperparameter", "a=1", "--hyperparameter", "a=2"), "each name once"),
        ((*ZEROS, "--hyperparameter", "a=yes"), "write true or false"),
        (("--example", "--name", "x"), "leave the other options out"),
    ],
)
def test_a_wrong_command_line_is_explained_and_writes_nothing(
    lead: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert init(*arguments) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "fed.git").exists() or git(tmp_path / "fed.git", "for-each-ref") == ""


@pytest.mark.parametrize(
    "address", ["git@git.example:heart.git", "ssh://git@git.example/heart.git", "https://git.example/heart"]
)
def test_an_origin_on_a_server_is_cloned_first(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init", "--origin", address, "--generator", "zeros", "--tensor", "w:F32:2"]) == 2
    assert "is the address of a server -> a folder on this machine" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
