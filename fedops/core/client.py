"""What a site's own training code gives and gets: the client contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from fedops.core.facts import Json

# NOTE: as in facts.py, numpy is not imported for names that only annotations use.
if TYPE_CHECKING:
    from numpy.typing import NDArray

    Parameters: TypeAlias = Mapping[str, NDArray[Any]]
else:
    Parameters: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class FitResult:
    """What one local training gives.

    Attributes:
        parameters: tensor name -> array; names, shapes and dtypes are those of the global model that was handed in.
        num_examples: local training examples, the averaging weight; at least 1.
        metrics: name -> finite number, such as {"loss": 0.31}; the policy says which names are allowed.
    """

    parameters: Parameters
    num_examples: int
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EvaluateResult:
    """What one local evaluation of a global model gives.

    Attributes:
        loss: mean loss over the local evaluation examples.
        num_examples: local evaluation examples; at least 1.
        metrics: name -> finite number.
    """

    loss: float
    num_examples: int
    metrics: Mapping[str, float] = field(default_factory=dict)


class Client(Protocol):
    """A site's model and data; made without arguments, in a process of its own, by `fedops train --client mod:Class`.

    Parameters are a dict in the tensor order of the global model. Arrays have the tensor's shape and dtype; BF16, which
    numpy does not have, is handed over as float32 and rounded half to even on the way back.
    """

    def get_parameters(self) -> Parameters:
        """The model's present tensors."""
        ...

    def fit(self, parameters: Parameters, config: Mapping[str, Json]) -> FitResult:
        """Train on the local data, starting from a global model.

        Args:
            parameters: the global model; the arrays belong to the client.
            config: {"hyperparameters": …, "version": N}, from policies/training.yaml and `--config`.
        """
        ...

    def evaluate(self, parameters: Parameters, config: Mapping[str, Json]) -> EvaluateResult:
        """Measure a global model on the local data."""
        ...
