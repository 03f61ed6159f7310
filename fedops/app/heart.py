"""A site's heartbeats: what it does, told to others from time to time."""

from __future__ import annotations

import logging

from fedops.app.context import Context
from fedops.app.snapshot import Snapshot
from fedops.core.errors import FedopsError
from fedops.core.ids import SiteId
from fedops.core.site_loop import HandIn, Pause, PullModel, TrainOn, beat_state

BEAT_SECONDS = 900.0
_log = logging.getLogger(__name__)


class Heart:
    """Tells what a site does when that changes, and often enough that `status` does not take it for stalled."""

    def __init__(self, ctx: Context, site: SiteId) -> None:
        self._ctx, self._site = ctx, site
        self._last: tuple[tuple[int, str], float] = ((-1, ""), 0.0)

    def beat(self, main: Snapshot, step: PullModel | TrainOn | HandIn | Pause) -> None:
        """Tell what the site does now, if it is time; whatever happens to that, the site goes on."""
        said, now = (step.version, beat_state(step)), self._ctx.clock.now()
        # Well before `status` takes the silence for a stall.
        wait = main.aggregation.trigger.max_wait_hours
        pause = BEAT_SECONDS if wait is None else min(BEAT_SECONDS, 900 * wait)
        if self._last[0] == said and now.timestamp() - self._last[1] < pause:
            return
        try:
            self._ctx.forge.beat(self._site, *said, now)
        except FedopsError as e:
            _log.debug("no heartbeat: %s", e.message)
            return
        self._last = (said, now.timestamp())
