"""Cut GitHub's own OpenAPI description down to the operations that fedops uses, without its prose.

    npm pack @octokit/openapi@23.0.2 && tar xzf octokit-openapi-23.0.2.tgz
    python -m tests.github_face.trim_openapi package

writes github.openapi.json and github.openapi.LICENSE beside this file. The description is MIT licensed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DESCRIPTION, LICENSE = HERE / "github.openapi.json", HERE / "github.openapi.LICENSE"
VERSION = "23.0.2"
REPO = "/repos/{owner}/{repo}"
OPERATIONS = {
    "/user": ["get"],
    "/users/{username}": ["get"],
    REPO: ["get"],
    f"{REPO}/forks": ["get"],
    f"{REPO}/pulls": ["get", "post"],
    f"{REPO}/pulls/{{pull_number}}": ["get", "patch"],
    f"{REPO}/pulls/{{pull_number}}/merge": ["put"],
    f"{REPO}/pulls/{{pull_number}}/reviews": ["get", "post"],
    f"{REPO}/pulls/{{pull_number}}/reviews/{{review_id}}/dismissals": ["put"],
    f"{REPO}/pulls/{{pull_number}}/update-branch": ["put"],
    f"{REPO}/statuses/{{sha}}": ["post"],
    f"{REPO}/commits/{{ref}}/status": ["get"],
    f"{REPO}/issues": ["get", "post"],
    f"{REPO}/issues/{{issue_number}}": ["get", "patch"],
    f"{REPO}/issues/{{issue_number}}/comments": ["get", "post"],
    f"{REPO}/issues/comments": ["get"],
    f"{REPO}/issues/comments/{{comment_id}}": ["patch"],
    f"{REPO}/labels": ["get", "post"],
    f"{REPO}/releases": ["get", "post"],
    f"{REPO}/releases/tags/{{tag}}": ["get"],
    f"{REPO}/releases/{{release_id}}": ["patch"],
    f"{REPO}/git/ref/{{ref}}": ["get"],
    f"{REPO}/branches/{{branch}}": ["get"],
    f"{REPO}/branches/{{branch}}/protection": ["get"],
    f"{REPO}/rules/branches/{{branch}}": ["get"],
    f"{REPO}/rulesets": ["get"],
    f"{REPO}/rulesets/{{ruleset_id}}": ["get"],
    f"{REPO}/collaborators": ["get"],
    f"{REPO}/actions/workflows/{{workflow_id}}/dispatches": ["post"],
    f"{REPO}/actions/permissions": ["get"],
    f"{REPO}/actions/permissions/workflow": ["get"],
    f"{REPO}/actions/permissions/selected-actions": ["get"],
    f"{REPO}/actions/permissions/fork-pr-contributor-approval": ["get"],
    f"{REPO}/actions/permissions/fork-pr-workflows-private-repos": ["get"],
    f"{REPO}/actions/secrets": ["get"],
    f"{REPO}/environments/{{environment_name}}": ["get"],
    f"{REPO}/environments/{{environment_name}}/secrets": ["get"],
    f"{REPO}/environments/{{environment_name}}/deployment-branch-policies": ["get"],
    f"{REPO}/keys": ["get"],
    "/orgs/{org}/packages/{package_type}/{package_name}": ["get"],
    "/users/{username}/packages/{package_type}/{package_name}": ["get"],
}
PROSE = {"description", "summary", "example", "examples", "externalDocs", "tags", "title"}
PROSE |= {"x-github", "x-github-breaking-changes", "x-octokit"}  # of other versions, and of GitHub's own pages
NAMES = {"properties", "schemas", "responses", "parameters", "headers", "paths"}  # whose keys are names, not keywords


def trim(description: dict[str, Any]) -> dict[str, Any]:
    """The operations, and of the components those that they lead to."""
    paths = {p: {m: description["paths"][p][m] for m in methods} for p, methods in OPERATIONS.items()}
    kept: dict[str, dict[str, Any]] = {}
    waiting = list(references(paths))
    while waiting:
        _, _, kind, name = waiting.pop().split("/")
        if name not in kept.setdefault(kind, {}):
            kept[kind][name] = description["components"][kind][name]
            waiting += references(kept[kind][name])
    info = {"title": "GitHub's REST API, cut down", "version": f"@octokit/openapi {VERSION}"}
    document = {"openapi": description["openapi"], "info": info, "paths": paths, "components": kept}
    return {**document, "paths": plain(paths, names=True), "components": plain(kept, names=True)}


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref" and isinstance(inner, str):
                yield inner
            elif key not in PROSE:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def plain(value: Any, *, names: bool = False) -> Any:
    """Without prose; a property that is called like a keyword stays.

    Args:
        names: the keys of this map are names.
    """
    if isinstance(value, list):
        return [plain(v) for v in value]
    if not isinstance(value, dict):
        return value
    return {k: plain(v, names=k in NAMES and not names) for k, v in value.items() if names or k not in PROSE}


def main(package: Path) -> None:
    found = json.loads((package / "package.json").read_bytes())["version"]
    if found != VERSION:
        raise SystemExit(f"{package}: version {found} -> {VERSION}")
    description = json.loads((package / "generated" / "api.github.com.json").read_bytes())
    DESCRIPTION.write_text(json.dumps(trim(description), sort_keys=True, separators=(",", ":")) + "\n")
    LICENSE.write_bytes((package / "LICENSE").read_bytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
