"""Secrets and variables of `fedops local`: which files are taken, and that nothing of them is shown."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from fedops.adapters.act_settings import Settings
from fedops.cli.local_settings import MAX_BYTES, read_settings
from fedops.core.errors import ConfigError


def secret_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "secrets"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    path.chmod(mode)
    return path


def test_values_are_taken_as_they_stand(tmp_path: Path) -> None:
    text = "# of the registry\n\nA=p$HOME 'q' \"r\" # = \\n é \r\n_B2=\n"
    settings = read_settings(secret_file(tmp_path, text), ("USER=ci", "URL=a=b"))
    assert settings.secrets == {"A": "p$HOME 'q' \"r\" # = \\n é ", "_B2": ""}
    assert settings.variables == {"USER": "ci", "URL": "a=b"}


def test_without_options_there_are_none() -> None:
    assert read_settings(None, ()) == Settings({}, {})


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_may_read_is_refused(mode: int, tmp_path: Path) -> None:
    path = secret_file(tmp_path, "A=canary\n", mode)
    with pytest.raises(ConfigError, match="others on this machine may read it") as caught:
        read_settings(path, ())
    assert caught.value.hint == f"chmod 600 {path}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("A=x\ncanary\n", ":2: -> NAME=VALUE"),
        ("\n\nb=canary", ":3: -> NAME=VALUE"),
        ("=canary", ":1: -> NAME=VALUE"),
        ("GITHUB_TOKEN=canary", ":1: -> NAME=VALUE"),
        ("A-B=canary", ":1: -> NAME=VALUE"),
        ("A=canary\nA=canary", ":2: A a second time"),
        ("A=canary\udcff", ": is not UTF-8"),
        ("A=" + "canary" * MAX_BYTES, f": larger than {MAX_BYTES} bytes"),
    ],
)
def test_a_file_that_says_something_else_is_refused_and_not_shown(text: str, says: str, tmp_path: Path) -> None:
    path = secret_file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_settings(path, ())
    assert caught.value.message.startswith(f"{path}{says}")
    assert "canary" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_file_that_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(ConfigError, match=r"No such file|Is a directory"):
        read_settings(tmp_path / name, ())


@pytest.mark.parametrize("variables", [("a=b",), ("A=b", "C"), ("A=1", "A=2"), ("GITHUB_REF=x",)])
def test_a_variable_that_is_none_is_a_mistake(variables: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError, match=f"--var, number {len(variables)}: "):
        read_settings(None, variables)
