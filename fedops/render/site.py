"""What `fedops pull` and `fedops train` print; data in, text out."""

from __future__ import annotations

from fedops.core.ids import GlobalVersion
from fedops.core.records import Metrics, VersionRecord
from fedops.render.submission import last_version_text, metrics_text
from fedops.render.text import count, short, size


def pull_text(record: VersionRecord, current: int, where: str, *, final: bool, changed: bool) -> str:
    """Where a version's model lies, and what comes next.

    Args:
        current: number of the current version.
        where: path of the model.
        final: the current version is the last one.
        changed: False: it was there already.
    """
    model, name = record.model, GlobalVersion(record.version).short
    there = "" if changed else ", already there"
    lines = [f"{name}  {short(model.sha256)}  {size(model.size)}{there}", where]
    if record.version != current:
        lines.append(f"note: the current version is {GlobalVersion(current).short}")
    if final:
        lines.append(last_version_text(current))
    elif record.version == current:
        lines.append("next: fedops train")
    return "\n".join(lines)


def train_text(
    site: str, base: int, num_examples: int, metrics: Metrics, sha256: str, where: str, *, changed: bool
) -> str:
    """What a training gave.

    Args:
        base: version that it started from.
        metrics: name -> number, as the site's code said.
        sha256: of the new model's file.
        where: its path.
        changed: False: it was there already, nothing was run.
    """
    name = GlobalVersion(base).short
    done = f"{site} trained on {name}" if changed else f"{site} has trained on {name} before; --again trains anew"
    facts = [count(num_examples, "example"), metrics_text(metrics), short(sha256)]
    return "\n".join([done, "  ".join(fact for fact in facts if fact), where, "next: fedops submit"])
