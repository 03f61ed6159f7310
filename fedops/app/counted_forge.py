"""A forge whose writes are counted, whoever makes them: a run may make so many in all."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, cast

from fedops.app.allowance import Allowance
from fedops.app.context import Context
from fedops.core.facts import Issue, Marker, MergeOutcome, Pull
from fedops.core.ids import CommitId
from fedops.ports import Forge, Releases


class CountedForge:
    """Passes everything on, and counts what changed something."""

    def __init__(self, inner: Forge, allowance: Allowance) -> None:
        self._inner, self.allowance = inner, allowance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def submit_pull(self, head: CommitId, branch: str, title: str, body: str) -> Pull:
        self.allowance.wrote()
        return self._inner.submit_pull(head, branch, title, body)

    def merge(self, number: int, head: CommitId, message: str) -> MergeOutcome:
        self.allowance.wrote()
        return self._inner.merge(number, head, message)

    def close_pull(self, number: int) -> None:
        self.allowance.wrote()
        self._inner.close_pull(number)

    def set_status(
        self, commit: CommitId, state: Literal["success", "failure", "pending"], context: str, text: str
    ) -> None:
        self.allowance.wrote()
        self._inner.set_status(commit, state, context, text)

    def upsert_comment(self, number: int, marker: Marker, body: str) -> bool:
        return self._changed(self._inner.upsert_comment(number, marker, body))

    def ensure_issue(self, marker: Marker, title: str, body: str, labels: frozenset[str]) -> Issue:
        self.allowance.wrote()
        return self._inner.ensure_issue(marker, title, body, labels)

    def close_issue(self, number: int) -> None:
        self.allowance.wrote()
        self._inner.close_issue(number)

    def _changed(self, changed: bool) -> bool:
        if changed:
            self.allowance.wrote()
        return changed


class CountedPages(CountedForge):
    """The same of a forge that has pages for versions."""

    def ensure_release(self, tag: str, title: str, body: str) -> bool:
        return self._changed(cast("Releases", self._inner).ensure_release(tag, title, body))


def counted(ctx: Context, allowance: Allowance) -> Context:
    """The context with a forge whose writes are taken from an allowance, each once."""
    if isinstance(ctx.forge, CountedForge) and ctx.forge.allowance is allowance:
        return ctx
    kind = CountedPages if isinstance(ctx.forge, Releases) else CountedForge
    return dataclasses.replace(ctx, forge=cast("Forge", kind(ctx.forge, allowance)))
