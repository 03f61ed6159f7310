"""The model of v0: from a file, or generated; and its bytes again, when a store has lost them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedops.app.model_bytes import unlimited
from fedops.core.artifacts import FIRST_ANNOTATIONS, build_manifest, layer_title, manifest_digest
from fedops.core.errors import ConfigError
from fedops.core.facts import Layer, Specs, TensorSpec
from fedops.core.findings import Finding, errors
from fedops.core.generate import generate
from fedops.core.ids import repository_of
from fedops.core.records import ModelEntry, Source, TensorEntry, VersionRecord
from fedops.core.settings import Limits, SubmissionPolicy
from fedops.core.validate import validate_metadata, validate_model
from fedops.ports import Models

EXTENSION = "safetensors"


@dataclass(frozen=True)
class Generated:
    """A first model that needs no file."""

    generator: str
    seed: int
    specs: Specs


@dataclass(frozen=True)
class FirstModel:
    """v0's canonical bytes and what its record says of them."""

    path: Path
    entry: ModelEntry
    source: Source | None


def first_model(
    models: Models, choice: Path | Generated, folder: Path
) -> tuple[FirstModel | None, tuple[Finding, ...]]:
    """Write v0's canonical safetensors file into a folder.

    Args:
        choice: a safetensors or npz file, or a generator.

    Returns:
        The model, None if a finding is an error; findings about the file, such as dropped metadata.

    Raises:
        ConfigError: there is no such file, or nothing can be generated like this.
    """
    target = folder / layer_title(repository_of(None), EXTENSION)
    if isinstance(choice, Generated):
        sha256, md5, size = _write(models, choice, target)
        source = Source(generator=choice.generator, seed=choice.seed)
        return FirstModel(target, _entry(sha256, md5, size, choice.specs), source), ()
    if not choice.is_file():
        raise ConfigError(f"{choice}: no such file", hint="--model FILE.safetensors, FILE.npz, or --generator zeros")
    limits = unlimited(Limits(), choice.stat().st_size)
    model, findings = models.open(choice, limits, str(choice))
    if model is None:
        return None, findings
    try:
        findings += validate_metadata(model.has_metadata, str(choice), draft=True)
        findings += validate_model(model, None, SubmissionPolicy(), where=str(choice))[0]
        if errors(findings):
            return None, findings
        sha256, md5, size = models.rewrite(model, target)
        return FirstModel(target, _entry(sha256, md5, size, model.specs), None), findings
    finally:
        model.close()


def rewrite_first(models: Models, record: VersionRecord, target: Path) -> bool:
    """Write the bytes of a generated v0 again, from its record alone; False if they did not come from a generator.

    Raises:
        ConfigError: the record names another generator or seed than its bytes came from; nothing is left at target.
    """
    source = record.source
    if record.kind != "init" or source is None or source.generator is None:
        return False
    specs = {name: TensorSpec(t.dtype, t.shape) for name, t in record.model.tensors.items()}
    made = _write(models, Generated(source.generator, source.seed or 0, specs), target)
    if made[0] != record.model.sha256:
        target.unlink()
        raise ConfigError(
            f"v{record.version}: {source.generator} with seed {source.seed} gives {made[0][:12]} -> "
            f"{record.model.sha256[:12]}",
            hint="the record was changed, or another fedops made it; run `fedops verify`",
        )
    return True


def _write(models: Models, choice: Generated, target: Path) -> tuple[str, str, int]:
    pieces = generate(choice.generator, choice.seed, choice.specs)
    with models.create(target, choice.specs) as sink:
        for piece in pieces:
            sink.append(memoryview(piece))
        return sink.commit()


def _entry(sha256: str, md5: str, size: int, specs: Specs) -> ModelEntry:
    layer = Layer(sha256, size, layer_title(repository_of(None), EXTENSION))
    tensors = {name: TensorEntry(dtype=spec.dtype, shape=spec.shape) for name, spec in specs.items()}
    manifest = manifest_digest(build_manifest(layer, FIRST_ANNOTATIONS))
    return ModelEntry(format="safetensors", size=size, sha256=sha256, md5=md5, manifest=manifest, tensors=tensors)
