"""One connection by ssh with a deploy key: the key lies in a file of its own as long as it lasts, and the server is known."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import requests

from fedops.adapters.private_file import write_private
from fedops.core.deploy_key import host_key_lines
from fedops.core.errors import ForgeError

TIMEOUT_SECONDS = 30.0
STOP_SECONDS = 5.0
_KEY, _KNOWN_HOSTS = "key", "known_hosts"
# Of the machine's own configuration, agent and keys nothing is used. The files are named as ssh's working folder has
# them, so that no path is looked at for `%`, `~` and spaces.
_OPTIONS = (
    *("-F", "none", "-i", _KEY),
    *("-o", "IdentitiesOnly=yes"),
    *("-o", "IdentityAgent=none"),
    *("-o", "PreferredAuthentications=publickey"),
    *("-o", "BatchMode=yes"),
    *("-o", "StrictHostKeyChecking=yes"),
    *("-o", f"UserKnownHostsFile={_KNOWN_HOSTS}"),
    *("-o", "GlobalKnownHostsFile=/dev/null"),
    *("-o", "VerifyHostKeyDNS=no"),
    *("-o", "UpdateHostKeys=no"),
    *("-o", "CheckHostIP=no"),
    *("-o", "ConnectTimeout=30"),
    *("-o", "ServerAliveInterval=15"),  # a dead connection ends after four of them
    *("-o", "ServerAliveCountMax=4"),
)


def told_host_keys(api: str, token: str | None) -> tuple[str, ...]:
    """The public keys of its ssh server that a GitHub tells over TLS; none from an Enterprise Server.

    Args:
        api: REST address.
        token: raises the limit of requests; None: asked as anybody.

    Raises:
        ForgeError: temporary, no answer or not the one that is documented.
    """
    headers = {"Accept": "application/vnd.github+json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    what = f"{api}/meta: the server's ssh host keys"
    try:
        # NOTE: never redirected, since the token would go along, and another server's keys would come back.
        answer = requests.get(f"{api}/meta", headers=headers, timeout=TIMEOUT_SECONDS, allow_redirects=False)
        found = answer.json() if answer.status_code == requests.codes.ok else None
    except requests.RequestException as e:  # JSON that cannot be read, too
        raise ForgeError(f"{what}: no answer ({type(e).__name__})", cause="temporary") from e
    if not isinstance(found, dict):
        raise ForgeError(f"{what}: HTTP {answer.status_code} -> 200 and an object", cause="temporary")
    told = found.get("ssh_keys") or ()
    return host_key_lines(line for line in told if isinstance(line, str))


def ssh_with_key(
    folder: Path, key: str, known_hosts: str, host: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[int, str]:
    """Run ssh to its end, on this process's own standard input and output.

    Args:
        folder: an empty one that this account alone may enter; the caller removes it, and with it the key.
        key, known_hosts: contents of the two files.
        host: the name under which known_hosts has the server.
        arguments: as git gives them.

    Returns:
        The exit code, and what it said on stderr.

    Raises:
        FileNotFoundError: there is no ssh.
    """
    write_private(folder / _KEY, key)
    write_private(folder / _KNOWN_HOSTS, known_hosts)
    command = ["ssh", *_OPTIONS, "-o", f"HostKeyAlias={host}", *arguments]
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE) as process:
        try:
            _, said = process.communicate()
        finally:
            _stop(process)
    return process.returncode, said.decode("utf-8", "replace")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End ssh if it still runs."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    if process.poll() is None:
        process.kill()
        process.wait()
