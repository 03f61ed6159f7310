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
    site: str = Field(description="site id")
    base_version: Natural = Field(description="global version that the update was trained on")
    num_examples: Positive = Field(description="local training examples")
    format: Literal["safetensors", "opaque"] = Field(description="of the file")
    payload: Payload = Field(description="what the file holds")
    sha256: Hex64 = Field(description="of the stored bytes")
    md5: Hex32 = Field(description="of the same bytes; DVC finds them by it")
    size: Positive = Field(description="bytes")
    manifest: DigestText = Field(description="of the OCI artifact in the site's store")
    metrics: Metrics = Field(description="name: value, as the policy allows")
    created_at: str = Field(description="UTC, as the site says; nothing is decided by it")
    base_sha256: Hex64 | None = Field(default=None, description="of the base model; absent, or right")
    software: dict[str, str] | None = Field(default=None, description="name: version, at the site")
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
    dtype: Dtype = Field(description="as safetensors writes it")
    shape: tuple[Natural, ...] = Field(description="lengths of the axes")


class ModelEntry(Document):
    format: Literal["safetensors", "opaque"] = Field(description="of the file")
    size: Positive = Field(description="bytes")
    sha256: Hex64 = Field(description="of the stored bytes")
    md5: Hex32 = Field(description="of the same bytes; DVC finds them by it")
    manifest: DigestText = Field(description="of the OCI artifact in the store's `global`")
    tensors: dict[str, TensorEntry] = Field(description="name: what it is; empty for opaque models")


class StrategyEntry(Document):
    """Strategy with every resolved parameter; `code` says which code, by digest."""

    model_config = Document.model_config | {"extra": "allow"}
    name: str = Field(description="as in the policy, with every parameter beside it")
    provider: str = Field(description="package that the rule's code came from")
    code: DigestText = Field(description="digest of that code")


class RuleEntry(Document):
    engine: Positive = Field(description="number of the arithmetic; the same number gives the same bits")
    strategy: StrategyEntry = Field(description="the rule with every parameter")
    staleness: Staleness = Field(description="as in the policy")
    weights: Weights = Field(description="as in the policy")
    integers: Integers = Field(description="as in the policy")
    privacy: Privacy | None = Field(description="as in the policy")


class Contribution(Document):
    site: str = Field(description="site id")
    base_version: Natural = Field(description="global version that it was trained on")
    staleness: Natural = Field(description="version being made - 1 - base version")
    num_examples: Positive = Field(description="as its record says")
    weight: Finite = Field(description="examples times discount, within the policy's caps")
    share: Finite = Field(description="weight / sum of all weights")
    delta_norm: Finite | None = Field(description="L2 norm of its change; null where no rule needs it")
    score: Finite | None = Field(default=None, description="krum: sum of the squared distances to its nearest others")
    record_blob: Hex40 = Field(description="git's name of its submission.json")
    pointer_blob: Hex40 = Field(description="git's name of its pointer")
    manifest: DigestText = Field(description="of its artifact")
    sha256: Hex64 = Field(description="of its bytes")
    absent_if_none = frozenset({"score"})


class ExcludedEntry(Document):
    site: str = Field(description="site id")
    record_blob: Hex40 = Field(description="git's name of its submission.json")
    id: str = Field(description="of the finding that says why")
    slug: str = Field(description="of the same finding")
    judged: Literal["tree", "bytes"] = Field(description="by the tree alone, or by the stored bytes")


class Carried(Document):
    """State that goes from version to version."""

    optimizer: dict[str, Any] | None = Field(default=None, description="not in this version")
    privacy: dict[str, Any] = Field(default_factory=dict, description="not in this version")
    counters: dict[str, int] = Field(default_factory=dict, description="not in this version")


class Unavailable(Document):
    """A submission that was eligible, but whose bytes could not be had: not consumed."""

    site: str = Field(description="site id")
    record_blob: Hex40 = Field(description="git's name of its submission.json")
    slug: str = Field(description="of the finding that says why")


class Witness(Document):
    """What cannot be recomputed: checked for its form, and input_commit for its place."""

    input_commit: Hex40 | None = Field(description="whose tree was read; null for v0")
    decided_at: str = Field(description="UTC, by the clock that decided")
    trigger: str = Field(description="why then: quorum, max_wait, init, or rollback")
    unavailable: tuple[Unavailable, ...] = Field(default=(), description="eligible, but not to be had")
    software: dict[str, str] = Field(description="name: version, where it was computed")
    run_url: str | None = Field(default=None, description="of the run in CI")


class Source(Document):
    """Where a version that was not aggregated comes from: init by generator and seed, rollback and revert by version."""

    version: Natural | None = Field(default=None, description="that a rollback or revert takes")
    generator: str | None = Field(default=None, description="that made v0's values")
    seed: Natural | None = Field(default=None, description="of the generator")
    absent_if_none = frozenset({"version", "generator", "seed"})


class VersionRecord(Document):
    """global/version.json: derived part (recomputes bit-equal) and witness."""

    schema_: Literal["fedops.version/v1"] = Field(default="fedops.version/v1", alias="schema")
    version: Natural = Field(description="number of this version")
    base_version: Natural | None = Field(description="the version before; null for v0")
    kind: Literal["init", "aggregate", "rollback", "revert"] = Field(description="how it came to be")
    source: Source | None = Field(description="of a version that was not aggregated")
    status: Literal["running", "final"] = Field(description="final: there will be no further version")
    model: ModelEntry = Field(description="the model's bytes, in words")
    rule: RuleEntry | None = Field(description="how it was computed")
    policy: DigestText = Field(description="digest of federation.yaml and policies/ that held")
    denominator: Finite | None = Field(description="what the weighted sum was divided by")
    contributions: tuple[Contribution, ...] = Field(description="what was used, by ascending site")
    chosen: str | None = Field(default=None, description="krum: site of the contribution that was taken")
    excluded: tuple[ExcludedEntry, ...] = Field(description="what a rule left out")
    consumed: dict[str, Natural] = Field(
        description="site: base version of its last submission that was used or left out"
    )
    carried: Carried = Field(description="state that goes from version to version")
    metrics: Metrics = Field(description="means of the metrics of the sites, by num_examples")
    witness: Witness = Field(description="what cannot be computed again")
    absent_if_none = frozenset({"chosen"})


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
