"""Rewrites fedops/template/requirements.txt: what the jobs of a federation install, each file by its hash.

    python -m tests.lock

Versions are those of constraints.txt; the hashes are what the package index gives for the jobs' platform.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "fedops" / "template" / "requirements.txt"
LEFT_OUT = {"dvc"}  # CI runs no DVC command, and it brings a hundred packages along
# As setup.yml.part has it; files for `ubuntu-latest` on x86-64.
PYTHON = "3.12"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
PACKAGE = re.compile(r"([a-z0-9-]+)==([^ ]+) --hash=sha256:([0-9a-f]{64})\n")


def normal(name: str) -> str:
    """A package's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted() -> list[str]:
    """What fedops itself asks for, less what CI does not need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [line for line in project["dependencies"] if normal(re.split(r"[<>=~! ]", line)[0]) not in LEFT_OUT]


def constraints() -> dict[str, str]:
    """Package -> version, as constraints.txt has it for the jobs' Python."""
    environment = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.0", "implementation_name": "cpython"}
    out = {}
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        if re.match("[A-Za-z0-9]", line):
            one = Requirement(line)
            if one.marker is None or one.marker.evaluate(environment):
                out[normal(one.name)] = str(one.specifier).removeprefix("==")
    return out


def resolved() -> Any:
    """pip's report on what it would install; nothing is installed."""
    with tempfile.TemporaryDirectory() as folder:
        # NOTE: pip judges the markers of a constraints file by the Python that it runs on.
        pins = Path(folder, "constraints.txt")
        pins.write_text("".join(f"{name}=={version}\n" for name, version in constraints().items()), "utf-8")
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--only-binary", ":all:", "--python-version", PYTHON, "--implementation", "cp"]
        # NOTE: older versions of pip compare with the Python that they run on, whatever --python-version says.
        command += ["--ignore-requires-python"]
        command += [part for platform in PLATFORMS for part in ("--platform", platform)]
        command += ["--target", folder, "--report", str(report), "-c", str(pins), *wanted()]
        subprocess.run(command, check=True)
        return json.loads(report.read_text("utf-8"))


def main() -> None:
    rows = {}
    for item in resolved()["install"]:
        name, version = normal(item["metadata"]["name"]), item["metadata"]["version"]
        rows[name] = f"{name}=={version} --hash=sha256:{item['download_info']['archive_info']['hashes']['sha256']}\n"
    lines = TEMPLATE.read_text("utf-8").splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if PACKAGE.fullmatch(line))
    others = [line for line in lines if not PACKAGE.fullmatch(line)]
    TEMPLATE.write_text("".join([*others[:first], *(rows[name] for name in sorted(rows)), *others[first:]]), "utf-8")


if __name__ == "__main__":
    main()
