"""This machine, as `fedops doctor` looks at it: programs, packages, the work tree, a key file. Nothing is changed."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedops.core.errors import ConfigError
from fedops.core.health import DISTRIBUTION, OTHER_DISTRIBUTION, Attributes, KeyFacts, WorkTree

_ATTRIBUTES = ("text", "eol", "merge", "filter")


class ThisMachine:
    """Implements the Machine port. git is imported late: that it cannot be run is one of the answers.

    Args:
        author: name and address that fedops itself gives to commits; None: git's configuration has them.
    """

    def __init__(self, author: tuple[str, str] | None = None) -> None:
        self._author = author

    def git_version(self) -> str:
        from fedops.adapters.git_process import GitProcess

        return GitProcess(None).check("version").decode("utf-8", "replace").strip()

    def ssh_version(self) -> str:
        """What `ssh -V` says, once ssh-keygen is there too."""
        from fedops.adapters.git_signing import no_ssh_keygen

        try:
            subprocess.run(["ssh-keygen", "-?"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
            done = subprocess.run(["ssh", "-V"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        except FileNotFoundError as e:
            if e.filename == "ssh":
                return "unknown, there is no ssh to ask"
            raise no_ssh_keygen() from e
        return (done.stderr or done.stdout).decode("utf-8", "replace").strip()

    def python_version(self) -> tuple[int, int, int]:
        return sys.version_info[:3]

    def distributions(self) -> Mapping[str, str]:
        """Versions of fedops' own distribution and of its namesake, as far as they are installed."""
        found = {}
        for name in (DISTRIBUTION, OTHER_DISTRIBUTION):
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
        return found

    def identity(self, folder: Path) -> str | None:
        """Whose name git puts on commits made in a folder, "Name <address>"; None: it knows nobody."""
        from fedops.adapters.git_process import GitProcess

        if self._author is not None:
            return f"{self._author[0]} <{self._author[1]}>"
        git = GitProcess(folder)
        found = [git.run("var", name) for name in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT")]
        if any(output.code != 0 for output in found):
            return None
        # After the address come the time and its zone.
        return found[1].out.decode("utf-8", "replace").rpartition(">")[0] + ">"

    def work_tree(self, root: Path, main: str) -> WorkTree:
        from fedops.adapters.git_process import GitProcess, failure
        from fedops.adapters.git_upkeep import unfinished

        git = GitProcess(root)
        head = git.run("symbolic-ref", "--quiet", "--short", "HEAD")
        branch = head.out.decode("utf-8", "replace").strip() if head.code == 0 else None
        changed = git.check("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames").split(b"\0")
        counts = git.run("rev-list", "--left-right", "--count", f"HEAD...refs/remotes/origin/{main}")
        ahead, behind = map(int, counts.out.split()) if counts.code == 0 else (0, 0)
        # NOTE: check-ignore alone refuses the literal paths that all our other calls ask for.
        ignored = git.run("--no-literal-pathspecs", "check-ignore", "--quiet", "--no-index", ".fedops/id_ed25519")
        if ignored.code not in (0, 1):
            raise failure("git check-ignore", ignored)
        return WorkTree(branch, len(changed) - 1, ahead, behind, ignored.code == 0, unfinished(git))

    def attributes(self, root: Path, paths: Sequence[str]) -> Sequence[Attributes]:
        from fedops.adapters.git_process import GitProcess

        # NOTE: in this form of the output, -z gives path, attribute, value, each ended by NUL.
        out = GitProcess(root).check("check-attr", "-z", *_ATTRIBUTES, "--", *paths).decode("utf-8", "replace")
        fields = out.split("\0")[:-1]
        values: dict[str, dict[str, str]] = {}
        for path, attribute, value in zip(*[iter(fields)] * 3, strict=True):
            values.setdefault(path, {})[attribute] = value
        return tuple(Attributes(path, **found) for path, found in values.items())

    def git_config(self, root: Path, key: str) -> str | None:
        from fedops.adapters.git_process import GitProcess

        got = GitProcess(root).run("config", "-z", "--get", key)
        return got.out.decode("utf-8", "replace").removesuffix("\0") if got.code == 0 else None

    def key_facts(self, path: Path) -> KeyFacts:
        """What there is to say of a private key; it is neither read nor shown.

        Raises:
            ConfigError: no such file, a public key, or no ssh-keygen.
        """
        from fedops.adapters.ssh_keygen import is_locked, is_open_to_others, public_key_of

        opened = path.suffix != ".pub" and path.is_file() and is_open_to_others(path)
        try:
            public = public_key_of(path)
        except ConfigError:
            if not opened:
                raise
            public = ""  # ssh-keygen does not look at such a key, and that is the thing to say first
        return KeyFacts(str(path), public, opened, not opened and is_locked(path))
