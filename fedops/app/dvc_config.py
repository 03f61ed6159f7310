"""`.dvc/config` as text: the default remote `global`, and one remote per site, so that DVC asks the right repository."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fedops.core.ids import RepoPath, SiteId, remote_of, repository_of
from fedops.core.remotes import remote_url
from fedops.core.settings import Site

DVC_CONFIG_PATH = RepoPath(".dvc/config")
DEFAULT_REMOTE = "global"

_HEADER = re.compile(r"\s*\[(.*)\]\s*\Z")
_URL = re.compile(r"\s*url\s*=")
# No usage statistics are sent and no newer version is looked for: a site's machine speaks to the forge and the store.
_CORE = f"[core]\n    remote = {DEFAULT_REMOTE}\n    analytics = false\n    check_update = false\n"


def render_dvc_config(store: str, sites: Mapping[str, Site]) -> bytes:
    """The whole file for a federation's store and roster."""
    data = (_CORE + _section(DEFAULT_REMOTE, remote_url(store, repository_of(None)))).encode()
    for site in sorted(sites):
        data = with_site_remote(data, SiteId(site), sites[site].store or store)
    return data


def with_site_remote(config: bytes, site: SiteId, store: str) -> bytes:
    """The file with the remote of a site at the store that the roster gives it; everything else stays as it is."""
    name, url = remote_of(site), remote_url(store, repository_of(site))
    lines = config.decode("utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    headers = {i: match[1].strip("'") for i, line in enumerate(lines) if (match := _HEADER.match(line))}
    start = next((i for i, header in headers.items() if header == f'remote "{name}"'), None)
    if start is None:
        return ("".join(lines) + _section(name, url)).encode()
    end = min((i for i in headers if i > start), default=len(lines))
    place = next((i for i in range(start, end) if _URL.match(lines[i])), None)
    if place is None:
        lines.insert(start + 1, f"    url = {url}\n")
    else:
        lines[place] = f"    url = {url}\n"
    return "".join(lines).encode()


def _section(name: str, url: str) -> str:
    # NOTE: without `verify` DVC checks out whatever bytes the remote has.
    return f"['remote \"{name}\"']\n    url = {url}\n    verify = true\n"
