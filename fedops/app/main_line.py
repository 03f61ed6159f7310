"""Main's first-parent line, read by one walk: the commits that made versions, and who touched which record."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fedops.core.catalogue import CATALOGUE
from fedops.core.documents import load_json_document
from fedops.core.errors import ConfigError, GitError
from fedops.core.facts import Change, Commit, Touched, VersionTag
from fedops.core.findings import Finding, finding, slug_of
from fedops.core.ids import VERSION_PATH, BlobId, CommitId, GlobalVersion, RepoPath, SiteId, record_path
from fedops.core.records import MAX_VERSION_BYTES, ModelEntry, VersionRecord
from fedops.ports import Repository

FOLDERS = ("global", "sites")


def git_finding(error: GitError, where: str) -> Finding:
    """What git says of an object or of the history, as a finding."""
    slug = slug_of(error.slug) if error.slug in CATALOGUE else "object_corrupt"
    return finding(slug, where, got=error.message)


@dataclass(frozen=True)
class Step:
    """One commit of main that set the version record.

    Attributes:
        number: what the record says; where it cannot be read, what the commit's tag or its place says.
        place: of the commit on the line, counted from the oldest.
        model: without its tensors; None if the record cannot be read.
        bases: the versions whose models this one's numbers need.
        input_commit: that it was decided on, as its record says.
        fault: why the record cannot be read.
        follows: index among the line's steps of the version whose record main had before; -1: none.
    """

    number: int
    commit: CommitId
    place: int
    model: ModelEntry | None = None
    bases: frozenset[int] = frozenset()
    input_commit: str | None = None
    fault: Finding | None = None
    follows: int = -1

    @property
    def where(self) -> str:
        return GlobalVersion(self.number).short


@dataclass
class MainLine:
    """The line, oldest first.

    Attributes:
        commits: all of them.
        steps: those that set the version record to one that main never had, from the first that did.
        breaks: place -> why the commit before the one at this place cannot be read; what stands before it on this line
            is what the tag of an older version names. A place after the last: main's newest commit cannot be read.
        lost: version -> the commit that its tag names, and why it cannot be read.
        strays: place of a commit that changes global/ without being a version, such as one that puts the record of an
            earlier version back -> paths.
        due: index of the step whose global/ main must have: of the version that its record names, or of one that came
            later and has its tag.
        unreadable: places of commits of which nobody can say what they change.
    """

    repository: Repository
    commits: Sequence[CommitId] = ()
    steps: list[Step] = field(default_factory=list)
    breaks: dict[int, GitError] = field(default_factory=dict)
    lost: dict[int, tuple[CommitId, GitError]] = field(default_factory=dict)
    strays: dict[int, tuple[RepoPath, ...]] = field(default_factory=dict)
    due: int = -1
    unreadable: list[int] = field(default_factory=list)
    places: Mapping[CommitId, int] = field(default_factory=dict)
    records: dict[RepoPath, list[tuple[int, BlobId | None]]] = field(default_factory=dict)  # path -> place, new blob

    def place(self, commit: str | None) -> int | None:
        """Where a commit stands on the line; None: it does not."""
        return None if commit is None else self.places.get(CommitId(commit))

    def merges(self, until: CommitId, wanted: Mapping[SiteId, BlobId]) -> dict[SiteId, Commit]:
        """As `find_merges`, without a walk of its own.

        Raises:
            GitError: object_corrupt, where the commit that brought a record cannot be read.
        """
        found = {}
        for site, blob in wanted.items():
            history = self.records.get(record_path(site), [])
            newest = _after(history, self.places[until]) - 1
            if newest < 0 or history[newest][1] != blob:
                raise GitError(f"{record_path(site)}: the commit that brought it cannot be read", slug="object_corrupt")
            found[site] = self.repository.commit(self.commits[history[newest][0]])
        return found

    def model_sha256(self, until: CommitId, number: int) -> str | None:
        """Of a version's model, if the line up to a commit has that version.

        Raises:
            GitError: lineage_broken, where its record cannot be read.
        """
        for step in self.steps:
            if step.number == number and step.place <= self.places[until]:
                if step.model is None:
                    raise GitError(f"{step.where}: its record cannot be read", slug="lineage_broken")
                return step.model.sha256
        return None

    def brought(self, after: int, until: int) -> Iterator[tuple[RepoPath, BlobId]]:
        """The records that the commits after one place, up to another, put on main."""
        for path, history in sorted(self.records.items()):
            for _, blob in history[_after(history, after) : _after(history, until)]:
                if blob is not None:
                    yield path, blob


def _after(history: Sequence[tuple[int, BlobId | None]], place: int) -> int:
    """Index of the first entry after a place."""
    return bisect_right(history, place, key=lambda entry: entry[0])


def read_line(repository: Repository, tip: CommitId, tags: Mapping[int, VersionTag]) -> MainLine:
    """Read all of main's line; where it breaks at a damaged commit, go on from the tag of the next older version.

    Args:
        tags: version -> tag; nothing but that hint.
    """
    line = MainLine(repository)
    newest_first: list[Touched] = []
    breaks: dict[int, GitError] = {}
    starts: list[tuple[int | None, CommitId]] = [(None, tip)]
    starts += [(number, tags[number].commit) for number in sorted(tags, reverse=True)]
    for number, start in starts:
        if number is not None and not _is_older(repository, number, newest_first):
            continue
        length = len(newest_first)
        try:
            for one in repository.touched(start, FOLDERS):
                newest_first.append(one)  # noqa: PERF402 what came before an error is kept
            break
        except GitError as e:
            if e.slug != "object_corrupt":
                raise
            # Of several at one place, the first names the commit; a tag that cannot be followed only its own id.
            broken = breaks.setdefault(len(newest_first), e)
            if number is not None and len(newest_first) == length:
                line.lost[number] = (start, broken)
    line.commits = tuple(one.commit for one in reversed(newest_first))
    line.places = {commit: place for place, commit in enumerate(line.commits)}
    line.breaks = {len(newest_first) - count: e for count, e in breaks.items()}
    _fill(line, newest_first, {tag.commit: number for number, tag in tags.items()})
    return line


def _is_older(repository: Repository, number: int, newest_first: Sequence[Touched]) -> bool:
    """True if a version comes before all that the walk has met."""
    for one in reversed(newest_first):
        change = _change_of(VERSION_PATH, one.changes or ())
        if change is not None and change.blob is not None:
            step = _read_step(repository, Step(-1, one.commit, 0), change.blob)
            return step.fault is not None or number < step.number
    return True


def _fill(line: MainLine, newest_first: Sequence[Touched], tagged: Mapping[CommitId, int]) -> None:
    """Steps, strays and records of the line."""
    current: BlobId | None = None
    brought: dict[BlobId, int] = {}  # record -> index of the step that brought it
    follows = -1
    for place, one in enumerate(reversed(newest_first)):
        before = line.steps[follows].number if line.steps else -1
        guess = tagged.get(one.commit, before + 1)
        if one.changes is None:
            line.unreadable.append(place)
            try:
                blob = _version_blob(line.repository, one.commit)
            except GitError as e:
                if one.commit in tagged:
                    fault = git_finding(e, GlobalVersion(guess).short)
                    line.steps.append(Step(guess, one.commit, place, fault=fault, follows=follows))
                    follows = len(line.steps) - 1
                continue
            if blob is not None and blob != current:
                follows = _bring(line, brought, Step(guess, one.commit, place, follows=follows), blob)
            current = blob
            continue
        for change in one.changes:
            if change.path.startswith("sites/") and change.path.endswith("/submission.json"):
                line.records.setdefault(change.path, []).append((place, change.blob))
        steps, version = len(line.steps), _change_of(VERSION_PATH, one.changes)
        if version is not None and version.blob is not None:
            current = version.blob
            follows = _bring(line, brought, Step(guess, one.commit, place, follows=follows), current)
        paths = tuple(c.path for c in one.changes if c.path.startswith("global/"))
        if paths and current is not None and len(line.steps) == steps:
            line.strays[place] = paths
    line.due = max([follows, *(index for index, step in enumerate(line.steps) if step.commit in tagged)])


def _bring(line: MainLine, brought: dict[BlobId, int], step: Step, blob: BlobId) -> int:
    """Index of the step whose record a commit gives to main: a new one, or an earlier one that it puts back."""
    if blob not in brought:
        brought[blob] = len(line.steps)
        line.steps.append(_read_step(line.repository, step, blob))
    return brought[blob]


def _change_of(path: RepoPath, changes: Sequence[Change]) -> Change | None:
    return next((c for c in changes if c.path == path), None)


def _version_blob(repository: Repository, commit: CommitId) -> BlobId | None:
    return next((e.blob for e in repository.entries(commit, VERSION_PATH) if e.path == VERSION_PATH), None)


def _read_step(repository: Repository, guess: Step, blob: BlobId) -> Step:
    """What the record says of a step of which only the place in the line is known, and a number, should it say none."""
    try:
        data = repository.read(blob, max_bytes=MAX_VERSION_BYTES)
        record = load_json_document(data, VersionRecord, VERSION_PATH, max_bytes=MAX_VERSION_BYTES)
    except GitError as e:
        return replace(guess, fault=git_finding(e, guess.where))
    except ConfigError as e:
        return replace(guess, fault=finding("record_mismatch", guess.where, got=e.message))
    bases = {c.base_version for c in record.contributions} | {record.version}
    if record.base_version is not None:
        bases.add(record.base_version)
    # What was excluded for its bytes is judged again, by the version that it used up.
    bases |= {record.consumed[e.site] for e in record.excluded if e.judged == "bytes" and e.site in record.consumed}
    model = record.model.model_copy(update={"tensors": {}})
    chosen = record.witness.input_commit
    return replace(guess, number=record.version, model=model, bases=frozenset(bases), input_commit=chosen)
