"""What a strategy is: the aggregation rule that turns the sites' deltas into the new one, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

from fedops.core.facts import F64, Json, Scan, Weighted
from fedops.core.findings import Finding

# deltas: one float64 array of shape (m,) per site, in ascending site id, each valid until the next is taken (a linear
# strategy: one array, the weighted mean delta, which may be `out` itself); out: float64, shape (m,), overwritten with
# the new delta; state: optimiser tensor -> float64, shape (m,), changed in place. Two processes may call it, each for some
# of the chunks, so it must keep nothing from one call to the next.
Combine: TypeAlias = Callable[[Iterator[F64], F64, Mapping[str, F64]], None]


class Strategy(Protocol):
    """One rule with its parameters, which its constructor has checked."""

    @property
    def name(self) -> str: ...

    @property
    def parameters(self) -> Mapping[str, Json]:
        """Every parameter, resolved, as the version record keeps it."""
        ...

    @property
    def linear(self) -> bool:
        """True: works on the weighted mean delta alone, which the engine computes."""
        ...

    @property
    def scan(self) -> Literal["none", "norms", "distances"]:
        """What a first pass over all updates must measure."""
        ...

    @property
    def state(self) -> tuple[str, ...]:
        """Optimiser tensors shaped like the model, read and written chunk by chunk."""
        ...

    @property
    def least(self) -> int | None:
        """From how many updates on it can always be used; None: there is no such number."""
        ...

    def refuses(self, n: int) -> Finding | None:
        """Why it cannot be used on n updates; None: it can."""
        ...

    def withstands(self, n: int) -> int:
        """Of how many of n updates it does not matter what they say; of a linear strategy none."""
        ...

    def buffers(self, n: int) -> int:
        """How many float64 chunk buffers `prepare`'s result needs for n updates; the engine sizes chunks by it."""
        ...

    def scores(self, scan: Scan | None) -> tuple[float, ...]:
        """What it ranks the updates by, in site order: the lowest is taken; () if it ranks nobody."""
        ...

    def prepare(self, weights: Sequence[Weighted], denominator: float, scan: Scan | None) -> Combine | Finding:
        """Make the function that combines one chunk.

        Args:
            weights: in site order; as many as it does not refuse.
            denominator: of the weighted mean.
            scan: what the first pass measured; None if none was asked for.

        Returns:
            The function; or why this rule cannot be used on these updates.
        """
        ...
