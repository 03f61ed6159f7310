"""Plain values that the ports hand out and the core decides on; no behaviour, no input or output."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from fedops.core.findings import Finding
from fedops.core.ids import BlobId, CommitId, Digest, RepoPath, SiteId

# NOTE: numpy takes a tenth of a second to import, and commands that read no tensor must not wait for it.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    F64: TypeAlias = NDArray[np.float64]
else:
    F64: TypeAlias = Any

Json = Any
Dtype = Literal["F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL"]


@dataclass(frozen=True)
class TreeEntry:
    path: RepoPath
    mode: str  # "100644"
    blob: BlobId
    size: int  # bytes; 0 for a submodule


@dataclass(frozen=True)
class Change:
    """One path that a head changes against its merge base; a rename is a D and an A."""

    path: RepoPath
    status: Literal["A", "M", "D", "T"]
    mode: str  # of the head; "000000" when deleted
    blob: BlobId | None


@dataclass(frozen=True)
class Commit:
    id: CommitId
    parents: tuple[CommitId, ...]
    author: str
    committer: str
    committed_at: dt.datetime  # aware, UTC
    message: str


@dataclass(frozen=True)
class Touched:
    """One commit of a first-parent line, and what it changes in some folders against its first parent."""

    commit: CommitId
    changes: tuple[Change, ...] | None  # sorted by path; None: the commit's tree or its parent's cannot be read


@dataclass(frozen=True)
class VersionTag:
    version: int
    tag: str
    object: str  # id of the tag object, of the commit for a lightweight tag
    commit: CommitId
    annotated: bool
    message: str


@dataclass(frozen=True)
class RefUpdate:
    """One ref of an atomic push; old None: must not exist; new None: delete."""

    ref: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class Account:
    login: str
    id: int


@dataclass(frozen=True)
class Pull:
    number: int
    same_repository: bool  # False: from a fork
    author: Account
    head: CommitId
    branch: str
    title: str
    state: Literal["open", "merged", "closed"]
    opened_at: dt.datetime


@dataclass(frozen=True)
class Review:
    """What one account says of one head.

    Attributes:
        proof: signed commit that says so, where the forge has such a thing: it travels with main, for auditors. Not part
            of what is said: two reviews that differ in it alone are equal.
    """

    author: Account
    head: CommitId
    state: Literal["approved", "changes_requested", "dismissed"]
    proof: CommitId | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Marker:
    """A hidden line by which fedops finds its own comments and issues again."""

    kind: str
    key: str

    @property
    def text(self) -> str:
        return f"<!-- fedops:{self.kind} {self.key} -->"

    def stamp(self, body: str) -> str:
        """The body with this marker as its first line; one that has it stays as it is."""
        return body if self.marks(body) else f"{self.text}\n{body}"

    def marks(self, body: str) -> bool:
        """True if the first line is this marker; further down anybody's text may be quoted, so nothing is looked for."""
        return body.split("\n", 1)[0].rstrip("\r") == self.text


@dataclass(frozen=True)
class Issue:
    number: int
    title: str
    body: str
    labels: frozenset[str]
    open: bool


MergeOutcome = Literal["merged", "already_merged", "head_moved", "conflict"]


@dataclass(frozen=True)
class Layer:
    sha256: str  # hex
    size: int
    title: str  # a fixed name that is checked, never a path to write to


@dataclass(frozen=True)
class Artifact:
    """One manifest in the store: one layer of model bytes, annotations, and a small config blob."""

    ref: str  # "<repository>@<digest>", for display
    manifest: Digest
    layer: Layer
    annotations: Mapping[str, str]
    config: bytes


@dataclass(frozen=True)
class TensorSpec:
    dtype: Dtype
    shape: tuple[int, ...]


Specs = Mapping[str, TensorSpec]


class TensorSource(Protocol):
    """A model file, opened by an adapter; the core sees only this."""

    @property
    def specs(self) -> Specs: ...

    def read(self, name: str, start: int, count: int) -> NDArray[Any]:
        """Read elements start … start+count of one tensor.

        Returns:
            1-D array of `count` elements in C order; float dtypes (F64 F32 F16 BF16) as float64, others as stored.
        """
        ...


@dataclass(frozen=True)
class Submission:
    """A submission as merged on main."""

    site: SiteId
    base_version: int
    num_examples: int
    payload: str
    sha256: str
    md5: str
    size: int
    manifest: Digest
    record_blob: BlobId
    pointer_blob: BlobId
    commit: CommitId  # the first-parent commit of main that brought the record
    merged_at: dt.datetime  # its committer date, UTC
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Excluded:
    submission: Submission
    finding: Finding
    judged: Literal["tree", "bytes"]


@dataclass(frozen=True)
class Weighted:
    submission: Submission
    staleness: int
    weight: float
    share: float


@dataclass(frozen=True)
class Aggregate:
    use: tuple[Submission, ...]
    excluded: tuple[Excluded, ...]
    trigger: str = "quorum"  # quorum | max_wait: why it fires now, for the witness


@dataclass(frozen=True)
class Wait:
    """Attributes:
    pull: of the version that is under review, for the reason "review".
    """

    reason: Literal["nothing_new", "quorum", "grace", "review", "rejected", "unavailable"]
    missing: tuple[SiteId, ...] = ()
    until: dt.datetime | None = None
    pull: int | None = None


@dataclass(frozen=True)
class Stop:
    reason: Literal["max_version", "plateau", "budget"]


Decision = Aggregate | Wait | Stop


VerdictState = Literal["accepted", "rejected", "pending", "not_a_submission"]


@dataclass(frozen=True)
class Verdict:
    """What the checks say of one head commit."""

    head: CommitId
    policy: Digest
    main: CommitId  # judged against this main; merge refuses a verdict of another policy digest
    state: VerdictState
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Scan:
    """First pass over all updates, float tensors only, site order."""

    norms: tuple[float, ...]  # L2 of each delta
    distances: tuple[tuple[float, ...], ...] = ()  # squared L2 between deltas
