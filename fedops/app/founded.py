"""Whether a store must have models: one without any is then not mounted, whatever its folder looks like."""

from __future__ import annotations

from fedops.app.snapshot import main_snapshot
from fedops.core.errors import FedopsError
from fedops.ports import Repository


def has_models(repository: Repository, url: str) -> bool:
    """True if by main there are models in the store of this URL.

    A first version that its generator makes anew need not be there.
    """
    try:
        main = main_snapshot(repository)
        version, home = main.version, main.federation.store.url
    except FedopsError:  # of main nothing can be said then
        return False
    made_anew = version.version == 0 and version.source is not None and version.source.generator is not None
    return home == url and not made_anew
