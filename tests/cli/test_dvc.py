"""`fedops dvc`: what goes to DVC and what is ours; the hook for the plain command."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import dvc
import pytest

from fedops.adapters.dvc_hook import LINE, NAME
from fedops.adapters.dvc_remote import Stores
from fedops.adapters.store_layout import LayoutStore
from fedops.adapters.store_registry import RegistryStore
from fedops.cli import dvc as command
from fedops.cli import dvc_hook
from fedops.cli.main import run
from fedops.cli.wire import dvc_stores
from fedops.core.errors import ConfigError
from tests.cli_world import git, in_process
from tests.founding_world import Quiet

# ---------------------------------------------------------------- passing on


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Command lines that came to DVC, which ends with the code 7 of its last argument, if that is "7"."""
    got: list[Sequence[str]] = []

    def run_dvc(arguments: Sequence[str], stores: Stores) -> int:
        got.append(arguments)
        assert os.environ["DVC_NO_ANALYTICS"] == "1"
        return 7 if arguments[-1] == "7" else 0

    monkeypatch.setattr("fedops.adapters.dvc_command.run_dvc", run_dvc)
    monkeypatch.delenv("DVC_NO_ANALYTICS", raising=False)
    return got


@pytest.mark.parametrize(
    "line",
    ["pull", "pull --help", "--version", "--cd x pull -h", "-v status -c", "plots diff --targets a -- b c", "pul", "get -o --",
     "install", "hook --dry-run"],
)  # fmt: skip
def test_a_command_line_goes_to_dvc_as_it_is(line: str, passed: list[Sequence[str]]) -> None:
    assert run(["dvc", *line.split()]) == 0
    assert passed == [tuple(line.split())]


def test_what_a_killed_dvc_left_in_a_federation_is_removed_first(
    passed: list[Sequence[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "global").mkdir()
    left = tmp_path / "global" / f".{'x' * 22}.tmp"
    left.touch()
    tomorrow = time.time() + 100_000
    monkeypatch.chdir(tmp_path / "global")
    monkeypatch.setattr("fedops.cli.dvc.time.time", lambda: tomorrow)
    assert run(["dvc", "status"]) == 0
    assert left.exists(), "no federation"
    (tmp_path / "federation.yaml").touch()
    assert run(["dvc", "status"]) == 0
    assert (left.exists(), len(passed)) == (False, 2)


def test_its_exit_code_comes_back(passed: list[Sequence[str]]) -> None:
    assert run(["dvc", "status", "7"]) == 7


@pytest.mark.parametrize("line", [["dvc"], ["dvc", "--help"], ["dvc", "-h"]])
def test_alone_it_says_what_there_is(line: list[str], passed: list[Sequence[str]], tmp_path: Path) -> None:
    ran = in_process(tmp_path, *line)
    said = ran.out + ran.err
    assert "artifacts get URL global --rev v9.0.0" in said
    assert "install-hook" in said
    assert max(map(len, said.splitlines())) <= 80
    assert passed == []


def test_dvcs_own_cache_is_where_only_its_user_writes(
    passed: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch, isolated_environment: Path
) -> None:
    places = []
    for _ in range(2):
        monkeypatch.delenv("DVC_SITE_CACHE_DIR", raising=False)
        run(["dvc", "pull"])
        places.append(os.environ["DVC_SITE_CACHE_DIR"])
        monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert places == [str(isolated_environment / ".cache/fedops/dvc"), str(Path("/xdg/fedops/dvc"))]
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", "/own")
    run(["dvc", "pull"])
    assert os.environ["DVC_SITE_CACHE_DIR"] == "/own"


def test_a_dvc_that_does_not_fit_is_a_matter_of_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> int:
        raise ConfigError("DVC 9.9: does not fit", hint="pip install another")

    monkeypatch.setattr("fedops.adapters.dvc_command.run_dvc", refuse)
    ran = in_process(tmp_path, "dvc", "pull")
    assert (ran.code, ran.err) == (2, "error: DVC 9.9: does not fit\n  hint: pip install another\n")


def test_relative_folders_start_from_a_folder_origin_else_from_the_clone(tmp_path: Path) -> None:
    base = dvc_stores().base
    assert base(tmp_path) == tmp_path
    git(tmp_path, "init", "--quiet", "--bare", "origin.git")
    assert base(tmp_path / "origin.git") == tmp_path / "origin.git"
    git(tmp_path, "clone", "--quiet", "origin.git", "clone")
    assert base(tmp_path / "clone") == tmp_path / "origin.git"
    git(tmp_path / "clone", "remote", "set-url", "origin", "https://host.invalid/fed")
    assert base(tmp_path / "clone") == tmp_path / "clone"


def test_both_kinds_of_stores_are_opened_in_a_federation_and_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "clone").mkdir()
    federation = (
        """{schema: fedops.federation/v1, name: fed, fedops: "0.1.0", store: {url: "oci://ghcr.io/acme/fed"}}"""
    )
    (tmp_path / "clone" / "federation.yaml").write_text(federation)
    for folder in (tmp_path, tmp_path / "clone"):
        monkeypatch.chdir(folder)
        stores = dvc_stores()
        assert isinstance(stores.open(f"ocidir:{tmp_path / 'store'}", Quiet()), LayoutStore)
        assert isinstance(stores.open("oci://ghcr.io/acme/fed", Quiet()), RegistryStore)


# ---------------------------------------------------------------- the hook's file


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of an environment's packages."""
    (tmp_path / "site-packages").mkdir()
    monkeypatch.setattr(command, "_packages", lambda: tmp_path / "site-packages")
    return tmp_path / "site-packages"


def test_the_hook_is_installed_once_and_removed_once(packages: Path, tmp_path: Path) -> None:
    def hook(*arguments: str) -> tuple[bool, str]:
        result = in_process(tmp_path, "dvc", *arguments, "--format", "json").json
        assert (result["schema"], result["ok"], result["file"]) == ("fedops.dvc-hook/v1", True, str(packages / NAME))
        return result["changed"], result["hook"]

    assert hook("install-hook", "--dry-run") == (False, "installed")
    assert list(packages.iterdir()) == []
    assert [hook("install-hook") for _ in range(2)] == [(True, "installed"), (False, "there already")]
    assert (packages / NAME).read_text() == LINE
    assert hook("install-hook", "--dry-run") == (False, "there already")
    assert hook("remove-hook", "--dry-run") == (False, "removed")
    assert (packages / NAME).exists()
    assert [hook("remove-hook") for _ in range(2)] == [(True, "removed"), (False, "there is none")]
    assert hook("remove-hook", "--dry-run") == (False, "there is none")
    assert list(packages.iterdir()) == []


def test_a_hook_of_another_version_is_replaced(packages: Path, tmp_path: Path) -> None:
    (packages / NAME).write_text("import old\n")
    assert in_process(tmp_path, "dvc", "install-hook").out == f"{packages / NAME}: installed\n"
    assert (packages / NAME).read_text() == LINE


def test_what_would_be_done_is_said(packages: Path, tmp_path: Path) -> None:
    assert in_process(tmp_path, "dvc", "install-hook", "--dry-run").out == f"{packages / NAME}: would be installed\n"


def test_an_environment_in_which_nothing_may_be_written_is_told(packages: Path, tmp_path: Path) -> None:
    (packages / NAME).mkdir()
    for name in ("install-hook", "remove-hook"):
        ran = in_process(tmp_path, "dvc", name, "--format", "json")
        assert ran.code == 2
        assert ran.json["schema"] == "fedops.dvc-hook/v1"
        assert "python -m venv" in ran.json["error"]["hint"]


@pytest.mark.parametrize("where", ["here", "elsewhere", "nowhere"])
def test_a_dvc_of_another_environment_is_pointed_out(
    where: str, packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = tmp_path / "bin"
    found = {"here": str(scripts / "dvc"), "elsewhere": "/elsewhere/dvc", "nowhere": None}[where]
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(scripts))
    monkeypatch.setattr("shutil.which", lambda name: found)
    said = in_process(tmp_path, "dvc", "install-hook").err
    assert ("note: " in said) == (where != "here")
    assert where == "here" or (found or "not on PATH") in said


def started(packages: Path, code: str, *options: str) -> str:
    """What a Python prints that has the hook."""
    (packages / NAME).write_text(LINE)
    code = f"import site, sys; before = set(sys.modules); site.addsitedir({str(packages)!r})\n{code}"
    done = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, cwd=packages)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_hook_harms_no_python_that_has_no_fedops(packages: Path) -> None:
    """fedops was uninstalled, and the file stayed."""
    code = "import importlib.util as u; import json; print(u.find_spec('dvc'), u.find_spec('fedops'))"
    assert started(packages, code, "-S") == "None None\n"


