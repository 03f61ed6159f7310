"""`fedops log` and `fedops show` as text for people: report data in, lines out."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence

from fedops.core.catalogue import CATALOGUE
from fedops.core.ids import GlobalVersion
from fedops.core.made import Made
from fedops.core.plan import version_title
from fedops.core.records import TensorEntry, VersionRecord
from fedops.core.strategies import counts_examples
from fedops.render.contributions import contribution_table
from fedops.render.submission import metrics_text
from fedops.render.text import clean, count, percent, short, size, table

MAX_TENSORS = 20
_TEXTS: dict[str, str] = {slug: rule.text for slug, rule in CATALOGUE.items()}


def log_text(versions: Sequence[Made]) -> str:
    """One block for each version: what it is, then who went in and who did not."""
    return "\n\n".join(_entry(made) for made in versions)


def _entry(made: Made) -> str:
    record = made.record
    title = version_title(record).removeprefix("global: ")
    facts = [title, _when(made.at), short(record.model.sha256)]
    if record.kind == "aggregate":
        facts.append(f"by {record.witness.trigger}")
    if record.status == "final":
        facts.append("final")
    if not made.tagged:
        facts.append("no tag")
    lines = ["  ".join(clean(fact) for fact in facts)]
    if record.contributions:
        rows = [
            (
                c.site,
                f"on {GlobalVersion(c.base_version).short}",
                f"stale {c.staleness}",
                count(c.num_examples, "example"),
                percent(c.share) if _counts(record) else "taken" if c.site == record.chosen else "",
            )
            for c in record.contributions
        ]
        # Without its header, the table is the list of who went in.
        lines += [f"  {line}" for line in table(("", "", "", "", ""), rows, right=(3, 4)).splitlines()[1:]]
    lines += [f"  {text}" for text in left_out(record)]
    return "\n".join(lines)


def show_text(made: Made) -> str:
    """Everything about one version: who contributed what, under which rules, and how to get it."""
    record = made.record
    blocks = [_facts(made), _contributions(record)]
    if out := left_out(record):
        blocks.append("\n".join(out))
    blocks += [_tensors(record), _get(made)]
    return "\n\n".join(blocks)


def _facts(made: Made) -> str:
    record, witness = made.record, made.record.witness
    rows = [
        ("version", f"{version_title(record).removeprefix('global: ')}{', final' if record.status == 'final' else ''}"),
        ("made", _when(made.at)),
        ("model", f"sha256 {record.model.sha256}"),
        ("", f"md5 {record.model.md5}, {size(record.model.size)}, {record.model.format}"),
        ("artifact", f"global@{record.model.manifest}"),
        ("commit", made.commit),
        ("tag", GlobalVersion(record.version).tag if made.tagged else "none yet"),
        ("policy", record.policy),
    ]
    if record.rule is not None:
        rows.append(("rule", _rule(record)))
    if record.metrics:
        rows.append(("metrics", metrics_text(record.metrics)))
    by = f"{witness.trigger} at {witness.decided_at}"
    rows.append(("decided", by if witness.input_commit is None else f"{by}, on {short(witness.input_commit)}"))
    if witness.software:
        rows.append(("with", ", ".join(f"{name} {witness.software[name]}" for name in sorted(witness.software))))
    if witness.run_url is not None:
        rows.append(("run", witness.run_url))
    return "\n".join(f"{name:<9} {clean(value, 120)}".rstrip() for name, value in rows)


def _rule(record: VersionRecord) -> str:
    rule = record.rule
    assert rule is not None
    limit = "" if rule.staleness.max is None else f" up to {rule.staleness.max}"
    privacy = "" if rule.privacy is None else ", differential privacy"
    strategy = " ".join([rule.strategy.name, *(f"{k} {v}" for k, v in (rule.strategy.model_extra or {}).items())])
    weights = f"weights by {rule.weights.by}" if _counts(record) else "no weights"
    return f"{strategy}, {weights}, staleness {rule.staleness.kind}{limit}{privacy}, engine {rule.engine}"


def _contributions(record: VersionRecord) -> str:
    if not record.contributions:
        source = record.source
        if record.kind == "init":
            return "no contributions: this is the first model" + (
                f", generated ({source.generator}, seed {source.seed})"
                if source is not None and source.generator is not None
                else ""
            )
        earlier = GlobalVersion(source.version).short if source is not None and source.version is not None else "?"
        return f"no contributions: the model is that of {earlier}"
    strategy = record.rule.strategy.name if record.rule is not None else ""
    return contribution_table(record.contributions, strategy=strategy, chosen=record.chosen)


def _counts(record: VersionRecord) -> bool:
    """True if weights say what each contribution counted."""
    return record.rule is None or counts_examples(record.rule.strategy.name)


def left_out(record: VersionRecord) -> list[str]:
    """What was handed in and did not go in, one line each."""
    lines = [f"excluded: {e.site}: {_TEXTS.get(e.slug, e.slug)} [{e.id}]" for e in record.excluded]
    lines += [f"unavailable: {u.site}: {_TEXTS.get(u.slug, u.slug)}" for u in record.witness.unavailable]
    return [clean(line, 120) for line in lines]


def _tensors(record: VersionRecord) -> str:
    tensors = record.model.tensors
    values = sum(math.prod(t.shape) for t in tensors.values())
    names = list(tensors)[:MAX_TENSORS]
    head = f"{count(len(tensors), 'tensor')}, {count(values, 'value')}"
    if not tensors:
        return "tensors: none listed (the format is opaque)"
    rows = [(name, tensors[name].dtype, _shape(tensors[name])) for name in names]
    lines = [f"  {line}" for line in table(("", "", ""), rows).splitlines()[1:]]
    more = len(tensors) - len(names)
    return "\n".join([head, *lines, *([f"  … and {more} more"] if more else [])])


def _shape(tensor: TensorEntry) -> str:
    return "scalar" if not tensor.shape else " x ".join(str(n) for n in tensor.shape)


def _get(made: Made) -> str:
    short_name = GlobalVersion(made.record.version).short
    name = "" if made.record.version == made.current else f" {short_name}"
    lines = [f"get it:   fedops pull{name}"]
    if made.tagged:
        extension = {"safetensors": "safetensors", "opaque": "bin"}[made.record.model.format]
        tag = GlobalVersion(made.record.version).tag
        lines.append(f"          fedops dvc get --rev {tag} URL global/model.{extension}")
    return "\n".join(lines)


def _when(at: dt.datetime) -> str:
    return f"{at.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"
