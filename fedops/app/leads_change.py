"""A lead's own change of what people decide: CI has nothing to say of it, but that it can be used.

Of main it is asked who is a lead and no more, so that a change which mends main can be merged where the status is required.
Nothing is merged, weighed or published here.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedops.app.snapshot import Snapshot, snapshot
from fedops.app.usable import unusable
from fedops.app.version_merge import is_of_lead
from fedops.core.errors import FedopsError
from fedops.core.facts import Change, Pull, Verdict
from fedops.core.findings import Finding, finding
from fedops.core.validate_change import is_for_people, is_submission


def leads_change(main: Snapshot, pull: Pull, head_changes: Sequence[Change]) -> tuple[Finding, ...] | None:
    """What of a lead's own change cannot be used, file by file; None: it is no lead's, or not for people to decide.

    Args:
        head_changes: of the pull request's head, against the merge base; what it leaves alone is not its fault.
    """
    if not (is_for_people(head_changes) and is_of_lead(main, pull)):
        return None
    here, paths = snapshot(main.repository, pull.head), {change.path for change in head_changes}
    return tuple(finding("policy_invalid", path, got=fault.message) for path, fault in unusable(here, paths))


def left_to_people(main: Snapshot, pull: Pull, head_changes: Sequence[Change]) -> Verdict | None:
    """The verdict on what hands nothing in, or is a lead's own change; None: the pull request is to be judged."""
    found = leads_change(main, pull, head_changes)
    if found is None and is_submission(head_changes):
        return None
    return Verdict(pull.head, main.policy, main.commit, "not_a_submission", found or ())


def mending(main: Snapshot, pull: Pull) -> Verdict | None:
    """The verdict on a lead's own change by a main that cannot be used; None: it is none, or nobody can say now."""
    try:
        found = leads_change(main, pull, main.repository.changes(main.commit, pull.head))
        return None if found is None else Verdict(pull.head, main.policy, main.commit, "not_a_submission", found)
    except FedopsError:
        return None
