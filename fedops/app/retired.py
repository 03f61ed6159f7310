"""Which versions' inputs are no longer kept, as `retain_updates` in federation.yaml says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from fedops.app.main_line import Step
from fedops.app.snapshot import Snapshot
from fedops.core.documents import load_document
from fedops.core.errors import ConfigError, GitError
from fedops.core.ids import FEDERATION_PATH, BlobId, CommitId
from fedops.core.settings import Federation
from fedops.ports import Repository

MAX_POLICY_BYTES = 1 << 20


def is_retired(number: int, newest: int, retain: int | None) -> bool:
    """True if a version is older than the newest `retain` ones."""
    return retain is not None and newest - number >= retain


def retired_by(main: Snapshot, steps: Sequence[Step]) -> Callable[[int], bool]:
    """Tells of a version whether its inputs may be gone: by the policy of now, or by that of a later version.

    What was deleted under a shorter policy stays deleted when the lead keeps more from then on.

    Args:
        main: the newest commit whose federation.yaml can be read.
        steps: all versions of main, oldest first.
    """
    repository = main.repository
    newest = max((step.number for step in steps), default=0)

    @cache
    def of_version(commit: CommitId) -> int | None:
        entry = next((e for e in repository.entries(commit, FEDERATION_PATH) if e.path == FEDERATION_PATH), None)
        return of_blob(entry.blob) if entry is not None else None

    @cache
    def of_blob(blob: BlobId) -> int | None:
        return _retain_of(repository, blob)

    def tells(number: int) -> bool:
        if is_retired(number, newest, main.federation.store.retain_updates):
            return True
        return any(is_retired(number, s.number, _quietly(of_version, s.commit)) for s in steps if s.number > number)

    return tells


def _retain_of(repository: Repository, blob: BlobId) -> int | None:
    try:
        data = repository.read(blob, max_bytes=MAX_POLICY_BYTES)
        return load_document(data, Federation, str(FEDERATION_PATH)).store.retain_updates
    except ConfigError:
        return None


def _quietly(ask: Callable[[CommitId], int | None], commit: CommitId) -> int | None:
    """What cannot be read of git explains nothing here; its own version names the damage."""
    try:
        return ask(commit)
    except GitError:
        return None
