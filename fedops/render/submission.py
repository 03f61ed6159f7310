"""Title and body of a submission's pull request, and what `fedops submit` prints; data in, text out."""

from __future__ import annotations

from collections.abc import Mapping

from fedops.core.facts import Marker
from fedops.core.ids import GlobalVersion, SiteId, repository_of
from fedops.core.records import Record
from fedops.render.markdown import code, escape
from fedops.render.text import clean, count, short, size


def pull_title(record: Record) -> str:
    """`hospital-a: update on v8 (150 examples)`."""
    base = GlobalVersion(record.base_version).short
    return f"{record.site}: update on {base} ({count(record.num_examples, 'example')})"


def pull_body(record: Record) -> str:
    """What a reviewer should see first; the verdict of the checks comes as a comment."""
    rows = {
        "base version": GlobalVersion(record.base_version).short,
        "examples": f"{record.num_examples:,}",
        "metrics": escape(metrics_text(record.metrics)) or "none",
        "model": f"{code(short(record.sha256))} ({size(record.size)})",
        "artifact": f"{code(repository_of(SiteId(record.site)))} at {code(short(record.manifest))}",
    }
    lines = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]
    return "\n".join(
        [
            f"{code(record.site)} hands in an update. The check's verdict follows as a comment.",
            "",
            *lines,
            "",
            Marker("submission", record.site).text,
            "",
        ]
    )


def metrics_text(metrics: Mapping[str, float]) -> str:
    """`accuracy 0.93, loss 0.31`, by name."""
    return ", ".join(f"{clean(name)} {metrics[name]:.6g}" for name in sorted(metrics))


def last_version_text(version: int) -> str:
    """What every command says once there is nothing more to do."""
    return f"done: v{version} is the last version of the federation"


def submit_text(
    record: Record, outcome: str, pull: int | None, *, current: int, uploaded: bool, final: bool = False
) -> str:
    """What a submit did or found done, and what comes next.

    Args:
        outcome: "opened" | "moved" | "open" | "merged" | "used" | "planned" | "final".
        pull: number of the open pull request, if there is one.
        current: number of the current version.
        uploaded: the bytes were not in the store before.
        final: the current version is the last one.
    """
    base = GlobalVersion(record.base_version).short
    what = f"{record.site}, update on {base}"
    waits = "next: CI checks it and merges it; `fedops status` shows how far it is"
    first, last = {
        "opened": (f"submitted: PR #{pull} ({what})", waits),
        "moved": (f"submitted: PR #{pull} ({what}), in place of what it held before", waits),
        "open": (f"already submitted: PR #{pull} ({what})", waits),
        "merged": (f"already merged ({what})", f"next: nothing to do until v{current + 1}"),
        "used": (f"already used up by a version ({what})", "next: fedops pull"),
        "planned": (f"would submit ({what}); nothing was uploaded", "next: fedops submit, without --dry-run"),
        "final": (f"not submitted ({what}): no further version will be made", ""),
    }[outcome]
    if final:
        last = last_version_text(current)
    sent = "uploaded" if uploaded else "the bytes were already there" if outcome in ("opened", "moved") else ""
    facts = [
        count(record.num_examples, "example"),
        metrics_text(record.metrics),
        size(record.size),
        short(record.sha256),
        sent,
    ]
    return "\n".join([first, "  ".join(fact for fact in facts if fact), last])
