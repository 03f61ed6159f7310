"""Recompute versions from git and the bytes, and name each difference: which version, and what is wrong.

Nothing that the lead, the forge or the store says is believed: only what follows from commits and digests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache

from fedops.app.context import Context
from fedops.app.git_damage import Damage
from fedops.app.global_models import GlobalModels
from fedops.app.in_place import begin_reading, version_key
from fedops.app.input_bytes import Tools
from fedops.app.known_bytes import KnownBytes
from fedops.app.lineage import cut_history, input_commit, is_cut, lost_commits, order_fault, read_until
from fedops.app.main_line import git_finding, read_line
from fedops.app.read_ahead import ReadAhead
from fedops.app.recompute import (
    Level,
    recompute_aggregate,
    recompute_first,
    recompute_rollback,
    stored_version,
)
from fedops.app.rederive import rederive, rederive_first, rederive_rollback
from fedops.app.retired import retired_by
from fedops.app.snapshot import Snapshot, record_at, snapshot
from fedops.app.strays import stray_findings
from fedops.app.tip import newest_readable
from fedops.app.version_commit import commit_findings, planned, tag_findings
from fedops.app.version_merge import approval_findings
from fedops.core.errors import ConfigError, GitError
from fedops.core.facts import Commit, VersionTag
from fedops.core.findings import Finding, errors, finding
from fedops.core.ids import CommitId, GlobalVersion
from fedops.core.steps import Publish

AHEAD = 3  # versions whose files are being read
KEPT = 4 + AHEAD  # trees at a time: of a version, its parent, its input, the version before, and those to come


@dataclass(frozen=True)
class Checked:
    """One version, verified.

    Attributes:
        version: None: not about one version, but about the clone.
        commit: that made it, or that its tag names; else main's newest.
        level: "inputs" = recomputed bit for bit from its inputs; "lineage" = all but the bytes; "none" = failed.
        reached: the level without regard to findings.
    """

    version: int | None
    commit: CommitId
    level: Level
    findings: tuple[Finding, ...]
    reached: Level = "none"


def verify(
    ctx: Context,
    main: Snapshot,
    wanted: Sequence[int] | None,
    *,
    fsck: Callable[[], Sequence[str]] | None = None,
    seen: Iterable[CommitId] = (),
    known: KnownBytes | None = None,
    stored: bool = True,
) -> Iterator[Checked]:
    """Verify versions, oldest first.

    Args:
        main: the newest commit of main.
        wanted: version numbers; none of them: the newest version; None: all.
        fsck: lists ids of git objects that cannot be read.
        seen: what main has been, newest first, as this clone has met it.
        known: what earlier runs have read; gets what this one reads.
        stored: False: git alone is looked at, and no store is opened; level "lineage" then says nothing of bytes.

    Raises:
        ConfigError: no commit of main says where the store is.
        StoreError: temporary, or access is refused.
    """
    with closing(ReadAhead()) as ahead:
        run = _Run(ctx, main, wanted, fsck, known or KnownBytes(), ahead, stored=stored)
        run.general += lost_commits(ctx.repository, run.line, seen)
        yield from run.checked()


class _Run:
    """One verification: what was read of git, and what is known so far."""

    def __init__(
        self,
        ctx: Context,
        main: Snapshot,
        wanted: Sequence[int] | None,
        fsck: Callable[[], Sequence[str]] | None,
        known: KnownBytes,
        ahead: ReadAhead,
        *,
        stored: bool,
    ) -> None:
        # NOTE: each store is asked a few hundred times, and opening it anew costs as much as the answer.
        self.ctx = ctx = replace(ctx, stores=lru_cache(maxsize=None)(ctx.stores))
        self.repository = ctx.repository
        self.tip = main.commit
        self.said: list[str] = []  # by git, of what it could not read
        self.general: list[Finding] = []
        self.trees: dict[CommitId, Snapshot] = {}
        damaged: Sequence[str] = ()
        with self._told(self.general, "git"):
            damaged = fsck() if fsck is not None else ()
        self.tags: dict[int, VersionTag] | None = None  # None: one is damaged, and git tells of none
        with self._told(self.general, "refs/tags"):
            self.tags = {tag.version: tag for tag in self.repository.versions()}
        self.line = read_line(self.repository, main.commit, self.tags or {})
        self.general += cut_history(self.repository, self.line)
        self.damage = Damage(self.line, damaged)
        steps = self.line.steps
        newest = steps[-1:] if wanted is not None and not wanted else []
        self.wanted = None if wanted is None else {*wanted, *(step.number for step in newest)}
        self.newest = max((step.number for step in steps), default=0)
        stores, self.unread = newest_readable([main.commit, *(s.commit for s in reversed(steps))], self._tree)
        self.tools: Tools | None = None
        if stores is not None:
            models, retired = GlobalModels(ctx, stores, steps), retired_by(stores, steps)
            self.tools = Tools(ctx, stores, models, retired, known, ahead, stored=stored)

    @contextmanager
    def _told(self, out: list[Finding], where: str) -> Iterator[None]:
        """What git cannot read in the block becomes a finding, and the other checks go on."""
        try:
            yield
        except GitError as e:
            if e.cause != "permanent":
                raise
            self.said.append(e.message)
            # A damaged object may have been named already, by its id.
            if not any(f.slug == "object_corrupt" and str(f.got) in e.message for f in out):
                out.append(git_finding(e, where))

    def _tree(self, commit: CommitId) -> Snapshot:
        """The tree of a commit; those of one version and the one before are read once."""
        if commit not in self.trees:
            while len(self.trees) >= KEPT:
                self.trees.pop(next(iter(self.trees)))
            self.trees[commit] = snapshot(self.repository, commit)
        return self.trees[commit]

    def checked(self) -> Iterator[Checked]:
        steps = self.line.steps
        progress = self.ctx.progress
        task = progress.start("verify", sum(1 for step in steps if self._wants(step.number)), "steps")
        for index, step in enumerate(steps):
            if self._wants(step.number):
                yield self._version(index)
                progress.advance(task, 1)
            if self.tools is not None:
                self.tools.models.end(index)
        progress.finish(task)
        # NOTE: no further than there are commits: a record may claim any number.
        due = range(min(len(steps), self.newest))
        expected = {*(self.tags or ()), *self.line.lost, *due, *(self.wanted or ())}
        for number in sorted(expected - {step.number for step in steps}):
            if self._wants(number):
                yield self._absent(number)
        for text in self.said:
            self.damage.told(text)
        with self._told(self.general, "main"):
            self.general += stray_findings(self.repository, self.line, self._wants)
        if general := (*self.general, *self.damage.left()):
            yield Checked(None, self.tip, "none", general)

    def _wants(self, number: int) -> bool:
        return self.wanted is None or number in self.wanted

    def _absent(self, number: int) -> Checked:
        """A version that no commit of main made, though its tag says so, or its number is due."""
        where, tag = GlobalVersion(number), (self.tags or {}).get(number)
        if number in self.line.lost:
            commit, error = self.line.lost[number]
            self.said.append(error.message)
            return Checked(number, commit, "none", (git_finding(error, where.short),))
        if tag is not None:
            stray = finding("tag_moved", where.tag, got=tag.commit, expected="a version on main")
            try:
                self.repository.commit(tag.commit)
            except GitError:
                stray = finding("object_corrupt", where.short, got=f"the commit that {where.tag} names")
            return Checked(number, tag.commit, "none", (stray,))
        missing = finding("lineage_broken", where.short, expected="a commit of main that made it")
        return Checked(number, self.tip, "none", (missing,))

    def _version(self, index: int) -> Checked:
        step = self.line.steps[index]
        tag = (self.tags or {}).get(step.number)
        out = list(self.damage.of_step(index, tag.object if tag is not None else None))
        level: Level = "none"
        key = version_key(self.tools, step.commit, tag) if self.tools is not None and not out else ""
        if self.tools is not None and key and (proven := self.tools.known.proven(key)) is not None:
            return Checked(step.number, step.commit, proven, (), proven)
        with self._told(out, step.where):
            if step.fault is not None:
                out.append(step.fault)
            elif is_cut(self.line, index) and (tag is None or tag.commit != step.commit):
                pass  # the first commit that can be read after the version's own
            elif self.tools is not None:
                level = self._record(self.tools, index, tag, out)
            else:
                assert self.unread is not None
                raise self.unread
        if self.tools is not None and self.tools.stored and key and level != "none" and not out:
            self.tools.known.prove(key, level)
        return Checked(step.number, step.commit, "none" if errors(out) else level, tuple(out), level)

    def _record(self, tools: Tools, index: int, tag: VersionTag | None, out: list[Finding]) -> Level:
        """Check one version's commit, its tag, its place in the line, and all that its record says."""
        step = self.line.steps[index]
        here, commit = self._tree(step.commit), self.repository.commit(step.commit)
        tools.known.begin()
        self._read_ahead(tools, index)
        try:
            plan = planned(here, commit)
        except ConfigError as e:
            out.append(finding("policy_invalid", step.where, got=e.message, detail={"commit": commit.id}))
            return "none"
        parent = self._tree(self.line.commits[step.place - 1]) if index else None
        with self._told(out, step.where):
            out += self._tag(tag, plan, commit)
        with self._told(out, step.where):
            out += commit_findings(here, commit, parent, plan)
        if (fault := order_fault(self.line, index, here.version)) is not None:
            out += (fault, *stored_version(tools, here.version))
            return "none"
        if parent is None:
            return self._first(tools, here, out)
        with self._told(out, step.where):
            out += approval_findings(here, parent, commit)
        bring = self._rollback if here.version.kind == "rollback" else self._aggregate
        return bring(tools, index, parent, here, out)

    def _read_ahead(self, tools: Tools, index: int) -> None:
        """Let the files of this version and the next ones be read while git is asked what else it says of this one."""
        for step in self.line.steps[index : index + AHEAD]:
            with suppress(GitError, ConfigError):
                if step.fault is None and self._wants(step.number):
                    begin_reading(tools, self._tree(step.commit).version)

    def _tag(self, tag: VersionTag | None, plan: Publish, commit: Commit) -> Iterator[Finding]:
        if self.tags is not None:
            yield from tag_findings(self.repository, commit, plan, tag)
            return
        # Only whether it is there and where it points can be said of those that are whole.
        named = self.repository.resolve(f"refs/tags/{plan.tag}")
        if named is None:
            yield finding("tag_missing", plan.tag, expected=commit.id)
        elif named != commit.id:
            yield finding("tag_moved", plan.tag, got=named, expected=commit.id)

    def _first(self, tools: Tools, here: Snapshot, out: list[Finding]) -> Level:
        out += rederive_first(here)
        made = recompute_first(tools, here.version)
        out += made.findings
        return made.level

    def _rollback(self, tools: Tools, index: int, parent: Snapshot, here: Snapshot, out: list[Finding]) -> Level:
        record = here.version
        chosen, fault = input_commit(self.line, index, record)
        if fault is not None:
            out.append(fault)
        number = record.source.version if record.source is not None else None
        source = next((s for s in self.line.steps[:index] if s.number == number and s.fault is None), None)
        earlier = record_at(self.repository, source.commit) if source is not None else None
        out += rederive_rollback(earlier, parent, self._tree(chosen), record)
        made = recompute_rollback(tools, record)
        out += made.findings
        return made.level

    def _aggregate(self, tools: Tools, index: int, parent: Snapshot, here: Snapshot, out: list[Finding]) -> Level:
        chosen, fault = input_commit(self.line, index, here.version)
        if fault is not None:
            out.append(fault)
        out += (derived := rederive(self.line, parent, self._tree(chosen), here.version)).findings
        if derived.here is None or derived.weights is None:
            out += stored_version(tools, here.version)
            return "none"
        read = read_until(self.line, self.line.steps[index].follows)
        passed_over = self.line.brought(read, self.line.places[chosen])
        made = recompute_aggregate(tools, derived.here, derived.weights, here.version, passed_over)
        out += made.findings
        return made.level
