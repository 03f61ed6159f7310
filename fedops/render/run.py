"""What `fedops run` tells on its way and at its end; data in, lines out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from fedops.core.findings import Finding, hint, message
from fedops.core.ids import GlobalVersion
from fedops.core.site_loop import (
    HandedIn,
    Offline,
    Online,
    Pause,
    PulledModel,
    Refusal,
    Replaced,
    Told,
    Trained,
    Unusable,
    Usable,
)
from fedops.core.status import OpenPull
from fedops.render.submission import metrics_text
from fedops.render.text import clean, count, short, size

_HANDED_IN = {
    "opened": "handed in the update on {name}: PR #{pull}",
    "moved": "handed in the update on {name}: PR #{pull} has it now",
    "open": "the update on {name} is handed in: PR #{pull}",
    "merged": "the update on {name} is merged",
    "used": "the update on {name} was used",
}
_AGAIN = "`fedops run --again …` trains once more on this version; the next one is trained on by itself"
_TEXT = 200  # columns of others' text


def told_lines(told: Told, site: str) -> list[str]:
    """One thing that happened, as lines for people; hints are indented."""
    match told:
        case PulledModel():
            return [f"pulled {_name(told.version)}: {size(told.size)}, {short(told.sha256)}"]
        case Trained():
            return [_trained(told)]
        case HandedIn():
            return [_handed_in(told)]
        case Refusal():
            return [f"the update on {_name(told.version)} was refused here, nothing was sent", *_why(told.findings)]
        case Replaced():
            return _replaced(_name(told.version), site)
        case Offline():
            return [f"cannot go on: {clean(told.message, _TEXT)}", "  trying again until it answers"]
        case Online():
            return ["it answers again"]
        case Unusable():
            return [f"waits until main can be used: {clean(told.message, _TEXT)}", f"  hint: {told.hint}"]
        case Usable():
            return ["main can be used again"]
        case Pause():
            return list(pause_lines(told, site))
        case _:
            assert_never(told)


def pause_lines(pause: Pause, site: str) -> Iterator[str]:
    """What a site waits for, and what a person can do about it."""
    name = _name(pause.version)
    match pause.reason:
        case "suspended":
            yield f"waits: {site} is suspended; nothing of it is merged or used"
            yield f"  hint: a lead can end that: fedops site activate {site}"
        case "open":
            yield f"waits for CI: {_pull(pause.pull)}"
        case "quorum":
            yield f"waits for other sites: the update is merged and counts for v{pause.version + 1}"
        case "rejected":
            number = pause.pull.number if pause.pull is not None else "N"
            said = _pull(pause.pull) if pause.pull is not None and pause.pull.text else f"CI rejected PR #{number}"
            yield f"waits for the next version: {said}"
            yield f"  hint: `fedops review {number}` shows why; correct data or code, then {_AGAIN}"
        case "refused":
            yield f"waits for the next version: the update on {name} would be rejected"
            yield from _why(pause.findings)
            yield f"  hint: {_AGAIN}"
        case "unusable":
            yield f"waits for the next version: the merged update on {name} does not count"
            yield from _why(pause.findings)
            yield f"  hint: {_AGAIN}"
        case "closed":
            yield f"waits for the next version: the update on {name} was handed in, and its pull request closed"
            yield f"  hint: `fedops submit` hands it in again; {_AGAIN}"
        case _:
            assert_never(pause.reason)


def ran_text(ended: str, current: int, handed_in: Sequence[HandedIn], waiting: Pause | None, site: str) -> str:
    """The result of a run."""
    lines = [_handed_in(done) for done in handed_in]
    if ended == "final":
        lines.append(f"done: {_name(current)} is the last version of the federation")
    elif ended == "enough":
        lines.append(f"done: {count(len({d.version for d in handed_in}), 'version')}, as many as were asked for")
    elif waiting is not None:
        lines += pause_lines(waiting, site)
    return "\n".join(lines)


def _name(version: int) -> str:
    return GlobalVersion(version).short


def _trained(told: Trained) -> str:
    facts = ", ".join(filter(None, [count(told.num_examples, "example"), metrics_text(told.metrics)]))
    behind = told.newest - told.version
    late = f"; {_name(told.newest)} is out, so it counts with staleness {behind}" if behind else ""
    return f"trained on {_name(told.version)}: {facts}{late}"


def _handed_in(done: HandedIn) -> str:
    return _HANDED_IN[done.outcome].format(name=_name(done.version), pull=done.pull)


def _replaced(name: str, site: str) -> list[str]:
    return [
        f"main has another update of {site} on {name} than the one that this clone handed in",
        "  hint: if another clone hands in for the site too, one of them is enough",
    ]


def _pull(pull: OpenPull | None) -> str:
    """A pull request with the last word of CI on it, which is text of others."""
    if pull is None:
        return "the pull request"
    return f"PR #{pull.number}" + (f": {clean(pull.text, _TEXT)}" if pull.text else "")


def _why(findings: Sequence[Finding]) -> Iterator[str]:
    for f in findings:
        yield f"  {message(f)}"
        yield f"  hint: {hint(f)}"
