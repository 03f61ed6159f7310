"""The documents that people edit: federation.yaml and policies/, as frozen models with a description per field."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from fedops.core.documents import Document
from fedops.core.ids import SiteId, site_id_fault
from fedops.core.registry_address import store_url_fault

Positive = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NaturalFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,63}$")]
Payload = Literal["full", "delta", "topk", "fp16", "int8"]
IntegerRule = Literal["max", "keep", "sum_of_deltas", "rounded_mean"]

EXTENSIONS = {"safetensors": "safetensors", "opaque": "bin"}


class Forge(Document):
    kind: Literal["git", "github"] = Field(default="git", description="git: the origin is the forge itself")
    repository: str | None = Field(default=None, description="owner/name on the forge; kind github only")
    api_url: str | None = Field(default=None, description="REST base URL of a GitHub Enterprise Server")

    @model_validator(mode="after")
    def _repository_fits(self) -> Forge:
        if (self.kind == "github") != (self.repository is not None):
            raise ValueError("repository belongs to kind github, and is required there")
        return self


def _store_url(value: str) -> str:
    if (fault := store_url_fault(value)) is not None:
        raise ValueError(fault)
    return value


class StoreSettings(Document):
    url: str = Field(description="ocidir:PATH or oci://host/namespace; a relative PATH is relative to a folder origin")
    retain_updates: Positive | None = Field(default=None, description="versions whose inputs are kept; null = all")

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        return _store_url(value)


class Wheel(Document):
    """The file of fedops itself that CI installs."""

    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] = Field(description="of the file")
    url: str | None = Field(
        default=None,
        pattern=r"^(https://[^\s\"'#;]+|\./[A-Za-z0-9._/-]+)\.whl$",
        description="where CI gets it: https://….whl, or ./….whl in this repository; null: the package index",
    )


class ModelSettings(Document):
    format: Literal["safetensors", "opaque"] = Field(default="safetensors", description="opaque: it is never opened")


class Federation(Document):
    """federation.yaml: marks a federation root."""

    schema_: Literal["fedops.federation/v1"] = Field(alias="schema")
    name: Name = Field(description="names the federation in messages and clones")
    fedops: str = Field(description="exact version of fedops that CI installs")
    wheel: Wheel | None = Field(default=None, description="the file of that version; null: CI on GitHub has none")
    branch: str = Field(default="main", pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,100}$", description="main branch")
    forge: Forge = Field(default=Forge(), description="where pull requests and issues are")
    store: StoreSettings = Field(description="where the models' bytes are")
    model: ModelSettings = Field(default=ModelSettings(), description="what a model file is")

    @property
    def extension(self) -> str:
        """Extension of the model files: fixes the pointers' names."""
        return EXTENSIONS[self.model.format]


class Person(Document):
    login: str = Field(min_length=1, max_length=100, description="account name on the forge, for people to read")
    id: Natural = Field(description="numeric account id on the forge; on forge git given by the lead")


class Lead(Person):
    keys: tuple[str, ...] = Field(default=(), description="SSH public keys")


class Site(Document):
    accounts: tuple[Person, ...] = Field(min_length=1, description="who may hand in for the site")
    keys: tuple[str, ...] = Field(default=(), description="SSH public keys that sign this site's submissions")
    store: str | None = Field(default=None, description="the site's own store; default: the federation's")
    state: Literal["active", "suspended"] = Field(default="active", description="suspended: not merged, not used")
    absent_if_none = frozenset({"store"})

    @field_validator("store")
    @classmethod
    def _known_scheme(cls, value: str | None) -> str | None:
        return None if value is None else _store_url(value)


