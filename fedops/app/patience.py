"""How a service waits: for others that do not answer, for a disk that is full, for a lead who has to correct main."""

from __future__ import annotations

from collections.abc import Callable

from fedops.core.errors import FedopsError, MainFileError
from fedops.core.site_loop import Offline, Online, Told, Unusable, Usable
from fedops.ports import Clock

FIRST_RETRY_SECONDS = 5.0
LONGEST_RETRY_SECONDS = 600.0


class Patience:
    """Waits, and tells once that it waits and once that it is over.

    Args:
        poll_seconds: how long to wait for a person.
        jitter: uniform in [0, 1), spreads the looks and retries of several sites.
    """

    def __init__(
        self, clock: Clock, poll_seconds: float, *, tell: Callable[[Told], None], jitter: Callable[[], float]
    ) -> None:
        self._clock, self._poll_seconds = clock, poll_seconds
        self._tell, self._jitter = tell, jitter
        self._failures = 0
        self._unusable = ""

    def sleep(self) -> None:
        """Until the next look."""
        self._clock.sleep(self._poll_seconds * (0.75 + 0.5 * self._jitter()))

    def wait_for_others(self, error: FedopsError) -> None:
        """Each time longer, as long as it fails."""
        self._failures += 1
        if self._failures == 1:
            self._tell(Offline(error.message))
        wait = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(self._failures - 1, 16))
        self._clock.sleep(wait * (0.5 + self._jitter()))

    def wait_for_a_lead(self, error: MainFileError) -> None:
        self._answered()
        if error.message != self._unusable:
            self._tell(Unusable(error.message, error.hint))
        self._unusable = error.message
        self.sleep()

    def reached(self) -> None:
        """A step is done, so all that it needed answered, and main could be used."""
        self._answered()
        if self._unusable:
            self._unusable = ""
            self._tell(Usable())

    def _answered(self) -> None:
        if self._failures:
            self._failures = 0
            self._tell(Online())
