"""How often a registry is asked again, and how long is waited in between."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import TypeVar

from fedops.core.errors import StoreError
from fedops.ports import Clock

TRIES = 3
FIRST_SECONDS = 1.0
FACTOR = 1.5
LONGEST_SECONDS = 120.0  # a job that is asked to wait longer ends; the next one starts from what is there

T = TypeVar("T")


class PassingError(StoreError):
    """A fault that may be gone at the next try.

    Args:
        error: what to say if it is not.
        after: seconds that the server asked to wait; 0: it did not say.
    """

    def __init__(self, error: StoreError, after: float = 0.0) -> None:
        super().__init__(error.message, hint=error.hint, slug=error.slug, cause="temporary")
        self.after = after


class Patience:
    """Counts the tries of one thing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed = 0

    def wait(self, fault: PassingError) -> None:
        """Wait for the next try.

        Raises:
            StoreError: there is none left, or the server asks for too long a wait; nobody tries this again.
        """
        self._failed += 1
        if self._failed >= TRIES or fault.after > LONGEST_SECONDS:
            raise StoreError(fault.message, hint=fault.hint, slug=fault.slug, cause="temporary") from fault
        self._clock.sleep(max(FIRST_SECONDS * FACTOR ** (self._failed - 1), fault.after))

    def renew(self) -> None:
        """Begin to count anew: something came of the last try."""
        self._failed = 0


def patiently(clock: Clock, call: Callable[[], T]) -> T:
    """What a call returns, after at most three tries of it; everything in it must be safe to repeat."""
    patience = Patience(clock)
    while True:
        try:
            return call()
        except PassingError as e:
            patience.wait(e)


def retry_after(header: str | None, now: dt.datetime) -> float:
    """Seconds that a Retry-After header asks for, in either of its two forms; 0 for anything else."""
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    at = at if at.tzinfo is not None else at.replace(tzinfo=dt.UTC)
    return max(0.0, (at - now).total_seconds())
