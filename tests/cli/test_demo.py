"""`fedops demo`: the whole federation in a folder, played once, and what it refuses to touch."""

from __future__ import annotations

import builtins
import itertools
import json
import re
import shutil
import subprocess
import sysconfig
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedops.adapters import demo_data
from fedops.adapters.yaml_edit import RoundTripEditor
from fedops.app import demo, demo_trouble
from fedops.app.demo import SHARES, play
from fedops.app.demo_stage import Ran, Stage
from fedops.app.demo_trouble import APPROVER, LATE, LEADS
from fedops.cli import demo as command
from fedops.core.errors import ConfigError, FedopsError
from fedops.render.demo import demo_text
from tests.cli_world import in_process
from tests.render.goldens_run import demo_result
from tests.scenario.test_dvc_commands import GLOBAL, Place


@pytest.mark.long
@pytest.mark.slow
def test_the_demo_plays_a_federation_that_anybody_can_look_at(tmp_path: Path) -> None:
    """All of it, as `fedops demo` plays it; about a minute."""
    ran = in_process(tmp_path, "demo", "--dir", "demo", "--format", "json")
    assert ran.code == 0, ran.err
    result = ran.json
    assert (result["schema"], result["ok"], result["changed"]) == ("fedops.demo/v1", True, True)

    versions = result["versions"]
    assert [v["version"] for v in versions] == list(range(10))
    assert [v["kind"] for v in versions] == ["init", *["aggregate"] * 8, "rollback"]
    accuracy = [v["accuracy"] for v in versions]
    assert min(accuracy[3:]) > 0.9 > accuracy[0]
    assert (versions[9]["source"], accuracy[9]) == (6, accuracy[6])
    for version in versions[1:9]:
        assert sum(c["share"] for c in version["contributions"]) == pytest.approx(1)
        assert len(version["contributions"]) >= 2
    assert "hospital-a" not in [c["site"] for c in versions[5]["contributions"]], "its bytes are gone"
    assert sorted(event["version"] for event in result["troubles"]) == [4, 4, 5, 7, 9]
    assert_the_slow_site_arrives_stale(tmp_path / "demo", versions)
    assert result["verified"] == {"versions": 10, "ok": 10}
    compared = {row["name"]: row for row in result["compared"]}
    alone = {f"{site} alone" for site in SHARES}
    assert set(compared) == {"federation, v9", "pooled: all data in one place", *alone}
    assert all(row["accuracy"] > 0.8 for row in compared.values())
    rows = [compared[f"{site} alone"]["rows"] for site in SHARES]
    assert rows == sorted(rows, reverse=True)
    assert sum(rows) == compared["federation, v9"]["rows"] == 569 - result["held_out_rows"]

    nan, intruder = result["refused"]
    assert (nan["site"], nan["reason"], nan["what"]) == ("clinic-c", "non_finite", "an update with NaN")
    assert "a float tensor contains NaN or infinity" in nan["comment"]
    assert "**Rejected**" in intruder["comment"]
    assert (intruder["site"], intruder["reason"]) == ("clinic-d", "site_mismatch")
    assert "sites/hospital-a" in intruder["comment"]
    assert "do not name the same site" in intruder["comment"]

    folder = tmp_path / "demo"
    assert json.loads((folder / "summary.json").read_text())["versions"] == result["versions"]
    assert ET.parse(folder / "accuracy.svg").getroot().tag.endswith("svg")
    assert (folder / "origin.git" / "HEAD").is_file()
    assert (folder / "store" / "global" / "oci-layout").is_file()
    assert sorted(p.name for p in (folder / "models").iterdir()) == [f"v{n}.safetensors" for n in range(10)]
    log = subprocess.run(["git", "-C", folder / "auditor", "log", "--format=%s %ae"], capture_output=True, text=True)
    assert "global: v9 (rollback to v6)" in log.stdout
    assert {line.rsplit(" ", 1)[1] for line in log.stdout.splitlines()} == {"demo@example.invalid"}
    # The sites' data are where they were, and nowhere else.
    assert len(list(folder.rglob("data.npz"))) == len(SHARES)
    assert (
        b"data.npz"
        not in subprocess.run(
            ["git", "-C", folder / "origin.git", "log", "--all", "--name-only"], capture_output=True
        ).stdout
    )
    assert_commands_of_the_text_work(folder)
    assert_dvc_reads_it(folder)
    # Progress told every step, in words.
    assert "CI: v8 published: " in ran.err
    assert re.search(r"CI: pull request #\d+ refused: non_finite", ran.err)
    assert max(map(len, ran.err.splitlines())) <= 100


