"""Issues and labels on GitHub: found by a hidden marker, opened once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedops.adapters.github_http import GitHubApi
from fedops.adapters.github_shapes import issue_of, labels_of
from fedops.core.errors import ForgeError
from fedops.core.facts import Issue, Marker

_COLOUR = "0e8a16"


class Issues:
    """Issues; pull requests, which GitHub lists among them, are left out."""

    def __init__(self, api: GitHubApi) -> None:
        self._api = api
        self._labels: set[str] | None = None  # in lower case: GitHub tells them apart by nothing else
        self._listed_open: set[int] = set()

    def all(self, labels: frozenset[str], state: str, since: dt.datetime | None = None) -> Sequence[Issue]:
        """Issues with all labels, oldest first.

        Args:
            state: "open" or "closed".
            since: leave out what was not touched since then; a federation's old signals are thousands.
        """
        touched = {} if since is None else {"since": since.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
        found = [issue_of(i) for i in self._list(labels, state=state, **touched)]
        if state == "open":
            self._listed_open.update(i.number for i in found)
        return tuple(sorted((i for i in found if i.open == (state == "open")), key=lambda i: i.number))

    def _list(self, labels: frozenset[str], **filters: str) -> Iterator[dict[str, Any]]:
        named = {"labels": ",".join(sorted(labels))} if labels else {}
        # NOTE: oldest first, so that an issue that is opened while the pages are read moves none of the others.
        for data in self._api.pages("/issues", sort="created", direction="asc", **named, **filters):
            if "pull_request" not in data and {n.lower() for n in labels} <= {n.lower() for n in labels_of(data)}:
                yield data

    def find(self, marker: Marker, labels: frozenset[str], state: str = "all") -> dict[str, Any] | None:
        """The oldest issue with this marker; whoever may not set labels cannot forge one."""
        found = (i for i in self._list(labels, state=state) if marker.marks(i["body"] or ""))
        return min(found, key=lambda i: int(i["number"]), default=None)

    def ensure(self, marker: Marker, title: str, body: str, labels: frozenset[str]) -> Issue:
        found = self.find(marker, labels)
        if found is None:
            self._ensure_labels(labels)
            found = self.open_once(marker, title, body, labels)
        return issue_of(found)

    def open_once(
        self, marker: Marker, title: str, body: str, labels: frozenset[str], state: str = "all"
    ) -> dict[str, Any]:
        """Open an issue that was not there a moment ago; of several who do the same at once, the first one's stays.

        Args:
            state: among which issues it is looked for.
        """
        text = marker.stamp(body)
        wanted = {"title": title, "body": text} | ({"labels": sorted(labels)} if labels else {})
        made = self._api.create("/issues", wanted, lambda: self.find(marker, labels, state))
        if not {n.lower() for n in labels} <= {n.lower() for n in labels_of(made)}:
            # Without them the next run would not find it, and open another one.
            self._close(int(made["number"]), "not_planned")
            raise ForgeError(
                f"GitHub: issue #{made['number']}: its labels were dropped -> {', '.join(sorted(labels))}",
                hint="only an account with the role Triage or more, or a job with `issues: write`, may set labels",
                slug="auth_failed",
                cause="auth",
            )
        first = self.find(marker, labels, state)
        if first is None or int(first["number"]) >= int(made["number"]):
            return made
        self._close(int(made["number"]), "not_planned")
        return first

    def close(self, number: int) -> None:
        """Close an issue.

        Raises:
            ForgeError: there is none, or it is a pull request.
        """
        if number not in self._listed_open:
            found = self._api.get(f"/issues/{number}")
            if "pull_request" in found:
                raise ForgeError(f"GitHub: #{number} is a pull request -> an issue", hint="fedops status")
            if found["state"] == "closed":
                return
        self._close(number, "completed")

    def _close(self, number: int, reason: str) -> None:
        self._api.patch(f"/issues/{number}", {"state": "closed", "state_reason": reason})
        self._listed_open.discard(number)

    def _ensure_labels(self, names: frozenset[str]) -> None:
        if self._labels is None:
            self._labels = {str(label["name"]).lower() for label in self._api.pages("/labels")}
        for name in sorted(n for n in names if n.lower() not in self._labels):
            answer = self._api.post("/labels", {"name": name, "color": _COLOUR}, accept=(422,))
            if not answer.ok and not _exists(answer.data):
                raise ForgeError(f"GitHub: label {name!r}: {answer.said}", hint="a lead makes the label by hand")
            self._labels.add(name.lower())


def _exists(data: Mapping[str, Any] | None) -> bool:
    errors = (data or {}).get("errors")
    return isinstance(errors, list) and any(isinstance(e, dict) and e.get("code") == "already_exists" for e in errors)
