"""A deploy key as text: what is taken for one, what its server is known by, and where it pushes."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from fedops.core.deploy_key import host_key_lines, known_hosts, private_key, push_url, ssh_host
from fedops.core.errors import ConfigError
from fedops.core.github_hosts import host_of
from tests.sshkeys import make_key

KEY = "ssh-ed25519 " + base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes(32)).decode()
RSA = "ssh-rsa " + base64.b64encode(b"\0\0\0\x07ssh-rsa\0\0\0\x03\x01\0\x01").decode()


def pem(kind: str, data: bytes) -> str:
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{base64.b64encode(data).decode()}\n-----END {kind}PRIVATE KEY-----\n"


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_a_key_of_ssh_keygen_is_taken_as_it_is(kind: str, tmp_path: Path) -> None:
    text = make_key(tmp_path, "key", kind).private.read_text()
    assert private_key(text) == text


@pytest.mark.parametrize("kind", ["", "RSA ", "EC "])
def test_other_forms_of_private_keys_are_ssh_s_to_judge(kind: str) -> None:
    assert private_key(pem(kind, b"0\x82")) == pem(kind, b"0\x82")


def test_what_pasting_does_to_the_file_is_undone(tmp_path: Path) -> None:
    text = make_key(tmp_path, "key").private.read_text()
    assert private_key("\n  " + text.strip().replace("\n", " \r\n  ")) == text


@pytest.mark.parametrize(
    "text",
    ["", "secret", KEY, pem("", b"x").replace("END", "ENDE"), pem("RSA ", b"x").replace("BEGIN RSA", "BEGIN EC"),
     pem("", b"x") + pem("", b"x"), "x\n" + pem("", b"x"), pem("", b"x").replace("\n", "\n\n;\n", 1)],
)  # fmt: skip
def test_anything_else_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigError, match="not a private key") as caught:
        private_key(text)
    assert caught.value.message.startswith("FEDOPS_DEPLOY_KEY: ")
    assert "ssh-keygen" in caught.value.hint
    assert base64.b64encode(b"x").decode() not in caught.value.message + caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        pem("OPENSSH ", b"openssh-key-v1\0\0\0\0\x0aaes256-ctr"),
        pem("ENCRYPTED ", b"0\x82"),
        pem("RSA ", b"0\x82").replace("-----\n", "-----\nProc-Type: 4,ENCRYPTED\n\n", 1),
    ],
)
def test_a_key_with_a_passphrase_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="has a passphrase"):
        private_key(text)


def test_damage_inside_of_a_key_is_told_by_ssh() -> None:
    text = pem("OPENSSH ", b"openssh-key-v1\0").replace("\n-----END", "A\n-----END")
    assert private_key(text) == text


def test_host_keys_come_as_lines_of_a_key_or_of_known_hosts() -> None:
    lines = [
        KEY,
        f"{RSA} root@server",
        f"github.example {KEY}",
        f"[h]:22 {KEY} note",
        "",
        "  # a comment",
        f"\t{RSA}\n",
    ]
    assert host_key_lines(lines) == (KEY, RSA, KEY, KEY, RSA)


@pytest.mark.parametrize("line", ["x", "ssh-dss AAAA", "ssh-ed25519", "ssh-ed25519 AAAA", f"@revoked * {KEY}"])
def test_what_is_no_host_key_is_left_out(line: str) -> None:
    assert host_key_lines([line]) == ()


def test_a_server_is_known_by_its_keys_or_not_at_all() -> None:
    assert known_hosts("github.com", [KEY, RSA]) == f"github.com {KEY}\ngithub.com {RSA}\n"
    with pytest.raises(ConfigError, match=r"github\.example: it does not tell") as caught:
        known_hosts("github.example", [])
    assert "FEDOPS_DEPLOY_HOST_KEYS" in caught.value.hint


@pytest.mark.parametrize(
    ("api", "url"),
    [
        (None, "ssh://git@github.com/acme/fed.git"),
        ("https://ghe.example/api/v3", "ssh://git@ghe.example/acme/fed.git"),
        ("https://ghe.example:8443/api/v3", "ssh://git@ghe.example/acme/fed.git"),
    ],
)
def test_a_push_by_ssh_goes_to_the_forge_s_own_server(api: str | None, url: str) -> None:
    host = host_of(api)
    assert push_url(host, "acme/fed") == url
    assert ssh_host(host) == url.split("@")[1].split("/", maxsplit=1)[0]
