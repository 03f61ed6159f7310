"""One pass over the open pull requests: what each may cost is bounded, and one that fails stops none of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedops.app.allowance import Allowance, turns
from fedops.app.context import Context
from fedops.app.inspect import Judgement, inspect_pull
from fedops.app.merge import Merged, merge_pull
from fedops.app.snapshot import Snapshot
from fedops.app.verdict_cache import BytesMemory, BytesVerdict, remember
from fedops.core.errors import FedopsError
from fedops.core.facts import Pull
from fedops.core.findings import Finding, finding


class PullPass:
    """Merges and reports one pull request after the other, as far as the allowance goes.

    Args:
        pulls: all that are open, oldest first.

    Attributes:
        done: what became of each that was looked at.
        failed: one finding for each that could not be looked at to the end.
        left: those that the next pass must look at.
    """

    def __init__(self, ctx: Context, pulls: Sequence[Pull]) -> None:
        self._ctx, self._pulls = ctx, pulls
        self.allowance = Allowance(ctx.clock.now())
        self.done: list[Merged] = []
        self.failed: list[Finding] = []
        self.left: list[Pull] = []
        self._reached: list[BytesVerdict] = []

    def take(self, pull: Pull, judge: Callable[[], Judgement]) -> None:
        """Merge one pull request, or tell it why not.

        Raises:
            FedopsError: access is refused.
        """
        try:
            judged = judge()
            if judged.reached is not None:
                self._reached.append(judged.reached)
            if judged.left or not self.allowance.may_write():
                self.left.append(pull)
                return
            one = merge_pull(self._ctx, judged)
        except FedopsError as e:
            if e.cause == "auth":
                raise
            self.failed.append(finding("github_rejected", f"pull/{pull.number}", got=e.message))
            return
        self.allowance.wrote(one)
        self.done.append(one)

    def end(self) -> bool:
        """Keep the verdicts on bytes for later runs; True if something was written."""
        merged = {one.judgement.pull.number for one in self.done if one.outcome == "merged"}
        heads = [pull.head for pull in self._pulls if pull.number not in merged]
        return remember(self._ctx.repository, self._ctx.clock, self._reached, heads)


def inspect_all(ctx: Context, main: Snapshot, pulls: Sequence[Pull]) -> tuple[Judgement, ...]:
    """Judge open pull requests as far as one pass may go, oldest first; those that are left out are the next run's.

    Raises:
        ConfigError: main's own documents cannot be read, so nothing can be judged.
    """
    memory, allowance = BytesMemory(), Allowance(ctx.clock.now())
    judged = [inspect_pull(ctx, main, pull, memory, allowance) for pull in turns(ctx, main, pulls, memory)]
    return tuple(sorted((one for one in judged if not one.left), key=lambda one: one.pull.number))
