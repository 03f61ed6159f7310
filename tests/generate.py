"""Rewrites everything in this repository that is generated; `--check` compares instead and exits 1 on a difference.

    python -m tests.generate [--check]

Schemas come first, since the template holds them and the example zone is what the template gives.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from fedops.core.catalogue import CATALOGUE
from fedops.core.documents import Document
from fedops.core.records import Record, VersionRecord
from fedops.core.settings import Aggregation, Federation, Sites, SubmissionPolicy, Training
from tests.documents_page import documents_page

ROOT = Path(__file__).resolve().parent.parent
HELP_WIDTH = 100
Files = dict[str, bytes]

SCHEMAS: Mapping[str, type[Document]] = {
    "federation": Federation,
    "sites": Sites,
    "submission-policy": SubmissionPolicy,
    "training": Training,
    "aggregation": Aggregation,
    "submission": Record,
    "version": VersionRecord,
}
# Files of the example zone that this repository has in a form of its own.
MERGED = frozenset({"README.md", ".gitignore", ".gitattributes"})


def schemas() -> Files:
    """The template's JSON Schemas, of the pydantic models."""
    return {f"fedops/template/schemas/{kind}.schema.json": schema(model) for kind, model in SCHEMAS.items()}


def schema(model: type[Document]) -> bytes:
    """One document's JSON Schema for editors, without the titles that only repeat the field names."""
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | model.model_json_schema()
    return (json.dumps(_without_titles(whole), indent=2, ensure_ascii=False) + "\n").encode()


def _without_titles(node: Any, *, names: bool = False) -> Any:
    """Args: names: the keys are those of a document, not of a schema."""
    if isinstance(node, dict):
        return {
            key: _without_titles(value, names=not names and key in ("properties", "$defs"))
            for key, value in node.items()
            if names or key != "title"
        }
    return [_without_titles(value) for value in node] if isinstance(node, list) else node


def zone() -> Files:
    """The example federation at the top level: what `fedops init --example` writes."""
    from fedops.adapters.model_files import ModelFiles
    from fedops.app.example import example_files

    with tempfile.TemporaryDirectory() as folder:
        files = example_files(ModelFiles(), Path(folder))
    return {str(path): data for path, data in files.items() if path not in MERGED}


def findings_page() -> Files:
    """docs/reference/findings.md: one section per finding, from the catalogue."""
    out = [
        "# Findings\n",
        (
            "A finding is one statement that failed or warns. Ids and slugs never change their meaning; messages may get "
            "better. This page is generated from `fedops/core/catalogue.py`.\n"
        ),
        "| id | slug | what |\n|---|---|---|",
    ]
    rules = sorted(CATALOGUE.items(), key=lambda item: item[1].id)
    for slug, rule in rules:
        warns = " (warning)" if rule.severity == "warning" else ""
        out.append(f"| [{rule.id}](#{rule.id.lower()}-{slug}) | `{slug}` | {_cell(rule.text)}{warns} |")
    for slug, rule in rules:
        out.append(f"\n## {rule.id} {slug}\n\n{_sentence(rule.text)}\n\n{rule.why}\n\n**What to do:** {rule.hint}.")
    return {"docs/reference/findings.md": ("\n".join(out) + "\n").encode()}


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def cli_page() -> Files:
    """docs/reference/cli.md: the help of every command."""
    from fedops.cli.main import cli

    out = ["# Command line\n", "The help of every command, as `fedops … --help` prints it. This page is generated.\n"]
    out += [f"## {path}\n\n```text\n{text}\n```\n" for path, text in helps(cli, "fedops")]
    return {"docs/reference/cli.md": ("\n".join(out).rstrip("\n") + "\n").encode()}


def helps(command: click.Command, path: str, parent: click.Context | None = None) -> list[tuple[str, str]]:
    """(command path, help text) of a command and all below it; the width does not depend on the terminal."""
    width = {"terminal_width": HELP_WIDTH, "max_content_width": HELP_WIDTH}
    settings: dict[str, Any] = {**command.context_settings, **width}
    ctx = click.Context(command, info_name=path.rsplit(maxsplit=1)[-1], parent=parent, **settings)
    out = [(path, "\n".join(line.rstrip() for line in command.get_help(ctx).splitlines()))]
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None, name
            out += helps(below, f"{path} {name}", ctx)
    return out


def goldens() -> Files:
    """Texts for people, of made-up facts; their diff is read like code."""
    from tests.render.goldens import FOLDER, GOLDENS
    from tests.render.goldens_run import RUN_GOLDENS
    from tests.render.goldens_site import SITE_GOLDENS
    from tests.render.goldens_verify import VERIFY_GOLDENS

    makers = {**GOLDENS, **RUN_GOLDENS, **SITE_GOLDENS, **VERIFY_GOLDENS}
    return {str((FOLDER / name).relative_to(ROOT)): make().encode() for name, make in makers.items()}


GENERATORS: Sequence[Callable[[], Files]] = (schemas, zone, findings_page, cli_page, documents_page, goldens)


def stale(root: Path, files: Files) -> list[str]:
    """Paths below root whose bytes are not the generated ones."""
    return [p for p, data in files.items() if not (root / p).is_file() or (root / p).read_bytes() != data]


def write(root: Path, files: Files) -> None:
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def main(arguments: Sequence[str], root: Path = ROOT, generators: Sequence[Callable[[], Files]] = GENERATORS) -> int:
    check = list(arguments) == ["--check"]
    if arguments and not check:
        print("usage: python -m tests.generate [--check]", file=sys.stderr)
        return 2
    different: list[str] = []
    for generator in generators:
        files = generator()
        changed = stale(root, files)
        different += changed
        # The zone is made of the template's schemas, so these must be there first, in a check too.
        if not check:
            write(root, {p: files[p] for p in changed})
    for path in different:
        print(f"{'differs' if check else 'written'}: {path}")
    if different and check:
        print("run: python -m tests.generate   (or: make generate), then look at the diff")
    return 1 if different and check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
