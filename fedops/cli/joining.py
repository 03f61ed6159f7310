"""What `fedops join` finds out on this machine, and what it tells."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fedops.cli.console import say

if TYPE_CHECKING:
    from fedops.app.join import Joined
    from fedops.core.facts import Account
    from fedops.core.settings import Forge as ForgeSettings
    from fedops.ports import Forge

DEFAULT_KEY = Path(".fedops", "id_ed25519")


def whoami(forge: Forge, settings: ForgeSettings) -> Account | None:
    """The account on GitHub that a token in the environment is of; None where no person's can be told."""
    from fedops.cli.tokens import forge_token
    from fedops.core.errors import ForgeError
    from fedops.core.github_hosts import host_of

    if settings.kind != "github" or forge_token(host_of(settings.api_url), os.environ) is None:
        return None
    try:
        me = forge.whoami()
    except ForgeError as e:
        say(f"note: GitHub did not say whose token it is: {e.message}")
        return None
    return None if me.login.endswith("[bot]") else me


def private_key(root: Path, key: Path | None, comment: str, *, generate: bool) -> Path | None:
    """The key that signs: the named one, the one noted before, or the default place; made if asked for."""
    from fedops.adapters.ssh_keygen import make_key
    from fedops.app.site_state import read_site_state

    state = read_site_state(root)
    if key is not None:
        path = key.expanduser().absolute()
    elif state is not None and state.key:
        path = Path(state.key)
    else:
        path = root / DEFAULT_KEY
        if not path.exists() and not generate:
            return None
    if generate and not path.exists():
        make_key(path, comment)
        say(f"made a new key: {path}")
    return path


def public_key(private: Path | None) -> str | None:
    from fedops.adapters.ssh_keygen import is_open_to_others, public_key_of

    if private is None:
        return None
    public = public_key_of(private)
    if is_open_to_others(private):
        say(f"warning: {private}: other users of this machine may read this private key")
        say(f"  hint: chmod 600 {private}")
    return public


def join_text(joined: Joined, private: Path | None) -> str:
    lines = [
        f"this clone is {joined.site}'s; " + (f"signs with {private}" if private else "it has no key and signs nothing")
    ]
    if joined.state is None:
        lines.append("the roster on main does not have this site yet")
    else:
        key = "" if private is None else (", with this key" if joined.key_known else ", but not this key")
        lines.append(f"the roster on main has this site: {joined.state}{key}")
    if joined.line is not None and not joined.findings:
        first = f"put in {' and '.join(joined.unknown)}, then send" if joined.unknown else "send"
        lines += [f"{first} this line to a lead, who runs it:", f"  {joined.line}"]
        lines += [f"  {word}: {where}" for word, where in joined.unknown.items()]
        if joined.unknown:
            lines.append("  or set FEDOPS_TOKEN to a token of that account, and run the same command again")
    return "\n".join(lines)
