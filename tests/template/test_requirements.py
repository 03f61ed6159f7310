"""`.github/requirements.txt`: everything that the jobs need, by hash, and nothing that could be anybody's."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

from fedops.app.scaffold import Scaffold, render
from fedops.core.documents import load_document
from fedops.core.errors import ConfigError
from fedops.core.ids import FEDERATION_PATH, RepoPath
from fedops.core.settings import Federation, Wheel
from tests.cli_world import in_process
from tests.lock import LEFT_OUT, PACKAGE, PYTHON, ROOT, TEMPLATE, constraints, normal, wanted

LOCKED = {match[1]: match[2] for match in PACKAGE.finditer(TEMPLATE.read_text())}
SHA = "5" * 64
NAME = "fedops_git-0.1.0-py3-none-any.whl"


def test_versions_are_those_of_the_constraints_for_the_jobs_python() -> None:
    pins = constraints()
    assert {name: pins[name] for name in LOCKED} == LOCKED


def test_everything_is_locked_that_the_locked_packages_ask_for_and_nothing_else() -> None:
    here = {name: str(value) for name, value in default_environment().items()}
    environment = {**here, "python_version": PYTHON, "python_full_version": f"{PYTHON}.0", "extra": ""}
    needed: set[str] = set()
    waiting = [Requirement(line) for line in wanted()]
    while waiting:
        one = waiting.pop()
        extras = [{**environment, "extra": extra} for extra in ("", *one.extras)]
        if normal(one.name) in needed and not one.extras:
            continue
        needed.add(normal(one.name))
        for text in importlib.metadata.requires(one.name) or ():
            below = Requirement(text)
            if below.marker is None or any(below.marker.evaluate(e) for e in extras):
                waiting.append(below)
    assert needed == set(LOCKED)


def test_the_python_of_the_jobs_is_the_one_that_the_files_are_for() -> None:
    text = (ROOT / "fedops/template/workflows/setup.yml.part").read_text()
    assert f'python-version: "{PYTHON}"' in text


def test_the_jobs_commands_import_no_package_that_is_not_locked(tmp_path: Path) -> None:
    """All commands of `fedops ci` are loaded with their adapters; what is not locked cannot be imported."""
    code = f"""
import importlib.metadata, sys
allowed = set({sorted(LOCKED)!r}) | {{"fedops-git"}}
tops = {{top for top, names in importlib.metadata.packages_distributions().items()
        if not any(n.lower().replace("_", "-").replace(".", "-") in allowed for n in names)}}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in tops:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Refuse())
import fedops.cli.ci, fedops.cli.verify
from fedops.app import inspect, merge, propose, publish, reconcile, signals
from fedops.adapters import actions, forge_git, git_repo, model_files, store_layout, yaml_edit
import github, oras
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- fedops itself


def lines(wheel: Wheel | None) -> list[str]:
    scaffold = Scaffold(name="fed", store="ocidir:store", fedops="0.1.0", wheel=wheel)
    files = render(scaffold)
    assert load_document(files[FEDERATION_PATH], Federation, FEDERATION_PATH).wheel == wheel
    text = files[RepoPath(".github/requirements.txt")].decode()
    return [line for line in text.splitlines() if not line.startswith("#") and not PACKAGE.fullmatch(line + "\n")]


@pytest.mark.parametrize(
    ("url", "line"),
    [
        (None, f"fedops-git==0.1.0 --hash=sha256:{SHA}"),
        (f"https://h.example/{NAME}", f"fedops-git @ https://h.example/{NAME} --hash=sha256:{SHA}"),
        (f"./.github/{NAME}", f"./.github/{NAME} --hash=sha256:{SHA}"),
    ],
)
def test_fedops_is_installed_from_one_file(url: str | None, line: str) -> None:
    wheel = Wheel(sha256=SHA, url=url)
    # With the name alone it is what the general pattern says.
    assert [*lines(wheel), line][:2] == ["--only-binary :all:", line]


@pytest.mark.parametrize(
    "wheel",
    [{"sha256": "x"}, {"sha256": SHA.upper() + "A"}, {"sha256": SHA, "url": "http://h/x.whl"},
     {"sha256": SHA, "url": "https://h/x.tar.gz"}, {"sha256": SHA, "url": "https://h/x y.whl"},
     {"sha256": SHA, "url": 'https://h/"x.whl'}, {"sha256": SHA, "url": "/etc/x.whl"}],
)  # fmt: skip
def test_a_wheel_that_could_be_another_line_is_refused(wheel: dict[str, str]) -> None:
    text = json.dumps(
        {"schema": "fedops.federation/v1", "name": "f", "fedops": "1", "store": {"url": "ocidir:s"}, "wheel": wheel}
    )
    with pytest.raises(ConfigError, match="wheel"):
        load_document(text.encode(), Federation, FEDERATION_PATH)


def make_wheel(folder: Path, text: str = "name = 1\n") -> str:
    """A tiny wheel under fedops' name; returns its sha256."""
    info = "fedops_git-0.1.0.dist-info"
    members = {
        "fedops_tiny.py": text,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: fedops-git\nVersion: 0.1.0\nRequires-Dist: dvc\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    members[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in members)
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / NAME, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return hashlib.sha256((folder / NAME).read_bytes()).hexdigest()


def install(folder: Path, wheel: Wheel | None) -> subprocess.CompletedProcess[str]:
    """What the step `Install fedops` does, with fedops' own lines alone, and without a network."""
    (folder / "requirements.txt").write_text("\n".join(lines(wheel)) + "\n")
    options = [
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
        "--no-index",
        "--find-links",
        ".github",
    ]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", "out", "--requirement", "requirements.txt"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env={"PATH": "", "HOME": str(folder)})


def test_pip_takes_the_named_file_and_no_other(tmp_path: Path) -> None:
    sha = make_wheel(tmp_path / ".github")
    wheel = Wheel(sha256=sha, url=f"./.github/{NAME}")
    done = install(tmp_path, wheel)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "fedops_tiny.py").is_file()
    make_wheel(tmp_path / ".github", "name = 2\n")
    done = install(tmp_path, wheel)
    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_without_a_wheel_nothing_is_installed_by_name(tmp_path: Path) -> None:
    make_wheel(tmp_path / ".github")
    done = install(tmp_path, None)
    assert done.returncode == 1
    assert not (tmp_path / "out").exists()
    assert "Hashes are required" in done.stderr


def test_init_takes_the_wheel_and_writes_it_where_ci_reads(tmp_path: Path) -> None:
    (tmp_path / "lead").mkdir()
    base = ("init", "--origin", "../fed.git", "--name", "fed", "--generator", "zeros", "--tensor", "w:F32:2")
    bad = in_process(tmp_path / "lead", *base, "--wheel-hash", "sha256:zz")
    assert (bad.code, "--wheel-hash" in bad.err) == (2, True)
    bad = in_process(tmp_path / "lead", *base, "--wheel-url", "https://h.example/x.whl")
    assert (bad.code, "--wheel-url" in bad.err) == (2, True)
    ran = in_process(
        tmp_path / "lead", *base, "--wheel-hash", f"sha256:{SHA}", "--wheel-url", f"https://h.example/{NAME}"
    )
    assert ran.code == 0, ran.err
    text = (tmp_path / "lead" / ".github" / "requirements.txt").read_text()
    assert f"fedops-git @ https://h.example/{NAME} --hash=sha256:{SHA}\n" in text


def test_dvc_alone_is_left_out() -> None:
    assert {"dvc"} == LEFT_OUT
    assert "dvc" not in LOCKED
