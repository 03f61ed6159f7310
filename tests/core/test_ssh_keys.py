"""Public keys of the roster: what looks like one and is none is refused."""

from __future__ import annotations

import base64

import pytest

from fedops.core.ssh_keys import fingerprint, key_body, normalised_key, public_key_fault

ED25519 = "ssh-ed25519 " + base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes(32)).decode()
RSA = "ssh-rsa " + base64.b64encode(b"\0\0\0\x07ssh-rsa\0\0\0\x01\x03\0\0\0\x01\x05").decode()


@pytest.mark.parametrize("line", [ED25519, f"{ED25519} alice@host", f"{ED25519} a comment of words\n", RSA])
def test_public_keys_are_taken(line: str) -> None:
    assert public_key_fault(line) is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n", "private key"),
        ("", "starts with ''"),
        ("ssh-dss AAAA x", "starts with 'ssh-dss'"),
        (f'command="sh" {ED25519}', "no options"),
        (f"{ED25519} alice\n{ED25519} bob", "more than one line"),
        (f"{ED25519} \u202ealice", "plain ASCII"),
        (f"{ED25519} {'x' * 201}", "200 characters"),
        ("ssh-ed25519 AAA! x", "not base64"),
        ("ssh-ed25519", "cut off"),
        ("ssh-ed25519 AAAA", "cut off"),
        (RSA.replace("ssh-rsa", "ssh-ed25519"), "another type"),
        ("ssh-ed25519 " + base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\x01x").decode(), "20 bytes -> 51"),
    ],
)
def test_other_lines_are_refused_with_the_reason(line: str, said: str) -> None:
    assert said in (public_key_fault(line) or "")


def test_the_comment_is_no_part_of_a_key() -> None:
    assert key_body(f"{ED25519} alice") == key_body(f"{ED25519}   bob@host") == ED25519


def test_a_key_is_written_on_one_line() -> None:
    assert normalised_key(f"  {ED25519}  alice \n") == f"{ED25519} alice"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        # As `ssh-keygen -l -f` shows ED25519 above, a key of zeros.
        (ED25519, "SHA256:kmYcvdi2GkPeWxB6XLjrZB8JHsy2Hm8luHMFp9GMvqk"),
        (f"{ED25519} a comment\n", "SHA256:kmYcvdi2GkPeWxB6XLjrZB8JHsy2Hm8luHMFp9GMvqk (a comment)"),
    ],
)
def test_a_key_is_named_as_ssh_keygen_does(line: str, shown: str) -> None:
    assert fingerprint(line) == shown


@pytest.mark.parametrize("text", ["", "ssh-ed25519", "ssh-ed25519 AAA! x"])
def test_what_is_no_key_has_no_fingerprint(text: str) -> None:
    with pytest.raises(ValueError, match=r"public key line|[Bb]ase64|padding"):
        fingerprint(text)
