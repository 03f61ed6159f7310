"""One submission of `fedops check`: draft, model file and pointer, each by itself and against each other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedops.app.check_plan import GlobalFile, SubmissionItem, read_bytes
from fedops.app.model_bytes import first, unlimited
from fedops.core.errors import ConfigError
from fedops.core.facts import Json
from fedops.core.findings import Finding, Slug, finding
from fedops.core.ids import Digest, SiteId, record_path, site_of_path, update_path
from fedops.core.records import Draft, Pointer
from fedops.core.settings import Sites, SubmissionPolicy
from fedops.core.validate import (
    draft_of,
    parse_draft,
    parse_pointer,
    pointer_faults,
    validate_draft,
    validate_metadata,
    validate_model,
)
from fedops.ports import Models, OpenModel

# Fields of a record that say which bytes are meant.
_DECLARED: dict[str, Slug] = {"sha256": "hash_mismatch", "md5": "hash_mismatch", "size": "size_mismatch"}
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


@dataclass(frozen=True)
class Terms:
    """What submissions are judged by.

    Attributes:
        folder: where relative paths start.
        metric_names: allowed names; None: any.
        current: number of the current version; None: unknown.
        staleness_max: None: no limit.
        globals: version -> its model; empty: unknown.
        sites: the roster; None: unknown.
        base: the base of every submission, whatever its record says; None: by base version.
    """

    folder: Path
    policy: SubmissionPolicy
    metric_names: Collection[str] | None = None
    current: int | None = None
    staleness_max: int | None = None
    globals: Mapping[int, GlobalFile] | None = None
    sites: Sites | None = None
    base: GlobalFile | None = None

    def base_of(self, draft: Draft | None) -> GlobalFile | None:
        if self.base is not None or draft is None or not self.globals:
            return self.base
        return self.globals.get(draft.base_version)


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
        draft, faults = _draft(item.record, record_where, terms)
        found += faults
        if draft is not None:
            facts |= _draft_facts(draft, terms)
            found += _draft_faults(draft, record_where, item, terms)
    if item.update is not None:
        update_facts, faults = _update(item.update, draft, terms, models)
        facts = update_facts | facts
        found += faults
    if item.pointer is not None:
        found += _pointer(item, item.pointer, draft, facts, terms)
    return {key: facts[key] for key in _FACTS if key in facts}, tuple(found)


# ------------------------------------------------------------------ record


def _draft(record: str | Mapping[str, Json], where: str, terms: Terms) -> tuple[Draft | None, tuple[Finding, ...]]:
    if not isinstance(record, str):
        return draft_of(record, where)
    limit = terms.policy.limits.record_bytes
    return parse_draft(read_bytes(terms.folder / record, max_bytes=limit), where, max_bytes=limit)


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


def _draft_faults(draft: Draft, where: str, item: SubmissionItem, terms: Terms) -> Iterator[Finding]:
    yield from validate_draft(
        draft,
        where,
        terms.policy,
        current=terms.current,
        versions=terms.globals.keys() if terms.globals else None,
        staleness_max=terms.staleness_max,
        metric_names=terms.metric_names,
    )
    folder = _folder(item)
    if folder is not None and folder != draft.site:
        yield finding("site_mismatch", where, got=draft.site, expected=folder, detail={"field": "site"})
    if terms.sites is not None and draft.site not in terms.sites.sites:
        yield finding("site_unknown", where, got=draft.site)
    elif terms.sites is not None and terms.sites.sites[draft.site].state == "suspended":
        yield finding("site_suspended", where, detail={"site": draft.site})


def _folder(item: SubmissionItem) -> str | None:
    """The site's folder that a submission is for: as the plan says, or as the record's own path says."""
    if item.placed_at is not None:
        return site_of_path(item.placed_at)
    path = item.record if isinstance(item.record, str) else ""
    folder = site_of_path("/".join(path.split("/")[-3:]))
    return folder if folder is not None and path.endswith(record_path(SiteId(folder))) else None


# ------------------------------------------------------------------ model file


def _update(
    where: str, draft: Draft | None, terms: Terms, models: Models
) -> tuple[dict[str, Json], tuple[Finding, ...]]:
    path = terms.folder / where
    if not path.is_file():
        raise ConfigError(f"{where}: no such file", hint="correct the path")
    sha256, md5, size = models.digests(path)
    facts: dict[str, Json] = {"size": size, "sha256": sha256, "md5": md5, "delta_norm": None}
    found = list(_declared(where, draft, facts))
    if draft is not None and draft.format == "opaque":
        if size > terms.policy.limits.update_bytes:
            found.append(finding("file_too_large", where, got=size, expected=terms.policy.limits.update_bytes))
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


def _declared(where: str, draft: Draft | None, facts: Mapping[str, Json]) -> Iterator[Finding]:
    """Digests and size of the file against those that the record states."""
    if draft is None:
        return
    for field, slug in _DECLARED.items():
        expected = getattr(draft, field)
        if expected is not None and facts[field] != expected:
            yield finding(slug, where, got=facts[field], expected=expected, detail={"field": field})


def _against_base(
    model: OpenModel, where: str, draft: Draft | None, terms: Terms, models: Models, facts: dict[str, Json]
) -> Iterator[Finding]:
    facts["format"] = model.format
    facts["tensors"] = {k: {"dtype": s.dtype, "shape": list(s.shape)} for k, s in sorted(model.specs.items())}
    yield from validate_metadata(model.has_metadata, where, draft=True)
    if draft is not None and draft.format not in (None, model.format):
        detail = {"field": "format"}
        yield finding("metadata_schema", where, got=draft.format, expected=model.format, detail=detail)
    payload = draft.payload if draft is not None else "full"
    base_file = terms.base_of(draft)
    if base_file is None:
        found, norm = validate_model(model, None, terms.policy, where=where, payload=payload)
    else:
        base, sha256 = _open_base(base_file, terms, models)
        try:
            if draft is not None and draft.base_sha256 not in (None, sha256):
                detail = {"field": "base_sha256"}
                yield finding("hash_mismatch", where, got=draft.base_sha256, expected=sha256, detail=detail)
            found, norm = validate_model(model, base, terms.policy, where=where, payload=payload)
        finally:
            base.close()
    facts["delta_norm"] = norm if norm is None or norm < float("inf") else "inf"
    yield from found


def _open_base(base: GlobalFile, terms: Terms, models: Models) -> tuple[OpenModel, str]:
    """A global version's model and its sha256; its faults are the plan's, not a site's."""
    path = terms.folder / base.path
    if not path.is_file():
        raise ConfigError(f"{base.path}: no such file", hint="correct the path of the base model")
    sha256, _, size = models.digests(path)
    if base.sha256 not in (None, sha256):
        raise ConfigError(f"{base.path}: sha256 {sha256} -> expected {base.sha256}", hint="get the base model again")
    model, faults = models.open(path, unlimited(terms.policy.limits, size), base.path)
    if model is None:
        raise ConfigError(f"{base.path}: the base model cannot be opened: {first(faults)}")
    return model, sha256


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
    for field, slug in _DECLARED.items():
        stated = getattr(draft, field) if draft is not None else None
        expected = facts.get(field, stated)
        got = getattr(pointer, field)
        if expected is not None and got != expected:
            yield finding(slug, where, got=got, expected=expected, detail={"field": field})
