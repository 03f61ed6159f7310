"""Key pairs of sites: made once, private halves only named, never read into a message."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fedops.adapters.ssh_keygen import is_open_to_others, make_key, public_key_of
from fedops.core.errors import ConfigError
from fedops.core.ssh_keys import public_key_fault


def test_a_new_key_pair_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    make_key(tmp_path / "deep" / "id", "hospital-a@fedops")
    line = public_key_of(tmp_path / "deep" / "id")
    assert public_key_fault(line) is None
    assert line.endswith(" hospital-a@fedops")
    assert not is_open_to_others(tmp_path / "deep" / "id")


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("precious")
    with pytest.raises(ConfigError, match="is there already"):
        make_key(tmp_path / "id", "x")
    assert (tmp_path / "id").read_text() == "precious"


def test_a_place_where_no_key_can_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "id.pub").mkdir()
    with pytest.raises(ConfigError, match="could not make a key"):
        make_key(tmp_path / "id", "x")


def test_the_public_half_is_computed_where_its_file_is_missing(tmp_path: Path) -> None:
    make_key(tmp_path / "id", "x")
    line = public_key_of(tmp_path / "id")
    (tmp_path / "id.pub").unlink()
    assert public_key_of(tmp_path / "id").split()[:2] == line.split()[:2]


def test_a_key_with_a_passphrase_needs_its_public_file(tmp_path: Path) -> None:
    make_key(tmp_path / "id", "x")
    line = public_key_of(tmp_path / "id")
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", tmp_path / "id"], check=True, capture_output=True
    )
    assert public_key_of(tmp_path / "id") == line
    (tmp_path / "id.pub").unlink()
    with pytest.raises(ConfigError, match="public key cannot be read") as caught:
        public_key_of(tmp_path / "id")
    assert str(tmp_path / "id.pub") in caught.value.hint


def test_the_public_file_is_not_taken_for_the_private_one(tmp_path: Path) -> None:
    make_key(tmp_path / "id", "x")
    with pytest.raises(ConfigError, match="is the public key") as caught:
        public_key_of(tmp_path / "id.pub")
    assert caught.value.hint == f"--key {tmp_path / 'id'}"


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such key"):
        public_key_of(tmp_path / "id")


def test_a_public_file_with_something_else_in_it_is_refused_without_repeating_it(tmp_path: Path) -> None:
    make_key(tmp_path / "id", "x")
    secret = (tmp_path / "id").read_text()
    (tmp_path / "id.pub").write_text(secret)
    with pytest.raises(ConfigError) as caught:
        public_key_of(tmp_path / "id")
    assert secret.splitlines()[1] not in str(caught.value)


def test_a_key_that_others_may_read_is_noticed(tmp_path: Path) -> None:
    make_key(tmp_path / "id", "x")
    (tmp_path / "id").chmod(0o640)
    assert is_open_to_others(tmp_path / "id")


def test_a_machine_without_ssh_keygen_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="ssh-keygen: not found"):
        make_key(tmp_path / "id", "x")
