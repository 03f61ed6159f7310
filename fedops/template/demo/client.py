"""Training code of one site: logistic regression on its own table. All that fedops needs is this class."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedops import EvaluateResult, FitResult


class LogisticRegression:
    """A linear model of 30 measurements of a tumour; the answer is benign (1) or malignant (0)."""

    def __init__(self, path: str = "data.npz") -> None:
        with np.load(path) as table:  # never leaves this folder
            self.x, self.y = table["x"], table["y"]

    def get_parameters(self) -> dict[str, Any]:
        """Zeros, in the shapes of the global model."""
        return {"coef": np.zeros((1, 30), "f4"), "intercept": np.zeros(1, "f4")}

    def fit(self, parameters: Mapping[str, Any], config: Mapping[str, Any]) -> FitResult:
        """Full-batch gradient descent from the global model."""
        options = config["hyperparameters"]
        w, b = parameters["coef"][0].astype("f8"), float(parameters["intercept"][0])
        for _ in range(options["epochs"]):
            error = self._predict(w, b) - self.y
            w -= options["learning_rate"] * (error @ self.x / len(self.y) + options["l2"] * w)
            b -= options["learning_rate"] * float(error.mean())
        new = {"coef": w[None, :].astype("f4"), "intercept": np.array([b], "f4")}
        return FitResult(new, len(self.y), self._metrics(w, b))

    def evaluate(self, parameters: Mapping[str, Any], config: Mapping[str, Any]) -> EvaluateResult:  # noqa: ARG002 the contract
        """Loss and accuracy on the local table."""
        metrics = self._metrics(parameters["coef"][0].astype("f8"), float(parameters["intercept"][0]))
        return EvaluateResult(metrics["loss"], len(self.y), metrics)

    def _predict(self, w: Any, b: float) -> Any:
        return 1 / (1 + np.exp(-np.clip(self.x @ w + b, -30, 30)))

    def _metrics(self, w: Any, b: float) -> dict[str, float]:
        p = self._predict(w, b)
        loss = -np.mean(self.y * np.log(p) + (1 - self.y) * np.log(1 - p))
        return {"loss": float(loss), "accuracy": float(np.mean((p > 0.5) == (self.y > 0.5)))}
