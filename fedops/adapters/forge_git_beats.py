"""Heartbeats on the git forge: one overwritten ref per site, outside of the forge's chain; advisory only."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable, Mapping

from fedops.adapters.forge_git_documents import BeatFile, make, parse_time, time_text
from fedops.adapters.forge_git_state import damaged, read_document
from fedops.core.documents import dump_json
from fedops.core.errors import FedopsError, ForgeError
from fedops.core.facts import RefUpdate
from fedops.core.ids import RepoPath, SiteId, site_id_fault
from fedops.ports import Repository

_FILE = RepoPath("beat.json")
_MAX_BYTES = 8_192
_log = logging.getLogger(__name__)


def _ref(site: str) -> str:
    return f"refs/fedops/heartbeat/{site}"


def beat(repository: Repository, site: SiteId, version: int, state: str, at: dt.datetime) -> bool:
    """Try once to overwrite a site's heartbeat; False: somebody else did in between."""
    if site_id_fault(site):
        raise ForgeError(f"heartbeat of {site!r} -> a site id")
    fields = {"site": site, "version": version, "state": state, "at": time_text(at)}
    data = dump_json(make(BeatFile, f"heartbeat of {site}", fields))
    repository.fetch(pulls=())
    old = repository.resolve(_ref(site))
    # No parents: only the last one is of interest, and the others may go.
    new = repository.write_commit((), {_FILE: data}, f"heartbeat({site})", at=at)
    return old == new or repository.push((RefUpdate(_ref(site), old, new),))


def beats(repository: Repository, sites: Iterable[str]) -> Mapping[SiteId, tuple[int, str, dt.datetime]]:
    """Heartbeats of these sites, as last fetched; what is not one is logged and left out."""
    found: dict[SiteId, tuple[int, str, dt.datetime]] = {}
    beating = repository.refs_below(_ref("").rstrip("/"))  # most sites have none, and each look at one costs a process
    for site in sorted(site for site in sites if _ref(site) in beating):
        try:
            last = _read(repository, site)
        except FedopsError as e:
            _log.warning("left out: %s", e.message)
            continue
        if last is not None:
            found[SiteId(site)] = (last.version, last.state, parse_time(last.at))
    return found


def _read(repository: Repository, site: str) -> BeatFile | None:
    ref = _ref(site)
    commit = repository.resolve(ref)
    if commit is None:
        return None
    entry = next((e for e in repository.entries(commit) if e.path == _FILE), None)
    if entry is None:
        raise damaged(ref, _FILE, "is not there -> a heartbeat")
    last = read_document(repository, entry, BeatFile, ref, max_bytes=_MAX_BYTES)
    if last.site != site:
        raise damaged(ref, _FILE, f"is one of {last.site!r} -> {site}")
    return last
