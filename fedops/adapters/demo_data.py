"""Real data for the demo: the breast-cancer table that scikit-learn ships, cut by tumour size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedops.core.errors import ConfigError

Table = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class DemoData:
    """The table, split.

    Attributes:
        sites: site -> (x of shape (n, 30), y of shape (n,)); measurements are standardised by constants that a lead
            would publish; y is 1 for benign, 0 for malignant.
        held_out: rows that no site has, in the same form.
    """

    sites: Mapping[str, Table]
    held_out: Table


def load(shares: Mapping[str, float]) -> DemoData:
    """Load the table and cut it by tumour size into one part per site, so that sites see very different patients.

    Asks for all that the demo needs, so that nothing is begun without it.

    Args:
        shares: site -> part of the training rows, ascending tumour size; the sum is 1.

    Raises:
        ConfigError: scikit-learn or matplotlib is not installed.
    """
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError as e:
        raise _missing("scikit-learn") from e
    _svg_figure()
    table = load_breast_cancer()
    x, y = np.asarray(table.data, float), np.asarray(table.target, float)
    held = np.arange(len(y)) % 5 == 0
    mean, spread = x[held].mean(axis=0), x[held].std(axis=0)
    scaled = (x - mean) / spread
    rest = np.flatnonzero(~held)
    by_size = rest[np.argsort(x[rest, 0], kind="stable")]  # column 0 is the mean radius
    ends = np.rint(np.cumsum([0.0, *shares.values()]) * len(by_size)).astype(int)
    parts = {site: by_size[a:b] for site, a, b in zip(shares, ends[:-1], ends[1:], strict=True)}
    return DemoData({s: (scaled[i], y[i]) for s, i in parts.items()}, (scaled[held], y[held]))


def save(table: Table, path: Path) -> None:
    """Write one site's table where its own code finds it."""
    np.savez(path, x=table[0], y=table[1])


def accuracy(table: Table, coef: NDArray[Any], intercept: NDArray[Any]) -> float:
    """Part of the rows that the linear model gets right.

    Args:
        coef: shape (1, 30).
        intercept: shape (1,).
    """
    x, y = table
    z = x @ np.asarray(coef, float)[0] + float(intercept[0])
    return float(np.mean((z > 0) == (y > 0.5)))


def plot(path: Path, versions: Sequence[int], scores: Sequence[float], lines: Mapping[str, float]) -> None:
    """Draw held-out accuracy per version, with one level line for each comparison.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    figure = _svg_figure()
    axes = figure.add_subplot()
    axes.plot(versions, scores, marker="o", color="#0072b2", label="federation")
    for (name, value), color in zip(
        lines.items(), ("#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"), strict=False
    ):
        axes.axhline(value, linestyle="--", linewidth=1, color=color, label=name)
    axes.set_xlabel("global version")
    axes.set_ylabel("accuracy on held-out patients")
    axes.set_xticks(list(versions))
    axes.legend(fontsize="small", loc="lower right")
    axes.grid(alpha=0.3)
    figure.savefig(path, format="svg", metadata={"Date": None})


def _svg_figure() -> Any:
    """An empty figure that is saved as SVG.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as e:
        raise _missing("matplotlib") from e
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasSVG(figure)
    return figure


def _missing(package: str) -> ConfigError:
    return ConfigError(f"{package} is not installed; the demo needs it", hint="pip install 'fedops-git[demo]'")
