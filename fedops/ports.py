"""What fedops needs from outside, as Protocols; adapters implement them, tests fake them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from fedops.core.facts import (
    Account,
    Artifact,
    Change,
    Commit,
    Issue,
    Json,
    Layer,
    Marker,
    MergeOutcome,
    Pull,
    RefUpdate,
    Review,
    Specs,
    TensorSource,
    Touched,
    TreeEntry,
    VersionTag,
)
from fedops.core.findings import Finding
from fedops.core.forge_settings import ForgeSettings
from fedops.core.health import Attributes, KeyFacts, WorkTree
from fedops.core.ids import BlobId, CommitId, Digest, RepoPath, SiteId
from fedops.core.settings import Limits
from fedops.core.workflows import Event, Workflow


class Repository(Protocol):
    """One clone. Reads objects, never a work tree; a missing ref is None, broken git is a GitError."""

    def fetch(self, pulls: Collection[int] | None = None) -> None:
        """Fetch main, global@*, refs/fedops/* and refs/pull/N/head of origin into the same names, pruned.

        main arrives as refs/remotes/origin/main; `resolve("main")` reads that one.

        Args:
            pulls: numbers of the pull requests whose heads are wanted, with what they need; None: of all, of every year.
        """
        ...

    def resolve(self, ref: str) -> CommitId | None:
        """The commit that a ref names ("main" = origin's main), peeled; None if there is none."""
        ...

    def refs_below(self, under: str) -> Mapping[str, str]:
        """All refs below a folder such as "refs/fedops/heartbeat", by one listing: full name -> object id.

        Broken refs are left out; `resolve` says what is wrong with one.
        """
        ...

    def entries(self, commit: CommitId, under: str = "") -> Sequence[TreeEntry]:
        """All files below a folder, by one recursive ls-tree, sorted by path."""
        ...

    def folders(self, commit: CommitId, under: str) -> Sequence[str]:
        """Names of the folders directly below a folder, whatever is in them; none if there is no such folder."""
        ...

    def read(self, blob: BlobId, *, max_bytes: int) -> bytes:
        """The bytes of a blob.

        Raises:
            GitError: the blob is larger than max_bytes (said before reading), missing or corrupt.
        """
        ...

    def changes(self, base: CommitId, head: CommitId) -> Sequence[Change]:
        """What head changes since its merge base with `base`; renames are never detected."""
        ...

    def commits(self, after: CommitId | None, until: CommitId) -> Iterator[Commit]:
        """First-parent line from `until` back to, and without, `after`; newest first, lazily."""
        ...

    def touched(self, until: CommitId, under: Sequence[str]) -> Iterator[Touched]:
        """The whole first-parent line of `until`, newest first, with what each commit changes below these folders.

        One walk, for those who read all of history. The root is compared with nothing; renames are never detected.

        Raises:
            GitError: object_corrupt, where the line ends at a commit that cannot be read; the newer ones came before.
        """
        ...

    def commit(self, commit: CommitId) -> Commit:
        """One commit's facts."""
        ...

    def merged_into(self, tip: CommitId, commits: Collection[CommitId]) -> frozenset[CommitId]:
        """Those of the commits that are `tip` or come before it; one of which something is missing is none of them."""
        ...

    def versions(self, above: int = -1) -> Sequence[VersionTag]:
        """Tags global@vN.0.0 with N > above, by number; foreign tags are not parsed."""
        ...

    def signer(self, commit: CommitId, keys: Sequence[str]) -> str | None:
        """The one of `keys` ("ssh-ed25519 AAAA… comment") that signed the commit, else None."""
        ...

    def write_commit(
        self,
        parents: Sequence[CommitId],
        files: Mapping[RepoPath, bytes | None],
        message: str,
        *,
        at: dt.datetime,
        key: Path | None = None,
    ) -> CommitId:
        """Write a commit object; no ref moves. Its tree is the first parent's with `files` replaced (None deletes).

        Args:
            at: author and committer date.
            key: SSH private key file that signs the commit.
        """
        ...

    def is_ancestor(self, commit: CommitId, of: CommitId) -> bool: ...

    def write_tag(self, name: str, commit: CommitId, message: str) -> str:
        """Write an annotated tag object whose tagger and date are those of its commit; no ref moves."""
        ...

    def tag_id(self, name: str, commit: CommitId, message: str) -> str:
        """The id of the object that `write_tag` would write; nothing is written."""
        ...

    def push(self, updates: Sequence[RefUpdate]) -> bool:
        """Push all refs to origin in one atomic push with leases; False: the race is lost and nothing moved."""
        ...


class Forge(Protocol):
    """PRs, issues, statuses. Lists are complete. Every call may be repeated: the second time changes nothing."""

    def whoami(self) -> Account: ...

    def open_pulls(self) -> Sequence[Pull]:
        """Oldest first; the heads are in the clone."""
        ...

    def pull(self, number: int) -> Pull: ...

    def submit_pull(self, head: CommitId, branch: str, title: str, body: str) -> Pull:
        """Publish head as a PR; an open PR of the same branch is moved to it."""
        ...

    def reviews(self, number: int) -> Sequence[Review]:
        """Latest review of each account."""
        ...

    def review(self, number: int, head: CommitId, state: Literal["approved", "changes_requested"], body: str) -> bool:
        """Review this head as whoami; True: something changed."""
        ...

    def merge(self, number: int, head: CommitId, message: str) -> MergeOutcome:
        """Make a real merge commit, if and only if the PR's head is still `head`."""
        ...

    def close_pull(self, number: int) -> None: ...

    def set_status(
        self, commit: CommitId, state: Literal["success", "failure", "pending"], context: str, text: str
    ) -> None: ...

    def status(self, commit: CommitId, context: str) -> tuple[str, str] | None:
        """(state, text) last set, or None."""
        ...

    def statuses(self, commits: Collection[CommitId], context: str) -> Mapping[CommitId, tuple[str, str]]:
        """The same of several commits; those without one are left out."""
        ...

    def upsert_comment(self, number: int, marker: Marker, body: str) -> bool:
        """Write or edit the one comment with this marker on a PR or issue; True: something changed."""
        ...

    def comments(self, number: int) -> Sequence[str]:
        """Bodies, oldest first."""
        ...

    def ensure_issue(self, marker: Marker, title: str, body: str, labels: frozenset[str]) -> Issue:
        """The issue with this marker, opened if there is none (open or closed)."""
        ...

    def issues(
        self,
        labels: frozenset[str],
        *,
        open: bool = True,  # noqa: A002 the forge's own word
        since: dt.datetime | None = None,
    ) -> Sequence[Issue]:
        """Issues that carry all labels and are (not) open; PRs are left out.

        Args:
            since: those that nobody touched since then may be left out.
        """
        ...

    def close_issue(self, number: int) -> None: ...

    def beat(self, site: SiteId, version: int, state: str, at: dt.datetime) -> None:
        """Overwrite a site's heartbeat; advisory only."""
        ...

    def beats(self) -> Mapping[SiteId, tuple[int, str, dt.datetime]]: ...


@runtime_checkable
class ForgeProbe(Protocol):
    """A forge whose repositories have settings that can keep the loop from working."""

    def settings(self, branch: str, tag: str, packages: Sequence[tuple[str, str]]) -> ForgeSettings:
        """Read them; what the token may not read is in them as Unread.

        Args:
            branch: short name of the main branch.
            tag: name of a version's tag, there or not, whose rules are wanted.
            packages: (owner, name) of packages in the forge's own registry.
        """
        ...


@runtime_checkable
class Releases(Protocol):
    """A forge that has pages for people beside version tags."""

    def ensure_release(self, tag: str, title: str, body: str) -> bool:
        """Have the page of a tag that is there; True: something changed."""
        ...


class Store(Protocol):
    """Model bytes by digest. put is idempotent and tags only by content; `tag` sets a display tag such as v9 later."""

    def put(self, repository: str, file: Path, annotations: Mapping[str, str], config: bytes = b"{}") -> Artifact:
        """Upload one file as a one-layer manifest, tagged :md5-<hex> and :m-<manifest hex>.

        Args:
            repository: "global", "sites/<id>" or "archive".
            file: the layer's bytes; its title is fixed by the repository ("update.<ext>" or "model.<ext>").
        """
        ...

    def tag(self, repository: str, digest: Digest, tag: str) -> None: ...

    def drop(self, repository: str, digest: Digest) -> bool:
        """Remove a manifest and its bytes (retention); False: this store cannot."""
        ...

    def copy(self, source: Store, repository: str, digest: Digest, target_repository: str) -> Artifact:
        """Copy one manifest and its blobs from source's repository into this store's target_repository."""
        ...

    def manifest(self, repository: str, digest: Digest) -> Artifact:
        """Read one manifest by digest; its bytes are checked against the digest; one layer, known types.

        Raises:
            StoreError: slug object_missing, digest_mismatch, foreign_layer_refused, layer_title_invalid, …
        """
        ...

    def get(self, repository: str, layer: Layer, target: Path, *, md5: str | None = None) -> None:
        """Download one layer; size, sha256 (and md5) checked in one pass, then renamed to target.

        Raises:
            StoreError: slug object_missing, size_mismatch, hash_mismatch.
        """
        ...

    def resolve(self, ref: str) -> Digest | None:
        """Manifest digest of "<repository>:<tag>"; mutable, for display and audit only."""
        ...


class OpenModel(TensorSource, Protocol):
    """A model file that passed its preflight: container, sizes, names, dtypes; values are not checked yet."""

    @property
    def path(self) -> Path: ...

    @property
    def format(self) -> Literal["safetensors", "npz"]: ...

    @property
    def size(self) -> int:
        """Bytes of the file."""
        ...

    @property
    def has_metadata(self) -> bool:
        """True if the file carries free metadata (refused in a repository, dropped from drafts)."""
        ...

    @property
    def head(self) -> bytes | None:
        """What stands before the data, if the file is just that and the data in canonical order; else None.

        Whoever reads all data in order can then hash the file in passing.
        """
        ...

    def read_into(self, position: int, buffer: memoryview) -> None:
        """Fill a buffer with stored little-endian bytes of the data in canonical order; safe in several threads.

        Args:
            position: bytes from the beginning of the canonical data.
            buffer: bytes, writable; overwritten.

        Raises:
            StoreError: the file has become shorter.
        """
        ...

    def sha256(self) -> str:
        """Hex digest of the file as it was handed in, by a pass of its own."""
        ...

    def check_unchanged(self) -> None:
        """Raise StoreError if the file has changed since it was opened; to be called before its data is used."""
        ...

    def close(self) -> None: ...


class ModelSink(Protocol):
    """A canonical safetensors file that is being written; no file of the final name exists before `commit`."""

    def append(self, data: memoryview) -> None:
        """Write the next bytes of the canonical data; they may be overwritten when this returns."""
        ...

    def commit(self) -> tuple[str, str, int]:
        """Make the file durable, give it its name; returns (sha256 hex, md5 hex or "", size in bytes)."""
        ...


class Models(Protocol):
    """Opens model files; the one way by which use cases reach tensors on disk."""

    def open(self, path: Path, limits: Limits, where: str) -> tuple[OpenModel | None, tuple[Finding, ...]]:
        """Preflight a file by its content and open it; None if a finding is an error."""
        ...

    def digests(self, path: Path) -> tuple[str, str, int]:
        """(sha256 hex, md5 hex, size in bytes) in one pass."""
        ...

    def rewrite(self, source: OpenModel, target: Path) -> tuple[str, str, int]:
        """Write the canonical safetensors file of a model; returns its (sha256 hex, md5 hex, size in bytes)."""
        ...

    def create(self, target: Path, specs: Specs, *, md5: bool = True) -> AbstractContextManager[ModelSink]:
        """Begin the canonical safetensors file of a model; what is not committed at the end of the block is removed.

        Args:
            md5: also take the md5 (DVC wants it); False is faster, and commit gives "" for it.
        """
        ...


@dataclass(frozen=True)
class TrainingJob:
    """One local training, as the site's own code is asked to do it; all paths are absolute.

    Args:
        model: the global model to start from; to be read only.
        update: where the code leaves the new model.
        result: where the code leaves {"num_examples": N, "metrics": {name: number}}.
        fault: where fedops' own wrapper leaves one line that says what was wrong with the code.
        log: everything that the code prints.
        config: {"hyperparameters": …, "version": N}.
    """

    site: SiteId
    version: int
    model: Path
    update: Path
    result: Path
    fault: Path
    log: Path
    config: Mapping[str, Json]


class Trainer(Protocol):
    """Runs the site's own code."""

    def run(self, job: TrainingJob) -> None:
        """Run one training to its end.

        Raises:
            TrainingError: the code could not be started, failed, or was killed; the log says more.
        """
        ...


class Machine(Protocol):
    """What `fedops doctor` looks at besides the other ports; nothing is changed.

    Every call may raise a FedopsError that says why the question cannot be answered.
    """

    def git_version(self) -> str:
        """As `git --version` prints it."""
        ...

    def ssh_version(self) -> str:
        """As `ssh -V` prints it; ssh-keygen is there."""
        ...

    def python_version(self) -> tuple[int, int, int]: ...

    def distributions(self) -> Mapping[str, str]:
        """Installed distributions that could be taken for fedops -> version."""
        ...

    def work_tree(self, root: Path, main: str) -> WorkTree: ...

    def attributes(self, root: Path, paths: Sequence[str]) -> Sequence[Attributes]:
        """The attributes that git gives each path."""
        ...

    def git_config(self, root: Path, key: str) -> str | None:
        """The value of a configuration key in a clone; None if it is not set."""
        ...

    def key_facts(self, path: Path) -> KeyFacts:
        """What there is to say of a private key file, without its content."""
        ...


class BlobReader(Protocol):
    """The bytes of one layer, read once and in order by one thread at a time; memory is the caller's buffer.

    The call that would give the last byte raises instead if size, sha256 (or md5) are wrong: what came before must not
    be used then.
    """

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill a buffer of bytes from its beginning; returns how many came (at least 1), 0 after the last.

        Raises:
            StoreError: slug size_mismatch, hash_mismatch; or the store is broken, after retries where it stopped.
        """
        ...

    def close(self) -> None: ...


@runtime_checkable
class Streaming(Protocol):
    """A store whose layers can be used while they come, without a file; several at once."""

    def open_blob(self, repository: str, layer: Layer, *, md5: str | None = None) -> BlobReader:
        """Begin to read one layer.

        Args:
            layer: as the record says: what comes is compared with it.
            md5: hex digest that the bytes must have besides; None: not taken.

        Raises:
            StoreError: slug object_missing, size_mismatch.
        """
        ...


@runtime_checkable
class WriteProbe(Protocol):
    """A store that can say whether it would take a model, without taking one."""

    def write_fault(self, repository: str) -> str | None:
        """Why nothing can be put into a repository; None if nothing is known against it.

        Raises:
            StoreError: the store cannot be reached.
        """
        ...


@runtime_checkable
class InPlace(Protocol):
    """A store that keeps each layer as a plain file on this machine, so that nothing must be copied to be read."""

    def layer_file(self, repository: str, layer: Layer) -> Path:
        """The file of one layer, of the size that the layer says; its bytes are not looked at: whoever reads, hashes.

        Raises:
            StoreError: slug object_missing, size_mismatch.
        """
        ...

    def small_files(self, repository: str, artifact: Artifact) -> Sequence[Path]:
        """The files of an artifact's manifest and config."""
        ...


class YamlEditor(Protocol):
    """Edits a YAML text in place: comments, order and quotes of everything else stay."""

    def put(self, data: bytes, path: Sequence[str], value: Json) -> bytes:
        """Set the value at a path of map keys."""
        ...

    def append(self, data: bytes, path: Sequence[str], value: Json) -> bytes:
        """Add a value to the list at a path of map keys."""
        ...


@dataclass(frozen=True)
class WorkflowRequest:
    """One run of one workflow file.

    Args:
        commit: whose copy of the file runs.
    """

    workflow: Workflow
    commit: CommitId
    event: Event


@dataclass(frozen=True)
class Dispatch:
    """A job asked the forge to start a workflow."""

    file: str
    inputs: Mapping[str, str]


Conclusion = Literal["success", "failure", "skipped", "timed_out"]


@dataclass(frozen=True)
class WorkflowResult:
    """How a run ended.

    Attributes:
        number: of the run, unique at its origin.
        jobs: each job of the file -> "success", "failure" or "skipped".
        outputs: job -> what its steps put out.
        log: text file of everything that the steps printed.
    """

    number: int
    conclusion: Conclusion
    jobs: Mapping[str, str]
    outputs: Mapping[str, Mapping[str, str]]
    seconds: float
    log: Path
    dispatches: tuple[Dispatch, ...] = ()


class WorkflowRunner(Protocol):
    """Runs workflow files as a forge's CI service would."""

    def run(self, request: WorkflowRequest) -> WorkflowResult:
        """Run one file to its end.

        Raises:
            ConfigError: the runner is not installed, or the file asks for what it cannot do.
        """
        ...


class Clock(Protocol):
    def now(self) -> dt.datetime:
        """Aware, UTC."""
        ...

    def sleep(self, seconds: float) -> None: ...


class Progress(Protocol):
    def start(self, what: str, total: int | None, unit: Literal["bytes", "sites", "commits", "steps"]) -> int:
        """Begin a task; returns its id."""
        ...

    def advance(self, task: int, amount: int) -> None: ...

    def finish(self, task: int, note: str = "") -> None: ...
