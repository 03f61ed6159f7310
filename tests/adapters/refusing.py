"""A bare repository that refuses a push in words of its own, as a forge does: git's proc-receive hook."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# What GitHub says of a token that may not change workflow files: a classic one, an app's, a fine-grained one.
NO_WORKFLOWS = (
    "refusing to allow a Personal Access Token to create or update workflow `.github/a.yml` without `workflow` scope",
    "refusing to allow an OAuth App to create or update workflow `.github/a.yml` without `workflow` scope",
    "refusing to allow a GitHub App to create or update workflow `.github/a.yml` without `workflows` permission",
)

_HOOK = """#!{python}
import sys


def take():
    size = int(sys.stdin.buffer.read(4), 16)
    return sys.stdin.buffer.read(size - 4) if size else b""


def give(line):
    sys.stdout.buffer.write(b"%04x" % (len(line) + 4) + line + b"0000")
    sys.stdout.buffer.flush()


while take():
    pass
give(b"version=1\\n")
while take():
    pass
give({said!r})
"""


def refuse(bare: Path, ref: str, why: str) -> None:
    """From now on a push of a branch is answered with this reason."""
    subprocess.run(["git", "-C", str(bare), "config", "receive.procReceiveRefs", "refs/heads"], check=True)
    hook = bare / "hooks" / "proc-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(_HOOK.format(python=sys.executable, said=f"ng {ref} {why}".encode()))
    hook.chmod(0o755)
