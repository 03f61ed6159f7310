"""A federation that is made and run through the command line alone: a lead, three sites and CI, each in a clone of its own."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedops.cli.main import run

SITES = ("clinic-c", "hospital-a", "hospital-b")
CLONES = ("lead", *SITES, "ci")
EXAMPLES = {"clinic-c": 30, "hospital-a": 100, "hospital-b": 50}
# What one training adds to every value of the model: exact in float32, so that expected values can be compared with ==.
STEPS = {"clinic-c": 0.5, "hospital-a": 1.0, "hospital-b": -0.25}
TENSORS = ("--tensor", "b:F32:2", "--tensor", "w:F32:2,3")
INIT = ("init", "--origin", "../fed.git", "--name", "fed", "--lead", "lena:1", "--quorum", "2", "--generator", "zeros")
COMMENT = "# The roster. hospital-a is the first: it pays for the coffee.\n"
CLIENT = """
import json, pathlib
from fedops import FitResult

class Ours:
    def get_parameters(self):
        return {}

    def fit(self, parameters, config):
        own = json.loads(pathlib.Path("own.json").read_text())
        print("training on", config["version"], "with rate", config["hyperparameters"]["rate"])
        new = {name: (array + own["step"]).astype(array.dtype) for name, array in parameters.items()}
        return FitResult(new, own["examples"], {"loss": 1 / (1 + config["version"])})

    def evaluate(self, parameters, config):
        raise NotImplementedError
"""
HOOK = """
import json, os, pathlib
import numpy as np
from safetensors.numpy import load_file, save_file
own = json.loads(pathlib.Path("own.json").read_text())
model = load_file(os.environ["FEDOPS_MODEL"])
save_file({n: (a + np.float32(own["step"])) for n, a in model.items()}, os.environ["FEDOPS_UPDATE"])
pathlib.Path(os.environ["FEDOPS_RESULT"]).write_text(
    json.dumps({"num_examples": own["examples"], "metrics": {"loss": 0.5}}))
print("the hook of", os.environ["FEDOPS_SITE"], "ran")
"""
BY_CLIENT = ("train", "--client", "ours:Ours")
BY_COMMAND = ("train", "--command", f"{shlex.quote(sys.executable)} hook.py")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def in_process(folder: Path, *arguments: str) -> Ran:
    """Run a command line in this process, in a folder, with its output caught."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    # surrogateescape: nothing that was printed may be lost on the way into a failing test's message.
    return Ran(code, *(s.buffer.getvalue().decode("utf-8", "surrogateescape") for s in (out, err)))


@dataclass(frozen=True)
class World:
    """One federation in a folder; `origin` is `fed.git`, the clones are named after who works there."""

    folder: Path

    @property
    def origin(self) -> Path:
        return self.folder / "fed.git"

    @property
    def outside(self) -> Path:
        """A folder for what lies in no clone."""
        return self.folder / "outside"

    def clone(self, who: str) -> Path:
        return self.folder / who

    def __call__(self, who: str, *arguments: str, code: int = 0) -> Ran:
        """Run a command line in somebody's clone."""
        ran = in_process(self.clone(who), *arguments)
        assert ran.code == code, f"fedops {' '.join(arguments)}: exit {ran.code}\n{ran.out}{ran.err}"
        return ran

    def json(self, who: str, *arguments: str, code: int = 0) -> Any:
        """The document that a command line prints."""
        return self(who, *arguments, "--format", "json", code=code).json

    def git(self, who: str, *arguments: str) -> str:
        return git(self.clone(who), *arguments)

    def new_clone(self, who: str) -> None:
        git(self.folder, "clone", "--quiet", str(self.origin), who)

    def main(self) -> str:
        return git(self.origin, "rev-parse", "main")

    def show(self, path: str, at: str = "main") -> str:
        return git(self.origin, "show", f"{at}:{path}")

    def version(self, at: str = "main") -> Any:
        """The version record."""
        return json.loads(self.show("global/version.json", at))

    def edit(self, path: str, change: Callable[[str], str], message: str = "policy: by hand") -> None:
        """Change a file of main as a person would: in the lead's clone, by git."""
        self.git("lead", "pull", "--quiet", "--rebase")
        file = self.clone("lead") / path
        file.write_text(change(file.read_text()))
        self.git("lead", "commit", "--quiet", "--all", "-m", message)
        self.git("lead", "push", "--quiet", "origin", "main")

    def set_policy(self, text: str) -> None:
        """Add lines to policies/aggregation.yaml."""
        self.edit("policies/aggregation.yaml", lambda old: old + text)

    def train(self, site: str) -> None:
        """Pull and train, by a Python class or, at hospital-b, by a program."""
        self(site, "pull")
        self(site, *(BY_COMMAND if site == "hospital-b" else BY_CLIENT))

    def hand_in(self, *sites: str) -> list[int]:
        """Train and submit; numbers of the pull requests."""
        numbers = []
        for site in sites:
            self.train(site)
            numbers.append(self.json(site, "submit")["pull"])
        return numbers

    def snapshot(self, *, clones: Sequence[str] = CLONES) -> dict[str, Any]:
        """Everything that may not change when a command is run again."""
        out: dict[str, Any] = {
            "refs": git(self.origin, "for-each-ref", "--format=%(refname) %(objectname) %(symref)").splitlines(),
            "objects": git(self.origin, "cat-file", "--batch-all-objects", "--batch-check").splitlines(),
            "store": files_of(self.origin / "store"),
            "indexes": {str(p): p.stat().st_mtime_ns for p in sorted((self.origin / "store").rglob("index.json"))},
        }
        if self.outside.is_dir():
            out["outside"] = files_of(self.outside)
        for who in clones:
            if self.clone(who).is_dir():
                # verified.json: a later look remembers files too that were just written during an earlier one.
                without = (".git", "__pycache__", "train.log", "verified.json")
                out[f"files of {who}"] = files_of(self.clone(who), without=without)
                out[f"head of {who}"] = git(self.clone(who), "rev-parse", "--verify", "-q", "HEAD", check=False)
        return out


