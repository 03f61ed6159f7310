"""What every use case is given: the ports, and nothing else of the outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedops.core.ids import SiteId
from fedops.core.settings import Federation, Sites
from fedops.ports import Clock, Forge, Models, Progress, Repository, Store


@dataclass(frozen=True)
class Context:
    """The outside of one run.

    Args:
        stores: opens the store of a URL ("ocidir:…", "oci://…"); relative folders are resolved there.
        scratch: folder for temporary model files; the caller removes it.
        software: name -> version, for records.
        run_url: where this run can be looked at, if anywhere.
    """

    repository: Repository
    forge: Forge
    stores: Callable[[str], Store]
    models: Models
    clock: Clock
    progress: Progress
    scratch: Path
    software: Mapping[str, str]
    run_url: str | None = None

    def global_store(self, federation: Federation) -> Store:
        """The federation's own store: global models and the archive."""
        return self.stores(federation.store.url)

    def site_store(self, federation: Federation, sites: Sites, site: SiteId) -> Store:
        """The store that the roster gives a site: its own, or the federation's."""
        entry = sites.sites.get(site)
        return self.stores(entry.store if entry is not None and entry.store else federation.store.url)
