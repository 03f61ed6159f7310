"""Accounts of a federation's registry: each site may write its own repository, CI the rest, an auditor nothing."""

from __future__ import annotations

from collections.abc import Mapping

from tests.cli_world import SITES
from tests.registry.tokens import TokenService

PATH = "acme/fed"
PASSWORDS = {who: f"password of {who}" for who in ("auditor", "ci", *SITES)}


def rights() -> dict[tuple[str, str], str]:
    """A site reads all and writes its own; CI reads all, and writes the global models and the archive."""
    found = {("", f"{PATH}/global"): "pull"}
    for who in PASSWORDS:
        for repository in ("global", "archive", *(f"sites/{site}" for site in SITES)):
            own = repository == f"sites/{who}" or (who == "ci" and not repository.startswith("sites/"))
            found[who, f"{PATH}/{repository}"] = "pull,push" if own else "pull"
    for site in SITES:
        found[site, f"{PATH}/sites/{site}"] = "pull,push,delete"
    return found


def sign_in(service: TokenService, who: str) -> Mapping[str, str]:
    """The environment of somebody; whoever has no account, as the lead who makes v0, has CI's."""
    user = who if who in PASSWORDS else "ci"
    return {
        "FEDOPS_REGISTRY_USERNAME": user,
        "FEDOPS_REGISTRY_PASSWORD": PASSWORDS[user],
        "FEDOPS_REGISTRY_TOKEN_HOST": service.host,
    }
