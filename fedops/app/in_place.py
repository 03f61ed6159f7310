"""One version recomputed from files where they lie: nothing is copied, each byte is read once, and hashed on the way.

Only ever says "all of it is as the record says". Where anything is not, or a store is not a folder of this machine, the
caller goes the careful way (`input_bytes`), which copies each file and names what is wrong with it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fedops.app.compute import compute, from_files
from fedops.app.deciding import Situation
from fedops.app.differences import differences
from fedops.app.engine import Aggregated
from fedops.app.input_bytes import Tools, lying_at, lying_global, stores_of
from fedops.app.known_bytes import Lying, fingerprint
from fedops.app.read_ahead import names_of
from fedops.app.same_sink import SameSink
from fedops.core.artifacts import ARCHIVE
from fedops.core.byte_faults import GONE
from fedops.core.documents import dump_json
from fedops.core.errors import StoreError
from fedops.core.facts import VersionTag
from fedops.core.ids import BlobId, CommitId, Digest, SiteId, repository_of
from fedops.core.policy import Weighing
from fedops.core.records import Contribution, Record, VersionRecord
from fedops.ports import InPlace, Store


def is_whole_in_place(tools: Tools, here: Situation, weights: Weighing, record: VersionRecord) -> bool:
    """True if all copies of all contributions and the stored model are whole, and aggregating them gives its bytes.

    Args:
        here: the situation at the version's input_commit.
        weights: as they follow from it.
        record: of the version.
    """
    try:
        model, copies = _lying(tools, here, weights, record)
        key = _key(tools, record, here)
        if tools.known.made(key):
            tools.ahead.check([model, *(f for both in copies.values() for f in both if f is not None)], tools.known)
            return True
        if not _recomputed(tools, here, weights, record, model, copies):
            return False
    except (_Elsewhere, StoreError):
        return False
    tools.known.note_made(key)
    return True


def begin_reading(tools: Tools, record: VersionRecord) -> None:
    """Let the files that a version will need be hashed while git is asked what else it says; only guesses where they are."""
    store = tools.ctx.global_store(tools.main.federation)
    if not tools.stored or record.version in tools.ahead.begun:
        return
    tools.ahead.begun.add(record.version)
    found = tools.models.in_place(record.model)
    if found is not None and not tools.known.has(found[0]):
        tools.ahead.begin(found[0].path, names_of(found[0]))
    for c in record.contributions:
        archive, own = (_guess(tools, store, r, c) for r in (ARCHIVE, repository_of(SiteId(c.site))))
        if archive is not None:
            tools.ahead.begin(archive, ["md5"], own)
        elif own is not None:
            tools.ahead.begin(own, ["sha256"])


def _guess(tools: Tools, store: Store, repository: str, contribution: Contribution) -> Path | None:
    """Where a copy that must be read probably lies."""
    if not isinstance(store, InPlace):
        return None
    with suppress(StoreError):
        path = store.layer_file(repository, tools.artifact(store, repository, Digest(contribution.manifest)).layer)
        return None if tools.known.has(Lying(path, contribution.sha256)) else path
    return None


def version_key(tools: Tools, commit: CommitId, tag: VersionTag | None) -> str:
    """Digest over all that a version rests on besides files: its commit, whose id covers all of history, and its tag.

    Also over where the stores are now, and which fedops looks.
    """
    main, software = tools.main, tools.ctx.software["fedops"]
    stores = [f"{site} {entry.store}" for site, entry in sorted(main.sites.sites.items())]
    return fingerprint([software, commit, tag.object if tag is not None else "", main.federation.store.url, *stores])


class Copies(NamedTuple):
    """The files of one contribution.

    Attributes:
        own: the site's; None: it is there no more, or may not be read.
    """

    archived: Lying
    own: Lying | None


class _Elsewhere(Exception):  # noqa: N818 not an error: the careful way is asked instead
    """The bytes are not in a folder of this machine, or not as they should be."""


def _lying(
    tools: Tools, here: Situation, weights: Weighing, record: VersionRecord
) -> tuple[Lying, dict[BlobId, Copies]]:
    """The model's file, and by record blob those of each contribution."""
    model = lying_global(tools, record.model)
    bases = {here.main.version.version, *(w.submission.base_version for w in weights.weighted)}
    if model is None or not all(lying_global(tools, tools.models.entry(number)) for number in bases):
        raise _Elsewhere
    copies: dict[BlobId, Copies] = {}
    for w in weights.weighted:
        update = here.merged.records[w.submission.site]
        archive, own = stores_of(tools, here, w.submission.site)
        archived, kept = _file(tools, archive, ARCHIVE, here, update), None
        try:
            # Of equal bytes one md5 is enough.
            kept = _file(tools, *own, here, update)._replace(md5=None)
        except StoreError as e:
            # A site may delete its own, and whoever may read the archive alone verifies by it.
            if e.slug not in GONE and e.cause == "permanent":
                raise
            tools.known.spoil()
        copies[w.submission.record_blob] = Copies(archived, kept)
    return model, copies


def _file(tools: Tools, store: Store, repository: str, here: Situation, update: Record) -> Lying:
    lying = lying_at(tools, store, repository, here, update)
    if lying is None:
        raise _Elsewhere
    return lying


def _key(tools: Tools, record: VersionRecord, here: Situation) -> str:
    """Of everything that the numbers of a version depend on: its record, which names all else but the bases by digest."""
    numbers = sorted({here.main.version.version, *(c.base_version for c in record.contributions)})
    bases = [tools.models.entry(number).sha256 for number in numbers]
    return fingerprint([tools.ctx.software["fedops"], dump_json(record).decode(), *bases])


def _recomputed(
    tools: Tools,
    here: Situation,
    weights: Weighing,
    record: VersionRecord,
    model: Lying,
    copies: dict[BlobId, Copies],
) -> bool:
    """Aggregate the archive's copies; the engine hashes them, and its result is compared with the stored model.

    Beside it, the rest is read.
    """
    if not tools.known.has(model):
        tools.ahead.begin(model.path, names_of(model))
    for archived, own in copies.values():
        is_read = own is not None and not tools.known.has(own)
        tools.ahead.begin(archived.path, ["md5"], own.path if own is not None and is_read else None)
    with suppress(OSError), model.path.open("rb") as stored:
        made = compute(
            tools.ctx,
            here.main,
            weights,
            from_files(tools.ctx, here.main, lambda s: copies[s.record_blob].archived.path),
            lambda specs: SameSink(stored, model.sha256, specs),
            opened=lambda number: tools.models.open_in_place(number, here.main.submission_policy.limits),
            hashed=lambda number: _to_be_hashed(tools, number),
        )
        return isinstance(made, Aggregated) and not differences(record, made) and _are_whole(tools, model, copies)
    return False


def _to_be_hashed(tools: Tools, number: int) -> str | None:
    """The sha256 of a global version's model; None if this run has hashed it, and nobody has touched it since."""
    entry = tools.models.entry(number)
    lying = lying_global(tools, entry)
    return None if lying is not None and tools.known.has_read(lying) else entry.sha256


def _are_whole(tools: Tools, model: Lying, copies: dict[BlobId, Copies]) -> bool:
    tools.ahead.check([model], tools.known)
    # From the end, since threads begin at the beginning: what they have not come to is read here meanwhile.
    for both in reversed(copies.values()):
        tools.ahead.check_copies(*both, tools.known)
    return True
