"""The token for GitHub, and the key that pushes there: from the environment, and only for the host they are meant for."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fedops.core.deploy_key import KEY, private_key, push_url
from fedops.core.errors import ConfigError
from fedops.core.github_hosts import DEFAULT_API, Host, host_of

if TYPE_CHECKING:
    from fedops.core.settings import Forge

OWN = "FEDOPS_TOKEN"
COMMON = ("GH_TOKEN", "GITHUB_TOKEN")


def forge_token(host: Host, environ: Mapping[str, str]) -> str | None:
    """The token to send to a host; None: none is set.

    FEDOPS_TOKEN is for the host that federation.yaml names. The common ones are for github.com, or for the server that
    GITHUB_API_URL names, as it does in a workflow's job: a federation that somebody else made cannot call them elsewhere.

    Raises:
        ConfigError: credential_scope, there is a token, but for another host.
    """
    if own := environ.get(OWN):
        return own
    name = next((name for name in COMMON if environ.get(name)), None)
    if name is None:
        return None
    meant = {urlsplit(url).netloc for url in (DEFAULT_API, environ.get("GITHUB_API_URL", ""))}
    if urlsplit(host.api).netloc not in meant:
        raise ConfigError(
            f"{name}: is for {' or '.join(sorted(filter(None, meant)))}, got federation.yaml: forge.api_url: {host.api}",
            hint=f"if you trust that server with a token of yours there: {OWN}=…",
            slug="credential_scope",
        )
    return environ[name]


def git_environment(forge: Forge, environ: Mapping[str, str]) -> Mapping[str, str]:
    """What is added to git's environment, so that it logs in on the forge by HTTPS with the same token.

    With a deploy key in FEDOPS_DEPLOY_KEY pushes to origin, and they alone, go by ssh with that key.

    Raises:
        ConfigError: the token is for another host, or the key is none.
    """
    from fedops.adapters.git_credentials import git_credentials, push_by_ssh

    if forge.kind != "github":
        return {}
    host = host_of(forge.api_url)
    count = environ.get("GIT_CONFIG_COUNT", "")
    taken = int(count) if count.isdigit() else 0
    env = git_credentials(host.web, forge_token(host, environ), taken=taken)
    if not environ.get(KEY):
        return env
    private_key(environ[KEY])  # now, and not after an hour of work
    command = shlex.join([sys.executable, "-P", "-m", "fedops.cli.deploy_ssh", host.api])
    taken = int(env.get("GIT_CONFIG_COUNT", taken))
    return {**env, **push_by_ssh(push_url(host, str(forge.repository)), command, taken=taken)}
