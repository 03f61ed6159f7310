from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.core.findings import finding
from fedops.core.ids import SiteId
from fedops.core.site_loop import (
    End,
    HandIn,
    Pause,
    PullModel,
    SiteView,
    Step,
    TrainOn,
    beat_state,
    next_step,
)
from fedops.core.status import OpenPull, Phase, SiteLine

SITE = SiteId("hospital-a")
AT = dt.datetime(2026, 3, 2, 9, 30, tzinfo=dt.UTC)
WHY = finding("non_finite", "update.safetensors")


def pr(verdict: str | None = None) -> OpenPull:
    return OpenPull(12, verdict, "", AT, owned=True)


def line(phase: Phase, base: int | None = None, **more: Any) -> SiteLine:
    return SiteLine(SITE, phase, base, **more)


def view(at: SiteLine | None, **more: Any) -> SiteView:
    """A site at v8 that has pulled v8, whose last update that was used was on v5, with a staleness limit of 5."""
    values: dict[str, Any] = {"current": 8, "final": False, "consumed": 5, "staleness_max": 5, "pulled": True}
    return SiteView(line=at, **values | more)


NEW, DUE = line("new"), line("due", 5)
OPEN, PENDING, ACCEPTED = (line("open", 5, pull=pr(v)) for v in (None, "pending", "success"))
REJECTED = line("open", 5, pull=pr("failure"))
READY = line("ready", 8)
LOST = line("ready", 7, reason=finding("object_missing", "sites/hospital-a/submission.json"))
STALE = line("refused", 2, reason=finding("too_stale", "sites/hospital-a/submission.json"))
OVERTAKEN = line("refused", 7, reason=finding("overtaken", "sites/hospital-a/submission.json"))
UNUSABLE = line("refused", 8, reason=finding("duplicate_submission", "sites/hospital-a/submission.json"))

TABLE: dict[str, tuple[SiteView, Step]] = {
    # the way of one update
    "a new site pulls": (view(NEW, pulled=False, consumed=-1), PullModel(8)),
    "then trains": (view(NEW, consumed=-1), TrainOn(8)),
    "then hands in": (view(NEW, consumed=-1, trained={8: False}), HandIn(8)),
    "then waits for ci": (view(OPEN, trained={8: True}, pull_base=8), Pause("open", 8, pr())),
    "also while it is pending": (view(PENDING, trained={8: True}), Pause("open", 8, pr("pending"))),
    "or accepted": (view(ACCEPTED, trained={8: True}), Pause("open", 8, pr("success"))),
    "then for the quorum": (view(READY, trained={8: True}), Pause("quorum", 8)),
    "then trains on what is new": (view(DUE, trained={}), TrainOn(8)),
    # several versions behind
    "what was pulled long ago is not trained on": (view(DUE, pulled=False), PullModel(8)),
    "an open update on an older version is waited for": (view(OPEN, pull_base=6), Pause("open", 8, pr())),
    "a merged one on an older version too": (view(line("ready", 6)), Pause("quorum", 8)),
    "a finished training on an older version is not lost": (view(DUE, trained={6: False}), HandIn(6)),
    "of several the newest": (view(DUE, trained={6: False, 7: False}), HandIn(7)),
    "one on a base that was used is of no use": (view(DUE, trained={5: False}), TrainOn(8)),
    "nor one that is too stale": (view(DUE, current=20, trained={14: False}), TrainOn(20)),
    "one that is just not too stale": (view(DUE, current=20, trained={15: False}), HandIn(15)),
    "without a limit none is too stale": (view(DUE, current=90, staleness_max=None, trained={6: False}), HandIn(6)),
    "one older than the record on main is of no use": (view(OVERTAKEN, consumed=4, trained={6: False}), TrainOn(8)),
    # what does not count any more
    "too stale on main": (view(STALE, consumed=1), TrainOn(8)),
    "overtaken": (view(OVERTAKEN, consumed=7, trained={}), TrainOn(8)),
    "bytes lost": (view(LOST, trained={7: True}), TrainOn(8)),
    "merged on the current version, does not count": (
        view(UNUSABLE, trained={8: True}),
        Pause("unusable", 8, findings=(UNUSABLE.reason,) if UNUSABLE.reason else ()),
    ),
    "the same, handed in from elsewhere": (
        view(UNUSABLE),
        Pause("unusable", 8, findings=(UNUSABLE.reason,) if UNUSABLE.reason else ()),
    ),
    "the same, without a reason": (view(line("refused", 8)), Pause("unusable", 8)),
    "the same, with one more try": (view(UNUSABLE, trained={8: True}, again=True), TrainOn(8, again=True)),
    # rejected by CI
    "rejected": (view(REJECTED, trained={8: True}, pull_base=8), Pause("rejected", 8, pr("failure"))),
    "rejected, from another clone": (view(REJECTED, pull_base=8), Pause("rejected", 8, pr("failure"))),
    "rejected, with a record nobody can read": (view(REJECTED, trained={8: True}), Pause("rejected", 8, pr("failure"))),
    "rejected on an older version": (view(REJECTED, trained={7: True}, pull_base=7), TrainOn(8)),
    "rejected on an older version, not pulled": (view(REJECTED, pulled=False, pull_base=7), PullModel(8)),
    "rejected, and an older training was never sent": (
        view(REJECTED, trained={7: False}, pull_base=8),
        Pause("rejected", 8, pr("failure")),
    ),
    "rejected, and trained anew": (view(REJECTED, trained={8: False}, pull_base=8), HandIn(8)),
    "rejected, with one more try": (view(REJECTED, trained={8: True}, pull_base=8, again=True), TrainOn(8, again=True)),
    "a record from the future": (view(REJECTED, trained={8: False}, pull_base=99), HandIn(8)),
    # refused here
    "refused here": (view(DUE, trained={8: False}, refused={8: (WHY,)}), Pause("refused", 8, findings=(WHY,))),
    "refused here on an older version": (view(DUE, trained={7: False}, refused={7: (WHY,)}), TrainOn(8)),
    "refused here, with one more try": (
        view(DUE, trained={8: False}, refused={8: (WHY,)}, again=True),
        TrainOn(8, again=True),
    ),
    "a second try is not made of its own": (view(DUE, trained={8: True}), Pause("closed", 8)),
    "closed, with one more try": (view(DUE, trained={8: True}, again=True), TrainOn(8, again=True)),
    "one more try is only for what was turned down": (view(READY, again=True), Pause("quorum", 8)),
    "and not for what is not trained yet": (view(DUE, again=True), TrainOn(8)),
    # whoever may not
    "suspended": (view(line("suspended", 5)), Pause("suspended", 8)),
    "unknown": (view(None), End("unknown", 8)),
    # the end
    "final": (view(line("done", 7), final=True), End("final", 8)),
    "final, whoever asks": (view(None, final=True), End("final", 8)),
    "as many as were asked for": (view(OPEN, left=0), End("enough", 8)),
    "one left": (view(DUE, left=1), TrainOn(8)),
}


