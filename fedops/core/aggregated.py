"""What the offline `fedops aggregate` made of a plan; as a document, the `version.json` beside the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from fedops.core.documents import Document
from fedops.core.findings import Finding
from fedops.core.records import Finite, Hex64, Metrics, RuleEntry, TensorEntry
from fedops.core.settings import Natural, Positive

MODEL_FILE = "model.safetensors"
RECORD_FILE = "version.json"


class AggregatedModel(Document):
    path: str = Field(default=MODEL_FILE, description="relative to the folder of this document")
    sha256: Hex64
    size: Positive
    tensors: dict[str, TensorEntry]


class AggregatedContribution(Document):
    """What one submission counted; with `clip_norm` its delta was multiplied by `clip_factor`."""

    site: str
    base_version: Natural
    staleness: Natural
    num_examples: Positive
    weight: Finite
    share: Finite
    delta_norm: Finite | None
    clip_factor: Finite | None
    score: Finite | None = None
    sha256: Hex64 | None = Field(description="of its bytes, if the plan or record states it")


class LeftOut(Document):
    """One submission that was not used, with one reason."""

    submission: str = Field(description="submissions/<place in the plan>")
    site: str | None
    id: str
    slug: str


class AggregatedVersion(Document):
    """A version made from a plan. Equal plans and equal files give equal bytes: no clock, no machine in it."""

    schema_: Literal["fedops.aggregate/v1"] = Field(default="fedops.aggregate/v1", alias="schema")
    outcome: Literal["complete", "partial"]
    version: Natural
    base_version: Natural
    model: AggregatedModel
    rule: RuleEntry
    denominator: Finite
    contributions: tuple[AggregatedContribution, ...]
    chosen: str | None = None
    metrics: Metrics
    excluded: tuple[LeftOut, ...]

    def without_norms(self) -> AggregatedVersion:
        """The same without what tells how far each site moved the model: with privacy nobody is told."""
        hidden = {"delta_norm": None, "clip_factor": None}
        rows = tuple(c.model_copy(update=hidden) for c in self.contributions)
        return self.model_copy(update={"contributions": rows})


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        made: the version; None: refused, and nothing was written.
        changed: files were written, or with a dry run would have been.
        findings: of the submissions in their order, then of the whole.
    """

    made: AggregatedVersion | None
    changed: bool
    findings: tuple[Finding, ...]

    @property
    def word(self) -> Literal["complete", "partial", "refused"]:
        return "refused" if self.made is None else self.made.outcome
