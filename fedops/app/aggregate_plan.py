"""The plan of `fedops aggregate`: global models, submissions in the order of merging, and the policies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from fedops.app.plans import Content, Plan, aggregation, read_plan
from fedops.app.terms import Terms, terms_of
from fedops.core.documents import Document
from fedops.core.errors import ConfigError
from fedops.core.settings import Aggregation, Privacy
from fedops.core.strategies import Strategy, make_strategy


class PlannedSubmission(Document):
    """One submission: paths, or its record inline."""

    update: str
    record: Content


class AggregatePlan(Plan):
    schema_: Literal["fedops.aggregate-plan/v1"] = Field(alias="schema")
    submissions: tuple[PlannedSubmission, ...]


@dataclass(frozen=True)
class Task:
    """A plan that can be carried out.

    Attributes:
        current: number of the current version; its model is one of the globals.
        quorum: as few submissions as a version may be made of.
    """

    terms: Terms
    policy: Aggregation
    strategy: Strategy
    current: int
    quorum: int
    submissions: tuple[PlannedSubmission, ...]


def read_task(path: Path) -> Task:
    """Read a plan and everything that it says besides its submissions.

    Raises:
        ConfigError: it is no such plan, or asks for what this version of fedops cannot do.
    """
    plan = read_plan(path, AggregatePlan)
    policy = aggregation(plan, path.parent)
    terms = terms_of(plan, path.parent, policy)
    current = terms.current
    if not terms.globals or current is None:
        raise ConfigError(f"{path.name}: globals: none -> at least the current version's model")
    if current not in terms.globals:
        raise ConfigError(f"{path.name}: globals: no {current} -> the model of current_version")
    strategy = make_strategy(policy.strategy)
    if policy.privacy is not None:
        _refuse_noise(policy.privacy, path.name)
        if not strategy.linear:
            raise ConfigError(
                f"{path.name}: policy: strategy {strategy.name} with privacy: clips and adds noise to a sum -> fedavg",
                hint="leave out `privacy`, or take the strategy fedavg",
            )
    # Offline nobody else will hand in, so that one submission is enough where the plan does not say otherwise.
    quorum = policy.trigger.quorum if "quorum" in policy.trigger.model_fields_set else 1
    return Task(terms, policy, strategy, current, quorum, plan.submissions)


def _refuse_noise(privacy: Privacy, where: str) -> None:
    if privacy.noise_multiplier > 0:
        raise ConfigError(f"{where}: policy: privacy.noise_multiplier: noise is not available in this version -> 0")
    if privacy.max_epsilon is not None:
        raise ConfigError(f"{where}: policy: privacy.max_epsilon: not available in this version -> null")
