"""Train once at the site: on a pulled version, by the site's own code, with a result that a later `submit` trusts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from fedops.app.context import Context
from fedops.app.pull import cached_model, made_version, place_model
from fedops.app.snapshot import Snapshot, main_snapshot
from fedops.app.work import Diverged, NotFinite, Trained, Work, move_durably, write_document
from fedops.core.disk import disk_fault
from fedops.core.documents import Document, Json, load_json_document
from fedops.core.errors import ConfigError, TrainingError
from fedops.core.facts import TensorSpec
from fedops.core.findings import Finding, errors, finding, message
from fedops.core.ids import GlobalVersion, SiteId, site_folder, site_id_fault
from fedops.core.records import Metrics, VersionRecord
from fedops.core.settings import Positive
from fedops.core.validate import not_finite, validate_specs
from fedops.ports import Trainer, TrainingJob

MAX_RESULT_BYTES = 65_536


class Result(Document):
    """What the site's code leaves at FEDOPS_RESULT."""

    num_examples: Positive
    metrics: Metrics = Field(default_factory=dict)


@dataclass(frozen=True)
class TrainedNow:
    """A finished training.

    Attributes:
        result: its result.json.
        update: the new model's file.
        log: everything that the code printed.
        newest: number of the current version as last fetched; above the base: a newer one is out.
        changed: False: the result was there before, and nothing was run.
    """

    result: Trained
    update: Path
    log: Path
    newest: int
    changed: bool


@dataclass(frozen=True)
class Refused:
    """A training whose update has values that no version can take; nothing of it counts, an earlier result stays.

    Attributes:
        findings: which tensors, and how much of each.
        kept: the update, for looking at it.
    """

    findings: tuple[Finding, ...]
    kept: Path


@dataclass(frozen=True)
class LastVersion:
    """Nothing to train for: the federation has made its last version, this one."""

    version: int


def train(
    ctx: Context,
    root: Path,
    trainer: Trainer,
    *,
    site: SiteId,
    number: int | None = None,
    overrides: Mapping[str, Json] | None = None,
    again: bool = False,
) -> TrainedNow | LastVersion | Refused | tuple[Finding, ...]:
    """Run the site's code on a pulled version; needs no network once the version was pulled.

    Args:
        root: of the federation's clone.
        number: base version; None: the newest that was pulled.
        overrides: the site's own hyperparameters, over those of policies/training.yaml.
        again: train although there is a result.

    Returns:
        The result; or why it is none; or why this site could not hand it in, or need not, so that no time is spent.

    Raises:
        ConfigError: nothing was pulled, or there is no such version.
        TrainingError: the code failed, or left something else than a result; a result that was there before stays.
    """
    main = main_snapshot(ctx.repository)
    if refused := site_faults(main, site):
        return refused
    if main.version.status == "final":
        return LastVersion(main.version.version)
    work = Work(root, main.federation.extension)
    base = _base(main, work, number)
    update, log, newest = work.update(base.version), work.log(base.version), main.version.version
    done = finished(ctx, work, base.version)
    if done is not None and done.site == site and not again:
        return TrainedNow(done, update, log, newest, changed=False)
    cached, _ = cached_model(ctx, work, main, base)
    place_model(ctx, cached, work.model(base.version), base.model)
    config = {"hyperparameters": hyperparameters(main, overrides), "version": base.version}
    result = _run(ctx, main, work, trainer, site, base, config)
    if isinstance(result, Diverged):
        kept = work.refused(base.version)
        return Refused(result.findings(work.show(kept)), kept)
    work.note("trained", ctx.clock.now(), result.facts)
    return TrainedNow(result, update, log, newest, changed=True)


def hyperparameters(main: Snapshot, overrides: Mapping[str, Json] | None) -> dict[str, Json]:
    """What the site's code is told: the policy's, with the site's own over them."""
    return main.training.hyperparameters | dict(overrides or {})


def site_faults(main: Snapshot, site: SiteId) -> tuple[Finding, ...]:
    """Why a site may not hand in, by the roster of main; empty when it may."""
    where, detail = site_folder(site), {"site": site}
    fault = site_id_fault(site)
    if fault is not None:
        return (finding("site_id_reserved" if fault == "site_id_reserved" else "site_id_invalid", "--site", got=site),)
    entry = main.sites.sites.get(site)
    if entry is None:
        return (finding("site_unknown", where, got=site, expected=sorted(main.sites.sites), detail=detail),)
    if entry.state != "active":
        return (finding("site_suspended", where, got=entry.state, expected="active", detail=detail),)
    return ()


def finished(ctx: Context, work: Work, number: int) -> Trained | None:
    """The finished training on a version, if its update still has the bytes that were trained."""
    done = work.trained(number)
    if done is None or ctx.models.digests(work.update(number))[0] != done.sha256:
        return None
    return done


