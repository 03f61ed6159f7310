"""People on a roster that parses and still cannot be meant."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fedops.core.health import Check
from fedops.core.health_roster import check_roster
from fedops.core.settings import Sites
from tests.sshkeys import public_line

LENA, MIA, SITE = (public_line(who, who) for who in ("lena", "mia", "alice"))


def roster(*leads: tuple[str, int, Sequence[str]], keys: Sequence[str] = (SITE,)) -> list[Check]:
    site: dict[str, Any] = {"accounts": [{"login": "alice", "id": 1001}], "keys": list(keys)}
    document = {
        "schema": "fedops.sites/v1",
        "leads": [{"login": login, "id": number, "keys": list(own)} for login, number, own in leads],
        "sites": {"hospital-a": site},
    }
    return list(check_roster(Sites.model_validate_json(json.dumps(document))))


def test_of_people_with_keys_of_their_own_nothing_is_said() -> None:
    assert roster(("lena", 1, [LENA]), ("mia", 2, [MIA, f"{MIA} again"])) == []


def test_a_line_that_is_no_public_key_is_named_with_its_owner() -> None:
    private = "-----BEGIN OPENSSH PRIVATE KEY-----"
    found = roster(("lena", 1, [LENA, "~/.ssh/lena.pub"]), ("mia", 2, [private]), keys=["ssh-ed25519 AAAA a"])
    assert [(c.name, c.state) for c in found] == [
        ("key of lead lena", "warning"),
        ("key of lead mia", "warning"),
        ("key of hospital-a", "warning"),
    ]
    assert [c.got for c in found] == [
        "line 2 is no public key: starts with '~/.ssh/lena.pub'",
        "line 1 is no public key: this is a private key; it must never leave its owner",
        "line 1 is no public key: the key after ssh-ed25519 is one of another type, or cut off",
    ]
    assert all(
        c.next == f"policies/sites.yaml: {where}: keys: the whole line of the file that ends in .pub"
        for c, where in zip(found, ("leads: lena", "leads: mia", "sites: hospital-a"), strict=True)
    )


def test_two_leads_with_one_number_or_one_key_count_as_one() -> None:
    (found,) = roster(("lena", 1, [LENA]), ("mia", 1, [MIA]))
    assert (found.name, found.got) == ("leads", "lena and mia have id 1 in common, and count as one")
    (found,) = roster(("lena", 1, [LENA]), ("mia", 2, [f"{LENA} copied"]))
    assert found.got == "lena and mia have a key in common, and count as one"
