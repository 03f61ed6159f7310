"""What `fedops doctor` judges: one small function for each question, facts in, a Check out; all pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fedops.core.ids import SiteId
from fedops.core.settings import Sites
from fedops.core.ssh_keys import key_body

State = Literal["ok", "warning", "broken"]

OLDEST_GIT = (2, 34)  # the first that signs and verifies by SSH keys as fedops needs it
OLDEST_SSH = (8, 2)  # the first whose ssh-keygen signs for git
OLDEST_PYTHON = (3, 11)
NOBODY = "git does not know who writes the commits of this machine"
NAME_YOURSELF = 'git config --global user.name "NAME"; git config --global user.email ADDRESS'
DISTRIBUTION, OTHER_DISTRIBUTION = "fedops-git", "fedops"
_VERSION = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True)
class Check:
    """The answer to one question.

    Attributes:
        name: of what was looked at.
        got: what is.
        expected: what should be; empty where `got` says it all.
        next: the next command, or the file and field to change; never empty unless all is ok.
    """

    name: str
    state: State
    got: str
    expected: str = ""
    next: str = ""


_STORE = "federation.yaml: store.url: is it there, and can it be reached from here?"
# What to do where a question could not be asked and the fault itself has no advice.
_STEPS = {
    "origin": "git fetch origin, which says more",
    "main": "git fetch origin; a lead who founds the federation: fedops init",
    "work tree": "git status, which says more",
    "git settings": "git status, which says more",
    "key": "fedops join SITE --key FILE",
    "store": _STORE,
    "stores of CI": _STORE,
    "own store": "policies/sites.yaml: store of this site, else federation.yaml: store.url: is it there?",
    "forge": "federation.yaml: forge: is it the right one, and can it be reached from here?",
}


def cannot(name: str, reason: str, hint: str = "") -> Check:
    """A check that could not run; there is always a step to take."""
    return Check(name, "broken", reason, next=hint or _STEPS.get(name, "mend what it says, then again: fedops doctor"))


# ---------------------------------------------------------------- the machine


def check_git(text: str) -> Check:
    """Args: text: as `git --version` prints it."""
    return _program("git", text, OLDEST_GIT, "install a newer git")


def check_ssh(text: str) -> Check:
    """Args: text: as `ssh -V` prints it, for OpenSSH's programs come together."""
    return _program("ssh-keygen", text, OLDEST_SSH, "install a newer openssh-client")


def check_python(version: tuple[int, int, int]) -> Check:
    got = ".".join(map(str, version))
    if version[:2] < OLDEST_PYTHON:
        return Check("python", "broken", got, f"{_dotted(OLDEST_PYTHON)} or newer", "install a newer Python")
    return Check("python", "ok", got)


def _program(name: str, text: str, oldest: tuple[int, int], hint: str) -> Check:
    shown, found = " ".join(text.split())[:60], _VERSION.search(text)
    if found is None:
        return Check(name, "warning", f"its version is {shown!r}", f"{_dotted(oldest)} or newer", hint)
    if (int(found[1]), int(found[2])) < oldest:
        return Check(name, "broken", shown, f"{_dotted(oldest)} or newer", hint)
    return Check(name, "ok", shown)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def check_distributions(installed: Mapping[str, str]) -> Check:
    """Look for the other project of PyPI whose files would lie over ours.

    Args:
        installed: name of an installed distribution -> its version.
    """
    name = "distribution"
    if OTHER_DISTRIBUTION in installed:
        got = f"{OTHER_DISTRIBUTION} {installed[OTHER_DISTRIBUTION]}, another project, which also installs as `fedops`"
        commands = f"pip uninstall {OTHER_DISTRIBUTION}, then pip install --force-reinstall {DISTRIBUTION}"
        return Check(name, "broken", got, f"{DISTRIBUTION} alone", commands)
    if DISTRIBUTION not in installed:
        return Check(name, "ok", "run from its source, not installed")
    return Check(name, "ok", f"{DISTRIBUTION} {installed[DISTRIBUTION]}")


def check_identity(who: str | None, site: SiteId | None) -> Check:
    """Whether git can name who commits.

    Args:
        who: as git writes it, "Name <address>"; None: it does not know.
        site: whose clone this is; who only reads needs no name.
    """
    if who is not None:
        return Check("identity", "ok", who)
    state: State = "warning" if site is None else "broken"
    return Check("identity", state, NOBODY, "a name and an address, for leads and sites commit", NAME_YOURSELF)


# ---------------------------------------------------------------- the clone


@dataclass(frozen=True)
class WorkTree:
    """Attributes:
    branch: the checked-out one; None: none is.
    changed: number of tracked files with changes.
    ahead, behind: commits of it alone, and of origin's main alone.
    ignored: `.fedops/` is git-ignored.
    unfinished: what was begun here and waits for a person, such as "rebase"; None: nothing.
    """

    branch: str | None
    changed: int
    ahead: int
    behind: int
    ignored: bool
    unfinished: str | None = None


