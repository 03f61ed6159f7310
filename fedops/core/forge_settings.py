"""What a forge says of a federation's repository: rules, rights and switches that decide whether its jobs can work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from fedops.core.facts import Account
from fedops.core.registry_address import SCHEME, parse_registry_url

VERDICT = "fedops/verdict"  # context of the commit status that says what CI found
PACKAGE_HOST = "ghcr.io"  # whose packages have rights of their own, beside those of the repository
ENVIRONMENT = "fedops-publish"  # of the job that pushes versions; it alone gets the deploy key
DEPLOY_KEY = "DeployKey"  # the kind of actor that this job can push as, where a rule keeps its own token out
LEVEL_2 = ("pull_request", "required_status_checks")  # rules on main that say that level 2 is wanted
# GitHub's word for a rule that stops a push of main by who may not bypass it -> the words of its switch.
NO_PUSH = {
    "pull_request": "Require a pull request before merging",
    "required_status_checks": "Require status checks to pass",
    "required_deployments": "Require deployments to succeed",
    "workflows": "Require workflows to pass before merging",
    "code_scanning": "Require code scanning results",
    "code_quality": "Require code quality results",
    "update": "Restrict updates",
}


@dataclass(frozen=True)
class Unread:
    """What the token may not read.

    Attributes:
        reason: in the forge's words.
    """

    reason: str


NOT_ASKED = Unread("not asked for")


@dataclass(frozen=True)
class Rule:
    """One rule that applies to a branch or a tag.

    Attributes:
        kind: in the forge's word, such as "pull_request".
        source: what it stands in, to be shown.
        page: where a person changes it.
        bypass: kinds of actors that may bypass it at any time, such as "DeployKey".
        methods: of merging that it lets through.
        statuses: contexts that must be green before a merge.
        approvals: how many a merge needs.
        dismisses: a push to a pull request takes its approvals away.
        last_push: somebody else than who pushed last must approve.
    """

    kind: str
    source: str
    page: str
    bypass: tuple[str, ...] | Unread = ()
    methods: tuple[str, ...] = ("merge", "squash", "rebase")
    statuses: tuple[str, ...] = ()
    approvals: int = 0
    dismisses: bool = False
    last_push: bool = False

    def lets_through(self, *actors: str) -> bool:
        """It is known that one of these kinds of actors may bypass it."""
        return not isinstance(self.bypass, Unread) and not set(actors).isdisjoint(self.bypass)


@dataclass(frozen=True)
class Workflows:
    """Attributes:
    enabled: workflows run at all.
    allowed: which actions they may use; "selected" with `github_owned` False names single ones.
    """

    enabled: bool
    allowed: Literal["all", "local_only", "selected"] = "all"
    github_owned: bool | Unread = True


@dataclass(frozen=True)
class JobRights:
    """Attributes:
    default: rights of a job that names none, "read" or "write".
    pulls: jobs may open (and approve) pull requests.
    """

    default: str
    pulls: bool


@dataclass(frozen=True)
class Publisher:
    """What the job that publishes has to push with.

    Attributes:
        environment: its environment is there.
        refs: patterns of the full refs whose jobs the environment lets in; None: of all branches, or the protected ones.
        secret: the environment has the deploy key's secret.
        repository_secret: the repository has one of that name, which the jobs of every branch get.
        keys: titles of the deploy keys that may write.
    """

    environment: bool | Unread = NOT_ASKED
    refs: tuple[str, ...] | Unread | None = None
    secret: bool | Unread = NOT_ASKED
    repository_secret: bool | Unread = NOT_ASKED
    keys: tuple[str, ...] | Unread = NOT_ASKED


@dataclass(frozen=True)
class ForkRuns:
    """What a private repository does with the workflows of pull requests from forks.

    Attributes:
        on: they run.
        write_tokens: with a token that may write.
        secrets: with the repository's secrets.
    """

    on: bool
    write_tokens: bool
    secrets: bool


@dataclass(frozen=True)
class Package:
    """Attributes:
    repository: "owner/name" that it is connected to; None: none.
    """

    visibility: str
    repository: str | None


@dataclass(frozen=True)
class ForgeSettings:
    """What `rules` and all after it say is a lead's to change, and not read for others.

    Attributes:
    name: "owner/name".
    page: web address of the repository's settings.
    account: behind the token.
    is_person: False for the token of a job or an app.
    may_write: None: the forge does not say.
    merge_commits: pull requests may be merged by a merge commit; None: the token may not see it.
    other_merges: squash or rebase may be chosen.
    private: not everybody may read it.
    may_fork: who may read it may fork it; None: the forge does not say.
    rules: of rulesets, that apply to the main branch.
    protection: of the main branch in the classic way, as rules.
    tag_rules: that apply to the tags of versions.
    writers: accounts that may write, people alone.
    publisher: read where `wants_deploy_key`.
    first_runs: of a public repository: whose workflows wait for approval when they come from a fork.
    fork_runs: of a private one.
    packages: (owner, name, page) and what is known of each.
    """

    name: str
    page: str
    account: Account | Unread
    is_person: bool
    may_write: bool | None
    default_branch: str
    archived: bool
    has_issues: bool
    merge_commits: bool | None
    other_merges: bool
    private: bool = False
    may_fork: bool | None = None
    rules: tuple[Rule, ...] | Unread = NOT_ASKED
    protection: tuple[Rule, ...] | Unread = NOT_ASKED
    tag_rules: tuple[Rule, ...] | Unread = NOT_ASKED
    writers: tuple[Account, ...] | Unread = NOT_ASKED
    workflows: Workflows | Unread = NOT_ASKED
    job_rights: JobRights | Unread = NOT_ASKED
    publisher: Publisher = Publisher()
    first_runs: str | Unread = NOT_ASKED
    fork_runs: ForkRuns | Unread = NOT_ASKED
    packages: tuple[tuple[str, str, Package | Unread], ...] = ()


def wants_deploy_key(rules: Iterable[Rule]) -> bool:
    """Whether rules on main ask for level 2, or keep out all pushes but those of a deploy key."""
    return any(rule.kind in LEVEL_2 or (rule.kind in NO_PUSH and rule.lets_through(DEPLOY_KEY)) for rule in rules)


def packages_of(store: str) -> tuple[tuple[str, str], ...]:
    """(owner, name) of the packages that CI writes, where a store is in a registry that has them; else none."""
    if not store.startswith(SCHEME):
        return ()
    address = parse_registry_url(store)
    if address.host != PACKAGE_HOST:
        return ()
    names = (address.name(repository).partition("/") for repository in ("global", "archive"))
    return tuple((owner, name) for owner, _, name in names)


def applies(ref: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Whether a ruleset's conditions take in a full ref name; `*` ends at a slash, `**/` does not, `~ALL` is everything."""
    return any(_matches(p, ref) for p in include) and not any(_matches(p, ref) for p in exclude)


def _matches(pattern: str, ref: str) -> bool:
    if pattern == "~ALL":
        return True
    parts = re.split(r"(\*\*/|\*+|\?)", pattern)
    kinds = {"**/": "(?:.*/)?", "?": "[^/]"}
    regex = "".join(kinds.get(p, "[^/]*" if p.startswith("*") else re.escape(p)) for p in parts)
    return re.fullmatch(regex, ref) is not None
