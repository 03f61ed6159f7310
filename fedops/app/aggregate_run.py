"""From candidates to a model: merge them in order, weigh, aggregate, and again without what turned out to be bad."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedops.app.aggregate_plan import Task
from fedops.app.candidates import Candidate, GlobalModels, told_of
from fedops.app.engine import Aggregated, Input, Rule, aggregate
from fedops.app.same_bytes import name_bytes
from fedops.core.errors import ConfigError
from fedops.core.facts import Submission
from fedops.core.findings import Finding, errors, finding, message
from fedops.core.ids import AGGREGATION_PATH, BlobId, CommitId, Digest, SiteId
from fedops.core.merge_order import Handed, merge_in_order
from fedops.core.policy import Weighing, weigh
from fedops.core.validate import norm_faults, validate_model
from fedops.ports import Models

POLICY = "policy"  # where the plan keeps what a finding of the whole is about


@dataclass(frozen=True)
class Chosen:
    """The candidates that a version would be made of.

    Attributes:
        use: at most one for each site.
        superseded: a later one of their site took their place.
    """

    use: tuple[Candidate, ...]
    superseded: tuple[Candidate, ...]


@dataclass(frozen=True)
class Made:
    """A model that was written."""

    model: Aggregated
    weighing: Weighing
    chosen: Chosen


class Run:
    """One run over a plan. A refusal is found late, so what was refused is kept, and the choice is made again."""

    def __init__(self, task: Task, globals_: GlobalModels, candidates: Sequence[Candidate]) -> None:
        self._task, self._globals = task, globals_
        self._candidates = {c.where: c for c in candidates}
        self._read: set[str] = set()  # values and digest were looked at to the end
        self._names = self._name_bytes()
        self._duplicates: dict[str, tuple[Finding, ...]] = {}
        self._whole: tuple[Finding, ...] = ()

    def make(self, models: Models, target: Path) -> Made | None:
        """Write the next version's model.

        Returns:
            What was made; None: it is refused, see `findings`, and there is no file of this name.

        Raises:
            ConfigError: a global model is not the one that the plan states, or holds values that are not finite.
        """
        while True:
            chosen = self._choose()
            if self._read_values(chosen.superseded):
                continue
            weighing = self._weigh(chosen)
            made = None if weighing is None else self._aggregate(chosen, weighing, models, target)
            if made is not None and weighing is not None:
                self._globals.check(besides={self._task.current, *_base_versions(chosen.use)})
                return Made(made, weighing, chosen)
            if not self._whole:  # somebody was refused
                continue
            # There will be no model, so the engine reads no further; the rest is looked at all the same.
            self._globals.check()
            if not self._read_values(chosen.use):
                return None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, those of each submission in the order of the plan; none of a superseded one."""
        superseded = {c.where for c in self._choose().superseded}
        found: list[Finding] = []
        for where, candidate in self._candidates.items():
            if where not in superseded:
                found += (*candidate.findings, *self._duplicates.get(where, ()))
        return (*found, *self._whole)

    # ------------------------------------------------------------------ who counts

    def _name_bytes(self) -> dict[str, str]:
        files = {c.where: (c.model, c.sha256) for c in self._candidates.values() if c.model is not None}
        return dict(zip(files, name_bytes(list(files.values())), strict=True))

    def _choose(self) -> Chosen:
        good = [c for c in self._candidates.values() if not c.refused]
        handed = []
        for c in good:
            assert c.draft is not None
            handed.append(Handed(c.where, c.draft.site, c.draft.base_version, self._names[c.where]))
        merged = merge_in_order(handed, self._task.terms.policy)
        self._duplicates = {good[i].where: told_of(good[i], found) for i, found in merged.refused.items()}
        return Chosen(tuple(good[i] for i in merged.standing), tuple(good[i] for i in merged.superseded))

    def _weigh(self, chosen: Chosen) -> Weighing | None:
        """What each counts; None, with a finding of the whole, if there are too few or they have no weight."""
        use, quorum = chosen.use, self._task.quorum
        if len(use) < quorum:
            self._whole = (finding("too_few_updates", POLICY, got=len(use), expected=quorum),)
            return None
        weighing = weigh(self._task.policy, [_submission(c) for c in use], self._task.current)
        if isinstance(weighing, Finding):
            self._whole = (replace(weighing, where=POLICY),)
            return None
        self._whole = ()
        return replace(weighing, findings=tuple(replace(f, where=POLICY) for f in weighing.findings))

    # ------------------------------------------------------------------ bytes

    def _aggregate(self, chosen: Chosen, weighing: Weighing, models: Models, target: Path) -> Aggregated | None:
        """Run the engine; None: somebody was refused, or there is a finding of the whole."""
        task, use = self._task, {_site(c): c for c in chosen.use}
        inputs = []
        for w in weighing.weighted:
            candidate = use[w.submission.site]
            assert candidate.model is not None
            inputs.append(Input(w, candidate.model, candidate.where, candidate.sha256))
        bases = {v: self._globals.base(v) for v in sorted({task.current, *_base_versions(chosen.use)})}
        rule = Rule(
            strategy=task.strategy,
            denominator=weighing.denominator,
            integers=task.policy.integers,
            clip_norm=None if task.policy.privacy is None else task.policy.privacy.clip_norm,
            want_norms=task.terms.policy.update_norm_max is not None,
        )
        with models.create(target, bases[task.current].model.specs, md5=False) as sink:
            made = aggregate(task.current, bases, inputs, rule, sink)
        if not isinstance(made, Aggregated):
            self._sort(made, use)
            return None
        too_far = False
        for site, norm in made.norms.items():
            if found := norm_faults(norm, task.terms.policy, use[SiteId(site)].where):
                self._refuse(use[SiteId(site)], found)
                too_far = True
        if too_far:
            target.unlink()
            return None
        self._whole = weighing.findings
        self._read |= {c.where for c in chosen.use}
        return made

    def _sort(self, findings: Sequence[Finding], use: dict[SiteId, Candidate]) -> None:
        """Refuse the sites that the engine's findings name; others are of the plan's global models, or of the whole."""
        for f in findings:
            detail = f.detail or {}
            if "version" in detail:
                raise ConfigError(message(f), hint="get the global model again, or correct the plan")
            if "site" in detail:
                self._refuse(use[detail["site"]], [f])
        if all("site" not in (f.detail or {}) for f in findings):
            self._whole = tuple(replace(f, where=POLICY) if f.where == AGGREGATION_PATH else f for f in findings)

    def _refuse(self, candidate: Candidate, findings: Sequence[Finding]) -> None:
        now = self._candidates[candidate.where]
        self._candidates[now.where] = replace(now, findings=(*now.findings, *told_of(now, findings)))

    def _read_values(self, candidates: Iterable[Candidate]) -> bool:
        """Look at what the engine has not read to its end, so that the result tells all; True if one is refused."""
        refused = False
        for c in candidates:
            if c.where in self._read:
                continue
            self._read.add(c.where)
            assert c.draft is not None
            assert c.model is not None
            base = self._globals.open(c.draft.base_version)
            found, _ = validate_model(c.model, base, self._task.terms.policy, where=c.where, payload=c.draft.payload)
            if c.sha256 is not None and (got := c.model.sha256()) != c.sha256:
                found += (finding("hash_mismatch", c.where, got=got, expected=c.sha256),)
            if errors(found):
                self._refuse(c, found)
                refused = True
        return refused


def _site(candidate: Candidate) -> SiteId:
    assert candidate.site is not None
    return candidate.site


def _base_versions(candidates: Iterable[Candidate]) -> set[int]:
    return {c.draft.base_version for c in candidates if c.draft is not None}


def _submission(candidate: Candidate) -> Submission:
    """A draft in the form in which the rules take submissions; what only a repository knows is empty."""
    draft = candidate.draft
    assert draft is not None
    return Submission(
        site=SiteId(draft.site),
        base_version=draft.base_version,
        num_examples=draft.num_examples,
        payload=draft.payload,
        sha256=draft.sha256 or "",
        md5=draft.md5 or "",
        size=draft.size or 0,
        manifest=Digest(draft.manifest or ""),
        record_blob=BlobId(""),
        pointer_blob=BlobId(""),
        commit=CommitId(""),
        merged_at=dt.datetime.min.replace(tzinfo=dt.UTC),
        metrics=draft.metrics,
    )