@pytest.mark.parametrize("name", TABLE)
def test_the_next_step_follows_from_one_look(name: str) -> None:
    seen, step = TABLE[name]
    assert next_step(seen) == step


def test_each_step_has_its_heartbeat() -> None:
    steps = (PullModel(8), TrainOn(8), HandIn(8), Pause("open", 8))
    assert [beat_state(s) for s in steps] == ["pulling", "training", "submitting", "waiting"]


def views() -> st.SearchStrategy[SiteView]:
    versions = st.integers(0, 6)
    lines = st.builds(
        SiteLine,
        st.just(SITE),
        st.sampled_from(("suspended", "open", "ready", "refused", "due", "new")),
        st.none() | versions,
        pull=st.sampled_from((None, pr(), pr("failure"))),
        reason=st.sampled_from((None, WHY)),
    )
    return st.builds(
        SiteView,
        current=versions,
        final=st.booleans(),
        line=st.none() | lines,
        consumed=st.integers(-1, 7),
        staleness_max=st.none() | st.integers(0, 3),
        pulled=st.booleans(),
        pull_base=st.none() | versions,
        trained=st.dictionaries(versions, st.booleans(), max_size=4),
        refused=st.dictionaries(versions, st.just((WHY,)), max_size=2),
        again=st.booleans(),
        left=st.none() | st.integers(0, 2),
    )


@given(views())
def test_no_step_repeats_itself_so_that_a_loop_always_comes_to_rest(seen: SiteView) -> None:
    """What each step changes in the view must lead to another step: else the loop would turn without a pause."""
    step = next_step(seen)
    if isinstance(step, PullModel):
        assert not seen.pulled
    elif isinstance(step, TrainOn):
        assert step.version == seen.current
        assert seen.again if step.again else seen.current not in seen.trained
    elif isinstance(step, HandIn):
        assert seen.trained[step.version] is False
        assert step.version not in seen.refused
        assert seen.consumed < step.version <= seen.current