def assert_the_slow_site_arrives_stale(folder: Path, versions: Sequence[Any]) -> None:
    """No rounds: sites are on different versions at once, and who comes late counts for less."""
    mixed = 0
    for number in range(1, 9):
        data = subprocess.run(
            ["git", "-C", folder / "origin.git", "show", f"global@v{number}.0.0:global/version.json"],
            capture_output=True,
        ).stdout
        parts = json.loads(data)["contributions"]
        weights = {c["site"]: c["num_examples"] / (1 + (number - 1 - c["base_version"])) for c in parts}
        shown = {c["site"]: (c["share"], c["staleness"]) for c in versions[number]["contributions"]}
        assert shown == {
            c["site"]: (pytest.approx(weights[c["site"]] / sum(weights.values())), number - 1 - c["base_version"])
            for c in parts
        }
        mixed += len({c["base_version"] for c in parts}) > 1
    assert mixed >= 3
    late = {v["version"]: c["staleness"] for v in versions for c in v["contributions"] if c["site"] == LATE}
    assert late == {3: 2, 6: 2}, "it never brings an update on the current version"


def assert_dvc_reads_it(folder: Path) -> None:
    """DVC's own commands, from a fresh clone: all bytes are there, since each site's last update is a later one than
    what was deleted.
    """
    place = Place(folder)
    assert place.run("git", "clone", "--quiet", "origin.git", "clone", cwd=folder).returncode == 0
    place.dvc("pull")
    assert place.models() == [GLOBAL, *(f"sites/{site}/update.safetensors" for site in sorted(SHARES))]
    assert place.sha256(GLOBAL) == place.record(9)["model"]["sha256"] == place.record(6)["model"]["sha256"]
    assert all(place.sha256(f"sites/{site}/update.safetensors") == place.recorded(site) for site in SHARES)
    outside = folder / "outside"
    outside.mkdir()
    place.dvc("get", str(place.origin), GLOBAL, "--rev", "global@v9.0.0", cwd=outside)
    assert place.sha256(outside / "model.safetensors") == place.record(9)["model"]["sha256"]
    told = place.dvc("metrics", "diff", "global@v3.0.0", "global@v9.0.0").stdout
    for name in ("accuracy", "loss"):
        old, new = (re.escape(str(round(place.record(n)["metrics"][name], 5))) for n in (3, 9))
        assert re.search(f"{name} +{old} +{new} ", told), told
    gto = shutil.which("gto", path=sysconfig.get_path("scripts"))
    assert gto is not None
    assert re.search(r"global +│ +v9\.0\.0", place.run(gto, "show").stdout)


def assert_commands_of_the_text_work(folder: Path) -> None:
    lines = demo_text(json.loads((folder / "summary.json").read_text()), "demo").splitlines()
    commands = [line.strip() for line in lines[lines.index("try") + 1 :]]
    assert commands[0] == "cd demo/auditor"
    for line in commands[1:]:
        words = line.split()
        if words[0] == "fedops":
            ran = in_process(folder / "auditor", *words[1:])
            assert (ran.code, bool(ran.out)) == (0, True), line


def test_a_command_that_no_shell_finds_is_told_with_its_folder() -> None:
    lines = demo_text(demo_result(), "demo", "/my envs/bin").splitlines()
    start = lines.index("try")
    assert lines[start + 1 : start + 3] == ["  export PATH='/my envs/bin':$PATH", "  cd demo/auditor"]


