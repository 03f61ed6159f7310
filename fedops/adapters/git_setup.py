"""The clone that `fedops init` starts from: find it, or make it together with a bare repository as its origin."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from fedops.adapters.git_access import no_access
from fedops.adapters.git_process import FOREIGN_OWNER, GitProcess
from fedops.adapters.git_repo import GitRepository, discover
from fedops.core.errors import ConfigError, GitError

_HINT = "git init -b {main} . && git remote add origin URL, or let one command do it: fedops init --origin ../fed.git …"


def demand_clone(folder: Path, main: str) -> None:
    """Check that a folder is the top of a clone that has an origin.

    Raises:
        ConfigError: it is not; says which commands make it so.
    """
    top = discover(folder)
    if top is None or top.resolve() != folder.resolve():
        what = "not a git repository" if top is None else f"inside the repository {top} -> its top folder"
        raise ConfigError(f"{folder}: {what}", hint=_HINT.format(main=main) if top is None else f"cd {top}")
    with GitRepository(folder, main=main) as repository:
        if repository.remote_url() is None:
            raise ConfigError(
                f"{folder}: the repository has no remote `origin`, which a federation lives in",
                hint="git remote add origin URL, or let fedops make one: fedops init --origin ../fed.git …",
            )


def is_clone(folder: Path, main: str) -> bool:
    """True if `demand_clone` has nothing against a folder."""
    try:
        demand_clone(folder, main)
    except ConfigError:
        return False
    return True


def make_origin(folder: Path, origin: Path, main: str) -> None:
    """Make a bare repository and a clone of it in `folder`; what is there already and fits stays as it is.

    Raises:
        ConfigError: the folder has another origin, or lies in another repository.
    """
    top = discover(folder)
    if top is not None and top.resolve() != folder.resolve():
        raise ConfigError(f"{folder}: inside the repository {top} -> its top folder", hint=f"cd {top}")
    if origin.exists() and any(origin.iterdir()) and not is_bare(origin):
        raise ConfigError(f"{origin}: is there and is no bare repository", hint="name a new folder")
    with GitRepository.init(folder, main) as repository:
        known = repository.remote_url()
        if known is not None and Path(known).resolve() != origin.resolve():
            raise ConfigError(f"{folder}: its origin is {known} -> {origin}", hint="leave --origin out")
    new = not origin.exists() or not any(origin.iterdir())
    GitRepository.init(origin, main, bare=True, shared=new and _is_shared(origin)).close()
    if known is None:
        git = GitProcess(folder)
        git.check("remote", "add", "origin", str(origin.resolve()))
        # As `git clone` does, so that a plain `git pull` works here.
        git.check("config", f"branch.{main}.remote", "origin")
        git.check("config", f"branch.{main}.merge", f"refs/heads/{main}")


def make_clone(folder: Path, origin: str, main: str) -> bool:
    """Clone a federation into a new or empty folder; False if its clone is there already.

    Raises:
        ConfigError: the folder holds something else.
        GitError: the origin cannot be read.
    """
    if folder.exists() and any(folder.iterdir()):
        demand_clone(folder, main)
        return False
    output = GitProcess(None).run("clone", "--quiet", "--branch", main, "--", origin, str(folder))
    if output.code != 0:
        raise no_access("git clone", output, origin, start=Path.cwd())
    return True


def _is_shared(origin: Path) -> bool:
    """True if the group of an origin's folder, or of the one that it will be made in, may write there.

    Never where everybody may, as in /tmp, nor where the new folder would belong to another group.
    """
    place = origin if origin.exists() else origin.parent
    if sys.platform == "win32" or not place.is_dir():
        return False
    found = place.stat()
    writers = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    inherits = place == origin or bool(found.st_mode & stat.S_ISGID) or found.st_gid == os.getegid()
    return writers == stat.S_IWGRP and inherits


def is_bare(folder: Path) -> bool:
    """True for the folder of a bare repository.

    Raises:
        GitError: it is another user's.
    """
    try:
        with GitRepository(folder):
            return not (folder / ".git").exists()
    except GitError as e:
        if e.slug == FOREIGN_OWNER:
            raise
        return False


def head_branch(origin: Path) -> str:
    """The branch that a bare repository's HEAD names.

    Raises:
        GitError: HEAD is detached.
    """
    return GitProcess(origin).check("symbolic-ref", "--short", "HEAD").decode("utf-8", "replace").strip()