class Sites(Document):
    """policies/sites.yaml: the roster."""

    schema_: Literal["fedops.sites/v1"] = Field(alias="schema")
    leads: tuple[Lead, ...] = Field(default=(), description="who may approve, change policies, roll back")
    sites: dict[str, Site] = Field(default_factory=dict, description="site id: its entry")

    @field_validator("sites")
    @classmethod
    def _ids_are_valid(cls, value: dict[str, Site]) -> dict[str, Site]:
        for site in value:
            if fault := site_id_fault(site):
                raise ValueError(
                    f"{site!r}: {fault}: use lower-case letters, digits and inner dashes, not a reserved name"
                )
        return value

    @model_validator(mode="after")
    def _accounts_and_keys_are_unique(self) -> Sites:
        seen: dict[object, str] = {}
        for site, entry in self.sites.items():
            for what in [("account", a.id) for a in entry.accounts] + [("key", _key_body(k)) for k in entry.keys]:
                if seen.setdefault(what, site) != site:
                    raise ValueError(f"{site}: its {what[0]} already belongs to {seen[what]}")
        return self

    def active(self) -> tuple[SiteId, ...]:
        """Active sites in ascending id."""
        return tuple(SiteId(s) for s in sorted(self.sites) if self.sites[s].state == "active")

    def judges_of(self, site: SiteId) -> frozenset[int]:
        """Account ids of the leads that may approve a site's submission: not of one whose key signs for it too."""
        entry = self.sites.get(site)
        own = {_key_body(k) for k in entry.keys} if entry is not None else set()
        return frozenset(lead.id for lead in self.leads if own.isdisjoint(_key_body(k) for k in lead.keys))

    def site_of(self, account_id: int) -> SiteId | None:
        """The one site that owns a forge account."""
        return next(
            (SiteId(s) for s, e in sorted(self.sites.items()) if any(a.id == account_id for a in e.accounts)), None
        )


def _key_body(key: str) -> str:
    """Type and key material of a public key, without its comment."""
    return " ".join(key.split()[:2])


class Limits(Document):
    update_bytes: Positive = Field(default=2_000_000_000, description="one update as stored")
    expanded_bytes: Positive = Field(default=4_000_000_000, description="its tensors in memory")
    header_bytes: Positive = Field(default=1_048_576, description="names and shapes in front of the tensors")
    record_bytes: Positive = Field(default=16_384, description="submission.json")
    pointer_bytes: Positive = Field(default=4_096, description="the .dvc file")
    tensors: Positive = Field(default=10_000, description="number of them in a model")


class MetricsPolicy(Document):
    allowed: tuple[str, ...] = Field(default=("loss", "accuracy"), description="names; all others are refused")
    max_count: Natural = Field(default=16, description="metrics of one submission")


class SubmissionPolicy(Document):
    """policies/submission.yaml: what a site may hand in."""

    schema_: Literal["fedops.submission-policy/v1"] = Field(default="fedops.submission-policy/v1", alias="schema")
    payloads: tuple[Payload, ...] = Field(
        default=("full",),
        min_length=1,
        description="full: a whole model; delta: update - base; others: not in this version",
    )
    limits: Limits = Field(default=Limits(), description="the most that is read")
    num_examples_max: Positive = Field(default=10_000_000, description="a larger claim is refused")
    metrics: MetricsPolicy = Field(default=MetricsPolicy(), description="what may be said of an update")
    update_norm_max: PositiveFloat | None = Field(default=None, description="L2 of the whole delta; null = no limit")
    require_signed: bool = Field(default=True, description="the commit is signed by one of the site's SSH keys")
    resubmit: Literal["supersede", "reject"] = Field(default="supersede", description="a second one on an unused base")


class Training(Document):
    """policies/training.yaml: what a site trains with."""

    schema_: Literal["fedops.training/v1"] = Field(default="fedops.training/v1", alias="schema")
    hyperparameters: dict[str, Any] = Field(default_factory=dict, description="given to the site's code as they are")
    workload: None = Field(default=None, description="not in this version")
    evaluation: None = Field(default=None, description="not in this version")
    gate: None = Field(default=None, description="not in this version")


class MergePolicy(Document):
    mode: Literal["auto", "review"] = Field(
        default="auto", description="auto: what is valid is merged; review: once leads approved it"
    )
    approvals: Positive = Field(default=1, description="by leads, of exactly the commit that is merged")


class PublishPolicy(Document):
    mode: Literal["push", "review"] = Field(default="push", description="review: a new version waits in a pull request")
    approvals: Positive = Field(default=1, description="by leads, of a version under review and of every rollback")


class Trigger(Document):
    quorum: Positive = Field(default=3, description="usable submissions that make a version")
    max_wait_hours: PositiveFloat | None = Field(
        default=None, description="from the oldest merge until quorum_after_wait is enough; null: never"
    )
    quorum_after_wait: Positive = Field(default=1, description="what is enough after max_wait_hours")
    grace_minutes: NaturalFloat = Field(default=0.0, description="wait for latecomers once the quorum is there")


