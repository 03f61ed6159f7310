"""Key pairs of sites by ssh-keygen. Private keys are neither read, copied nor printed here, only named by their path."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

from fedops.adapters.git_signing import no_ssh_keygen
from fedops.core.disk import DiskError, no_room
from fedops.core.errors import ConfigError
from fedops.core.ssh_keys import normalised_key, public_key_fault


def make_key(path: Path, comment: str) -> None:
    """Make an ed25519 key pair at `path` and `path`.pub, without a passphrase, readable by its owner alone.

    Raises:
        ConfigError: something is there already, or there is no ssh-keygen.
        DiskError: there is no room for it.
    """
    if path.exists():
        raise ConfigError(f"{path}: is there already", hint="use it with --key, without --generate-key")
    path.parent.mkdir(parents=True, exist_ok=True)
    done = _run("-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path))
    if done.returncode != 0:
        said = f"{path}: ssh-keygen could not make a key: {_said(done)}"
        if no_room(_said(done)):
            raise DiskError(said, hint="make room there, then run the same command again", cause="temporary")
        raise ConfigError(said)


def public_key_of(path: Path) -> str:
    """The public key line that belongs to a private key: of `path`.pub, else computed by ssh-keygen.

    Raises:
        ConfigError: no such file, a public key instead of a private one, or one that needs a passphrase.
    """
    if path.suffix == ".pub":
        raise ConfigError(f"{path}: is the public key -> the private one", hint=f"--key {path.with_suffix('')}")
    if not path.is_file():
        raise ConfigError(f"{path}: no such key", hint="add --generate-key to make one there")
    beside = path.with_name(path.name + ".pub")
    if beside.is_file():
        line = beside.read_text(encoding="utf-8", errors="replace")
    else:
        done = _run("-y", "-P", "", "-f", str(path))
        if done.returncode != 0:
            raise ConfigError(
                f"{path}: its public key cannot be read: {_said(done)}", hint=f"put the public key into {beside}"
            )
        line = done.stdout.decode("utf-8", "replace")
    fault = public_key_fault(line)
    if fault is not None:
        raise ConfigError(f"{beside}: {fault}")
    return normalised_key(line)


def is_open_to_others(path: Path) -> bool:
    """True if other users of this machine may read a private key; where files have no such rights, False."""
    return sys.platform != "win32" and bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))


def is_locked(path: Path) -> bool:
    """True if a private key cannot be used without somebody who gives its passphrase."""
    return _run("-y", "-P", "", "-f", str(path)).returncode != 0


def _run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["ssh-keygen", *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except FileNotFoundError as e:
        raise no_ssh_keygen() from e


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"
