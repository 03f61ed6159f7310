"""Publish a branch in another repository than origin: on a fork, where a pull request then takes it from."""

from __future__ import annotations

from pathlib import Path

from fedops.adapters.git_access import access_cause, no_access
from fedops.adapters.git_objects import object_id
from fedops.adapters.git_process import GitProcess, failure, printable
from fedops.adapters.git_refusals import refusal, refusals
from fedops.core.ids import CommitId

_ACCESS = "may this account push there? `fedops doctor` checks it"
_RULE = "a rule of that repository forbids it; see its settings"
# A commit on top of main brings along what main's workflows became since the fork; GitHub asks for the right to that.
_WORKFLOWS = "sync the fork with main, or use a token with the scope workflow"


def send_branch(git: GitProcess, where: str, commit: CommitId, branch: str) -> None:
    """Make a branch at an address name a commit; what it named before is given up, if nobody moved it meanwhile.

    Args:
        where: a URL; no remote's name, no option.

    Raises:
        GitError: auth (the account may not), temporary (somebody moved it just now, or no answer), permanent (refused).
    """
    ref = f"refs/heads/{branch}"
    shown = printable(where.rpartition("@")[2])
    listed = git.run("ls-remote", "--refs", "--", where, ref)
    if listed.code != 0:
        start = git.directory or Path()
        raise no_access(
            f"{shown}: reading {ref}", listed, where, start=start, temporary=lambda: _ACCESS, rights=_ACCESS
        )
    pairs = (line.split("\t", 1) for line in listed.out.decode("utf-8", "replace").splitlines())
    old = next((value for value, name in pairs if name == ref), "")
    if old == commit:
        return
    pushed = git.run(
        *("push", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no"),
        f"--force-with-lease={ref}:{old}",
        "--",
        where,
        f"{object_id(commit)}:{ref}",
    )
    if pushed.code == 0:
        return
    cause = access_cause(pushed)
    if cause == "auth":
        raise failure(f"{shown}: push of {ref}", pushed, hint=_ACCESS, slug="auth_failed", cause="auth")
    refused = refusals(pushed)
    if refused:
        raise refusal(shown, refused, pushed, hint=_RULE, of_workflows=_WORKFLOWS)
    raise failure(f"{shown}: push of {ref}", pushed, hint="repeat the command", cause="temporary")
