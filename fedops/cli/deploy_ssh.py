"""What git starts in place of ssh where there is a deploy key: `python -m fedops.cli.deploy_ssh API [ssh's arguments]`.

Not a command for people. The key comes in the environment and goes into a file for the length of one connection, so that
neither a job that fails nor git being killed leaves it behind. If this process itself is killed, the next command of the
same user removes it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from types import FrameType

from fedops.cli.scratch import scratch_folder
from fedops.core.deploy_key import HOST_KEYS, KEY, host_key_lines, known_hosts, private_key, ssh_host
from fedops.core.errors import FedopsError
from fedops.core.github_hosts import host_of

NO_SSH = 127
FAILED = 255  # as ssh itself says that there was no connection
# What ssh may see: no token, no password, and the key only as the file.
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LC_ALL", "GIT_PROTOCOL", "SYSTEMROOT")


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Connect; the exit code. Reasons why not go to stderr, where git takes them from."""
    api, *rest = arguments
    try:
        return _connect(api, rest, environ)
    except FedopsError as e:
        hint = f"; hint: {e.hint}" if e.hint else ""
        print(f"error: {e.message}{hint}", file=sys.stderr)
        return FAILED
    except FileNotFoundError:
        print("error: ssh: not found; hint: install OpenSSH's client", file=sys.stderr)
        return NO_SSH


def _connect(api: str, arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    from fedops.adapters.deploy_key import ssh_with_key, told_host_keys

    forge = host_of(api)
    host, key = ssh_host(forge), private_key(environ.get(KEY, ""))
    # NOTE: git asks for whatever address a remote has; the key is for one server, and its host keys are too.
    if f"git@{host}" not in arguments:
        raise FedopsError(f"{KEY}: is for git@{host}, and no other address by ssh", hint="fetch by https")
    given = host_key_lines(environ.get(HOST_KEYS, "").splitlines())
    keys = given or told_host_keys(forge.api, environ.get("FEDOPS_GIT_PASSWORD"))
    kept = {name: environ[name] for name in _KEPT if name in environ}
    with scratch_folder() as folder:
        code, said = ssh_with_key(folder, key, known_hosts(host, keys), host, arguments, kept)
    print(said, end="", file=sys.stderr)
    if code != 0 and said.strip():
        # NOTE: of what a failed git prints, people are shown the lines that begin so; ssh's last one has the reason.
        print(f"error: ssh: {said.strip().splitlines()[-1]}", file=sys.stderr)
    return code


def _end(number: int, _: FrameType | None) -> None:
    """Leave through all `finally`s; a second signal must not interrupt them."""
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


_SIGNALS = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]

if __name__ == "__main__":
    for one in _SIGNALS:
        signal.signal(one, _end)
    sys.exit(main(sys.argv[1:], os.environ))
