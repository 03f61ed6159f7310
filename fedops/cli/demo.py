"""`fedops demo`: the whole thing in a folder, with real processes, git and data."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedops.app.demo import HYPERPARAMETERS, SHARES, Told, play
from fedops.app.demo_stage import Ran, Stage
from fedops.app.demo_trouble import LEADS
from fedops.cli.console import NO, TEMPORARY, Format, document, emit, format_option, say
from fedops.core.disk import about, no_room
from fedops.core.errors import ConfigError, FedopsError

if TYPE_CHECKING:
    from fedops.adapters.demo_data import DemoData

CODE = ("client.py", "rogue.py")
ROOM_BYTES = 1 << 20  # with less a disk is full
MARKER = ".fedops-demo"  # only a folder that has it is ever removed
KEPT = ("SYSTEMROOT", "TMPDIR", "PYTHONPATH", "COVERAGE_PROCESS_START")


class Processes:
    """Runs this very installation's commands, each in a process of its own and with nothing of the user's settings."""

    def __init__(self, home: Path) -> None:
        self._env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PYTHONUTF8": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
            **{name: os.environ[name] for name in KEPT if name in os.environ},
        }
        for role in ("AUTHOR", "COMMITTER"):
            self._env |= {f"GIT_{role}_NAME": "fedops demo", f"GIT_{role}_EMAIL": "demo@example.invalid"}

    def fedops(self, folder: Path, *arguments: str, expect: Sequence[int] = (0,)) -> Ran:
        return self._run([sys.executable, "-m", "fedops.cli.main", *arguments], folder, expect)

    def kill(self, folder: Path, begun: Path, *arguments: str) -> None:
        """Start a command, and kill it with all that it started as soon as the file `begun` is there."""
        command = [sys.executable, "-m", "fedops.cli.main", *arguments]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(
            command, cwd=folder, env=self._env, stdout=quiet, stderr=quiet, start_new_session=True
        ) as process:
            while not begun.exists() and process.poll() is None:
                time.sleep(0.01)
            if process.returncode is not None:
                raise FedopsError(f"demo: {' '.join(command[2:])} in {folder.name}: ended by itself")
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()

    def git(self, folder: Path, *arguments: str) -> Ran:
        return self._run(["git", *arguments], folder, (0,))

    def python(self, folder: Path, *arguments: str) -> Ran:
        return self._run([sys.executable, *arguments], folder, (0,))

    def _run(self, command: Sequence[str], folder: Path, expect: Sequence[int]) -> Ran:
        try:
            done = subprocess.run(
                command, cwd=folder, env=self._env, capture_output=True, text=True, encoding="utf-8", check=False
            )
        except FileNotFoundError as e:
            raise ConfigError(f"{command[0]}: not found", hint="install git 2.34 or newer") from e
        if done.returncode not in expect:
            shown = " ".join(command[2:] if command[0] == sys.executable else command)
            raise _failed(f"{shown} in {folder.name}", done, full=shutil.disk_usage(folder).free < ROOM_BYTES)
        return Ran(done.returncode, done.stdout, done.stderr)


def _failed(what: str, done: subprocess.CompletedProcess[str], *, full: bool) -> FedopsError:
    """The error for a command of the demo that ended badly; a full disk is not its fault, which git may not say."""
    full = full or no_room(done.stdout + done.stderr)
    message = f"demo: {what}: exit {done.returncode}\n{done.stdout}{done.stderr}".rstrip()
    hint = "make room there, then `fedops demo --replace`, which begins anew" if full else ""
    return FedopsError(message, hint=hint, cause="temporary" if full or done.returncode == TEMPORARY else "permanent")


@click.command("demo")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=Path("demo-federation"),
    show_default=True,
    help="Where to build it: a new or empty folder.",
)
@click.option("--versions", type=click.IntRange(1, 30), default=8, show_default=True, help="Stop after so many.")
@click.option("--replace", is_flag=True, help="Remove an earlier demo in that folder first.")
@click.option(
    "--workflows",
    type=click.Choice(["act"]),
    help="CI by the federation's own workflow files, run by act (see `fedops local`); then there are no two runners "
    "at once, no lost bytes, no review and no rollback.",
)
@format_option
def demo_command(folder: Path, versions: int, replace: bool, workflows: str | None, fmt: Format) -> None:
    """Play a federation of four hospitals: real git, real signatures, real data (scikit-learn's breast-cancer table)."""
    from fedops.adapters import demo_data
    from fedops.render.demo import demo_text

    folder = folder.resolve()
    data = demo_data.load(SHARES)
    if workflows is not None:
        from fedops.adapters.act_runner import find_act

        find_act(os.environ.get("PATH", os.defpath))
    _make_room(folder, replace)
    with about(folder):
        result = _played(folder, data, versions, workflows=workflows is not None)
    ok = result["verified"]["ok"] == result["verified"]["versions"]
    path = "" if shutil.which("fedops") else str(Path(sys.executable).parent)
    emit(fmt, document("demo", ok=ok, changed=True, **result), demo_text(result, _shown(folder), path))
    if not ok:
        raise click.exceptions.Exit(NO)


def _played(folder: Path, data: DemoData, versions: int, *, workflows: bool) -> dict[str, Any]:
    """Play it all, and leave the summary in the folder too."""
    from fedops.adapters import demo_data
    from fedops.adapters.ssh_keygen import make_key
    from fedops.adapters.yaml_edit import RoundTripEditor

    def prepare(site: str, clone: Path) -> None:
        demo_data.save(data.sites[site], clone / "data.npz")
        for name in CODE:
            (clone / name).write_text(files("fedops.template").joinpath("demo", name).read_text("utf-8"), "utf-8")

    home = folder / ".home"
    home.mkdir()
    keys = {lead: home / lead for lead in LEADS}
    for lead, key in keys.items():
        make_key(key, lead)
    stage = Stage(
        folder,
        Processes(home),
        prepare,
        say,
        json.loads,
        editor=RoundTripEditor(),
        keys=keys,
        workers=os.cpu_count() or 1,
        workflows=workflows,
    )
    result = summary(stage, play(stage, versions), data)
    (folder / "summary.json").write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    return result


def _make_room(folder: Path, replace: bool) -> None:
    """An empty folder; an earlier demo is removed only on demand, anything else never."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: is a file -> a folder", hint="fedops demo --dir OTHER")
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARKER).is_file():
            raise ConfigError(f"{folder}: exists and is no demo -> another --dir", hint="fedops demo --dir OTHER")
        if not replace:
            raise ConfigError(f"{folder}: an earlier demo lies there", hint="fedops demo --replace, or another --dir")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("`fedops demo --replace` removes this folder.\n", "utf-8")


def _shown(folder: Path) -> str:
    """The folder as people type it from here."""
    return min(os.path.relpath(folder), str(folder), key=len)


def summary(stage: Stage, told: Told, data: DemoData) -> dict[str, Any]:
    """Score every version on the held-out patients, and compare with each site alone and with pooled training."""
    from fedops.adapters import demo_data

    rows: list[Mapping[str, Any]] = [{"version": 0, "kind": "init", "contributions": []}, *told.versions]
    scored = [
        {
            "version": row["version"],
            "kind": row["kind"],
            "source": row.get("source"),
            "accuracy": demo_data.accuracy(data.held_out, *_arrays(stage.model(row["version"]))),
            "contributions": row["contributions"],
        }
        for row in rows
    ]
    last = scored[-1]
    patients = sum(len(y) for _, y in data.sites.values())
    alone = _compare(stage.folder, data)
    demo_data.plot(
        stage.folder / "accuracy.svg",
        [s["version"] for s in scored],
        [s["accuracy"] for s in scored],
        {c["name"]: c["accuracy"] for c in alone},
    )
    verified = told.verified["versions"]
    return {
        "folder": str(stage.folder),
        "sites": list(SHARES),
        "versions": scored,
        "held_out_rows": len(data.held_out[1]),
        "compared": [
            {"name": f"federation, v{last['version']}", "accuracy": last["accuracy"], "rows": patients},
            *alone,
        ],
        "troubles": told.troubles.events,
        "refused": told.refused,
        "verified": {"versions": len(verified), "ok": sum(1 for v in verified if v["ok"])},
    }


def _arrays(path: Path) -> tuple[Any, Any]:
    """Coef and intercept of a model file."""
    from fedops.adapters.model_files import ModelFiles
    from fedops.core.settings import Limits

    model, findings = ModelFiles().open(path, Limits(), str(path))
    if model is None:
        raise FedopsError(f"{path}: {findings[0].slug}")
    try:
        return model.read("coef", 0, 30).reshape(1, 30), model.read("intercept", 0, 1)
    finally:
        model.close()


def _compare(folder: Path, data: DemoData) -> list[dict[str, Any]]:
    """The same training code on each site's data alone, and on all data in one place."""
    import numpy as np

    from fedops.adapters import demo_data
    from fedops.template.demo.client import LogisticRegression

    tables = {f"{site} alone": table for site, table in data.sites.items()}
    x, y = zip(*data.sites.values(), strict=True)
    tables["pooled: all data in one place"] = (np.concatenate(x), np.concatenate(y))
    out = []
    for name, table in tables.items():
        path = folder / ".home" / "table.npz"
        demo_data.save(table, path)
        client = LogisticRegression(str(path))
        # As many passes as a site that contributed to eight versions.
        config = {"hyperparameters": HYPERPARAMETERS | {"epochs": 8 * HYPERPARAMETERS["epochs"]}}
        fitted = client.fit(client.get_parameters(), config).parameters
        score = demo_data.accuracy(data.held_out, fitted["coef"], fitted["intercept"])
        out.append({"name": name, "accuracy": score, "rows": len(table[1])})
    return out
