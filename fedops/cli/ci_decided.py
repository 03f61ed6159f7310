"""What the jobs say about what is still to be done, in the words that expressions of workflows compare."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedops.app.context import Context
    from fedops.app.snapshot import Snapshot
    from fedops.core.facts import Decision
    from fedops.core.findings import Finding

RULES = "policy_invalid"  # slug: the policy asks for what this version of fedops does not compute


@dataclass(frozen=True)
class Decided:
    """Main as it is now, the moment, and whether a version is to be made, merged or tagged.

    Attributes:
        decision: what the policy says; None where people have made the version already.
        stops: what forbids a version, whatever was handed in: tags, or rules that are not computed here.
        reviews: what was done with pull requests that bring versions.
    """

    main: Snapshot
    at: dt.datetime
    due: bool
    decision: Decision | None
    stops: Sequence[Finding]
    reviews: Sequence[str] = ()


def decided(ctx: Context, *, tending: bool = False) -> Decided:
    """Look at main and at the open pull requests.

    Args:
        tending: also tell the pull requests of versions how they stand, and close what is out of date.
    """
    from fedops.app.inspect import refreshed
    from fedops.app.next_version import due_now
    from fedops.app.reconcile import stray_tags
    from fedops.app.version_pulls import look
    from fedops.app.version_review import tend
    from fedops.app.why_waits import unavailable_rules

    main = refreshed(ctx)
    strays = stray_tags(ctx, main)
    now = ctx.clock.now().replace(microsecond=0)
    reviews: Sequence[str] = ()
    if tending:
        tended = tend(ctx, main)
        counting, reviews = tended.counting, tended.texts
    else:
        counting = look(ctx.repository, ctx.forge, main, ctx.forge.open_pulls()).counting
    due, decision = due_now(ctx, main, now, counting)
    return Decided(main, now, due and not strays, decision, (*strays, *unavailable_rules(main)), reviews)


def word(value: bool) -> str:
    """A boolean as a job output."""
    return "true" if value else "false"


def why_not(decision: Decision | None, stops: Sequence[Finding]) -> str:
    """Why there is no version now, in words.

    Args:
        stops: what forbids a version.
    """
    from fedops.render.reconcile import decision_text

    if any(f.slug != RULES for f in stops):
        return "version tags that nobody published"
    return "main asks for rules that are not computed here" if stops else decision_text(decision)
