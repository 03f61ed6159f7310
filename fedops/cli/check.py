"""`fedops check`: look at files as CI would, before anything leaves the site."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedops.cli.console import NO, document, emit, format_option
from fedops.core.findings import as_json
from fedops.render.findings import finding_lines

if TYPE_CHECKING:
    from fedops.app.check import Checked

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("check")
@click.argument("file", type=_FILE, required=False)
@click.option("--record", type=_FILE, help="The submission record that goes with FILE.")
@click.option("--base", type=_FILE, help="The global model that FILE was trained on.")
@click.option("--plan", type=_FILE, help="Check all items of a plan (fedops.check-plan/v1).")
@format_option
def check_command(file: Path | None, record: Path | None, base: Path | None, plan: Path | None, fmt: str) -> None:
    """Check a model file and its record as CI would; nothing is sent or written.

    \b
    fedops check update.safetensors --record submission.json --base global.safetensors
    fedops check --plan check.json --format json
    fedops check policies/aggregation.yaml

    Without --base only the file itself is checked: container, names, finite values.
    A FILE that ends with .json is a record, one that ends with .yaml what leads write: it is read as CI reads main's.
    Exit code 3 if anything would be refused.
    """  # noqa: D301 click reads the control character, which marks a paragraph that is not to be wrapped
    from fedops.app.check import Outside, check_file, check_plan
    from fedops.app.check_policy import check_policy
    from fedops.cli import wire
    from fedops.cli.scratch import command_folder

    if (file is None) == (plan is None):
        raise click.UsageError("name a FILE or a --plan, not both")
    if plan is not None and (record is not None or base is not None):
        raise click.UsageError("--record and --base go with a FILE")
    relative_to = plan.parent if plan is not None else Path()
    outside = Outside(
        models=wire.models(),
        stores=lambda url: wire.store(url, relative_to=relative_to),
        repositories=wire.repository,
    )
    with command_folder():
        checked = check_plan(plan, outside) if plan is not None else ()
        if file is not None and file.suffix == ".yaml":
            if record is not None or base is not None:
                raise click.UsageError("--record and --base go with a model")
            checked = (check_policy(file),)
        elif file is not None:
            is_record = file.suffix == ".json" and record is None
            checked = check_file(None if is_record else file, file if is_record else record, base, outside)
    ok = all(item.ok for item in checked)
    emit(fmt, document("check", ok=ok, changed=False, items=[_item(item) for item in checked]), _text(checked))
    if not ok:
        raise click.exceptions.Exit(NO)


def _item(item: Checked) -> dict[str, Any]:
    return {
        "name": item.name,
        "kind": item.kind,
        "ok": item.ok,
        "facts": dict(item.facts),
        "findings": [as_json(f) for f in item.findings],
    }


def _text(checked: Sequence[Checked]) -> str:
    """One line per item, and below it what is wrong, with the next step."""
    lines = []
    for item in checked:
        summary = _summary(item.facts)
        lines.append(f"{'ok' if item.ok else 'no':<3} {item.name} ({item.kind})" + (f": {summary}" if summary else ""))
        lines += finding_lines(item.findings, "    ")
    return "\n".join(lines)


def _summary(facts: Mapping[str, Any]) -> str:
    """The facts that a person compares first, in words."""
    parts = [str(facts["format"])] if "format" in facts else []
    if "tensors" in facts:
        count = len(facts["tensors"])
        parts.append(f"{count} tensor{'s' if count != 1 else ''}")
    if "size" in facts:
        parts.append(f"{facts['size']} bytes")
    if "sha256" in facts:
        parts.append(f"sha256 {facts['sha256'][:12]}")
    parts += [f"{key.replace('_', ' ')} {json.dumps(facts[key])}" for key in _NAMED if facts.get(key) is not None]
    return ", ".join(parts)


_NAMED = ("site", "version", "base_version", "staleness", "num_examples", "delta_norm", "title")
