"""What the project's pages show: command lines, links, fenced blocks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GROUPS = ("ci", "site", "local", "dvc")


def fenced(text: str, language: str) -> list[str]:
    """The fenced blocks of a language, also indented ones."""
    found = re.findall(rf"(?ms)^( *)```{language}\n(.*?)^ *```$", text)
    return [re.sub(rf"(?m)^{indent}", "", body) for indent, body in found]


def shell(text: str) -> str:
    """The console blocks as one shell script: lines after the prompt, and what follows them (here-documents)."""
    lines = [line for body in fenced(text, "console") for line in body.splitlines()]
    return "\n".join(line.removeprefix("$ ") for line in lines if not line.startswith("# ")) + "\n"


def fedops_lines(text: str) -> Iterator[list[str]]:
    """Each fedops command line of the console blocks and of inline code, as words without `fedops` itself."""
    lines = [line[2:] for body in fenced(text, "console") for line in body.splitlines() if line.startswith("$ ")]
    lines += re.findall(r"`([^`\n]+)`", text)
    for line in lines:
        for part in re.split(r"&&|\|\||\|", line):
            found = re.match(r"(?:\w+=\S+ )*(fedops .*)$", part.strip())
            if found is not None:
                yield shlex.split(found[1].replace("…", ""), comments=True)[1:]


def command_of(words: list[str]) -> list[str]:
    """The names of the command and its subcommand at the head of a line."""
    path = words[:2] if words[:1] and words[0] in GROUPS else words[:1]
    return [word for word in path if not word.startswith("-")]


def links(text: str) -> list[str]:
    """Targets of links to files, without their anchors."""
    return [target for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text) if target]
