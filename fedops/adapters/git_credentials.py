"""The token for git over HTTPS: given to git in its environment, asked for by one host alone, and written nowhere."""

from __future__ import annotations

from collections.abc import Mapping

_VARIABLE = "FEDOPS_GIT_PASSWORD"
# A shell function of git's: it answers `get` and ignores `store` and `erase`. The token itself is in no argument.
_HELPER = f'!f() {{ test "$1" = get && printf "username=x-access-token\\npassword=%s\\n" "${_VARIABLE}"; }}; f'


def git_credentials(web: str, token: str | None, *, taken: int = 0) -> Mapping[str, str]:
    """Environment by which git logs in on one host, and there with nothing else; empty without a token.

    Args:
        web: "https://github.com"; git asks the helper for addresses below it only.
        taken: settings that the environment has already (GIT_CONFIG_COUNT).
    """
    if token is None:
        return {}
    # The empty value first: another helper, or one that stores what it is told, is not asked.
    settings = [(f"credential.{web}.helper", ""), (f"credential.{web}.helper", _HELPER)]
    env = {_VARIABLE: token, "GIT_CONFIG_COUNT": str(taken + len(settings))}
    for i, (key, value) in enumerate(settings, taken):
        env |= {f"GIT_CONFIG_KEY_{i}": key, f"GIT_CONFIG_VALUE_{i}": value}
    return env


def push_by_ssh(url: str, command: str, *, taken: int = 0) -> Mapping[str, str]:
    """Environment by which git pushes to origin by ssh; what it fetches, and other addresses, stay as they are.

    Args:
        url: "ssh://…".
        command: shell words that stand for `ssh`; git adds host and command.
        taken: settings that the environment has already.
    """
    setting = {f"GIT_CONFIG_KEY_{taken}": "remote.origin.pushurl", f"GIT_CONFIG_VALUE_{taken}": url}
    return {"GIT_CONFIG_COUNT": str(taken + 1), **setting, "GIT_SSH_COMMAND": command, "GIT_SSH_VARIANT": "ssh"}
