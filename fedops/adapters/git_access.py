"""Why a remote cannot be read or written, by the words of git, ssh and the server; they choose hint and exit code alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from fedops.adapters.git_process import Output, failure, printable
from fedops.core.errors import ORIGIN_MISSING, Cause, GitError

# In English as LC_ALL=C makes them. Servers answer "not found" for what an account may not see.
_NO_ACCESS = re.compile(
    r"Authentication failed for|could not read (Username|Password) for|Permission denied \("
    r"|Too many authentication failures|requested URL returned error: 40[13]|Repository not found"
    r"|project you were looking for could not be found|^fatal: repository '.*' not found",
    re.MULTILINE | re.IGNORECASE,
)
_HOST_KEY = re.compile(r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED")
_NO_REPOSITORY = re.compile(
    r"^fatal: (repository )?'.*' (does not appear to be a git repository|does not exist)", re.MULTILINE
)
_SCP = re.compile(r"(?:[^/:\\]+@)?(\[[^\]/]+\]|[^/:\\]{2,}):(?!//|:)")  # host:path; one letter is a Windows drive
_SSH_URL = re.compile(r"(?:git\+)?ssh(?:\+git)?://(?:[^/@]*@)?(\[[^\]/]+\]|[^/:]+)")
_OTHER_URL = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*:")  # the scheme of an address, a remote helper's too


def access_cause(output: Output) -> Cause:
    """Why a remote could not be read or written: refused (auth), to be changed by a person (permanent), or temporary."""
    if _HOST_KEY.search(output.err):
        return "permanent"
    if _NO_ACCESS.search(output.err):
        return "auth"
    return "permanent" if _NO_REPOSITORY.search(output.err) else "temporary"


def ssh_host(url: str) -> str | None:
    """The host of an address that ssh reaches; None for any other address."""
    match = _SSH_URL.match(url) or (None if "://" in url else _SCP.match(url))
    return match[1].strip("[]") if match else None


def local_folder(url: str, start: Path) -> Path | None:
    """The folder that an address names; None if it lies on another machine.

    Args:
        start: what a relative address is relative to.
    """
    if ssh_host(url) is not None or (_OTHER_URL.match(url) and not re.match(r"[A-Za-z]:[\\/]", url)):
        return None
    return start / url.removeprefix("file://")


def no_access(
    what: str,
    output: Output,
    url: str,
    *,
    start: Path,
    temporary: Callable[[], str] = lambda: "check the connection, then repeat",
    rights: str = "",
) -> GitError:
    """The error for a remote that could not be read or written.

    Args:
        url: the remote's address, or its name where that stands for none.
        start: what a relative address is relative to.
        temporary: the hint where repeating may help.
        rights: the hint where the account is refused; empty: one that fits the address.
    """
    cause = access_cause(output)
    if cause == "temporary":
        return failure(what, output, hint=temporary(), cause=cause)
    host, folder = ssh_host(url), local_folder(url, start)
    if cause == "auth":
        return failure(what, output, hint=rights or _rights(host), slug="auth_failed", cause=cause)
    if _HOST_KEY.search(output.err):
        return failure(what, output, hint=_host_key(host), cause=cause)
    if folder is None:
        return failure(what, output, hint="the address names no repository there: `git remote -v`", cause=cause)
    missing = "no such folder" if not folder.exists() else "no git repository"
    hint = "correct the address (`git remote -v` shows it, `git remote set-url origin PATH`), or mount the disk"
    return GitError(f"{what}: {printable(str(folder))}: {missing}", hint=hint, slug=ORIGIN_MISSING, cause=cause)


def _rights(host: str | None) -> str:
    if host is None:
        return "the address is wrong, or the account may not read it: log in, or set GITHUB_TOKEN"
    return (
        f"the address is wrong, or the account of your ssh key may not read it: `ssh -T {_account(host)}` tells whether "
        "the key is known there, `ssh-add -l` which keys are tried"
    )


def _host_key(host: str | None) -> str:
    if host is None:
        return "the server's host key is not in ~/.ssh/known_hosts, or another one: ask its administrator"
    return (
        f"the host key of {printable(host)} is not in ~/.ssh/known_hosts, or has changed: run `ssh {_account(host)}` once and "
        "compare the fingerprint with the one that its administrator tells you"
    )


def _account(host: str) -> str:
    return shlex.quote(f"git@{printable(host)}")
