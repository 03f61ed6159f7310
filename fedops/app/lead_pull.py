"""A lead's change as a pull request instead of a push: the same commit, on a branch of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedops.app.context import Context
from fedops.app.snapshot import Snapshot, snapshot
from fedops.app.version_merge import is_of_lead, lead_of
from fedops.core.errors import ConfigError
from fedops.core.facts import Account, Pull
from fedops.core.ids import SITES_PATH, CommitId, RepoPath, lead_branch
from fedops.render.lead_pull import Outcome, lead_body


@dataclass(frozen=True)
class Edit:
    """Whole new bytes of files, and the commit's message.

    Attributes:
        what: names the branch of a pull request, such as "add-hospital-a"; the same for what replaces each other.
    """

    files: Mapping[RepoPath, bytes]
    message: str
    what: str


@dataclass(frozen=True)
class LeadPull:
    """Attributes:
    outcome: "opened", or "updated" to this content; "open": found so.
    """

    number: int
    head: CommitId
    outcome: Outcome

    @property
    def changed(self) -> bool:
        return self.outcome != "open"


def propose_edit(ctx: Context, main: Snapshot, edit: Edit, key: Path | None) -> LeadPull:
    """Open the pull request of an edit, or bring the open one to it; one that says the same stays as it is.

    Args:
        key: of the lead, who signs the commit.

    Raises:
        ConfigError: this is no lead's account, nobody signs on forge git, or somebody else has an open pull request of
            that branch.
    """
    if key is None and main.federation.forge.kind == "git":
        raise ConfigError(
            "pull request: no key signs it, and on forge git the signature is the account -> a lead's key",
            hint="export FEDOPS_KEY=FILE, the private key of a lead",
        )
    branch = lead_branch(edit.what)
    there = [pull for pull in ctx.forge.open_pulls() if pull.branch == branch]
    same = next((pull for pull in there if is_of_lead(main, pull) and _brings(main, pull.head, edit)), None)
    if same is not None:
        return LeadPull(same.number, same.head, "open")
    _demand_own(ctx, main, there)
    at = ctx.clock.now().replace(microsecond=0)
    head = ctx.repository.write_commit([main.commit], edit.files, edit.message, at=at, key=key)
    other = not_a_lead(ctx, main, head)
    if other is not None:
        raise ConfigError(
            f"pull request: {other.login} is no lead of {SITES_PATH} -> a lead's account or key",
            hint="ask a lead to run it: only a lead's change can be merged without a bypass",
        )
    pull = ctx.forge.submit_pull(head, branch, edit.message.splitlines()[0], lead_body(edit.files))
    return LeadPull(pull.number, head, "updated" if pull.number in {p.number for p in there} else "opened")


def _demand_own(ctx: Context, main: Snapshot, there: Sequence[Pull]) -> None:
    """On a forge with accounts, change no pull request that somebody else opened.

    It would stay the other one's, and whoever changed it could approve it.
    """
    if main.federation.forge.kind == "git" or not there:  # there a new head is the pull request of whoever signed it
        return
    me = ctx.forge.whoami()
    for pull in there:
        if pull.author.id != me.id:
            raise ConfigError(
                f"#{pull.number} of {pull.author.login} proposes something else from {pull.branch} -> one proposal at a time",
                hint=f"review or close #{pull.number} first, then run it again",
            )


def not_a_lead(ctx: Context, main: Snapshot, head: CommitId) -> Account | None:
    """Whose a commit would be, if this account handed it in and is no lead's; None: it is a lead's."""
    leads = main.sites.leads
    if main.federation.forge.kind == "git":
        # There the signature is the account, so that one without is nobody's.
        return None if lead_of(ctx.repository, head, leads) is not None else ctx.forge.whoami()
    me = ctx.forge.whoami()
    return None if me.id in {lead.id for lead in leads} else me


def _brings(main: Snapshot, head: CommitId, edit: Edit) -> bool:
    """True if a head changes exactly the files of an edit, to the same bytes."""
    repository = main.repository
    if {c.path for c in repository.changes(main.commit, head)} != edit.files.keys():
        return False
    there = snapshot(repository, head).files
    return all(
        path in there
        and (there[path].mode, there[path].size) == ("100644", len(data))
        and repository.read(there[path].blob, max_bytes=len(data)) == data
        for path, data in edit.files.items()
    )