# ---------------------------------------------------------------- what stands in the way


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The demo without its play: folders that it would have played in."""
    played: list[Path] = []

    def play_nothing(stage: Stage, versions: int) -> Any:
        played.append(stage.folder)
        raise FedopsError("played")

    monkeypatch.setattr(command, "play", play_nothing)
    return played


def test_an_earlier_demo_is_replaced_on_demand_only(tmp_path: Path, quick: list[Path]) -> None:
    assert in_process(tmp_path, "demo").err.endswith("error: played\n")
    folder = tmp_path / "demo-federation"
    (folder / "trace").write_text("of the first")
    ran = in_process(tmp_path, "demo")
    assert (ran.code, len(quick)) == (2, 1)
    assert "an earlier demo lies there" in ran.err
    assert "hint: fedops demo --replace" in ran.err
    assert (folder / "trace").exists()
    assert in_process(tmp_path, "demo", "--replace").err.endswith("error: played\n")
    assert not (folder / "trace").exists()
    assert quick == [folder, folder]


def test_a_folder_of_somebody_else_is_never_touched(tmp_path: Path, quick: list[Path]) -> None:
    for name in (".home", "work"):
        (tmp_path / "theirs" / name).mkdir(parents=True)
    for more in ((), ("--replace",)):
        ran = in_process(tmp_path, "demo", "--dir", "theirs", *more)
        assert (ran.code, ran.out) == (2, "")
        assert "exists and is no demo" in ran.err
    (tmp_path / "file").write_text("x")
    assert "is a file -> a folder" in in_process(tmp_path, "demo", "--dir", "file", "--replace").err
    assert sorted(p.name for p in (tmp_path / "theirs").iterdir()) == [".home", "work"]
    assert quick == []
    (tmp_path / "empty").mkdir()
    in_process(tmp_path, "demo", "--dir", "empty")
    in_process(tmp_path, "demo", "--dir", "new/one")
    assert quick == [tmp_path / "empty", tmp_path / "new" / "one"]


@pytest.mark.parametrize("package", ["sklearn", "matplotlib"])
def test_a_missing_package_is_told_before_anything_is_built(
    package: str, tmp_path: Path, quick: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.split(".", maxsplit=1)[0] == package:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    ran = in_process(tmp_path, "demo")
    assert (ran.code, ran.out) == (2, "")
    assert {"sklearn": "scikit-learn", "matplotlib": "matplotlib"}[package] + " is not installed" in ran.err
    assert "hint: pip install 'fedops-git[demo]'" in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("versions", ["0", "31", "x"])
def test_a_number_of_versions_that_cannot_be_is_a_usage_error(versions: str, tmp_path: Path) -> None:
    assert in_process(tmp_path, "demo", "--versions", versions).code == 2
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- the story, without processes


class Script:
    """A Runner that answers like the commands; CI publishes when two sites have handed in, or never."""

    def __init__(self, *, publishes: bool = True) -> None:
        self.lines: list[str] = []
        self.publishes = publishes
        self.handed_in: list[str] = []
        self.version = 0
        self.log: list[Any] = [{"version": 0, "record": {"contributions": []}}]
        self.failing = ""

    def fedops(self, folder: Path, *arguments: str, expect: Sequence[int] = (0,)) -> Ran:
        self.lines.append(f"{folder.name}: fedops {' '.join(a for a in arguments if a not in ('--format', 'json'))}")
        answers: dict[str, Callable[[], Any]] = {
            "join": lambda: {"public_key": f"key of {folder.name}"},
            "submit": lambda: self._submit(folder.name),
            "rollback": lambda: {"pull": 99},
            "ci": self._reconcile,
            "local": lambda: self._workflows(arguments[1]),
            "log": lambda: {"versions": self.log[::-1]},
            "review": lambda: {"verdict": "rejected: non_finite and 2 more", "comments": ["**Rejected**"]},
            "verify": lambda: {"versions": []},
        }
        return Ran(0, json.dumps(answers.get(arguments[0], dict)()), "")

    def _submit(self, site: str) -> Any:
        self.handed_in.append(site)
        return {"pull": 10 + len(self.handed_in), "record": {"sha256": "5a"}}

    def _reconcile(self) -> Any:
        used, self.handed_in = self.handed_in, []
        if not (self.publishes and len(used) > 1):
            return {"pulls": [], "published": [], "decision": None}
        self.version += 1
        parts = [{"site": s, "share": 1 / len(used), "staleness": 0} for s in used]
        made = {"version": self.version, "kind": "aggregate", "contributions": parts}
        return {"pulls": [], "published": [made], "decision": None}

    def kill(self, folder: Path, begun: Path, *arguments: str) -> None:
        self.lines.append(f"{folder.name}: killed: fedops {' '.join(arguments)}")
        assert (folder / "slow.yaml").is_file(), "what makes the training long"

    def _workflows(self, how: str) -> Any:
        """The runs of `fedops local`; what they publish is in the log."""
        if how == "up":
            for made in self._reconcile()["published"]:
                self.log.append({"version": made["version"], "record": {"contributions": made["contributions"]}})
        runs = [run("validate.yml", "failure"), run("reconcile.yml", "failure" if self.failing == how else "success")]
        return {"runs": runs if how == "up" else runs[1:]}

    def git(self, folder: Path, *arguments: str) -> Ran:
        if arguments[0] in ("init", "clone"):
            (folder / arguments[-1] / "policies").mkdir(parents=True)
            (folder / arguments[-1] / "policies" / "sites.yaml").write_text("leads: []\n")
        return Ran(0, "", "")

    def python(self, folder: Path, *arguments: str) -> Ran:
        return Ran(0, "7\n", "")


def run(workflow: str, result: str) -> Any:
    jobs = {workflow.partition(".")[0]: result}
    return {
        "number": 1,
        "workflow": workflow,
        "event": "push",
        "result": result,
        "jobs": jobs,
        "seconds": 1.0,
        "log": "l",
    }


def stage(folder: Path, run: Script, **more: Any) -> Stage:
    keys = {lead: folder / lead for lead in LEADS}
    for key in keys.values():
        key.with_suffix(".pub").write_text("ssh-ed25519 AAAA")
    given: dict[str, Any] = {"tell": lambda text: None, "editor": RoundTripEditor(), "keys": keys} | more
    return Stage(folder, run, lambda site, clone: None, parse=json.loads, **given)


def test_sites_hand_in_in_the_same_order_each_time(tmp_path: Path) -> None:
    orders = []
    for name in "ab":
        (tmp_path / name).mkdir()
        script = Script()
        told = play(stage(tmp_path / name, script), 3)
        assert told.current == 3
        assert f"- {{login: {APPROVER}, " in (tmp_path / name / "lead" / "policies" / "sites.yaml").read_text()
        (killed,) = [line for line in script.lines if "killed" in line]
        assert killed.startswith("hospital-b: killed: fedops train --client client:LogisticRegression --base v2 ")
        ordered = [line for line in script.lines if ": fedops submit" in line or ": fedops site add" in line]
        orders.append(ordered)
        # A site pulls before it trains, and trains before it hands in; nobody trains twice on one version.
        for site in SHARES:
            mine = [
                line.split()[2] for line in script.lines if line.startswith(f"{site}: fedops ") and "--out" not in line
            ]
            assert "".join(w[0] for w in mine if w in ("pull", "train", "submit")).replace("pts", "") in ("", "p", "pt")
    assert orders[0] == orders[1]
    assert [line.split(":")[0] for line in orders[0] if "submit" in line][:3] == [
        "hospital-a",
        "hospital-b",
        "clinic-c",
    ]


def test_by_workflows_the_same_story_is_told_from_what_they_left(tmp_path: Path) -> None:
    orders, said = [], list[str]()
    for workflows in (False, True):
        (tmp_path / str(workflows)).mkdir()
        script = Script()
        told = play(stage(tmp_path / str(workflows), script, workflows=workflows, tell=said.append), 3)
        assert [v["version"] for v in told.versions] == [1, 2, 3]
        orders.append([line for line in script.lines if ": fedops submit" in line])
    assert orders[0] == orders[1]
    assert [(r["site"], r["reason"]) for r in told.refused] == [("clinic-c", "non_finite"), ("clinic-d", "non_finite")]
    assert "ci: fedops local run workflow_dispatch --workflow reconcile.yml" in script.lines
    assert not any("fedops ci reconcile" in line for line in script.lines)
    assert "CI: run 1: validate.yml on push: failed: validate, 1.0 s" in said


def test_a_workflow_that_breaks_stops_the_demo(tmp_path: Path) -> None:
    script = Script()
    script.failing = "up"
    with pytest.raises(FedopsError, match=r"demo: run 1: reconcile\.yml on push: failed: reconcile"):
        play(stage(tmp_path, script, workflows=True), 3)


def test_without_act_nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(path: str) -> Path:
        raise ConfigError("act: not found", hint="pip install 'fedops-git[local]'")

    monkeypatch.setattr("fedops.adapters.act_runner.find_act", nowhere)
    assert "act: not found" in in_process(tmp_path, "demo", "--workflows", "act").err
    assert list(tmp_path.iterdir()) == []


def test_a_trouble_that_did_not_come_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_trouble, "ROLLBACK_FROM", 1)
    with pytest.raises(FedopsError, match="demo: did not happen: killed, lost, race, review, rollback, stale"):
        play(stage(tmp_path, Script()), 1)


def test_two_runners_that_make_two_versions_of_one_number_stop_the_demo(tmp_path: Path) -> None:
    answers = iter("ab")

    class Split(Script):
        def fedops(self, folder: Path, *arguments: str, expect: Sequence[int] = (0,)) -> Ran:
            made = {"version": 1, "model": next(answers)}
            return Ran(0, json.dumps({"pulls": [], "published": [made], "decision": None}), "")

    with pytest.raises(FedopsError, match="two runners published different versions"):
        demo_trouble.race(stage(tmp_path, Split()))


def test_a_command_that_ends_before_it_is_killed_is_told(tmp_path: Path) -> None:
    with pytest.raises(FedopsError, match=r"demo: fedops\.cli\.main status in .*: ended by itself"):
        command.Processes(tmp_path).kill(tmp_path, tmp_path / "begun", "status")


def test_a_federation_that_stands_still_is_told(tmp_path: Path) -> None:
    with pytest.raises(FedopsError, match=f"v0 after {demo.MAX_TICKS} ticks -> v1"):
        play(stage(tmp_path, Script(publishes=False)), 1)


def test_a_command_that_fails_is_named_with_what_it_said(tmp_path: Path) -> None:
    (tmp_path / "clone").mkdir()
    run = command.Processes(tmp_path)
    with pytest.raises(
        FedopsError, match=r"(?s)demo: fedops\.cli\.main status in clone: exit 2\n.*no federation\.yaml"
    ):
        run.fedops(tmp_path / "clone", "status")
    assert run.fedops(tmp_path / "clone", "status", expect=(2,)).code == 2
    with pytest.raises(FedopsError, match="demo: git nothing in clone: exit 1"):
        run.git(tmp_path / "clone", "nothing")


def test_processes_get_nothing_of_the_users_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDOPS_KEY", "/home/user/key")
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    ran = command.Processes(tmp_path).python(tmp_path, "-c", "import os; print(sorted(os.environ))")
    assert not {"FEDOPS_KEY", "GITHUB_TOKEN", "GIT_DIR", "GIT_SSH"} & set(eval(ran.out))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="git: not found"):
        command.Processes(tmp_path).git(tmp_path, "status")


def test_a_version_that_does_not_verify_makes_the_demo_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = demo.Told(verified={"versions": [{"ok": True}, {"ok": False}]})
    monkeypatch.setattr(command, "play", lambda stage, versions: told)
    monkeypatch.setattr(command, "_arrays", lambda path: ([[0.0] * 30], [1.0]))
    ran = in_process(tmp_path, "demo", "--dir", "d", "--format", "json")
    assert (ran.code, ran.json["ok"], ran.json["verified"]) == (3, False, {"versions": 2, "ok": 1})
    assert "FAILED to verify" in in_process(tmp_path, "demo", "--dir", "d", "--replace").out


def test_a_model_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "v0.safetensors").write_bytes(b"not a model")
    with pytest.raises(FedopsError, match=r"v0\.safetensors: format_unknown"):
        command._arrays(tmp_path / "v0.safetensors")


def test_the_data_are_cut_by_tumour_size_and_nobody_has_the_held_out_rows() -> None:
    data = demo_data.load(SHARES)
    assert sum(len(y) for _, y in data.sites.values()) + len(data.held_out[1]) == 569
    sizes = [table[0][:, 0] for table in data.sites.values()]
    assert all(a.max() <= b.min() for a, b in itertools.pairwise(sizes))
    train = {row.tobytes() for x, _ in data.sites.values() for row in x}
    assert not any(row.tobytes() in train for row in data.held_out[0])