class Staleness(Document):
    """Discount of an update by its staleness tau; `max` excludes what is older."""

    kind: Literal["constant", "inverse", "inverse_sqrt", "polynomial", "hinge"] = Field(
        default="inverse", description="the discount; inverse: 1 / (1 + tau), inverse_sqrt: 1 / sqrt(1 + tau)"
    )
    max: Natural | None = Field(default=5, description="what is older is left out; null: no limit")
    alpha: NaturalFloat | None = Field(default=None, description="polynomial: (1 + tau) ** -alpha; 0 = constant")
    a: PositiveFloat | None = Field(default=None, description="hinge: 1 / (a (tau - b) + 1) above b")
    b: NaturalFloat | None = Field(default=None, description="hinge: staleness up to which nothing is discounted")
    absent_if_none = frozenset({"alpha", "a", "b"})

    @model_validator(mode="after")
    def _parameters_fit_the_kind(self) -> Staleness:
        wanted = {"polynomial": {"alpha"}, "hinge": {"a", "b"}}.get(self.kind, set())
        given = {name for name in ("alpha", "a", "b") if getattr(self, name) is not None}
        if wanted != given:
            raise ValueError(f"{self.kind} takes {sorted(wanted) or 'no parameter'}, got {sorted(given) or 'none'}")
        return self


class Weights(Document):
    by: Literal["examples", "uniform"] = Field(default="examples", description="uniform: each counts one")
    max_num_examples: Positive | None = Field(default=None, description="a site counts at most so many; null: no limit")
    max_share: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="a site's largest part of one version; null: no limit"
    )
    normalize: Literal["weights", "count"] = Field(default="weights", description="count: by undiscounted weights")


class StrategySettings(Document):
    """A strategy's name and its own parameters; the strategy checks them."""

    model_config = Document.model_config | {"extra": "allow"}
    name: str = Field(
        default="fedavg", description="fedavg, median, trimmed_mean (beta), krum (f); further keys are these"
    )

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Integers(Document):
    default: IntegerRule = Field(
        default="max", description="for each integer and bool tensor that has no rule of its own"
    )
    tensors: dict[str, IntegerRule] = Field(default_factory=dict, description="name, or first pattern: its rule")


class Privacy(Document):
    clip_norm: PositiveFloat = Field(description="L2 norm to which each site's change is clipped")
    noise_multiplier: NaturalFloat = Field(description="standard deviation / clip_norm; only 0 in this version")
    denominator: Literal["participants"] | Positive = Field(default="participants", description="divides the sum")
    delta: Annotated[float, Field(gt=0, lt=1)] | None = Field(default=None, description="of (epsilon, delta)")
    max_epsilon: PositiveFloat | None = Field(default=None, description="not in this version")


class Signals(Document):
    to: Literal["contributors", "all", "stale"] = Field(
        default="contributors",
        description="who is told of a new version; stale: contributors, and who was told too long ago",
    )


class StopPolicy(Document):
    max_version: Positive | None = Field(default=None, description="number of the last version; null: go on")


class Aggregation(Document):
    """policies/aggregation.yaml: when and how the next version is made."""

    schema_: Literal["fedops.aggregation/v1"] = Field(default="fedops.aggregation/v1", alias="schema")
    merge: MergePolicy = Field(default=MergePolicy(), description="how submissions come onto main")
    publish: PublishPolicy = Field(default=PublishPolicy(), description="how versions come onto main")
    trigger: Trigger = Field(default=Trigger(), description="when a version is made")
    staleness: Staleness = Field(default=Staleness(), description="what an update on an older version counts")
    weights: Weights = Field(default=Weights(), description="what a site counts")
    strategy: StrategySettings = Field(default=StrategySettings(), description="how updates become a model")
    integers: Integers = Field(default=Integers(), description="tensors that are not floats")
    privacy: Privacy | None = Field(default=None, description="differential privacy; offline only in this version")
    signals: Signals = Field(default=Signals(), description="who is told to train")
    stop: StopPolicy = Field(default=StopPolicy(), description="when the federation is done")
