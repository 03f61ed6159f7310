"""What `fedops aggregate` made, as text for people: data in, lines out."""

from __future__ import annotations

from fedops.core.aggregated import AggregatedVersion, Outcome
from fedops.core.ids import GlobalVersion
from fedops.render.contributions import contribution_table
from fedops.render.findings import finding_lines
from fedops.render.text import count, size


def aggregate_text(outcome: Outcome, out: str, *, dry_run: bool = False) -> str:
    """Who went in with which weight, what was written and where, and every finding with its hint.

    Args:
        out: the folder, as the person named it.
        dry_run: nothing was written.
    """
    blocks = ["refused: nothing was written"] if outcome.made is None else _made(outcome.made)
    if outcome.findings:
        blocks.append("\n".join(finding_lines(outcome.findings)))
    if outcome.made is not None:
        blocks.append(_written(outcome.made, outcome.changed, out, dry_run=dry_run))
    return "\n\n".join(blocks)


def _made(made: AggregatedVersion) -> list[str]:
    base, new = GlobalVersion(made.base_version).short, GlobalVersion(made.version).short
    left_out = len({entry.submission for entry in made.excluded})
    head = f"{new} from {base} ({made.rule.strategy.name}, {count(len(made.contributions), 'site')})"
    if left_out:
        head += f", without {count(left_out, 'refused submission')}"
    factors = [c.clip_factor for c in made.contributions if c.clip_factor is not None]
    return [
        head,
        contribution_table(made.contributions, factors, strategy=made.rule.strategy.name, chosen=made.chosen),
    ]


def _written(made: AggregatedVersion, changed: bool, out: str, *, dry_run: bool) -> str:
    model = made.model
    verb = "would write" if dry_run else "written"
    done = verb if changed else "already there"
    return f"sha256 {model.sha256}\n{done}: {out}/{model.path} ({size(model.size)}) and version.json"
