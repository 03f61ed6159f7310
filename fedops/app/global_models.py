"""The global models that a verification needs: each is fetched once, and removed after the last version that needs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedops.app.context import Context
from fedops.app.known_bytes import Lying
from fedops.app.main_line import Step
from fedops.app.model_bytes import fetch_global, first, open_checked, unlimited
from fedops.app.snapshot import Snapshot
from fedops.core.errors import StoreError
from fedops.core.ids import Digest, GlobalVersion, repository_of
from fedops.core.records import ModelEntry
from fedops.core.settings import Limits
from fedops.ports import InPlace, OpenModel


class GlobalModels:
    """Models by version, as the steps before the one at hand define them.

    Args:
        main: says where the store is.
        steps: all of main's versions, oldest first; `begin` and `end` must then be called for each, in this order.
    """

    def __init__(self, ctx: Context, main: Snapshot, steps: Sequence[Step]) -> None:
        self._ctx = ctx
        self._main = main
        self._steps = steps
        self._known: dict[int, ModelEntry] = {}
        self._got: dict[tuple[str, str, str], Path | StoreError] = {}
        self._last: dict[str, int] = {}  # sha256 -> index of the last step that needs it
        known: dict[int, str] = {}
        for index, step in enumerate(steps):
            if step.model is not None:
                self._last[step.model.sha256] = index
                for base in step.bases & known.keys():
                    self._last[known[base]] = index
                known[step.number] = step.model.sha256

    def end(self, index: int) -> None:
        """The step at this index was looked at: later ones may rest on its model, and some need no other any more."""
        step = self._steps[index]
        if step.model is not None:
            self._known[step.number] = step.model
        for key in [key for key in self._got if self._last.get(key[0], -1) <= index]:
            path = self._got.pop(key)
            if isinstance(path, Path):
                path.unlink(missing_ok=True)

    def fetch(self, model: ModelEntry) -> Path:
        """The checked bytes of a model; what the store said once is not asked again.

        Raises:
            StoreError: they cannot be had, or are wrong.
        """
        key = (model.sha256, model.md5, model.manifest)
        got = self._got.get(key)
        if got is None:
            try:
                got = fetch_global(self._ctx, self._main, model)
            except StoreError as e:
                if e.cause != "permanent":
                    raise
                got = e
            self._got[key] = got
        if isinstance(got, StoreError):
            raise got
        return got

    def in_place(self, model: ModelEntry) -> tuple[Lying, Sequence[Path]] | None:
        """The file of a model where it lies, which is not read here, and those of its artifact's manifest and config.

        None if the store has no such files, or not this one.

        Raises:
            StoreError: what may pass, or lacks a right.
        """
        store, repository = self._ctx.global_store(self._main.federation), repository_of(None)
        if not isinstance(store, InPlace):
            return None
        try:
            artifact = store.manifest(repository, Digest(model.manifest))
            path = store.layer_file(repository, artifact.layer)
        except StoreError as e:
            if e.cause != "permanent":
                raise
            return None
        if artifact.layer.sha256 != model.sha256:
            return None
        return Lying(path, model.sha256, model.md5), store.small_files(repository, artifact)

    def entry(self, number: int) -> ModelEntry:
        """The model of a version before the one at hand, as its record says.

        Raises:
            StoreError: no such version.
        """
        if number not in self._known:
            raise StoreError(f"{GlobalVersion(number).short}: no such version on main", slug="object_missing")
        return self._known[number]

    def open_in_place(self, number: int, limits: Limits) -> OpenModel:
        """Open the model of a version before the one at hand where it lies; whoever reads it must hash it.

        Raises:
            StoreError: no such version, or it cannot be opened there.
        """
        model, where = self.entry(number), GlobalVersion(number).short
        found = self.in_place(model)
        if found is None:
            raise StoreError(f"{where}: not in a folder of this machine", slug="object_missing")
        return self._opened(found[0].path, model, limits, where)

    def open(self, number: int, limits: Limits) -> OpenModel:
        """Open the model of a version before the one at hand.

        Args:
            limits: of the policy; what they say of sites' files does not bind our own.

        Raises:
            StoreError: no such version, or its bytes cannot be used.
        """
        model = self.entry(number)
        return self._opened(self.fetch(model), model, limits, GlobalVersion(number).short)

    def _opened(self, path: Path, model: ModelEntry, limits: Limits, where: str) -> OpenModel:
        opened, findings = open_checked(self._ctx, path, unlimited(limits, model.size), where)
        if opened is None:
            raise StoreError(f"{where}: the global model cannot be opened: {first(findings)}", slug="file_corrupt")
        return opened
