"""A site's loop: look, do the next step, look again; built on pull, train and submit, and resumable wherever it was killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, assert_never

from fedops.app.context import Context
from fedops.app.heart import Heart
from fedops.app.offer import Wanted
from fedops.app.other_clone import replaced
from fedops.app.own_key import no_key
from fedops.app.patience import Patience
from fedops.app.pull import pull
from fedops.app.site_look import look
from fedops.app.snapshot import Snapshot
from fedops.app.submit import Refused, Submitted, submit
from fedops.app.train import Refused as NotTaken
from fedops.app.train import TrainedNow, hyperparameters, site_faults, train
from fedops.app.work import Trained as Result
from fedops.app.work import Work
from fedops.core.disk import DiskError, disk_fault
from fedops.core.documents import Json
from fedops.core.errors import ForgeError, GitError, MainFileError, StoreError, passes
from fedops.core.findings import Finding
from fedops.core.ids import Digest, SiteId
from fedops.core.site_loop import (
    End,
    HandedIn,
    HandIn,
    Pause,
    PulledModel,
    PullModel,
    Refusal,
    Replaced,
    SiteView,
    Told,
    Trained,
    TrainOn,
    next_step,
)
from fedops.ports import Trainer

_Judged = tuple[Digest, Result | None]


@dataclass(frozen=True)
class Asked:
    """What the caller wants.

    Args:
        key: SSH private key that signs submissions; None: unsigned.
        once: end instead of waiting.
        poll_seconds: how long to wait before another look.
        max_versions: end once updates on so many versions were handed in by this run.
        again: train once more where the update on the current version was turned down.
        overrides: the site's own hyperparameters.
    """

    site: SiteId
    key: Path | None
    once: bool = False
    poll_seconds: float = 60.0
    max_versions: int | None = None
    again: bool = False
    overrides: Mapping[str, Json] | None = None


@dataclass(frozen=True)
class Ran:
    """How a run ended.

    Attributes:
        ended: "final": there will be no further version; "enough": `max_versions`; "once": nothing more to do now;
            "unknown": the site is not on the roster; "unsigned": without a key nothing could be handed in.
        current: number of the current version.
        handed_in: what this run handed in.
        waiting: for what, if it ended by "once".
        findings: why it cannot go on.
        changed: anything was pulled, trained or handed in.
    """

    ended: Literal["final", "enough", "once", "unknown", "unsigned"]
    current: int
    handed_in: tuple[HandedIn, ...]
    waiting: Pause | None
    findings: tuple[Finding, ...]
    changed: bool


def run(
    ctx: Context,
    root: Path,
    trainer: Trainer,
    asked: Asked,
    *,
    tell: Callable[[Told], None],
    jitter: Callable[[], float],
) -> Ran:
    """Work for a site until the federation is done, or there is nothing more to do now if `once` is asked for.

    Args:
        root: of the federation's clone.
        tell: takes what happens, as it happens; a pause is told once.
        jitter: uniform in [0, 1), spreads the looks and retries of several sites.

    Raises:
        TrainingError: the site's code failed.
        FedopsError: a broken machine. What passes is waited for unless `once` is asked for: temporary causes, and a
            file of main that cannot be used.
    """
    return _Loop(ctx, root, trainer, asked, tell, jitter).run()


class _Loop:
    """What one run remembers: nothing that a kill may not take, since main, forge and journal hold the rest."""

    def __init__(
        self,
        ctx: Context,
        root: Path,
        trainer: Trainer,
        asked: Asked,
        tell: Callable[[Told], None],
        jitter: Callable[[], float],
    ) -> None:
        self._ctx, self._root, self._trainer, self._asked = ctx, root, trainer, asked
        self._tell = tell
        self._patience = Patience(ctx.clock, asked.poll_seconds, tell=tell, jitter=jitter)
        self._again = asked.again
        self._changed = False
        self._handed_in: list[HandedIn] = []
        self._refused: dict[int, tuple[_Judged, tuple[Finding, ...]]] = {}  # base version -> what was refused, why
        self._paused: Pause | None = None
        self._replaced: Replaced | None = None
        self._heart = Heart(ctx, asked.site)

    def run(self) -> Ran:
        while True:
            try:
                ran = self._round()
            except (GitError, StoreError, ForgeError, DiskError, OSError) as e:
                fault = disk_fault(e) if isinstance(e, OSError) else e
                if fault is None or not passes(fault) or self._asked.once:
                    raise
                self._patience.wait_for_others(fault)
                continue
            except MainFileError as e:
                if self._asked.once:
                    raise
                self._paused = None
                self._patience.wait_for_a_lead(e)
                continue
            if ran is not None:
                return ran

    def _round(self) -> Ran | None:
        """Look and do one step; None: go on."""
        main, view = look(self._ctx, self._root, self._asked.site)
        self._tell_replaced(main, view)
        step = next_step(self._completed(main, view))
        if isinstance(step, End):
            faults = site_faults(main, self._asked.site) if step.reason == "unknown" else ()
            return self._ran(step.reason, step.version, findings=faults)
        self._heart.beat(main, step)
        if not isinstance(step, Pause):
            self._paused = None
        match step:
            case PullModel():
                self._pull(step)
            case TrainOn():
                if unsigned := no_key(main, self._asked.site, self._asked.key):
                    return self._ran("unsigned", step.version, findings=unsigned)
                self._train(step)
            case HandIn():
                self._submit(main, step)
            case Pause() if self._asked.once:
                return self._ran("once", step.version, waiting=step, findings=step.findings)
            case Pause():
                self._pause(step)
            case _:
                assert_never(step)
        self._patience.reached()
        return None

    def _completed(self, main: Snapshot, view: SiteView) -> SiteView:
        """The view, with what this run alone knows."""
        sent = len({done.version for done in self._handed_in})
        most = self._asked.max_versions
        refused = {n: why for n, (judged, why) in self._refused.items() if judged == self._judged(main, n)}
        return replace(
            view,
            refused=self._diverged(main, view) | refused,
            again=self._again,
            left=None if most is None else max(0, most - sent),
        )

    def _diverged(self, main: Snapshot, view: SiteView) -> dict[int, tuple[Finding, ...]]:
        """Why a training on the current version is not begun again: it gave no usable values, and would be told the same."""
        work, current = Work(self._root, main.federation.extension), view.current
        found = work.diverged(current) if current not in view.trained else None
        told = hyperparameters(main, self._asked.overrides)
        if found is None or (found.site, found.hyperparameters) != (self._asked.site, told):
            return {}
        return {current: found.findings(work.show(work.refused(current)))}

    def _judged(self, main: Snapshot, version: int) -> _Judged:
        """What `submit` judges: another training, or other policies, may be judged otherwise."""
        return main.policy, Work(self._root, main.federation.extension).trained(version)

    # ---------------------------------------------------------------- steps

    def _pull(self, step: PullModel) -> None:
        got = pull(self._ctx, self._root, number=step.version)
        self._changed |= got.changed
        self._say(PulledModel(step.version, got.record.model.sha256, got.record.model.size))

    def _train(self, step: TrainOn) -> None:
        asked = self._asked
        got = train(
            self._ctx,
            self._root,
            self._trainer,
            site=asked.site,
            number=step.version,
            overrides=asked.overrides,
            again=step.again,
        )
        # Anything else: main changed, and the next look says how.
        if isinstance(got, TrainedNow | NotTaken):
            self._again = self._again and not step.again
        if isinstance(got, TrainedNow):
            self._changed |= got.changed
            self._say(Trained(step.version, got.result.num_examples, got.result.metrics, got.newest))
        elif isinstance(got, NotTaken):
            self._changed = True
            self._say(Refusal(step.version, got.findings))

    def _submit(self, main: Snapshot, step: HandIn) -> None:
        asked = self._asked
        got = submit(self._ctx, self._root, Wanted(asked.site, base=step.version), key=asked.key)
        if isinstance(got, Refused):
            self._refused[step.version] = (self._judged(main, step.version), got.findings)
            self._say(Refusal(step.version, got.findings))
        elif isinstance(got, Submitted) and got.outcome != "final":
            done = HandedIn(step.version, got.outcome, got.pull)
            self._changed |= got.changed
            self._handed_in.append(done)
            self._say(done)

    def _pause(self, step: Pause) -> None:
        if step != self._paused:
            self._say(step)
        self._paused = step
        self._patience.reached()
        self._patience.sleep()

    def _tell_replaced(self, main: Snapshot, view: SiteView) -> None:
        """Say it once if another clone's update stands where this one's did; there is nothing to be done about it."""
        found = replaced(main, self._root, self._asked.site)
        # While a pull request is open, what is on main may still change.
        if found is not None and found != self._replaced and view.line is not None and view.line.phase != "open":
            self._replaced = found
            self._say(found)

    def _say(self, told: Told) -> None:
        self._patience.reached()
        self._tell(told)

    def _ran(
        self,
        ended: Literal["final", "enough", "once", "unknown", "unsigned"],
        current: int,
        *,
        waiting: Pause | None = None,
        findings: tuple[Finding, ...] = (),
    ) -> Ran:
        return Ran(ended, current, tuple(self._handed_in), waiting, findings, self._changed)
