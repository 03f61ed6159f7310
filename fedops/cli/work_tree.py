"""After a push: bring the person's work tree to origin's main, or say why it stays."""

from __future__ import annotations

from fedops.cli.console import say
from fedops.ports import Repository

_WHY = {
    "other_branch": ("it is on another branch", "git switch main && git pull"),
    "dirty": ("it has changes, or files that are in the way", "git status, then git pull"),
    "not_written": ("git could not write it", "make room there, or see who may write; then git restore . && git pull"),
    "diverged": ("it has commits of its own", "git pull --rebase"),
    **{
        begun: (f"a {begun} is not finished in it", f"git {begun} --continue, or to give it up: git {begun} --abort")
        for begun in ("rebase", "merge", "cherry-pick", "revert")
    },
}


def update_work_tree(repository: Repository) -> str:
    """Fast-forward the work tree if that is safe; returns what was done, in one word."""
    from fedops.adapters.git_repo import GitRepository

    assert isinstance(repository, GitRepository)
    done = repository.checkout_main()
    if done in _WHY:
        why, command = _WHY[done]
        say(f"the work tree {'is not up to date' if done == 'not_written' else 'was left as it is'}: {why}")
        say(f"  hint: {command}")
    return done