def check_work_tree(tree: WorkTree, main: str) -> Check:
    name = "work tree"
    if tree.unfinished is not None:
        command = f"git {tree.unfinished} --continue, or to give it up: git {tree.unfinished} --abort"
        return Check(name, "warning", f"a {tree.unfinished} is not finished", "none", command)
    if tree.branch != main:
        return Check(name, "warning", f"on {tree.branch or 'no branch'}", f"on {main}", f"git switch {main}")
    if tree.changed:
        return Check(name, "warning", f"{tree.changed} changed files", "none", "git status")
    if tree.ahead:
        return Check(name, "warning", f"{tree.ahead} commits that origin lacks", "none", f"git log origin/{main}..")
    if tree.behind:
        return Check(name, "warning", f"{tree.behind} commits behind origin", "none", "git pull --ff-only")
    return Check(name, "ok", f"on {main}, clean")


def check_ignored(tree: WorkTree) -> Check:
    """The folder of keys and work in progress must not be committed by an accident."""
    if tree.ignored:
        return Check(".fedops/", "ok", "is git-ignored")
    return Check(".fedops/", "broken", "git would add it, with keys in it", "ignored", "add /.fedops/ to .gitignore")


@dataclass(frozen=True)
class Attributes:
    """git's attributes of one path: "unspecified", "set", "unset", or a value."""

    path: str
    text: str
    eol: str
    merge: str
    filter: str


def check_attributes(found: Sequence[Attributes], autocrlf: str | None) -> Check:
    """Records and pointers are compared byte by byte: git must neither convert, filter nor mix them.

    Args:
        found: of records and pointers.
        autocrlf: core.autocrlf; None: not set.
    """
    name, where = "git settings", ".gitattributes, or `git config` of this clone"
    for a in found:
        if a.filter not in ("unspecified", "unset"):
            return Check(name, "broken", f"{a.path}: filter={a.filter}, which replaces its bytes", "none", where)
        if a.merge not in ("unspecified", "set", "unset", "binary", "text"):
            return Check(name, "broken", f"{a.path}: merge={a.merge}, which mixes two files", "git's own", where)
        kept = a.text == "unset" or (a.text == "set" and a.eol == "lf")
        if a.eol == "crlf" or (not kept and autocrlf in ("true", "input")):
            got = f"{a.path}: eol={a.eol}, core.autocrlf={autocrlf}: line ends are converted"
            return Check(name, "broken", got, "text eol=lf", where)
    return Check(name, "ok", "records and pointers keep their bytes")


# ---------------------------------------------------------------- the site


def check_site(site: SiteId | None, sites: Sites) -> Check:
    """Whether the clone's site may take part."""
    if site is None:
        return Check("site", "ok", "no site's clone: it reads", next="fedops join SITE, if it is one's")
    entry = sites.sites.get(site)
    if entry is None:
        known = ", ".join(sorted(sites.sites)[:5]) or "none"
        return Check("site", "broken", f"{site} is not on the roster", f"one of {known}", "a lead: fedops site add")
    if entry.state != "active":
        return Check("site", "warning", f"{site} is {entry.state}", "active", f"a lead: fedops site activate {site}")
    return Check("site", "ok", f"{site}, active")


@dataclass(frozen=True)
class KeyFacts:
    """Attributes:
    path: of the private key.
    public: its public key line.
    open_to_others: other users may read the private key.
    locked: it needs a passphrase.
    """

    path: str
    public: str
    open_to_others: bool
    locked: bool


def check_no_key(site: SiteId | None, *, needed: bool) -> Check:
    """A clone that signs nothing.

    Args:
        needed: submissions must be signed.
    """
    if site is None or not needed:
        return Check("key", "ok", "none: this clone signs nothing")
    command = f"fedops join {site} --generate-key"
    return Check("key", "broken", "none", "one that signs this site's submissions", command)


def check_key(key: KeyFacts, site: SiteId | None, sites: Sites) -> Check:
    """Whether the key can sign, and whose it is by main's roster."""
    if key.open_to_others:
        got = f"{key.path}: others may read it, so ssh-keygen does not use it"
        return Check("key", "broken", got, "readable by its owner alone", f"chmod 600 {key.path}")
    owner = _owner(key.public, sites)
    expected = f"a key of {site} in policies/sites.yaml" if site is not None else "a key of the roster"
    if owner is None:
        command = f"fedops join {site or 'SITE'}, which prints the line for a lead"
        state: State = "broken" if site is not None else "warning"
        return Check("key", state, f"{key.path}: not on the roster of main", expected, command)
    if site is not None and owner != site:
        return Check("key", "broken", f"{key.path}: a key of {owner}", expected, f"fedops join {site} --key …")
    if key.locked:
        got = f"{key.path}: needs a passphrase, which `fedops run` cannot give"
        return Check("key", "warning", got, "none", f"ssh-keygen -p -f {key.path}, for a machine that works by itself")
    return Check("key", "ok", f"{key.path}, of {owner}")


def _owner(public: str, sites: Sites) -> str | None:
    """The site, else the lead, that a public key belongs to."""
    owners: list[tuple[str, Collection[str]]] = [(site, entry.keys) for site, entry in sorted(sites.sites.items())]
    owners += [(f"lead {lead.login}", lead.keys) for lead in sites.leads]
    body = key_body(public)
    return next((who for who, keys in owners if body in map(key_body, keys)), None)


def summary(checks: Sequence[Check]) -> str:
    """`2 broken, 1 warning`; `all well` if there is neither."""
    broken, warnings = (sum(c.state == state for c in checks) for state in ("broken", "warning"))
    words = [f"{broken} broken"] * bool(broken) + [f"{warnings} warning{'s' * (warnings != 1)}"] * bool(warnings)
    return ", ".join(words) or "all well"
