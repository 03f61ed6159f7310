"""Comments on GitHub: one of each marker, ours alone; and heartbeats, which are comments on one issue."""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Any

from fedops.adapters.forge_git_documents import BeatFile, make, parse_time, time_text
from fedops.adapters.github_http import GitHubApi
from fedops.adapters.github_issues import Issues
from fedops.adapters.github_people import People
from fedops.adapters.github_shapes import account_of, same_text
from fedops.core.documents import dump_json, load_json_document
from fedops.core.errors import ConfigError, ForgeError
from fedops.core.facts import Marker
from fedops.core.ids import SiteId, site_id_fault
from fedops.core.settings import Sites

HEARTBEATS = Marker("heartbeats", "all")
_TITLE = "Heartbeats of the sites"
_BODY = (
    "What each site says it is doing, one comment each, which is edited. Advisory only: nothing is decided by it.\n"
    "Leave this issue open; it is found by its first line."
)
_DOCUMENT = re.compile(r"```json\n(.*?)\n```", re.DOTALL)
_MAX_BYTES = 8_192
_MANY = 2  # open pull requests; of fewer, each is asked for its comments
_log = logging.getLogger(__name__)


class Comments:
    """Comments on pull requests and issues."""

    def __init__(self, api: GitHubApi, people: People) -> None:
        self._api = api
        self._people = people
        self._open: frozenset[int] = frozenset()
        self._together: dict[int, list[dict[str, Any]]] | None = None  # ours on those, as far as they were listed

    def expect(self, numbers: Collection[int]) -> None:
        """Say which pull requests are open: what many of them are told is looked up together, once."""
        self._open = frozenset(numbers)

    def bodies(self, number: int) -> Sequence[str]:
        return tuple(str(c["body"] or "") for c in self.all(number))

    def all(self, number: int) -> Sequence[dict[str, Any]]:
        """GitHub's documents, oldest first."""
        return sorted(self._api.pages(f"/issues/{number}/comments"), key=lambda c: int(c["id"]))

    def upsert(self, number: int, marker: Marker, body: str) -> bool:
        """Write or edit our comment with this marker; True: something changed.

        A comment of another account is never ours, whatever it begins with: its author could change it again.
        """
        text = marker.stamp(body)
        if self._is_said(number, marker, text):
            return False
        mine = self._mine(number, marker)
        if mine is not None and same_text(mine["body"], text):
            return False
        path = f"/issues/{number}/comments"
        if mine is not None:
            said = self._api.patch(f"/issues/comments/{mine['id']}", {"body": text})
        else:
            said = self._api.create(path, {"body": text}, lambda: self._mine(number, marker))
        if self._together is not None:
            others = (c for c in self._together.get(number, ()) if c["id"] != said["id"])
            self._together[number] = [*others, said]
        return True

    def _mine(self, number: int, marker: Marker) -> dict[str, Any] | None:
        me = self._people.me().id
        found = (c for c in self.all(number) if account_of(c["user"]).id == me and marker.marks(c["body"] or ""))
        return next(found, None)

    def _is_said(self, number: int, marker: Marker, text: str) -> bool:
        """True if the comment is among those that were listed together, and says this; what is not, is asked for alone."""
        if number not in self._open or len(self._open) < _MANY:
            return False
        if self._together is None:
            self._together = self._list_together()
        mine = [c for c in self._together.get(number, ()) if marker.marks(c["body"] or "")]
        return bool(mine) and same_text(min(mine, key=lambda c: int(c["id"]))["body"], text)

    def _list_together(self) -> dict[int, list[dict[str, Any]]]:
        """Our comments on the open pull requests, the last changed first, in far fewer requests than one for each.

        Those of closed ones are in the list too, and they are of every year: so it is read until each open one was seen,
        and never further than costs one request for twenty of them.
        """
        me = self._people.me().id
        found: dict[int, list[dict[str, Any]]] = {}
        most = 100 * (1 + len(self._open) // 20)
        for comment in islice(self._api.pages("/issues/comments", sort="updated", direction="desc"), most):
            number = int(str(comment["issue_url"]).rpartition("/")[2])
            if number in self._open and account_of(comment["user"]).id == me:
                found.setdefault(number, []).append(comment)
                if len(found) == len(self._open):
                    break
        return found


class Beats:
    """Heartbeats: on one open issue, found by its marker, one comment of each account and site.

    Who wrote a comment decides whose heartbeat it is, so it does not matter who opened the issue: sites may not set labels.
    """

    def __init__(self, issues: Issues, comments: Comments) -> None:
        self._issues = issues
        self._comments = comments
        self._number: int | None = None

    def beat(self, site: SiteId, version: int, state: str, at: dt.datetime) -> None:
        if site_id_fault(site):
            raise ForgeError(f"heartbeat of {site!r} -> a site id")
        fields = {"site": site, "version": version, "state": state, "at": time_text(at)}
        # Inside of a fence nothing is Markdown, and in JSON no line can end the fence: line ends are escaped.
        text = dump_json(make(BeatFile, f"heartbeat of {site}", fields)).decode().strip()
        number = self._issue()
        if number is None:
            number = self._number = int(
                self._issues.open_once(HEARTBEATS, _TITLE, _BODY, frozenset(), "open")["number"]
            )
        self._comments.upsert(number, Marker("heartbeat", site), f"```json\n{text}\n```")

    def beats(self, sites: Sites) -> Mapping[SiteId, tuple[int, str, dt.datetime]]:
        """The latest heartbeat of each site of the roster, by an account that owns it; what is not one is left out."""
        number = self._issue()
        found: dict[SiteId, tuple[int, str, dt.datetime]] = {}
        for comment in self._comments.all(number) if number is not None else ():
            site = sites.site_of(account_of(comment["user"]).id)
            if site is None or not Marker("heartbeat", site).marks(comment["body"] or ""):
                continue
            beat = _read(site, comment["body"])
            if beat is not None and (site not in found or found[site][2] <= parse_time(beat.at)):
                found[site] = (beat.version, beat.state, parse_time(beat.at))
        return found

    def _issue(self) -> int | None:
        if self._number is None:
            found = self._issues.find(HEARTBEATS, frozenset(), "open")
            self._number = int(found["number"]) if found is not None else None
        return self._number


def _read(site: SiteId, body: str) -> BeatFile | None:
    document = _DOCUMENT.search(body.replace("\r\n", "\n"))
    where = f"heartbeat of {site}"
    if document is None:
        _log.warning("left out: %s: no document", where)
        return None
    try:
        beat = load_json_document(document[1].encode(), BeatFile, where, max_bytes=_MAX_BYTES)
    except ConfigError as e:
        _log.warning("left out: %s", e.message)
        return None
    if beat.site != site:
        _log.warning("left out: %s: speaks of another site", where)
        return None
    return beat
