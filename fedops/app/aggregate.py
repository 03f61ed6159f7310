"""The use case of `fedops aggregate`: files in by a plan, a model and its record out, or nothing."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fedops.app.aggregate_plan import Task, read_task
from fedops.app.aggregate_run import Made, Run
from fedops.app.candidates import GlobalModels, read_candidates
from fedops.app.deciding import rule_entry
from fedops.app.work import move_durably
from fedops.core.aggregated import (
    MODEL_FILE,
    RECORD_FILE,
    AggregatedContribution,
    AggregatedModel,
    AggregatedVersion,
    LeftOut,
    Outcome,
)
from fedops.core.disk import disk_fault
from fedops.core.documents import BadJson, dump_json, parse_json
from fedops.core.errors import ConfigError, StoreError
from fedops.core.findings import Finding, errors
from fedops.core.policy import aggregate_metrics
from fedops.core.records import TensorEntry
from fedops.core.strategies import chosen
from fedops.ports import Models

_PREFIX = ".fedops-aggregate-"
_STALE_SECONDS = 86_400.0


def aggregate_files(plan: Path, out: Path, models: Models, *, dry_run: bool = False) -> Outcome:
    """Aggregate the submissions of a plan into the next version.

    Args:
        plan: its path; paths in it start from its folder.
        out: folder that gets model.safetensors and version.json, both or neither; made if need be.
        dry_run: compute everything and write nothing.

    Raises:
        ConfigError: the plan is at fault, or `out` cannot be used.
        StoreError: a file cannot be read or written, or was changed meanwhile.
    """
    task = read_task(plan)
    _refuse_others_record(out)
    with ExitStack() as stack:
        globals_ = GlobalModels(task, models, stack)
        run = Run(task, globals_, read_candidates(task, globals_, models, stack))
        with _scratch(None if dry_run else out) as folder:
            made = run.make(models, folder / MODEL_FILE)
            if made is None:
                return Outcome(None, False, run.findings)
            version = _document(task, made, run.findings)
            # With privacy nobody is told how far a site moved the model; whoever runs this sees it on the screen.
            kept = version if task.policy.privacy is None else version.without_norms()
            record = dump_json(kept)
            changed = not _holds(out, record, version.model, models)
            if changed and not dry_run:
                _place(folder, out, record)
    return Outcome(version, changed, run.findings)


def _document(task: Task, made: Made, findings: tuple[Finding, ...]) -> AggregatedVersion:
    model, stated = made.model, {c.site: c.draft for c in made.chosen.use if c.draft is not None}
    refused = errors(findings)
    return AggregatedVersion(
        outcome="partial" if refused else "complete",
        version=task.current + 1,
        base_version=task.current,
        model=AggregatedModel(
            sha256=model.sha256,
            size=model.size,
            tensors={name: TensorEntry(dtype=s.dtype, shape=s.shape) for name, s in model.specs.items()},
        ),
        rule=rule_entry(task.policy),
        denominator=made.weighing.denominator,
        contributions=tuple(
            AggregatedContribution(
                site=w.submission.site,
                base_version=w.submission.base_version,
                staleness=w.staleness,
                num_examples=w.submission.num_examples,
                weight=w.weight,
                share=w.share,
                delta_norm=model.norms.get(w.submission.site),
                clip_factor=model.clip_factors.get(w.submission.site),
                score=model.scores.get(w.submission.site),
                sha256=stated[w.submission.site].sha256,
            )
            for w in made.weighing.weighted
        ),
        chosen=chosen(model.scores),
        metrics=aggregate_metrics(made.weighing.weighted),
        excluded=tuple(
            LeftOut(submission=f.where, site=(f.detail or {}).get("site"), id=f.id, slug=f.slug) for f in refused
        ),
    )


# ------------------------------------------------------------------ files


def _refuse_others_record(out: Path) -> None:
    """Stop before a federation's own global/version.json is overwritten.

    Raises:
        ConfigError: the folder holds another document under this name, or is none.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out}: not a folder", hint="name a folder with --out")
    try:
        there = parse_json((out / RECORD_FILE).read_bytes())
    except (OSError, BadJson):
        return
    schema = there.get("schema") if isinstance(there, dict) else None
    if schema != AggregatedVersion.model_fields["schema_"].default:
        raise ConfigError(
            f"{out / RECORD_FILE}: a document of another kind, which would be overwritten",
            hint="name another folder with --out",
        )


@contextmanager
def _scratch(out: Path | None) -> Iterator[Path]:
    """A folder that is gone afterwards, on the disk of `out`, so that files can be renamed into that.

    Folders that had to be made for it are removed again if nothing came into them. What a killed run left is removed
    after a day.
    """
    if out is None:
        with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
            yield Path(name)
        return
    missing = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        try:
            out.mkdir(parents=True, exist_ok=True)
            scratch = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=out)
        except OSError as e:
            raise _unwritable(out, e) from e
        with scratch as name:
            for left in out.glob(f"{_PREFIX}*"):
                with suppress(FileNotFoundError):  # another run cleans too
                    if left.stat().st_mtime < time.time() - _STALE_SECONDS:
                        shutil.rmtree(left, ignore_errors=True)
            yield Path(name)
    finally:
        with suppress(OSError):  # not empty
            for folder in missing:
                folder.rmdir()


def _holds(out: Path, record: bytes, model: AggregatedModel, models: Models) -> bool:
    """True if the folder has exactly this model and record; names prove nothing, so the bytes are hashed."""
    try:
        if (out / RECORD_FILE).read_bytes() != record or (out / MODEL_FILE).stat().st_size != model.size:
            return False
    except OSError:
        return False
    return models.digests(out / MODEL_FILE)[0] == model.sha256


def _place(folder: Path, out: Path, record: bytes) -> None:
    """Rename both files into place. The record comes last, so that one that is there belongs to the model beside it."""
    try:
        (folder / RECORD_FILE).write_bytes(record)
        (out / RECORD_FILE).unlink(missing_ok=True)
        move_durably(folder / MODEL_FILE, out / MODEL_FILE)
        move_durably(folder / RECORD_FILE, out / RECORD_FILE)
    except OSError as e:
        raise _unwritable(out, e) from e


def _unwritable(out: Path, error: OSError) -> StoreError:
    full = disk_fault(error)
    return StoreError(
        f"{out}: cannot be written to, got {error.strerror or error}",
        hint="name another folder with --out, or make room there and give this account the right to write",
        slug="out_unwritable",
        cause="permanent" if full is None else full.cause,
    )
