"""What stands beside the versions, and may be changed by anybody with rights there: the store's tags, and the forge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedops.app.context import Context
from fedops.app.input_bytes import store_fault
from fedops.app.main_line import read_line
from fedops.app.snapshot import Snapshot
from fedops.core.errors import FedopsError, StoreError
from fedops.core.findings import Finding, finding
from fedops.core.ids import repository_of
from fedops.core.signals import SIGNAL_LABELS


@dataclass(frozen=True)
class Standing:
    """Attributes:
    open_pulls, open_signals: how many; 0 if the forge cannot be read, which is then a finding.
    """

    findings: tuple[Finding, ...]
    open_pulls: int
    open_signals: int


def standing(ctx: Context, main: Snapshot) -> Standing:
    """Look at the store's display tags of all versions, and at the forge.

    Args:
        main: the newest commit of main.

    Raises:
        FedopsError: temporary, or access is refused.
    """
    findings = [*_display_tags(ctx, main)]
    try:
        return Standing(tuple(findings), len(ctx.forge.open_pulls()), len(ctx.forge.issues(SIGNAL_LABELS)))
    except FedopsError as e:
        if e.cause != "permanent":
            raise
        return Standing((*findings, finding("github_rejected", "forge", got=e.message)), 0, 0)


def _display_tags(ctx: Context, main: Snapshot) -> Iterator[Finding]:
    """Tags such as `v9` in the store: people pull by them, git alone says what they must name.

    One that is missing is no fault: reconcile sets that of the current version.
    """
    store, repository = ctx.global_store(main.federation), repository_of(None)
    for step in read_line(ctx.repository, main.commit, {}).steps:
        if step.model is None:
            continue
        ref = f"{repository}:{step.where}"
        try:
            named = store.resolve(ref)
        except StoreError as e:
            yield store_fault(e, ref)
            return
        if named not in (None, step.model.manifest):
            yield finding("tag_moved", ref, got=named, expected=step.model.manifest)
