"""Fills the blocks of README.md between `<!-- demo -->`, `<!-- verify -->` and `<!-- show -->` with a real demo's output.

    python -m tests.readme

Digests and times differ from run to run, so `make check` does not compare them; tests/test_readme.py looks at the rest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
BLOCKS = ("demo", "verify", "show")
FOLDER = "demo-federation"
SHOWN = "v5"  # the version that README.md asks about: one site's bytes were gone


def block(text: str, name: str) -> str:
    """What lies between the markers of a block, without the fence."""
    found = re.search(_pattern(name), text)
    assert found is not None, f"README.md: no block {name}"
    return found[2]


def filled(text: str, name: str, content: str) -> str:
    """The text with another content in a block."""
    block(text, name)
    # A function, since the content may hold what would be a group reference.
    return re.sub(_pattern(name), lambda found: f"{found[1]}{content.strip(chr(10))}\n{found[3]}", text)


def _pattern(name: str) -> str:
    return rf"(?s)(<!-- {name} -->\n```\n)(.*?)(```\n<!-- /{name} -->)"


def outputs(folder: Path) -> dict[str, str]:
    """What the three commands print in a folder."""
    demo = _fedops(folder, "demo", "--dir", FOLDER)
    auditor = folder / FOLDER / "auditor"
    return {"demo": demo, "verify": _fedops(auditor, "verify", "--all"), "show": _fedops(auditor, "show", SHOWN)}


def _fedops(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "fedops.cli.main", *arguments]
    # As for a reader who has done what stands above: `fedops` is found.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    env = os.environ | {"PYTHONUTF8": "1", "PATH": path}
    return subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        texts = outputs(Path(folder))
    text = README.read_text("utf-8")
    for name in BLOCKS:
        text = filled(text, name, texts[name])
    README.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
