"""What `fedops doctor` judges of the federation around a clone: pin, tags, clock and stores; all pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from fedops.core.facts import VersionTag
from fedops.core.health import DISTRIBUTION, Check
from fedops.core.ids import GlobalVersion

CLOCK_MINUTES = 15


def check_pin(pinned: str, installed: str) -> Check:
    """Compare the version of fedops that federation.yaml names with the installed one."""
    if pinned == installed:
        return Check("fedops", "ok", installed)
    return Check("fedops", "warning", installed, f"{pinned}, as CI runs", f"pip install {DISTRIBUTION}=={pinned}")


def check_tags(tags: Sequence[VersionTag], current: int, elsewhere: str | None = None) -> Check:
    """The record says what is current; a higher tag says that somebody else thinks so, and stops aggregation.

    Args:
        elsewhere: the commit that the current version's tag names, if it is not the one that brought the version.
    """
    name, numbers = "tags", [t.version for t in tags]
    if numbers and max(numbers) > current:
        tag = GlobalVersion(max(numbers)).tag
        expected = f"none above v{current}, the version of global/version.json"
        return Check(name, "broken", tag, expected, "a lead looks at it: fedops verify, git log " + tag)
    if current not in numbers:
        return Check(name, "warning", f"no {GlobalVersion(current).tag}", "one for v" + str(current), "fedops verify")
    if elsewhere is not None:
        tag, expected = GlobalVersion(current).tag, f"the commit that brought v{current}"
        return Check(
            name, "broken", f"{tag} names {elsewhere[:12]}", expected, "a lead looks at it: fedops verify --all"
        )
    return Check(name, "ok", f"up to {GlobalVersion(current).tag}")


def check_clock(tip: dt.datetime, now: dt.datetime) -> Check:
    """Compare this machine's clock with the date of main's newest commit, which cannot lie ahead.

    Args:
        tip: committer date of the tip of main, aware.
        now: this machine's time, aware.
    """
    minutes = int((tip - now).total_seconds() // 60)
    if (tip - now) > dt.timedelta(minutes=CLOCK_MINUTES):
        got = f"the newest commit of main is dated {minutes} minutes in the future"
        return Check("clock", "warning", got, f"at most {CLOCK_MINUTES}", "set this machine's clock, or tell the lead")
    return Check("clock", "ok", f"{now.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC")


# ---------------------------------------------------------------- the stores


def check_own_store(where: str, fault: str | None) -> Check:
    """Whether the site's updates can be written.

    Args:
        where: repository in the store.
        fault: why it takes nothing; None: it does.
    """
    if fault is None:
        return Check("own store", "ok", f"{where}: may be written")
    return Check("own store", "broken", fault, "the right to write", "its operator gives this account the right")


def check_ci_store(where: str, fault: str | None) -> Check:
    """Whether a repository that CI alone must write can be written by who asks, a lead or CI; see check_own_store."""
    name = f"store: {where}"
    if fault is None:
        return Check(name, "ok", "may be written")
    step = "if CI runs as this account: the store's operator gives it the right; else nothing"
    return Check(name, "warning", f"read-only here: {fault}", "CI may write it, others need not", step)
