"""fedops: an ordinary git repository becomes a federated-learning federation."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedops.core.client import Client, EvaluateResult, FitResult

__version__ = "0.1.0"
__all__ = ["Client", "EvaluateResult", "FitResult", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the client contract when it is asked for, so that `fedops --help` stays light."""
    if name in ("Client", "EvaluateResult", "FitResult"):
        from fedops.core import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
