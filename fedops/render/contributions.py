"""The table of who went into a version, with which weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fedops.core.ids import GlobalVersion
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
    def sha256(self) -> str | None: ...


def contribution_table(contributions: Sequence[Contributed], clip_factors: Sequence[float | None] = ()) -> str:
    """One line for each contribution; columns that nobody fills are left out.

    Args:
        contributions: at least one.
        clip_factors: what each delta was multiplied by, in the same order; empty without clipping.
    """
    columns = [
        ("site", [c.site for c in contributions]),
        ("base", [GlobalVersion(c.base_version).short for c in contributions]),
        ("stale", [str(c.staleness) for c in contributions]),
        ("examples", [f"{c.num_examples:,}" for c in contributions]),
        ("weight", [f"{c.weight:.6g}" for c in contributions]),
        ("share", [percent(c.share) for c in contributions]),
        ("norm", ["" if c.delta_norm is None else f"{c.delta_norm:.4g}" for c in contributions]),
        ("clip", ["" if factor is None else f"{factor:.4g}" for factor in clip_factors]),
        ("update", ["" if c.sha256 is None else short(c.sha256) for c in contributions]),
    ]
    filled = [(name, cells) for name, cells in columns if any(cells)]
    right = [i for i, (name, _) in enumerate(filled) if name not in ("site", "base", "update")]
    return table([name for name, _ in filled], list(zip(*(cells for _, cells in filled), strict=True)), right=right)
