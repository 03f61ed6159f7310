"""Publish a branch in another repository than origin: on a fork, where a pull request then takes it from."""

from __future__ import annotations

from fedops.adapters.git_objects import object_id
from fedops.adapters.git_process import GitProcess, access_cause, failure, printable
from fedops.core.ids import CommitId

_ACCESS = "may this account push there? `fedops doctor` checks it"


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
        cause = access_cause(listed)
        raise failure(
            f"{shown}: reading {ref}",
            listed,
            hint=_ACCESS,
            slug="auth_failed" if cause == "auth" else None,
            cause=cause,
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
    if b"[remote rejected]" in pushed.out:
        hint = "a rule of that repository forbids it; see its settings"
        raise failure(f"{shown}: push of {ref} refused", pushed, hint=hint, slug="push_refused")
    raise failure(f"{shown}: push of {ref}", pushed, hint="repeat the command", cause="temporary")