def _base(main: Snapshot, work: Work, number: int | None) -> VersionRecord:
    pulled = work.pulled()
    if number is None and not pulled:
        raise ConfigError("train: no global version was pulled yet", hint="fedops pull")
    return made_version(main, pulled[-1] if number is None else number)[1]


def _run(
    ctx: Context,
    main: Snapshot,
    work: Work,
    trainer: Trainer,
    site: SiteId,
    base: VersionRecord,
    config: Mapping[str, Json],
) -> Trained | Diverged:
    """Run the code in a folder of its own, check what it left, and move it into place."""
    number = base.version
    with work.run(number) as folder:
        job = _job(work, site, number, folder, config)
        try:
            _run_code(ctx, main, trainer, job)
            sha256, size, bad = _checked_update(ctx, main, job, base)
            if bad:
                return _put_aside(work, job, bad)
            said = _said(job)
            trained = Trained(
                site=site,
                base_version=number,
                num_examples=said.num_examples,
                metrics=dict(said.metrics),
                sha256=sha256,
                size=size,
            )
            # The result comes last: a kill in between leaves one that names other bytes, which counts as no result.
            move_durably(job.update, work.update(number))
            write_document(work.result(number), trained)
        except (TrainingError, OSError) as e:
            fault = disk_fault(e) if isinstance(e, OSError) else e
            if fault is None or not job.update.is_file():
                raise
            kept = f"fedops submit {work.show(job.update)} --base {GlobalVersion(number).short} --examples N"
            fault.hint = f"{fault.hint}; what it wrote is kept: {kept}".lstrip("; ")
            raise fault from e
    work.forget_refused(number)
    return trained


def _run_code(ctx: Context, main: Snapshot, trainer: Trainer, job: TrainingJob) -> None:
    """Run it; on a full disk, what it could not write to the end is removed, which makes room."""
    try:
        trainer.run(job)
    except OSError:
        if job.update.is_file() and main.federation.model.format == "safetensors":
            model, _ = ctx.models.open(job.update, main.submission_policy.limits, job.update.name)
            if model is None:
                job.update.unlink()
            else:
                model.close()
        raise


def _put_aside(work: Work, job: TrainingJob, bad: tuple[Finding, ...]) -> Diverged:
    tensors = tuple(NotFinite(got=f.got, **(f.detail or {})) for f in bad)
    why = Diverged(
        site=job.site, base_version=job.version, hyperparameters=job.config["hyperparameters"], tensors=tensors
    )
    work.put_aside(job.update, job.version, why)
    return why


def _job(work: Work, site: SiteId, number: int, folder: Path, config: Mapping[str, Json]) -> TrainingJob:
    return TrainingJob(
        site=site,
        version=number,
        model=work.model(number),
        update=folder / work.update(number).name,
        result=folder / "result.json",
        fault=folder / "fault.txt",
        log=work.log(number),
        config=config,
    )


def _checked_update(
    ctx: Context, main: Snapshot, job: TrainingJob, base: VersionRecord
) -> tuple[str, int, tuple[Finding, ...]]:
    """(sha256, size, what is not finite) of the file that the code left, once container and tensors' specs are right."""
    if not job.update.is_file():
        raise TrainingError("train: your code ended well, but wrote no update", hint=f"all output is in {job.log}")
    found: tuple[Finding, ...] = ()
    bad: tuple[Finding, ...] = ()
    if main.federation.model.format == "safetensors":
        model, found = ctx.models.open(job.update, main.submission_policy.limits, job.update.name)
        if model is not None:
            expected = {name: TensorSpec(t.dtype, t.shape) for name, t in base.model.tensors.items()}
            try:
                found = (*found, *validate_specs(model.specs, expected, job.update.name))
                bad = not_finite(model, job.update.name) if not errors(found) else ()
            finally:
                model.close()
    if faults := errors(found):
        raise TrainingError(message(faults[0]) + (f" and {len(faults) - 1} more" if len(faults) > 1 else ""))
    sha256, _, size = ctx.models.digests(job.update)
    return sha256, size, bad


def _said(job: TrainingJob) -> Result:
    """What the code said of its training."""
    if not job.result.is_file():
        raise TrainingError(
            "train: your code ended well, but wrote no result",
            hint='write {"num_examples": N, "metrics": {}} to FEDOPS_RESULT',
        )
    try:
        return load_json_document(job.result.read_bytes(), Result, "FEDOPS_RESULT", max_bytes=MAX_RESULT_BYTES)
    except ConfigError as e:
        raise TrainingError(e.message, hint='write {"num_examples": N, "metrics": {"loss": 0.5}}') from e