def git(folder: Path, *arguments: str, check: bool = True) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip()


def files_of(folder: Path, without: Sequence[str] = ()) -> dict[str, str]:
    """Relative path -> sha256 of all files."""
    out = {}
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in without)
        for name in sorted(names):
            path = Path(where, name)
            if name not in without:
                out[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return out


def found(folder: Path) -> World:
    """A lead's clone and its origin, at v0, with a comment in the roster."""
    world = World(folder)
    world.clone("lead").mkdir(parents=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lena", "-f", str(folder / "lena")], check=True
    )
    world("lead", *INIT, *TENSORS, "--lead-key", "../lena.pub", "--hyperparameter", "rate=0.1")
    world.edit("policies/sites.yaml", lambda text: text.replace("\nsites:", f"\n{COMMENT}sites:"))
    return world


def join(world: World, site: str) -> None:
    """A site clones, joins, and prepares its training; the lead runs the line that it was sent."""
    world.new_clone(site)
    number = str(1001 + SITES.index(site))
    joined = world.json(site, "join", site, "--generate-key", "--login", f"{site}-login", "--id", number)
    world("lead", *shlex.split(joined["line"])[1:])
    (world.clone(site) / "own.json").write_text(json.dumps({"step": STEPS[site], "examples": EXAMPLES[site]}))
    (world.clone(site) / "ours.py").write_text(CLIENT)
    (world.clone(site) / "hook.py").write_text(HOOK)


def build(folder: Path) -> World:
    """The whole federation at v0: all sites on the roster, CI with a clone."""
    world = found(folder)
    for site in SITES:
        join(world, site)
    world.new_clone("ci")
    return world


def begun(folder: Path) -> World:
    """At v0: hospital-a (#1) and hospital-b (#2) have handed in, clinic-c has trained and is slow."""
    world = build(folder)
    world.hand_in("hospital-a", "hospital-b")
    world.train("clinic-c")
    return world


def copy(template: World, folder: Path) -> World:
    """A federation of its own, made of another one."""
    shutil.copytree(template.folder, folder, symlinks=True)
    world = World(folder)
    for who in CLONES:
        if world.clone(who).is_dir():
            world.git(who, "remote", "set-url", "origin", str(world.origin))
    return world


_MADE: dict[str, World] = {}


def fresh(make: Callable[[Path], World], shared: Path, folder: Path) -> World:
    """A copy, in `folder`, of a federation that is made once, below `shared`, by the first test that asks for it."""
    name = make.__name__
    if name not in _MADE:
        _MADE[name] = make(shared / f"template-{name}")
    return copy(_MADE[name], folder)


@contextlib.contextmanager
def environment(**changes: str | None) -> Iterator[None]:
    """Environment variables for a while; None takes one away."""
    before = {name: os.environ.get(name) for name in changes}
    try:
        for name, value in changes.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
