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
    kind: Literal["git", "github"] = "git"
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

    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    url: str | None = Field(
        default=None,
        pattern=r"^(https://[^\s\"'#;]+|\./[A-Za-z0-9._/-]+)\.whl$",
        description="where CI gets it: https://….whl, or ./….whl in this repository; null: the package index",
    )


class ModelSettings(Document):
    format: Literal["safetensors", "opaque"] = "safetensors"


class Federation(Document):
    """federation.yaml: marks a federation root."""

    schema_: Literal["fedops.federation/v1"] = Field(alias="schema")
    name: Name
    fedops: str = Field(description="exact version of fedops that CI installs")
    wheel: Wheel | None = Field(default=None, description="the file of that version; null: CI on GitHub has none")
    branch: str = Field(default="main", pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,100}$")
    forge: Forge = Forge()
    store: StoreSettings
    model: ModelSettings = ModelSettings()

    @property
    def extension(self) -> str:
        """Extension of the model files: fixes the pointers' names."""
        return EXTENSIONS[self.model.format]


class Person(Document):
    login: str = Field(min_length=1, max_length=100)
    id: Natural = Field(description="numeric account id on the forge; on forge git given by the lead")


class Lead(Person):
    keys: tuple[str, ...] = Field(default=(), description="SSH public keys")


class Site(Document):
    accounts: tuple[Person, ...] = Field(min_length=1)
    keys: tuple[str, ...] = Field(default=(), description="SSH public keys that sign this site's submissions")
    store: str | None = Field(default=None, description="the site's own store; default: the federation's")
    state: Literal["active", "suspended"] = "active"
    absent_if_none = frozenset({"store"})

    @field_validator("store")
    @classmethod
    def _known_scheme(cls, value: str | None) -> str | None:
        return None if value is None else _store_url(value)


class Sites(Document):
    """policies/sites.yaml: the roster."""

    schema_: Literal["fedops.sites/v1"] = Field(alias="schema")
    leads: tuple[Lead, ...] = ()
    sites: dict[str, Site] = Field(default_factory=dict)

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
    update_bytes: Positive = 2_000_000_000
    expanded_bytes: Positive = 4_000_000_000
    header_bytes: Positive = 1_048_576
    record_bytes: Positive = 16_384
    pointer_bytes: Positive = 4_096
    tensors: Positive = 10_000


class MetricsPolicy(Document):
    allowed: tuple[str, ...] = ("loss", "accuracy")
    max_count: Natural = 16


class SubmissionPolicy(Document):
    """policies/submission.yaml: what a site may hand in."""

    schema_: Literal["fedops.submission-policy/v1"] = Field(default="fedops.submission-policy/v1", alias="schema")
    payloads: tuple[Payload, ...] = Field(default=("full",), min_length=1)
    limits: Limits = Limits()
    num_examples_max: Positive = 10_000_000
    metrics: MetricsPolicy = MetricsPolicy()
    update_norm_max: PositiveFloat | None = Field(default=None, description="L2 of the whole delta; null = no limit")
    require_signed: bool = True
    resubmit: Literal["supersede", "reject"] = "supersede"


class Training(Document):
    """policies/training.yaml: what a site trains with."""

    schema_: Literal["fedops.training/v1"] = Field(default="fedops.training/v1", alias="schema")
    hyperparameters: dict[str, Any] = Field(default_factory=dict)
    workload: None = None
    evaluation: None = None
    gate: None = None


class MergePolicy(Document):
    mode: Literal["auto", "review"] = "auto"
    approvals: Positive = 1


class PublishPolicy(Document):
    mode: Literal["push", "review"] = "push"
    approvals: Positive = Field(default=1, description="by leads, of a version under review and of every rollback")


class Trigger(Document):
    quorum: Positive = 3
    max_wait_hours: PositiveFloat | None = None
    quorum_after_wait: Positive = 1
    grace_minutes: NaturalFloat = 0.0


class Staleness(Document):
    """Discount of an update by its staleness tau; `max` excludes what is older."""

    kind: Literal["constant", "inverse", "inverse_sqrt", "polynomial", "hinge"] = "inverse"
    max: Natural | None = 5
    alpha: NaturalFloat | None = Field(default=None, description="polynomial: (1 + tau) ** -alpha; 0 = constant")
    a: PositiveFloat | None = Field(default=None, description="hinge: 1 / (a (tau - b) + 1) above b")
    b: NaturalFloat | None = None
    absent_if_none = frozenset({"alpha", "a", "b"})

    @model_validator(mode="after")
    def _parameters_fit_the_kind(self) -> Staleness:
        wanted = {"polynomial": {"alpha"}, "hinge": {"a", "b"}}.get(self.kind, set())
        given = {name for name in ("alpha", "a", "b") if getattr(self, name) is not None}
        if wanted != given:
            raise ValueError(f"{self.kind} takes {sorted(wanted) or 'no parameter'}, got {sorted(given) or 'none'}")
        return self


class Weights(Document):
    by: Literal["examples", "uniform"] = "examples"
    max_num_examples: Positive | None = None
    max_share: Annotated[float, Field(gt=0, le=1)] | None = None
    normalize: Literal["weights", "count"] = "weights"


class StrategySettings(Document):
    """A strategy's name and its own parameters; the strategy checks them."""

    model_config = Document.model_config | {"extra": "allow"}
    name: str = "fedavg"

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Integers(Document):
    default: IntegerRule = "max"
    tensors: dict[str, IntegerRule] = Field(default_factory=dict)


class Privacy(Document):
    clip_norm: PositiveFloat
    noise_multiplier: NaturalFloat
    denominator: Literal["participants"] | Positive = "participants"
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    max_epsilon: PositiveFloat | None = None


class Signals(Document):
    to: Literal["contributors", "all", "stale"] = "contributors"


class StopPolicy(Document):
    max_version: Positive | None = None


class Aggregation(Document):
    """policies/aggregation.yaml: when and how the next version is made."""

    schema_: Literal["fedops.aggregation/v1"] = Field(default="fedops.aggregation/v1", alias="schema")
    merge: MergePolicy = MergePolicy()
    publish: PublishPolicy = PublishPolicy()
    trigger: Trigger = Trigger()
    staleness: Staleness = Staleness()
    weights: Weights = Weights()
    strategy: StrategySettings = StrategySettings()
    integers: Integers = Integers()
    privacy: Privacy | None = None
    signals: Signals = Signals()
    stop: StopPolicy = StopPolicy()
