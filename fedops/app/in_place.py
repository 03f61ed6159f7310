"""One version recomputed from files where they lie: nothing is copied, each byte is read once, and hashed on the way.

Only ever says "all of it is as the record says". Where anything is not, or a store is not a folder of this machine, the
caller goes the careful way (`input_bytes`), which copies each file and names what is wrong with it.
"""

from __future__ import annotations

from contextlib import suppress

from fedops.app.compute import compute, from_files
from fedops.app.deciding import Situation
from fedops.app.differences import differences
from fedops.app.engine import Aggregated
from fedops.app.input_bytes import Tools, lying_at, lying_global, stores_of
from fedops.app.known_bytes import Lying, fingerprint
from fedops.app.read_ahead import names_of
from fedops.core.artifacts import ARCHIVE
from fedops.core.byte_faults import GONE
from fedops.core.documents import dump_json
from fedops.core.errors import StoreError
from fedops.core.facts import VersionTag
from fedops.core.ids import BlobId, CommitId, Digest, SiteId, repository_of
from fedops.core.policy import Weighing
from fedops.core.records import Record, VersionRecord
from fedops.ports import InPlace, Store


def is_whole_in_place(tools: Tools, here: Situation, weights: Weighing, record: VersionRecord) -> bool:
    """True if all copies of all contributions and the stored model are whole, and aggregating them gives its bytes.

    Args:
        here: the situation at the version's input_commit.
        weights: as they follow from it.
        record: of the version.
    """
    try:
        inputs, others = _lying(tools, here, weights, record)
        key = _key(tools, record, here)
        if tools.known.made(key):
            tools.ahead.check([*inputs.values(), *others], tools.known)
            return True
        if not _recomputed(tools, here, weights, record, inputs, others):
            return False
    except (_Elsewhere, StoreError):
        return False
    tools.known.note_made(key)
    return True


def begin_reading(tools: Tools, record: VersionRecord) -> None:
    """Let the files that a version will need be hashed while git is asked what else it says; only guesses where they are."""
    store = tools.ctx.global_store(tools.main.federation)
    if not isinstance(store, InPlace) or not tools.stored or record.version in tools.ahead.begun:
        return
    tools.ahead.begun.add(record.version)
    found = tools.models.in_place(record.model)
    if found is not None and not tools.known.has(found[0]):
        tools.ahead.begin(found[0].path, names_of(found[0]))
    for c in record.contributions:
        for repository, name in ((ARCHIVE, "md5"), (repository_of(SiteId(c.site)), "sha256")):
            with suppress(StoreError):
                layer = store.manifest(repository, Digest(c.manifest)).layer
                path = store.layer_file(repository, layer)
                if not tools.known.has(Lying(path, c.sha256)):
                    tools.ahead.begin(path, [name])


def version_key(tools: Tools, commit: CommitId, tag: VersionTag | None) -> str:
    """Digest over all that a version rests on besides files: its commit, whose id covers all of history, and its tag.

    Also over where the stores are now, and which fedops looks.
    """
    main, software = tools.main, tools.ctx.software["fedops"]
    stores = [f"{site} {entry.store}" for site, entry in sorted(main.sites.sites.items())]
    return fingerprint([software, commit, tag.object if tag is not None else "", main.federation.store.url, *stores])


class _Elsewhere(Exception):  # noqa: N818 not an error: the careful way is asked instead
    """The bytes are not in a folder of this machine, or not as they should be."""


def _lying(
    tools: Tools, here: Situation, weights: Weighing, record: VersionRecord
) -> tuple[dict[BlobId, Lying], list[Lying]]:
    """The archive's copies by record blob; and the other files that must be whole."""
    model = lying_global(tools, record.model)
    bases = {here.main.version.version, *(w.submission.base_version for w in weights.weighted)}
    if model is None or not all(lying_global(tools, tools.models.entry(number)) for number in bases):
        raise _Elsewhere
    inputs, others = {}, [model]
    for w in weights.weighted:
        update = here.merged.records[w.submission.site]
        archive, own = stores_of(tools, here, w.submission.site)
        inputs[w.submission.record_blob] = _file(tools, archive, ARCHIVE, here, update)
        try:
            # Of equal bytes one md5 is enough.
            others.append(_file(tools, *own, here, update)._replace(md5=None))
        except StoreError as e:
            # A site may delete its own, and whoever may read the archive alone verifies by it.
            if e.slug not in GONE and e.cause == "permanent":
                raise
            tools.known.spoil()
    return inputs, others


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
    inputs: dict[BlobId, Lying],
    others: list[Lying],
) -> bool:
    """Aggregate the archive's copies; the engine hashes what it reads. Beside it, hash what it does not read."""
    for lying in others:
        if not tools.known.has(lying):
            tools.ahead.begin(lying.path, names_of(lying))
    for lying in inputs.values():
        tools.ahead.begin(lying.path, ["md5"])
    made = compute(
        tools.ctx,
        here.main,
        weights,
        from_files(tools.ctx, here.main, lambda s: inputs[s.record_blob].path),
        None,
        opened=lambda number: tools.models.open_in_place(number, here.main.submission_policy.limits),
        hashed=lambda number: tools.models.entry(number).sha256,
    )
    if not isinstance(made, Aggregated) or differences(record, made):
        return False
    tools.ahead.check(others, tools.known)
    for lying in inputs.values():
        if tools.ahead.md5(lying.path) != lying.md5:
            return False
        tools.known.note(lying, tools.ahead.begin(lying.path, ["md5"]).result()[0])
    return True
