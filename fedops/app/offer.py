"""What a site is about to hand in: which file, what it says of itself, and whether it is a model at all.

Nothing here touches the network, so that data handed over by mistake is refused before anything could leave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedops.app.context import Context
from fedops.app.snapshot import Snapshot
from fedops.app.train import finished
from fedops.app.work import Work
from fedops.core.errors import ConfigError
from fedops.core.findings import Finding, errors
from fedops.core.ids import GlobalVersion, SiteId

# What the policy of fetched main must say; the copy at hand may be older than the file is large.
_LATER = frozenset({"file_too_large"})


@dataclass(frozen=True)
class Wanted:
    """What the caller said; None: take what the training said, or what main says.

    Attributes:
        file: the update; None: the newest finished training.
        base: the global version that it was trained on.
        metrics: replace those of the training.
    """

    site: SiteId
    file: Path | None = None
    base: int | None = None
    num_examples: int | None = None
    metrics: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Offer:
    """One file and what goes into its record; base None: the current version of fetched main."""

    site: SiteId
    file: Path
    base: int | None
    num_examples: int
    metrics: Mapping[str, float]


def find_file(work: Work, wanted: Wanted) -> tuple[Path, int | None]:
    """The file to hand in, and the version in whose work folder it lies.

    Raises:
        ConfigError: nothing was trained, or there is no such file.
    """
    if wanted.file is None:
        number = _newest_result(work, wanted.base)
        return work.update(number), number
    if not wanted.file.is_file():
        raise ConfigError(f"{work.show(wanted.file)}: no such file", hint="fedops submit FILE --examples N")
    return wanted.file, _version_of(work, wanted.file)


def describe(ctx: Context, work: Work, wanted: Wanted, file: Path, number: int | None) -> Offer:
    """Put together what the caller says of a file and what a training here said of it.

    Raises:
        ConfigError: the file was changed after training, the two contradict, or a fact is missing.
    """
    if number is None or file.resolve() != work.update(number).resolve() or work.trained(number) is None:
        return _plain(work, wanted, file, number if wanted.base is None else wanted.base)
    return _of_training(ctx, work, wanted, file, number)


def _newest_result(work: Work, base: int | None) -> int:
    done = [n for n in work.versions() if work.trained(n) is not None and base in (None, n)]
    if not done:
        where = "" if base is None else f" on {GlobalVersion(base).short}"
        raise ConfigError(
            f"submit: no finished training{where} in {work.show(work.folder)}",
            hint="fedops train, or fedops submit FILE --examples N",
        )
    return done[-1]


def _version_of(work: Work, file: Path) -> int | None:
    """The version in whose work folder a file lies."""
    top = (work.folder / "versions").resolve()
    path = file.resolve()
    if not path.is_relative_to(top):
        return None
    version = GlobalVersion.from_short(path.relative_to(top).parts[0])
    return version.number if version is not None else None


def _plain(work: Work, wanted: Wanted, file: Path, base: int | None) -> Offer:
    """A file that no training here speaks for."""
    if wanted.num_examples is None:
        name = work.show(file)
        raise ConfigError(
            f"{name}: how many local examples was it trained on?", hint=f"fedops submit {name} --examples N"
        )
    return Offer(wanted.site, file, base, wanted.num_examples, dict(wanted.metrics or {}))


def _of_training(ctx: Context, work: Work, wanted: Wanted, file: Path, number: int) -> Offer:
    said = finished(ctx, work, number)
    if said is None:
        raise ConfigError(
            f"{work.show(file)}: was changed after training",
            hint=f"fedops train --base {GlobalVersion(number).short} --again, or hand in a copy of the file",
        )
    for name, got, expected in (("--site", wanted.site, said.site), ("--base", wanted.base, said.base_version)):
        if got not in (None, expected):
            raise ConfigError(f"{work.show(file)}: {name} {got} -> {expected}, by which it was trained")
    return Offer(
        wanted.site,
        file,
        said.base_version,
        said.num_examples if wanted.num_examples is None else wanted.num_examples,
        dict(said.metrics if wanted.metrics is None else wanted.metrics),
    )


def sniff(ctx: Context, main: Snapshot, file: Path, where: str) -> tuple[Finding, ...]:
    """Why a file is not a model that could be handed in, judged by its content alone; empty when it may be one."""
    if main.federation.model.format == "opaque":
        return ()
    model, findings = ctx.models.open(file, main.submission_policy.limits, where)
    if model is not None:
        model.close()
    return tuple(f for f in errors(findings) if f.slug not in _LATER)
