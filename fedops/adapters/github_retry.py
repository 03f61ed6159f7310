"""What an answer of GitHub means for the next request: whether the same may be asked again, and how long to wait first.

Source: GitHub's "Rate limits for the REST API" and "Best practices for using the REST API".
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from fedops.core.facts import Json

MAX_PAUSE = 900.0  # seconds; what takes longer is said, and the next run goes on
LIMIT_TRIES = 5  # requests for one answer, if GitHub asks to slow down
FAULT_TRIES = 3  # requests for one answer, if the server or the line breaks
_FIRST_FAULT_PAUSE = 1.0
_SECONDARY_PAUSE = 60.0  # GitHub: "wait for at least one minute", then exponentially longer
_LIMITED = ("rate limit", "abuse detection", "please wait a few minutes before you try again")


@dataclass(frozen=True)
class Answer:
    """One answer of the server.

    Attributes:
        status: of HTTP; 0: none came, or none that could be read.
        headers: names in lower case.
        data: the JSON document, None without one.
        fault: what went wrong on the way, in words.
    """

    status: int
    headers: Mapping[str, str]
    data: Json
    fault: str = ""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def said(self) -> str:
        """The server's own words, with the reasons of a 422."""
        if self.fault or not isinstance(self.data, dict):
            return self.fault
        errors = self.data.get("errors")
        reasons = [_reason(e) for e in errors] if isinstance(errors, list) else []
        return ": ".join(filter(None, [str(self.data.get("message") or ""), ", ".join(filter(None, reasons))]))

    @property
    def is_unclear(self) -> bool:
        """True if nobody can say whether the request was carried out."""
        return self.status == 0 or self.status >= 500

    @property
    def is_limited(self) -> bool:
        """True if the request was refused because there were too many; it was not carried out."""
        if self.status == 429:
            return True
        if self.status != 403:
            return False
        spent = self.headers.get("x-ratelimit-remaining") == "0"
        return spent or "retry-after" in self.headers or any(words in self.said.lower() for words in _LIMITED)


def _reason(error: Any) -> str:
    if isinstance(error, dict):
        return str(error.get("message") or " ".join(str(error[k]) for k in ("field", "code") if k in error))
    return str(error)


def pause_before_next(answer: Answer, tries: int, now: dt.datetime, *, may_repeat: bool) -> float | None:
    """Seconds to wait before the same request is made again; None: it is not.

    Args:
        tries: requests made so far, at least 1.
        may_repeat: doing it twice does no harm. What was refused by a limit was not done, and is always repeated.
    """
    if answer.is_limited:
        pause = _limit_pause(answer, tries, now)
        return pause if tries < LIMIT_TRIES and pause <= MAX_PAUSE else None
    if answer.is_unclear and may_repeat and tries < FAULT_TRIES:
        return float(_FIRST_FAULT_PAUSE * 2 ** (tries - 1))
    return None


def _limit_pause(answer: Answer, tries: int, now: dt.datetime) -> float:
    after = answer.headers.get("retry-after")
    if after is not None:
        if after.strip().isdecimal():
            return float(after)
        at = _http_date(after)
        if at is not None:
            return max(1.0, (at - _server_time(answer, now)).total_seconds())
    reset = resets_at(answer)
    if reset is not None:
        # One more second, since nobody knows when in that second it is.
        return max(1.0, (reset - _server_time(answer, now)).total_seconds() + 1.0)
    return float(_SECONDARY_PAUSE * 2 ** (tries - 1))


def resets_at(answer: Answer) -> dt.datetime | None:
    """When the spent primary limit is full again; None if it is not spent."""
    reset = answer.headers.get("x-ratelimit-reset", "")
    if answer.headers.get("x-ratelimit-remaining") != "0" or not reset.isdecimal() or len(reset) > 11:
        return None
    return dt.datetime.fromtimestamp(int(reset), dt.UTC)


def free_at(answer: Answer) -> dt.datetime | None:
    """When requests are taken again after a refusal by a limit, as far as the server says so by its own clock."""
    after, at = answer.headers.get("retry-after", ""), _http_date(answer.headers.get("date", ""))
    if after.isdecimal() and len(after) < 8 and at is not None:
        return at + dt.timedelta(seconds=int(after))
    return _http_date(after) or resets_at(answer)


def _server_time(answer: Answer, now: dt.datetime) -> dt.datetime:
    """The server's own clock where it says so; this machine's may be wrong by minutes."""
    return _http_date(answer.headers.get("date", "")) or now


def _http_date(text: str) -> dt.datetime | None:
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=dt.UTC)
