"""What offline submissions are judged by, and the judgements that `fedops check` and `fedops aggregate` share."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedops.app.model_bytes import first, unlimited
from fedops.app.plans import Content, GlobalFile, Plan, read_bytes, roster, submission_policy
from fedops.core.brief import like
from fedops.core.catalogue import Slug
from fedops.core.errors import ConfigError
from fedops.core.facts import Json
from fedops.core.findings import Finding, finding
from fedops.core.ids import SiteId, record_path, site_of_path
from fedops.core.records import Draft
from fedops.core.settings import Aggregation, Sites, SubmissionPolicy
from fedops.core.validate import draft_of, parse_draft, validate_draft, validate_metadata
from fedops.ports import Models, OpenModel

# Fields of a record that say which bytes are meant.
DECLARED: Mapping[str, Slug] = {"sha256": "hash_mismatch", "md5": "hash_mismatch", "size": "size_mismatch"}


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

    def file(self, path: str) -> Path:
        """A model file that a plan or a command line names.

        Raises:
            ConfigError: there is no such file.
        """
        if not (self.folder / path).is_file():
            raise ConfigError(f"{path}: no such file", hint="correct the path")
        return self.folder / path


def terms_of(plan: Plan, folder: Path, rules: Aggregation) -> Terms:
    """The terms of a plan.

    Args:
        rules: its aggregation policy.

    Raises:
        ConfigError: a policy that it gives or names cannot be used.
    """
    policy = submission_policy(plan, folder)
    versions = {int(number): file for number, file in plan.globals.items()}
    return Terms(
        folder,
        policy,
        # A plan that names no metrics has no opinion on them; the default names are those of a new federation.
        metric_names=policy.metrics.allowed if "metrics" in policy.model_fields_set else None,
        current=plan.current_version if plan.current_version is not None else max(versions, default=None),
        staleness_max=rules.staleness.max,
        globals=versions,
        sites=roster(plan, folder),
    )


# ------------------------------------------------------------------ records


def read_draft(record: Content, where: str, terms: Terms) -> tuple[Draft | None, tuple[Finding, ...]]:
    """A record that stands in a plan, or in a file that the plan names.

    Returns:
        The draft, None if there is an error; and all findings.

    Raises:
        ConfigError: the file cannot be read.
    """
    if not isinstance(record, str):
        return draft_of(record, where)
    limit = terms.policy.limits.record_bytes
    return parse_draft(read_bytes(terms.folder / record, max_bytes=limit), where, max_bytes=limit)


def draft_faults(draft: Draft, where: str, folder: str | None, terms: Terms) -> Iterator[Finding]:
    """What speaks against a record.

    Args:
        folder: the site's folder that the submission is for; None: unknown.
    """
    yield from validate_draft(
        draft,
        where,
        terms.policy,
        current=terms.current,
        versions=terms.globals.keys() if terms.globals else None,
        staleness_max=terms.staleness_max,
        metric_names=terms.metric_names,
    )
    if folder is not None and folder != draft.site:
        yield finding("site_mismatch", where, got=draft.site, expected=folder, detail={"field": "site"})
    if terms.sites is not None and draft.site not in terms.sites.sites:
        yield finding(
            "site_unknown", where, got=draft.site, expected=like(draft.site, terms.sites.sites, "a site of `sites`")
        )
    elif terms.sites is not None and terms.sites.sites[draft.site].state == "suspended":
        yield finding("site_suspended", where, detail={"site": draft.site})


def folder_of(record: object) -> str | None:
    """The site's folder that a record's path says it is for: of `…/sites/<site>/submission.json`, else None."""
    path = record if isinstance(record, str) else ""
    folder = site_of_path("/".join(path.split("/")[-3:]))
    return folder if folder is not None and path.endswith(record_path(SiteId(folder))) else None


# ------------------------------------------------------------------ model files


def declared_faults(draft: Draft | None, where: str, facts: Mapping[str, Json]) -> Iterator[Finding]:
    """Digests and size of a file against those that the record states.

    Args:
        facts: of the file: "sha256", "md5", "size"; what is not in it is not compared.
    """
    for field, slug in DECLARED.items():
        expected = getattr(draft, field) if draft is not None else None
        if expected is not None and field in facts and facts[field] != expected:
            yield finding(slug, where, got=facts[field], expected=expected, detail={"field": field})


def container_faults(draft: Draft | None, model: OpenModel, where: str) -> Iterator[Finding]:
    """What an opened file says of itself against what its record says; free metadata is dropped with a warning."""
    yield from validate_metadata(model.has_metadata, where, draft=True)
    if draft is not None and draft.format not in (None, model.format):
        detail = {"field": "format"}
        yield finding("metadata_schema", where, got=draft.format, expected=model.format, detail=detail)


def base_faults(draft: Draft | None, sha256: str, where: str) -> Iterator[Finding]:
    """The digest of the base model against the one that the record states."""
    if draft is not None and draft.base_sha256 not in (None, sha256):
        detail = {"field": "base_sha256"}
        yield finding("hash_mismatch", where, got=draft.base_sha256, expected=sha256, detail=detail)


def open_global(file: GlobalFile, terms: Terms, models: Models) -> OpenModel:
    """Open a global version's model; its faults are the plan's, not a site's.

    Raises:
        ConfigError: it is not there, or is no model.
    """
    path = terms.file(file.path)
    model, faults = models.open(path, unlimited(terms.policy.limits, path.stat().st_size), file.path)
    if model is None:
        raise ConfigError(f"{file.path}: the global model cannot be opened: {first(faults)}")
    return model


def check_global(file: GlobalFile, sha256: str) -> None:
    """Compare a global model's digest with the one that the plan states.

    Raises:
        ConfigError: it is another one.
    """
    if file.sha256 not in (None, sha256):
        raise ConfigError(f"{file.path}: sha256 {sha256} -> expected {file.sha256}", hint="get the model again")