def test_the_hook_imports_nothing_before_dvc_is(packages: Path) -> None:
    assert (
        started(packages, "print(sorted(set(sys.modules) - before), type(sys.meta_path[0]).__name__)") == "[] Fedops\n"
    )


# ---------------------------------------------------------------- what the hook does


@pytest.fixture
def finder(monkeypatch: pytest.MonkeyPatch) -> dvc_hook._Finder:
    monkeypatch.setattr(sys, "meta_path", [f for f in sys.meta_path if type(f).__name__ != "_Finder"])
    dvc_hook.install()
    dvc_hook.install()
    (ours,) = [f for f in sys.meta_path if isinstance(f, dvc_hook._Finder)]
    return ours


def load(finder: dvc_hook._Finder, name: str) -> ModuleType:
    """Load a module by the finder, as a second one beside that which this process has."""
    package = importlib.import_module(name.rpartition(".")[0])
    spec = finder.find_spec(name, package.__path__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_modules_of_dvc_are_extended_when_they_are_loaded(finder: dvc_hook._Finder) -> None:
    assert load(finder, "dvc.config_schema").SCHEMA["remote"][str].fedops
    assert load(finder, "dvc.data_cloud").DataCloud.get_remote.fedops
    assert load(finder, "dvc.render.converter.vega").get_datapoints.fedops


def test_no_other_module_is_touched(finder: dvc_hook._Finder) -> None:
    assert finder.find_spec("json", None) is None
    assert finder.find_spec("dvc.stage", dvc.__path__) is None
    assert finder.find_spec("dvc.config_schema", []) is None


def test_a_dvc_that_does_not_fit_works_on_and_that_is_told(
    finder: dvc_hook._Finder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(module: ModuleType) -> None:
        raise KeyError("remote")

    monkeypatch.setitem(dvc_hook._EXTENSIONS, "dvc.config_schema", fail)
    assert "remote" in load(finder, "dvc.config_schema").SCHEMA
    said = capsys.readouterr().err
    assert said.startswith("fedops: DVC 3.")
    assert "fedops dvc remove-hook" in said
    assert len(said.splitlines()) == 2
