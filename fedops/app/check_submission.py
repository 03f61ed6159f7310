"""One submission of `fedops check`: draft, model file and pointer, each by itself and against each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fedops.app.check_plan import SubmissionItem
from fedops.app.plans import GlobalFile, read_bytes
from fedops.app.terms import (
    DECLARED,
    Terms,
    base_faults,
    check_global,
    container_faults,
    declared_faults,
    draft_faults,
    folder_of,
    open_global,
    read_draft,
)
from fedops.core.errors import ConfigError
from fedops.core.facts import Json
from fedops.core.findings import Finding, finding
from fedops.core.ids import Digest, SiteId, site_of_path, update_path
from fedops.core.records import Draft, Pointer
from fedops.core.validate import parse_pointer, pointer_faults, validate_model
from fedops.ports import Models, OpenModel

_FACTS = (
    "format",
    "size",
    "sha256",
    "md5",
    "tensors",
    "delta_norm",
    "site",
    "base_version",
    "staleness",
    "num_examples",
    "payload",
    "metrics",
)


def check_submission(
    item: SubmissionItem, name: str, terms: Terms, models: Models
) -> tuple[dict[str, Json], tuple[Finding, ...]]:
    """Judge what is there of one submission.

    Returns:
        Facts that could be read, and all findings; a fault of the record does not keep the file from being looked at.

    Raises:
        ConfigError: a file that the plan names is not there, or a base model cannot be used.
    """
    facts: dict[str, Json] = {}
    found: list[Finding] = []
    draft = None
    if item.record is not None:
        record_where = item.record if isinstance(item.record, str) else name
        draft, faults = read_draft(item.record, record_where, terms)
        found += faults
        if draft is not None:
            facts |= _draft_facts(draft, terms)
            # As the plan says whose folder it is for, or as the record's own path says.
            folder = site_of_path(item.placed_at) if item.placed_at is not None else folder_of(item.record)
            found += draft_faults(draft, record_where, folder, terms)
    if item.update is not None:
        update_facts, faults = _update(item.update, draft, terms, models)
        facts = update_facts | facts
        found += faults
    if item.pointer is not None:
        found += _pointer(item, item.pointer, draft, facts, terms)
    return {key: facts[key] for key in _FACTS if key in facts}, tuple(found)


def _draft_facts(draft: Draft, terms: Terms) -> dict[str, Json]:
    facts: dict[str, Json] = {
        "site": draft.site,
        "base_version": draft.base_version,
        "staleness": None,
        "num_examples": draft.num_examples,
        "payload": draft.payload,
        "metrics": dict(draft.metrics),
    }
    if terms.current is not None and draft.base_version <= terms.current:
        facts["staleness"] = terms.current - draft.base_version
    return facts


# ------------------------------------------------------------------ model file


def _update(
    where: str, draft: Draft | None, terms: Terms, models: Models
) -> tuple[dict[str, Json], tuple[Finding, ...]]:
    path, most = terms.file(where), terms.policy.limits.update_bytes
    if (size := path.stat().st_size) > most:  # hashing it would take hours, and changes nothing
        detail = {"limit": "update_bytes"}
        return {"size": size}, (finding("file_too_large", where, got=size, expected=most, detail=detail),)
    sha256, md5, size = models.digests(path)
    facts: dict[str, Json] = {"size": size, "sha256": sha256, "md5": md5, "delta_norm": None}
    found = list(declared_faults(draft, where, facts))
    if draft is not None and draft.format == "opaque":
        return facts | {"format": "opaque"}, tuple(found)  # never opened
    model, faults = models.open(path, terms.policy.limits, where)
    found += faults
    if model is None:
        return facts, tuple(found)
    try:
        found += _against_base(model, where, draft, terms, models, facts)
    finally:
        model.close()
    return facts, tuple(found)


def _against_base(
    model: OpenModel, where: str, draft: Draft | None, terms: Terms, models: Models, facts: dict[str, Json]
) -> Iterator[Finding]:
    facts["format"] = model.format
    facts["tensors"] = {k: {"dtype": s.dtype, "shape": list(s.shape)} for k, s in sorted(model.specs.items())}
    yield from container_faults(draft, model, where)
    payload = draft.payload if draft is not None else "full"
    base_file = terms.base_of(draft)
    if base_file is None:
        found, norm = validate_model(model, None, terms.policy, where=where, payload=payload)
    else:
        base, sha256 = _open_base(base_file, terms, models)
        try:
            yield from base_faults(draft, sha256, where)
            found, norm = validate_model(model, base, terms.policy, where=where, payload=payload)
        finally:
            base.close()
    facts["delta_norm"] = norm if norm is None or norm < float("inf") else "inf"
    yield from found


def _open_base(base: GlobalFile, terms: Terms, models: Models) -> tuple[OpenModel, str]:
    """A global version's model and its sha256."""
    sha256, _, _ = models.digests(terms.file(base.path))
    check_global(base, sha256)
    return open_global(base, terms, models), sha256


# ------------------------------------------------------------------ pointer


def _pointer(
    item: SubmissionItem, where: str, draft: Draft | None, facts: Mapping[str, Json], terms: Terms
) -> Iterator[Finding]:
    limit = terms.policy.limits.pointer_bytes
    data = read_bytes(terms.folder / where, max_bytes=limit)
    if len(data) > limit:
        yield finding("file_too_large", where, got=f"more than {limit}", expected=limit)
        return
    placed_at = item.placed_at
    if placed_at is None:
        if draft is None:
            raise ConfigError(f"{where}: say where the pointer belongs", hint="add `placed_at` to the item")
        placed_at = update_path(SiteId(draft.site), "bin" if draft.format == "opaque" else "safetensors")
    implied = _implied(draft, placed_at)
    if implied is not None:
        # As in a repository: a record that is complete implies every byte of its pointer.
        yield from pointer_faults(data, implied, where)
        return
    pointer, faults = parse_pointer(data, where, placed_at)
    yield from faults
    if pointer is not None:
        yield from _points_elsewhere(pointer, where, draft, facts)


def _implied(draft: Draft | None, placed_at: str) -> Pointer | None:
    """The pointer of a draft in which nothing is left for `submit` to fill in."""
    if draft is None or draft.sha256 is None or draft.md5 is None or draft.size is None or draft.manifest is None:
        return None
    name = placed_at.rpartition("/")[2].removesuffix(".dvc")
    return Pointer(name, draft.md5, draft.size, draft.sha256, Digest(draft.manifest), SiteId(draft.site))


def _points_elsewhere(
    pointer: Pointer, where: str, draft: Draft | None, facts: Mapping[str, Json]
) -> Iterator[Finding]:
    """Where the pointer names other bytes than the file that is there, or without one than the record."""
    for field, slug in DECLARED.items():
        stated = getattr(draft, field) if draft is not None else None
        expected = facts.get(field, stated)
        got = getattr(pointer, field)
        if expected is not None and got != expected:
            yield finding(slug, where, got=got, expected=expected, detail={"field": field})
