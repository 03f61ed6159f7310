"""Who may read which settings, and what GitHub says of them."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from tests.github_face import shapes
from tests.github_face.hub import Hub, User
from tests.github_face.openapi import github
from tests.github_face.rest import Call, Handler, Refused, Result
from tests.github_face.settings import Environment, Ruleset


def _admin(call: Call) -> None:
    if call.who.login not in call.hub.settings.admins:
        raise Refused(403, "Resource not accessible by personal access token")


def _refuse(call: Call, path: str) -> None:
    if call.hub.settings.refused and re.search(call.hub.settings.refused, path):
        raise Refused(403, "Upgrade to GitHub Pro or make this repository public to enable this feature.")


def branch_rules(call: Call) -> Result:
    _refuse(call, "/rules")
    ref = f"refs/heads/{unquote(call.part[0])}"
    return 200, [
        {**rule, "ruleset_source_type": "Repository", "ruleset_source": call.repo.full_name, "ruleset_id": one.id}
        for one in call.hub.settings.rulesets
        if one.enforcement == "active" and one.target == "branch" and ref in one.refs
        for rule in one.rules
    ]


def _ruleset(call: Call, one: Ruleset, *, whole: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": one.id,
        "name": one.name,
        "target": one.target,
        "source_type": "Repository",
        "source": call.repo.full_name,
        "enforcement": one.enforcement,
    }
    if whole:
        shown |= {"conditions": {"ref_name": {"include": one.refs, "exclude": []}}, "rules": one.rules}
    if whole and call.user is not None and call.user.login in call.hub.settings.admins:
        shown["bypass_actors"] = [
            {"actor_id": None, "actor_type": kind, "bypass_mode": mode} for kind, mode in one.bypass
        ]
    return shown


def list_rulesets(call: Call) -> Result:
    _refuse(call, "/rulesets")
    return 200, [_ruleset(call, one, whole=False) for one in call.hub.settings.rulesets]


def get_ruleset(call: Call) -> Result:
    found = next((one for one in call.hub.settings.rulesets if one.id == int(call.part[0])), None)
    if found is None or call.hub.settings.refused == f"/rulesets/{found.id}":
        raise Refused(404, "Not Found")
    return 200, _ruleset(call, found, whole=True)


def get_branch(call: Call) -> Result:
    _refuse(call, "/branches")
    settings = call.hub.settings
    protected = settings.protection is not None or any(r.target == "branch" for r in settings.rulesets)
    values = {"name": unquote(call.part[0]), "protected": protected}
    commit = github().filled("commit", {"author": {}, "committer": {}})
    return 200, github().filled("branch-with-protection", {**values, "commit": commit})


def get_protection(call: Call) -> Result:
    _admin(call)
    if call.hub.settings.protection is None:
        raise Refused(404, "Branch not protected")
    return 200, call.hub.settings.protection


def list_collaborators(call: Call) -> Result:
    call.writer()
    rights = {"admin": False, "push": True, "pull": True}
    found = [u for u in call.hub.users.values() if u.login in call.hub.upstream.writers]
    values = ({"login": u.login, "id": u.id, "permissions": rights, "role_name": "write"} for u in found)
    return 200, [github().filled("collaborator", v) for v in values]


def get_actions(call: Call) -> Result:
    _admin(call)
    return 200, call.hub.settings.actions


def get_selected(call: Call) -> Result:
    _admin(call)
    return 200, call.hub.settings.selected


def get_job_rights(call: Call) -> Result:
    _admin(call)
    return 200, call.hub.settings.job_rights


def get_first_runs(call: Call) -> Result:
    _admin(call)
    return 200, {"approval_policy": call.hub.settings.first_runs}


def get_fork_runs(call: Call) -> Result:
    _admin(call)
    return 200, call.hub.settings.fork_runs


def get_environment(call: Call) -> Result:
    _refuse(call, "/environments")
    values = {"name": call.part[0], "deployment_branch_policy": _environment(call).policy}
    return 200, github().filled("environment", values)


def _environment(call: Call) -> Environment:
    """For those who may read the repository."""
    found = call.hub.settings.environments.get(unquote(call.part[0]))
    if found is None:
        raise Refused(404, "Not Found")
    return found


def list_branch_policies(call: Call) -> Result:
    _refuse(call, "/deployment-branch-policies")
    found = _environment(call).patterns
    shown = [{"id": n, "node_id": "", "name": name, "type": kind} for n, (kind, name) in enumerate(found)]
    return 200, {"total_count": len(shown), "branch_policies": shown}


def list_environment_secrets(call: Call) -> Result:
    call.writer()
    return 200, _secrets(_environment(call).secrets)


def list_secrets(call: Call) -> Result:
    _refuse(call, "/actions/secrets")
    call.writer()
    return 200, _secrets(call.hub.settings.secrets)


def _secrets(names: list[str]) -> dict[str, Any]:
    shown = [github().filled("actions-secret", {"name": name}) for name in names]
    return {"total_count": len(shown), "secrets": shown}


def list_keys(call: Call) -> Result:
    _admin(call)
    found = enumerate(call.hub.settings.deploy_keys, 1)
    return 200, [
        github().filled("deploy-key", {"id": n, "title": one.title, "read_only": one.read_only, "enabled": one.enabled})
        for n, one in found
    ]


def get_package(hub: Hub, user: User | None, path: str) -> Result:
    """A package of an account or an organization, for a token that may read packages: those of admins here."""
    _, kind, owner, _, _, name = path.split("/")
    if user is None or user.login not in hub.settings.admins:
        raise Refused(403, "You need at least read:packages scope to get a package.")
    found = hub.settings.packages.get(f"{owner}/{unquote(name)}")
    if found is None:
        raise Refused(404, "Package not found.")
    assert kind == ("orgs" if owner == hub.upstream.owner.login else "users")
    values: dict[str, Any] = {"name": unquote(name), "package_type": "container", "visibility": found[0]}
    if found[1]:
        values["repository"] = shapes.repo(hub, hub.upstream, None, "minimal-repository")
    return 200, github().filled("package", values)


ROUTES: list[tuple[str, re.Pattern[str], Handler]] = [
    ("GET", re.compile(pattern + r"\Z"), handler)
    for pattern, handler in (
        ("/rules/branches/([^/]+)", branch_rules),
        ("/rulesets", list_rulesets),
        (r"/rulesets/(\d+)", get_ruleset),
        ("/branches/([^/]+)", get_branch),
        ("/branches/([^/]+)/protection", get_protection),
        ("/collaborators", list_collaborators),
        ("/actions/permissions", get_actions),
        ("/actions/permissions/selected-actions", get_selected),
        ("/actions/permissions/workflow", get_job_rights),
        ("/actions/permissions/fork-pr-contributor-approval", get_first_runs),
        ("/actions/permissions/fork-pr-workflows-private-repos", get_fork_runs),
        ("/actions/secrets", list_secrets),
        ("/environments/([^/]+)", get_environment),
        ("/environments/([^/]+)/secrets", list_environment_secrets),
        ("/environments/([^/]+)/deployment-branch-policies", list_branch_policies),
        ("/keys", list_keys),
    )
]
PACKAGE = re.compile(r"/(?:orgs|users)/[^/]+/packages/container/[^/]+\Z")
