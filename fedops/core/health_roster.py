"""What `fedops doctor` says of people on a roster that parses: lines that are no keys, and leads who count as one; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedops.core.health import Check
from fedops.core.ids import SITES_PATH
from fedops.core.settings import Lead, Sites
from fedops.core.ssh_keys import key_body, public_key_fault


def check_roster(sites: Sites) -> Iterator[Check]:
    """One line for each key that is none, and for each two leads whom nobody can tell apart."""
    for lead in sites.leads:
        yield from _keys(f"key of lead {lead.login}", f"leads: {lead.login}", lead.keys)
    for site, entry in sorted(sites.sites.items()):
        yield from _keys(f"key of {site}", f"sites: {site}", entry.keys)
    yield from _twins(sites.leads)


def _keys(name: str, where: str, keys: Sequence[str]) -> Iterator[Check]:
    """What stands there and can be nobody's signature: such as the path of a file, or half a line."""
    for number, key in enumerate(keys, 1):
        if (fault := public_key_fault(key)) is not None:
            got, _, expected = fault.partition(" -> ")
            step = f"{SITES_PATH}: {where}: keys: the whole line of the file that ends in .pub"
            what = f"line {number} is no public key: {got}"
            yield Check(name, "warning", what, expected or "a line such as `ssh-ed25519 AAAA… comment`", step)


def _twins(leads: Sequence[Lead]) -> Iterator[Check]:
    """Approvals count by account: of two leads with one number, or one key, the second is nobody."""
    seen: dict[int | str, str] = {}
    for lead in leads:
        marks: dict[int | str, str] = {lead.id: f"id {lead.id}"} | {key_body(key): "a key" for key in lead.keys}
        for mark, what in marks.items():
            other = seen.setdefault(mark, lead.login)
            if other != lead.login:
                got = f"{other} and {lead.login} have {what} in common, and count as one"
                step = f"{SITES_PATH}: leads: {lead.login}: a number and a key of their own"
                yield Check("leads", "warning", got, "each lead an own id and key", step)
