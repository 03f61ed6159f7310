"""A repository's settings on the loopback GitHub."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.github_face.hub import Hub


@dataclass
class Ruleset:
    """Attributes:
    refs: patterns of full ref names.
    rules: as GitHub has them.
    bypass: (kind of actor, mode).
    """

    name: str
    target: str
    refs: list[str]
    rules: list[dict[str, Any]]
    bypass: list[tuple[str, str]] = field(default_factory=list)
    enforcement: str = "active"
    id: int = 1


@dataclass
class Environment:
    """Attributes:
    policy: of the branches that it takes; None: all.
    patterns: (kind, name) that count with custom policies.
    secrets: names.
    """

    policy: dict[str, bool] | None = None
    patterns: list[tuple[str, str]] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)


@dataclass
class DeployKey:
    title: str
    read_only: bool = False
    enabled: bool = True


@dataclass
class Settings:
    """Level 1 as the set-up guide has it, but for rulesets.

    Attributes:
        admins: logins; they alone see workflows' settings, protection, and who may bypass.
        protection: of main, in the classic way.
        packages: "owner/name" -> (visibility, connected to this repository).
        environments: by name.
        secrets: names of the repository's own.
        fork_runs: what a private repository does with the workflows of forks.
        refused: patterns of paths that the plan does not include.
    """

    admins: set[str] = field(default_factory=set)
    merges: dict[str, bool] = field(
        default_factory=lambda: {
            "allow_merge_commit": True,
            "allow_squash_merge": False,
            "allow_rebase_merge": False,
        }
    )
    archived: bool = False
    has_issues: bool = True
    default_branch: str = "main"
    rulesets: list[Ruleset] = field(default_factory=list)
    protection: dict[str, Any] | None = None
    actions: dict[str, Any] = field(default_factory=lambda: {"enabled": True, "allowed_actions": "all"})
    selected: dict[str, Any] = field(default_factory=lambda: {"github_owned_allowed": True})
    job_rights: dict[str, Any] = field(
        default_factory=lambda: {"default_workflow_permissions": "read", "can_approve_pull_request_reviews": False}
    )
    first_runs: str = "first_time_contributors"
    private: bool = False
    allow_forking: bool | None = None
    fork_runs: dict[str, bool] = field(
        default_factory=lambda: {
            "run_workflows_from_fork_pull_requests": True,
            "send_write_tokens_to_workflows": False,
            "send_secrets_and_variables": False,
            "require_approval_for_fork_pr_workflows": True,
        }
    )
    environments: dict[str, Environment] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    deploy_keys: list[DeployKey] = field(default_factory=list)
    packages: dict[str, tuple[str, bool]] = field(default_factory=dict)
    refused: str = ""


def main_ruleset(*more: dict[str, Any], bypass: list[tuple[str, str]] | None = None) -> Ruleset:
    """No force push, no deletion of main, and what else is given."""
    kept = [{"type": "non_fast_forward"}, {"type": "deletion"}]
    return Ruleset("main", "branch", ["refs/heads/main"], [*kept, *more], bypass or [], id=11)


def tag_ruleset(*more: dict[str, Any], bypass: list[tuple[str, str]] | None = None) -> Ruleset:
    """No update, no deletion of versions' tags, and what else is given."""
    kept = [{"type": "update"}, {"type": "deletion"}]
    return Ruleset("versions", "tag", ["refs/tags/global@*"], [*kept, *more], bypass or [], id=12)


def set_up(hub: Hub, admin: str) -> Settings:
    """Level 1, whole."""
    hub.settings.admins.add(admin)
    hub.settings.rulesets += [main_ruleset(), tag_ruleset()]
    return hub.settings


def set_up_publisher(settings: Settings) -> Environment:
    """What the guide demands of level 2 beside the ruleset: the environment for main alone, its secret, and the key."""
    made = Environment(
        {"protected_branches": False, "custom_branch_policies": True}, [("branch", "main")], ["FEDOPS_DEPLOY_KEY"]
    )
    settings.environments["fedops-publish"] = made
    settings.deploy_keys += [DeployKey("a mirror", read_only=True), DeployKey("fedops publish")]
    return made
