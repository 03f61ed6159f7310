"""The submissions of an aggregate plan, each read and opened as far as nothing speaks against it; values come later."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from fedops.app.aggregate_plan import PlannedSubmission, Task
from fedops.app.feeds import Base
from fedops.app.plans import Content, read_bytes
from fedops.app.terms import (
    base_faults,
    check_global,
    container_faults,
    declared_faults,
    draft_faults,
    folder_of,
    open_global,
    read_draft,
)
from fedops.core.errors import ConfigError
from fedops.core.findings import Finding, errors
from fedops.core.ids import SiteId, site_id_fault
from fedops.core.records import Draft
from fedops.core.validate import named_site, validate_specs
from fedops.ports import Models, OpenModel


class GlobalModels:
    """The global models of a plan: the current one, and each other as it is asked for; closed with the stack.

    Raises:
        ConfigError: a file is not there, or the current version's cannot be used.
    """

    def __init__(self, task: Task, models: Models, stack: ExitStack) -> None:
        self._task, self._models, self._stack = task, models, stack
        self._files = task.terms.globals or {}
        self._opened: dict[int, OpenModel] = {}
        self._digests: dict[int, str] = {}
        for file in self._files.values():
            task.terms.file(file.path)
        self.open(task.current)

    def open(self, version: int) -> OpenModel:
        """The model of a version.

        Raises:
            ConfigError: it cannot be used.
        """
        if version not in self._opened:
            model = open_global(self._files[version], self._task.terms, self._models)
            self._stack.callback(model.close)
            self._opened[version] = model
        return self._opened[version]

    def base(self, version: int) -> Base:
        """The same for the engine, which checks the digest that the plan states."""
        return Base(self.open(version), f"globals/{version}", self._files[version].sha256)

    def sha256(self, version: int) -> str:
        """The digest as stated, which is checked in time; else it is taken now."""
        stated = self._files[version].sha256
        if stated is not None:
            return stated
        if version not in self._digests:
            self._digests[version] = self.open(version).sha256()
        return self._digests[version]

    def check(self, besides: Collection[int] = ()) -> None:
        """Compare all stated digests but those that somebody has compared.

        Raises:
            ConfigError: a file has another one.
        """
        for version, file in self._files.items():
            if file.sha256 is not None and version not in besides:
                check_global(file, self.open(version).sha256())


@dataclass(frozen=True)
class Candidate:
    """One submission of the plan.

    Attributes:
        where: "submissions/<place in the plan>".
        site: None: nobody can tell.
        draft: its record; None if that cannot be used.
        model: open, unless there is an error.
        sha256: digest that the bytes must have and that nobody has compared yet; None: there is nothing to compare.
        findings: so far; with an error it is refused.
    """

    where: str
    site: SiteId | None
    draft: Draft | None
    model: OpenModel | None
    sha256: str | None
    findings: tuple[Finding, ...]

    @property
    def refused(self) -> bool:
        return bool(errors(self.findings))


def told_of(candidate: Candidate, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Findings of a submission as the result tells them: by its place in the plan, and with its site if known."""
    site = {} if candidate.site is None else {"site": candidate.site}
    return tuple(replace(f, where=candidate.where, detail=site | dict(f.detail or {}) or None) for f in findings)


def read_candidates(task: Task, globals_: GlobalModels, models: Models, stack: ExitStack) -> tuple[Candidate, ...]:
    """Read all records, and open the files of those that are good; files stay open until the stack is closed.

    Raises:
        ConfigError: a file that the plan names is not there, or a global model cannot be used.
    """
    reader = _Reader(task, globals_, models, stack)
    return tuple(reader.read(f"submissions/{i}", item) for i, item in enumerate(task.submissions))


@dataclass(frozen=True)
class _Reader:
    task: Task
    globals_: GlobalModels
    models: Models
    stack: ExitStack

    def read(self, where: str, item: PlannedSubmission) -> Candidate:
        path = self._file(where, item.update)
        draft, found = read_draft(item.record, where, self.task.terms)
        site = self._site(item.record) if draft is None else SiteId(draft.site)
        if draft is not None:
            found += tuple(draft_faults(draft, where, folder_of(item.record), self.task.terms))
        candidate = Candidate(where, site, draft, None, None, ())
        if draft is not None and not errors(found):
            model, checked, faults = self._open(path, where, draft)
            candidate = replace(candidate, model=model, sha256=None if checked else draft.sha256)
            found += faults
        return replace(candidate, findings=told_of(candidate, found))

    def _file(self, where: str, path: str) -> Path:
        try:
            return self.task.terms.file(path)
        except ConfigError as e:
            raise ConfigError(f"{where}: {e.message}", hint=e.hint) from e

    def _site(self, record: Content) -> SiteId | None:
        """The site of a record that cannot be used: as it says, or as its path says."""
        value = read_bytes(self.task.terms.folder / record) if isinstance(record, str) else record
        folder = folder_of(record)
        by_path = SiteId(folder) if folder is not None and site_id_fault(folder) is None else None
        return named_site(value) or by_path

    def _open(self, path: Path, where: str, draft: Draft) -> tuple[OpenModel | None, bool, tuple[Finding, ...]]:
        """Open a file and compare it with its record and its base.

        Returns:
            The model, None if there is an error; whether its sha256 was compared; and all findings.
        """
        model, found = self.models.open(path, self.task.terms.policy.limits, where)
        if model is None:
            return None, False, found
        self.stack.callback(model.close)
        facts: dict[str, object] = {"size": model.size}
        if draft.md5 is not None:
            # The engine hashes with sha256 alone, in passing; two digests are taken here together.
            facts["sha256"], facts["md5"], facts["size"] = self.models.digests(path)
        found += (*declared_faults(draft, where, facts), *container_faults(draft, model, where))
        if draft.base_sha256 is not None:
            found += tuple(base_faults(draft, self.globals_.sha256(draft.base_version), where))
        found += self._tensor_faults(model, where, draft)
        if errors(found):
            model.close()
            return None, False, found
        return model, "sha256" in facts, found

    def _tensor_faults(self, model: OpenModel, where: str, draft: Draft) -> tuple[Finding, ...]:
        base = self.globals_.open(draft.base_version).specs
        found = validate_specs(model.specs, base, where, draft.payload)
        if found or draft.base_version == self.task.current:
            return found
        # An older version may have had other tensors; then its updates cannot be added to the current one.
        return validate_specs(model.specs, self.globals_.open(self.task.current).specs, where, draft.payload)
