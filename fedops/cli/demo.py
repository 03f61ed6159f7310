"""`fedops demo`: the whole thing in a folder, with real processes, git and data."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from fedops.app.demo import HYPERPARAMETERS, SHARES, Ran, Stage, Told, play
from fedops.cli.console import Format, document, emit, format_option, say
from fedops.core.errors import ConfigError, FedopsError
from fedops.core.ids import GlobalVersion

CODE = ("client.py", "rogue.py")


class Processes:
    """Runs this very installation's commands, each in a process of its own and with nothing of the user's settings."""

    def __init__(self, home: Path) -> None:
        self._env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
            **{
                k: v
                for k, v in os.environ.items()
                if k in ("SYSTEMROOT", "TMPDIR", "COVERAGE_PROCESS_START", "PYTHONUTF8")
            },
        }
        for role in ("AUTHOR", "COMMITTER"):
            self._env |= {f"GIT_{role}_NAME": "fedops demo", f"GIT_{role}_EMAIL": "demo@example.invalid"}

    def fedops(self, folder: Path, *arguments: str, expect: Sequence[int] = (0,)) -> Ran:
        return self._run([sys.executable, "-m", "fedops.cli.main", *arguments], folder, expect)

    def git(self, folder: Path, *arguments: str) -> Ran:
        return self._run(["git", *arguments], folder, (0,))

    def python(self, folder: Path, *arguments: str) -> Ran:
        return self._run([sys.executable, *arguments], folder, (0,))

    def _run(self, command: Sequence[str], folder: Path, expect: Sequence[int]) -> Ran:
        done = subprocess.run(command, cwd=folder, env=self._env, capture_output=True, text=True, check=False)
        if done.returncode not in expect:
            shown = " ".join(command[2:] if command[0] == sys.executable else command)
            raise FedopsError(f"demo: {shown} in {folder.name}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return Ran(done.returncode, done.stdout, done.stderr)


@click.command("demo")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=Path("demo-federation"),
    show_default=True,
    help="Where to build it; must not exist yet.",
)
@click.option("--versions", type=click.IntRange(1, 30), default=8, show_default=True, help="Stop after so many.")
@click.option("--replace", is_flag=True, help="Remove an earlier demo in that folder first.")
@format_option
def demo_command(folder: Path, versions: int, replace: bool, fmt: Format) -> None:
    """Play a federation of four hospitals: real git, real signatures, real data (scikit-learn's breast-cancer table)."""
    from fedops.adapters import demo_data

    folder = folder.resolve()
    data = demo_data.load(SHARES)
    _make_room(folder, replace)

    def prepare(site: str, clone: Path) -> None:
        demo_data.save(data.sites[site], clone / "data.npz")
        for name in CODE:
            (clone / name).write_text(files("fedops.template").joinpath("demo", name).read_text("utf-8"), "utf-8")

    home = folder / ".home"
    home.mkdir()
    run = Processes(home)
    told = play(Stage(folder, run, prepare, say, json.loads), versions)
    result = summary(folder, run, told, data)
    (folder / "summary.json").write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    from fedops.render.demo import demo_text

    ok = result["verified"]["ok"] == result["verified"]["versions"]
    emit(fmt, document("demo", ok=ok, changed=True, **result), demo_text(result))


def _make_room(folder: Path, replace: bool) -> None:
    """An empty folder; an earlier demo is removed only on demand, anything else never."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / ".home").is_dir():
            raise ConfigError(f"{folder}: exists and is no demo -> another --dir", hint="fedops demo --dir OTHER")
        if not replace:
            raise ConfigError(f"{folder}: an earlier demo lies there", hint="fedops demo --replace, or another --dir")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)


def summary(folder: Path, run: Processes, told: Told, data: Any) -> Mapping[str, Any]:
    """Score every version on the held-out patients, and compare with each site alone and with pooled training."""
    from fedops.adapters import demo_data

    rows = [{"version": 0, "contributions": []}, *told.versions]
    scored: list[dict[str, Any]] = []
    for row in rows:
        model = _arrays(folder, run, row["version"])
        score = demo_data.accuracy(data.held_out, model["coef"], model["intercept"])
        scored.append({"version": row["version"], "accuracy": score, "contributions": row["contributions"]})
    compared = _compare(folder, data)
    compared.insert(0, {"name": f"federation, v{scored[-1]['version']}", "accuracy": scored[-1]["accuracy"],
                        "rows": sum(len(t[1]) for t in data.sites.values())})  # fmt: skip
    plot = folder / "accuracy.svg"
    demo_data.plot(
        plot,
        [s["version"] for s in scored],
        [s["accuracy"] for s in scored],
        {c["name"]: c["accuracy"] for c in compared[1:]},
    )
    verified = told.verified["versions"]
    shown = os.path.relpath(folder)
    return {
        "versions": scored,
        "held_out_rows": len(data.held_out[1]),
        "compared": compared,
        "refused": told.refused,
        "verified": {"versions": len(verified), "ok": sum(1 for v in verified if v["ok"])},
        "places": [
            [f"{shown}/origin.git", "the federation: a bare git repository, its pull requests and issues too"],
            [f"{shown}/store", "model bytes, as standard OCI image layouts"],
            [f"{shown}/lead, {shown}/ci", "clones of the lead and of CI"],
            [f"{shown}/hospital-a", "a site's clone; its data and key never leave it"],
            [f"{shown}/accuracy.svg", "the plot"],
            [f"{shown}/summary.json", "this table as data"],
        ],
        "commands": [
            f"cd {shown}/auditor",
            "fedops log",
            "fedops show v5",
            "fedops verify --all",
            "fedops status",
            "git log --first-parent --oneline",
        ],
    }


def _arrays(folder: Path, run: Processes, version: int) -> Mapping[str, Any]:
    """A version's tensors, fetched by `fedops pull` as any consumer would."""
    from fedops.adapters.model_files import ModelFiles
    from fedops.core.settings import Limits

    out = folder / "models" / f"v{version}.safetensors"
    out.parent.mkdir(exist_ok=True)
    run.fedops(folder / "auditor", "pull", GlobalVersion(version).short, "--out", str(out))
    model, findings = ModelFiles().open(out, Limits(), str(out))
    if model is None:
        raise FedopsError(f"{out}: {findings[0].slug}")
    try:
        return {
            name: model.read(name, 0, 30 if name == "coef" else 1).reshape(spec.shape)
            for name, spec in model.specs.items()
        }
    finally:
        model.close()


def _compare(folder: Path, data: Any) -> list[dict[str, Any]]:
    """The same training code on each site's data alone, and on all data in one place."""
    import numpy as np

    from fedops.adapters import demo_data
    from fedops.template.demo.client import LogisticRegression

    tables = {f"{site} alone": table for site, table in data.sites.items()}
    x, y = zip(*data.sites.values(), strict=True)
    tables["pooled (all data in one place)"] = (np.concatenate(x), np.concatenate(y))
    out = []
    for name, table in tables.items():
        path = folder / ".home" / "table.npz"
        demo_data.save(table, path)
        client = LogisticRegression(str(path))
        # As many passes as a site that contributed to every version.
        config = {"hyperparameters": HYPERPARAMETERS | {"epochs": 8 * HYPERPARAMETERS["epochs"]}}
        fitted = client.fit(client.get_parameters(), config).parameters
        score = demo_data.accuracy(data.held_out, fitted["coef"], fitted["intercept"])
        out.append({"name": name, "accuracy": score, "rows": len(table[1])})
    return out
