"""`fedops pull`, `train`, `submit`, `status`, `log`, `show` as typed, on real git and a store on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from fedops.app.site_state import SiteState, write_site_state
from fedops.cli.main import run
from tests.core.samples import version
from tests.site_world import BASE, World, git_world, moved

A = "hospital-a"
CLIENT = """
import numpy as np
from fedops import Client, FitResult

class Ours(Client):
    def fit(self, parameters, config):
        print("rate", config["hyperparameters"]["rate"])
        return FitResult({n: a + np.asarray(1, a.dtype) for n, a in parameters.items()}, 150, {"loss": 0.31})
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """In hospital-a's clone, set up as `fedops join` does, with its training code."""
    world = git_world(tmp_path)
    monkeypatch.chdir(world.root(A))
    write_site_state(world.root(A), SiteState(A, str(world.key(A))))
    (world.root(A) / "ours.py").write_text(CLIENT)
    yield world
    world.close()


@pytest.fixture
def fedops(world: World, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Run a command line; gives (stdout, stderr) once the exit code is the expected one."""

    def call(*arguments: str, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        got = run(arguments)
        out, err = capsys.readouterr()
        assert got == code, err
        return out, err

    return call


Fedops = Callable[..., tuple[str, str]]


def loads(fedops: Fedops, *arguments: str, code: int = 0) -> dict[str, Any]:
    out, _ = fedops(*arguments, "--format", "json", code=code)
    document: dict[str, Any] = json.loads(out)
    assert document["schema"] == f"fedops.{arguments[0]}/v1"
    return document


def test_a_site_pulls_trains_and_submits_with_three_commands(world: World, fedops: Fedops) -> None:
    out, _ = fedops("pull")
    assert out.splitlines()[1:] == [".fedops/versions/v0/model.safetensors", "next: fedops train"]
    out, err = fedops("train", "--client", "ours:Ours")
    assert out.startswith("hospital-a trained on v0\n150 examples  loss 0.31  ")
    assert "rate 0.1" in err
    out, _ = fedops("submit")
    assert out.startswith("submitted: PR #1 (hospital-a, update on v0)\n")
    out, _ = fedops("status")
    assert "hospital-a *  PR #1" in out
    for again in (("pull",), ("train", "--client", "ours:Ours"), ("submit",)):
        assert loads(fedops, *again)["changed"] is False


def test_every_result_is_a_document_for_other_tools(world: World, fedops: Fedops, tmp_path: Path) -> None:
    out = tmp_path / "v0.safetensors"
    pulled = loads(fedops, "pull", "v0", "--out", str(out))
    assert (pulled["version"], pulled["current"], pulled["status"], pulled["out"]) == (0, 0, "running", str(out))
    assert load_file(out)["weight"].tolist() == BASE["weight"].tolist()
    trained = loads(fedops, "train", "--client", "ours:Ours", "--base", "v0")
    assert (trained["changed"], trained["result"]["num_examples"], trained["current"]) == (True, 150, 0)
    planned = loads(fedops, "submit", "--dry-run")
    assert (planned["outcome"], planned["pull"], planned["changed"]) == ("planned", None, False)
    submitted = loads(fedops, "submit")
    assert (submitted["outcome"], submitted["pull"], submitted["uploaded"]) == ("opened", 1, True)
    assert submitted["record"]["sha256"] == trained["result"]["sha256"] == planned["record"]["sha256"]


def test_a_command_hook_with_its_own_hyperparameters(world: World, fedops: Fedops) -> None:
    fedops("pull")
    (world.root(A) / "own.json").write_text('{"rate": 0.5}')
    script = (
        "import json, os, shutil; c = json.loads(os.environ['FEDOPS_CONFIG']); "
        "shutil.copy(os.environ['FEDOPS_MODEL'], os.environ['FEDOPS_UPDATE']); "
        "open(os.environ['FEDOPS_RESULT'], 'w').write(json.dumps({'num_examples': int(10 * c['hyperparameters']['rate'])}))"
    )
    (world.root(A) / "hook.py").write_text(script)
    got = loads(fedops, "train", "--command", f"{sys.executable} hook.py", "--config", "own.json")
    assert got["result"]["num_examples"] == 5


def test_a_training_that_diverged_is_a_no(world: World, fedops: Fedops) -> None:
    fedops("pull")
    script = (
        "import os, numpy as np; from safetensors.numpy import load_file, save_file; "
        "model = load_file(os.environ['FEDOPS_MODEL']); model['bias'][:] = np.nan; "
        "save_file(model, os.environ['FEDOPS_UPDATE'])"
    )
    (world.root(A) / "hook.py").write_text(script)
    command = ("train", "--command", f"{sys.executable} hook.py")
    kept = ".fedops/versions/v0/refused.safetensors"
    _, err = fedops(*command, code=3)
    assert f"the update is not taken; it is kept for looking at: {kept}\n{kept}: a float tensor contains NaN" in err
    assert "(tensor bias, index 0, values 2, of 2), got nan [FO-218]\n  hint: look at the training run" in err
    got = loads(fedops, *command, code=3)
    assert (got["ok"], got["changed"], got["kept"]) == (False, False, str(world.root(A) / kept))
    assert [f["slug"] for f in got["findings"]] == ["non_finite"]
    _, err = fedops("submit", code=2)
    assert "no finished training" in err


def test_a_file_of_ones_own_is_handed_in_with_its_facts(world: World, fedops: Fedops) -> None:
    save_file(moved(2), world.root(A) / "mine.safetensors", metadata={"note": "x"})
    out, err = fedops(
        "submit", "mine.safetensors", "--examples", "12", "--metric", "loss=0.5", "--metric", "accuracy=1"
    )
    assert "12 examples  accuracy 1, loss 0.5" in out
    assert "warning: mine.safetensors: free metadata in the file is dropped" in err


def test_a_newer_version_is_told_while_training_on_an_older_one(world: World, fedops: Fedops) -> None:
    fedops("pull")
    world.publish(version(1), moved(1))
    fedops("status")  # fetches
    _, err = fedops("train", "--client", "ours:Ours")
    assert "note: v1 is out; this update counts with staleness 1" in err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["pull", "9"], 2, "'9' is not a version -> v5"),
        (["pull", "v9"], 2, "v9: no such version on main"),
        (["train"], 2, "either --client MODULE:CLASS or --command"),
        (["train", "--client", "ours:Ours", "--command", "x"], 2, "either --client"),
        (["train", "--command", "it's"], 2, "--command: No closing quotation"),
        (["train", "--client", "ours"], 2, "-> package.module:Class"),
        (["train", "--client", "ours:Ours", "--config", "no.yaml"], 2, "no.yaml: no such file"),
        (["train", "--client", "ours:Ours", "--config", "list.yaml"], 2, "got a list -> a map"),
        (["train", "--client", "ours:Ours", "--site", "clinic-x"], 3, "FO-230"),
        (["train", "--client", "ours:Nobody"], 2, "module 'ours' has no 'Nobody'"),
        (["submit"], 2, "no finished training"),
        (["submit", "data.csv"], 3, "FO-201"),
        (["submit", "data.csv", "--metric", "loss"], 2, "-> a name and a finite number"),
        (["submit", "data.csv", "--metric", "loss=nan"], 2, "-> a name and a finite number"),
        (["submit", "data.csv", "--examples", "0"], 2, "0 is not in the range x>=1"),
        (["show", "v3"], 2, "v3: no such version"),
        (["show", "latest"], 2, "is not a version"),
    ],
)
def test_what_cannot_be_done_says_where_and_what(
    arguments: list[str], code: int, says: str, world: World, fedops: Fedops
) -> None:
    fedops("pull")
    (world.root(A) / "data.csv").write_text("id,name\n1,Jane\n")
    (world.root(A) / "list.yaml").write_text("- 1\n")
    out, err = fedops(*arguments, code=code)
    assert says in err
    assert out == ""


def test_a_refusal_is_a_document_too(world: World, fedops: Fedops) -> None:
    (world.root(A) / "data.csv").write_text("id,name\n1,Jane\n")
    got = loads(fedops, "submit", "data.csv", code=3)
    assert (got["ok"], [f["slug"] for f in got["findings"]]) == (False, ["format_unknown"])


def test_a_clone_of_no_site_asks_for_one(world: World, fedops: Fedops) -> None:
    (world.root(A) / ".fedops/site.yaml").unlink()
    fedops("pull")
    _, err = fedops("train", "--client", "ours:Ours", code=2)
    assert "--site ID" in err
    got = loads(fedops, "status")
    assert (got["site"], got["next"]) == (None, None)


def test_a_key_on_the_command_line_signs(world: World, fedops: Fedops) -> None:
    save_file(moved(2), world.root(A) / "mine.safetensors")
    arguments = ("submit", "mine.safetensors", "--examples", "5")
    _, err = fedops(*arguments, "--key", str(world.key("stranger")), code=3)
    assert "FO-233" in err
    assert "signed by a key that is not on the roster -> a key of hospital-a in policies/sites.yaml" in err
    listed = subprocess.run(["ssh-keygen", "-l", "-f", f"{world.key('stranger')}.pub"], capture_output=True, check=True)
    assert listed.stdout.split()[1].decode() in err, "the lead can compare it with the roster"
    assert "fedops join SITE --generate-key" in err
    _, err = fedops(*arguments, "--key", "nowhere", code=2)
    assert "nowhere: no such key file" in err
    assert ".fedops/site.yaml" in err
    fedops(*arguments, "--key", str(world.key(A)))


# ---------------------------------------------------------------- what is only read


@pytest.fixture
def history(world: World, fedops: Fedops) -> World:
    """v1 of hospital-a's update alone, then hospital-a's next one merged."""
    save_file(moved(1), world.root(A) / "mine.safetensors")
    fedops("submit", "mine.safetensors", "--examples", "150")
    world.merge(1)
    used = world.contribution_of(A)
    world.publish(version(1, contributions=[used], consumed={A: 0}), moved(1))
    save_file(moved(2), world.root(A) / "mine.safetensors")
    fedops("submit", "mine.safetensors", "--examples", "150", "--base", "v1")
    world.merge(2)
    return world


def test_status_says_who_is_where(history: World, fedops: Fedops) -> None:
    got = loads(fedops, "status")
    assert (got["name"], got["version"], got["pulls"], got["site"]) == ("breast-cancer", 1, 0, A)
    assert got["quorum"] == {"ready": [A], "have": 1, "need": 2}
    assert got["decision"] == {"kind": "wait", "reason": "quorum", "missing": ["hospital-b"], "until": None}
    first, second = got["sites"]
    assert (first["site"], first["phase"], first["base_version"], first["staleness"]) == (A, "ready", 1, 0)
    assert (second["site"], second["phase"], second["pull"], second["reason"]) == ("hospital-b", "new", None, None)


def test_status_as_json_has_every_kind_of_decision(history: World, fedops: Fedops) -> None:
    policy = b"schema: fedops.aggregation/v1\ntrigger: {quorum: 1}\n"
    history.change({"policies/aggregation.yaml": policy})
    assert loads(fedops, "status")["decision"] == {"kind": "aggregate", "trigger": "quorum"}
    history.change({"policies/aggregation.yaml": policy + b"stop: {max_version: 1}\n"})
    assert loads(fedops, "status")["decision"] == {"kind": "stop", "reason": "max_version"}


def test_status_as_json_shows_pull_requests_windows_and_reasons(history: World, fedops: Fedops) -> None:
    text = b"schema: fedops.aggregation/v1\ntrigger: {quorum: 2, max_wait_hours: 1000000.0}\n"
    history.change({"policies/aggregation.yaml": text, "sites/hospital-b/submission.json": b"{"})
    save_file(moved(3), history.root(A) / "mine.safetensors")
    fedops("submit", "mine.safetensors", "--examples", "150", "--base", "v1")
    got = loads(fedops, "status")
    assert got["decision"]["until"].endswith("Z")
    assert [f["slug"] for f in got["findings"]] == ["record_unreadable", "merged_by_hand"]
    first, second = got["sites"]
    assert (first["pull"]["number"], first["pull"]["verdict"], first["pull"]["owned"]) == (3, None, True)
    assert first["merged_at"] == "2026-03-02T09:30:00Z"
    assert second["reason"]["slug"] == "record_unreadable"


def test_offline_everything_is_as_last_fetched(history: World, fedops: Fedops) -> None:
    fedops("status")
    history.publish(version(2), moved(2))
    for command in ("status", "show", "log"):
        assert loads(fedops, command, "--no-fetch").get("version", 1) == 1
    assert loads(fedops, "log", "--no-fetch")["versions"][0]["version"] == 1
    assert loads(fedops, "show")["version"] == 2


def test_log_and_show_say_who_contributed_what(history: World, fedops: Fedops) -> None:
    out, _ = fedops("log")
    assert "v1 (fedavg, 1 site)" in out
    assert "hospital-a  on v0  stale 0  150 examples  100.0 %" in out
    shown = loads(fedops, "show", "v1")
    assert shown["record"]["contributions"][0]["site"] == A
    assert shown["tag"] == "global@v1.0.0"
    logged = loads(fedops, "log", "--all")["versions"]
    assert [entry["version"] for entry in logged] == [1, 0]
    assert logged[0] == {k: shown[k] for k in ("version", "commit", "at", "tag", "record")}
    assert [entry["version"] for entry in loads(fedops, "log", "-n", "1")["versions"]] == [1]
    out, _ = fedops("show", "global@v0.0.0")
    assert "no contributions: this is the first model" in out


@pytest.mark.parametrize("arguments", [["status"], ["log"], ["show"], ["--help"], ["submit", "--help"]])
def test_what_reads_no_model_imports_no_heavy_library(arguments: list[str], world: World) -> None:
    code = (
        "import sys\nfrom fedops.cli.main import run\n"
        f"code = run({arguments!r})\n"
        "heavy = {'numpy', 'dvc', 'oras', 'github', 'requests', 'sklearn'} & set(sys.modules)\n"
        "print(code, sorted(heavy), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=world.root(A))
    assert done.stderr.splitlines()[-1] == "0 []"
