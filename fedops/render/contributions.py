"""The table of who went into a version, with which weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fedops.core.ids import GlobalVersion
from fedops.core.strategies import counts_examples
from fedops.render.text import percent, short, table


class Contributed(Protocol):
    """One row: a contribution of a version record, or of an offline one."""

    @property
    def site(self) -> str: ...

    @property
    def base_version(self) -> int: ...

    @property
    def staleness(self) -> int: ...

    @property
    def num_examples(self) -> int: ...

    @property
    def weight(self) -> float: ...

    @property
    def share(self) -> float: ...

    @property
    def delta_norm(self) -> float | None: ...

    @property
    def score(self) -> float | None: ...

    @property
    def sha256(self) -> str | None: ...


def contribution_table(
    contributions: Sequence[Contributed],
    clip_factors: Sequence[float | None] = (),
    *,
    strategy: str = "",
    chosen: str | None = None,
) -> str:
    """One line for each contribution; columns that nobody fills are left out, and weights that count for nothing.

    Args:
        contributions: at least one.
        clip_factors: what each delta was multiplied by, in the same order; empty without clipping.
        strategy: its name.
        chosen: site whose update alone became the model; None: there is no such site.
    """
    counts = counts_examples(strategy)
    columns = [
        ("site", [c.site for c in contributions]),
        ("base", [GlobalVersion(c.base_version).short for c in contributions]),
        ("stale", [str(c.staleness) for c in contributions]),
        ("examples", [f"{c.num_examples:,}" for c in contributions]),
        ("weight", [f"{c.weight:.6g}" for c in contributions if counts]),
        ("share", [percent(c.share) for c in contributions if counts]),
        ("norm", ["" if c.delta_norm is None else f"{c.delta_norm:.4g}" for c in contributions]),
        ("clip", ["" if factor is None else f"{factor:.4g}" for factor in clip_factors]),
        ("score", ["" if c.score is None else f"{c.score:.6g}" for c in contributions]),
        ("taken", ["yes" if c.site == chosen else "" for c in contributions]),
        ("update", ["" if c.sha256 is None else short(c.sha256) for c in contributions]),
    ]
    filled = [(name, cells) for name, cells in columns if any(cells)]
    right = [i for i, (name, _) in enumerate(filled) if name not in ("site", "base", "taken", "update")]
    return table([name for name, _ in filled], list(zip(*(cells for _, cells in filled), strict=True)), right=right)
