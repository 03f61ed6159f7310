"""The documents that the tool writes: submission record, version record, proposal, and the pointers they imply."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from fedops.core.documents import Document
from fedops.core.facts import Dtype
from fedops.core.ids import Digest, SiteId, remote_of, repository_of
from fedops.core.settings import Integers, Natural, Payload, Positive, Privacy, Staleness, Weights

Hex64 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Hex40 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Hex32 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
DigestText = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Metrics = dict[str, Finite]


class Record(Document):
    """sites/<id>/submission.json: what a site hands in, in words."""

    schema_: Literal["fedops.submission/v1"] = Field(default="fedops.submission/v1", alias="schema")
    site: str
    base_version: Natural
    num_examples: Positive
    format: Literal["safetensors", "opaque"]
    payload: Payload
    sha256: Hex64
    md5: Hex32
    size: Positive
    manifest: DigestText
    metrics: Metrics
    created_at: str
    base_sha256: Hex64 | None = None
    software: dict[str, str] | None = None
    absent_if_none = frozenset({"base_sha256", "software"})


class Draft(Document):
    """A record as given to the offline commands: `submit` would fill in what is missing."""

    schema_: Literal["fedops.submission/v1"] = Field(default="fedops.submission/v1", alias="schema")
    site: str
    base_version: Natural
    num_examples: Positive
    format: Literal["safetensors", "npz", "opaque"] | None = None
    payload: Payload = "full"
    sha256: Hex64 | None = None
    md5: Hex32 | None = None
    size: Positive | None = None
    manifest: DigestText | None = None
    metrics: Metrics = Field(default_factory=dict)
    created_at: str | None = None
    base_sha256: Hex64 | None = None
    software: dict[str, str] | None = None
    absent_if_none = frozenset({"base_sha256", "software"})


# ---------------------------------------------------------------- pointers


@dataclass(frozen=True)
class Pointer:
    """What a .dvc file of fedops says; rendered, never parsed, in a repository."""

    path: str  # "update.safetensors"
    md5: str
    size: int
    sha256: str
    manifest: Digest
    site: SiteId | None  # None: the global model


# NOTE: YAML readers take such hex for numbers (12345, 1e5, 0b10), and a digest would silently change its type.
_NUMBER_LIKE = re.compile(r"([0-9]+(e[0-9]+)?|0b[01]+)\Z")


def _hex(text: str) -> str:
    return f'"{text}"' if _NUMBER_LIKE.match(text) else text


def render_pointer(pointer: Pointer) -> bytes:
    """The one accepted form of a pointer: a real DVC file with fedops' facts under `meta`."""
    remote = f", remote: {remote_of(pointer.site)}" if pointer.site is not None else ""
    return (
        "outs:\n"
        f"- {{md5: {_hex(pointer.md5)}, size: {pointer.size}, hash: md5, path: {pointer.path}{remote}}}\n"
        "meta:\n"
        f'  fedops: {{repository: "{repository_of(pointer.site)}", manifest: "{pointer.manifest}", '
        f"sha256: {_hex(pointer.sha256)}}}\n"
    ).encode()


def update_pointer(record: Record, extension: str) -> Pointer:
    """The pointer that a submission record implies."""
    return Pointer(
        f"update.{extension}", record.md5, record.size, record.sha256, Digest(record.manifest), SiteId(record.site)
    )


# ---------------------------------------------------------------- versions

MAX_VERSION_BYTES = 16 << 20  # of a version record: it names every tensor, as the proposal that it comes from


class TensorEntry(Document):
    dtype: Dtype
    shape: tuple[Natural, ...]


class ModelEntry(Document):
    format: Literal["safetensors", "opaque"]
    size: Positive
    sha256: Hex64
    md5: Hex32
    manifest: DigestText
    tensors: dict[str, TensorEntry]


class StrategyEntry(Document):
    """Strategy with every resolved parameter; `code` says which code, by digest."""

    model_config = Document.model_config | {"extra": "allow"}
    name: str
    provider: str
    code: DigestText


class RuleEntry(Document):
    engine: Positive
    strategy: StrategyEntry
    staleness: Staleness
    weights: Weights
    integers: Integers
    privacy: Privacy | None


class Contribution(Document):
    site: str
    base_version: Natural
    staleness: Natural
    num_examples: Positive
    weight: Finite
    share: Finite
    delta_norm: Finite | None
    record_blob: Hex40
    pointer_blob: Hex40
    manifest: DigestText
    sha256: Hex64


class ExcludedEntry(Document):
    site: str
    record_blob: Hex40
    id: str
    slug: str
    judged: Literal["tree", "bytes"]


class Carried(Document):
    """State that goes from version to version."""

    optimizer: dict[str, Any] | None = None
    privacy: dict[str, Any] = Field(default_factory=dict)
    counters: dict[str, int] = Field(default_factory=dict)


class Unavailable(Document):
    """A submission that was eligible, but whose bytes could not be had: not consumed."""

    site: str
    record_blob: Hex40
    slug: str


class Witness(Document):
    """What cannot be recomputed: checked for its form, and input_commit for its place."""

    input_commit: Hex40 | None
    decided_at: str
    trigger: str
    unavailable: tuple[Unavailable, ...] = ()
    software: dict[str, str]
    run_url: str | None = None


class Source(Document):
    """Where a version that was not aggregated comes from: init by generator and seed, rollback and revert by version."""

    version: Natural | None = None
    generator: str | None = None
    seed: Natural | None = None
    absent_if_none = frozenset({"version", "generator", "seed"})


class VersionRecord(Document):
    """global/version.json: derived part (recomputes bit-equal) and witness."""

    schema_: Literal["fedops.version/v1"] = Field(default="fedops.version/v1", alias="schema")
    version: Natural
    base_version: Natural | None
    kind: Literal["init", "aggregate", "rollback", "revert"]
    source: Source | None
    status: Literal["running", "final"]
    model: ModelEntry
    rule: RuleEntry | None
    policy: DigestText
    denominator: Finite | None
    contributions: tuple[Contribution, ...]
    excluded: tuple[ExcludedEntry, ...]
    consumed: dict[str, Natural]
    carried: Carried
    metrics: Metrics
    witness: Witness


def model_pointer(record: VersionRecord, extension: str) -> Pointer:
    """The pointer of the global model that a version record implies."""
    model = record.model
    return Pointer(f"model.{extension}", model.md5, model.size, model.sha256, Digest(model.manifest), None)


class ProposedModel(Document):
    """A model without its manifest digest, since the proposal is part of that manifest."""

    format: Literal["safetensors", "opaque"]
    size: Positive
    sha256: Hex64
    md5: Hex32
    tensors: dict[str, TensorEntry]


class Proposal(Document):
    """What the aggregate job hands over: results and findings only; the artifact's config blob."""

    schema_: Literal["fedops.proposal/v1"] = Field(default="fedops.proposal/v1", alias="schema")
    version: Natural
    input_commit: Hex40
    model: ProposedModel
    norms: dict[str, Finite]
    scores: dict[str, Finite]
    metrics: Metrics
    excluded: tuple[ExcludedEntry, ...]
    unavailable: tuple[Unavailable, ...]
