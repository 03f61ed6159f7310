"""In which order open pull requests are looked at, so that nobody who opens many, or breaks them, keeps others waiting."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Sequence

from fedops.core.facts import Pull
from fedops.core.ids import CommitId


def in_turn(
    pulls: Sequence[Pull],
    members: Collection[int],
    *,
    again: Collection[CommitId],
    before: Collection[CommitId],
    salt: str,
) -> tuple[Pull, ...]:
    """Order pull requests: each account's oldest, then each account's second, and so on; members before strangers.

    Within a round those that nobody has looked at come first, oldest first; the others follow in an order that changes
    with `salt`, so that a budget which they use up goes to different ones each time.

    Args:
        pulls: open, in any order.
        members: numeric ids of accounts on the roster.
        again: heads that this run has looked at already, without a result: last of all.
        before: heads that an earlier run has looked at.
        salt: for example the minute.
    """
    rounds: dict[int, int] = {}
    count: dict[int, int] = defaultdict(int)
    for pull in sorted(pulls, key=lambda p: p.number):
        rounds[pull.number] = count[pull.author.id]
        count[pull.author.id] += 1

    def key(pull: Pull) -> tuple[bool, bool, int, bool, bytes, int]:
        seen = pull.head in before
        mixed = hashlib.sha256(f"{salt} {pull.head}".encode()).digest() if seen else b""
        return pull.head in again, pull.author.id not in members, rounds[pull.number], seen, mixed, pull.number

    return tuple(sorted(pulls, key=key))
