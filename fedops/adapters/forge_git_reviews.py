"""Reviews on the git forge: each is a small signed commit, so that it stays verifiable whoever writes the forge later."""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedops.adapters.forge_git_documents import ReviewFile, make, time_text
from fedops.adapters.forge_git_people import People
from fedops.adapters.forge_git_state import View, damaged, folder_of, read_document
from fedops.core.documents import dump_json
from fedops.core.errors import FedopsError, ForgeError
from fedops.core.facts import Account
from fedops.core.ids import CommitId, RepoPath, is_hex
from fedops.ports import Repository

_FILE = RepoPath("review.json")
_MAX_BYTES = 524_288  # a body of the largest size, escaped
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Signed:
    """A lead's review and the signed commit that it is."""

    lead: Account
    review: ReviewFile
    commit: CommitId


class Reviews:
    """Reads and signs reviews."""

    def __init__(self, repository: Repository, people: People) -> None:
        self._repository = repository
        self._people = people
        self._known: dict[CommitId, ReviewFile] = {}

    def latest(self, view: View, number: int) -> list[Signed]:
        """The last review of each lead on a pull, oldest first; what no lead signed is not there."""
        last: dict[Account, Signed] = {}
        for signed in sorted(self._signed(view, number), key=lambda signed: signed.review.sequence):
            last.pop(signed.lead, None)
            last[signed.lead] = signed
        return list(last.values())

    def sign(
        self,
        view: View,
        number: int,
        head: CommitId,
        state: Literal["approved", "changes_requested"],
        body: str,
        *,
        at: dt.datetime,
        key: Path,
    ) -> tuple[ReviewFile, CommitId] | None:
        """Write the signed commit of a review, unless the same lead's last one says the same.

        Raises:
            ForgeError: the key is not a lead's, so the review would not count.
        """
        me = self._people.lead(self._people.proof(key))
        if me is None:
            raise ForgeError(
                f"pull {number}: the key {key.name} is no lead's -> a key of `leads` in policies/sites.yaml on main",
                hint="give the lead's key: `fedops review --key PATH`",
                slug="auth_failed",
                cause="auth",
            )
        latest = self.latest(view, number)
        mine = next((signed.review for signed in latest if signed.lead == me), None)
        if mine is not None and (mine.head, mine.state, mine.body) == (head, state, body):
            return None
        sequence = max((signed.review.sequence for signed in latest), default=0) + 1
        fields = {"pull": number, "head": head, "state": state, "body": body, "sequence": sequence, "at": time_text(at)}
        review = make(ReviewFile, f"review of pull {number}", fields)
        message = f"review: pull {number} {state} at {head}"
        return review, self._repository.write_commit((), {_FILE: dump_json(review)}, message, at=at, key=key)

    def _signed(self, view: View, number: int) -> list[Signed]:
        found = []
        for path in view.under(folder_of("reviews", number)):
            name = path.rpartition("/")[2].removesuffix(".json")
            try:
                review = self._read(CommitId(name), number) if is_hex(name, 40) else None
                lead = self._people.lead(CommitId(name)) if review is not None else None
            except FedopsError as e:
                _log.warning("left out: %s: %s", path, e.message)
                continue
            if review is not None and lead is not None:
                found.append(Signed(lead, review, CommitId(name)))
        return found

    def _read(self, commit: CommitId, number: int) -> ReviewFile:
        review = self._known.get(commit)
        if review is None:
            entry = next((e for e in self._repository.entries(commit) if e.path == _FILE), None)
            if entry is None:
                raise damaged(commit, _FILE, "is not there -> a signed review")
            review = read_document(self._repository, entry, ReviewFile, commit, max_bytes=_MAX_BYTES)
            self._known[commit] = review
        if review.pull != number:
            raise damaged(commit, _FILE, f"is a review of pull {review.pull} -> {number}")
        return review
