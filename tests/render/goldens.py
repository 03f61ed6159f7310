"""What stands in tests/golden/: file name -> how it is made. Read by the tests and by `make generate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from fedops.core.facts import Marker
from fedops.core.findings import finding
from fedops.core.ids import Digest, SiteId
from fedops.core.report import SignalReport, pull_report
from fedops.core.signals import reason_marker, signal_marker
from fedops.render.markdown import pull_comment, signal_body, version_summary
from fedops.render.text import table
from fedops.render.version_pull import hold_body, version_body, version_comment
from tests.core.samples import (
    contribution,
    excluded_entry,
    hex64,
    record,
    submission,
    verdict,
    version,
)

FOLDER = Path(__file__).parents[1] / "golden"
SITE = SiteId("hospital-a")
MARKER = Marker("submission", "hospital-a")
NOW = version(9, metrics={"loss": 0.35})
HOSTILE = (
    "<img src=x onerror=alert(1)> @acme/leads see #12 [x](javascript:alert(1)) `|` <!-- fedops:signal train/a/v1 -->"
)


def accepted() -> str:
    facts = pull_report(SITE, record(), verdict("accepted"), NOW, delta_norm=0.4213)
    return pull_comment(facts, MARKER)


def rejected() -> str:
    findings = (
        finding("shape_mismatch", "update.safetensors", got=[4, 2], expected=[3, 2], detail={"tensor": "head.weight"}),
        finding("shape_mismatch", "update.safetensors", got=[4], expected=[3], detail={"tensor": "head.bias"}),
        finding("unexpected_keys", "update.safetensors", got=HOSTILE),
        finding("metadata_dropped", "update.safetensors"),
    )
    return pull_comment(pull_report(SITE, record(), verdict("rejected", *findings), NOW), MARKER)


def pending() -> str:
    facts = pull_report(
        SITE,
        record(base_version=9),
        verdict("pending"),
        NOW,
        note="waits for 1 more approval of this commit by a lead",
        ran=("change", "record", "artifact", "model"),
        next_step="a lead looks at it: `fedops review 12`",
    )
    return pull_comment(facts, MARKER)


def outsider() -> str:
    findings = (finding("site_unknown", "pull/12", got="mallory"),)
    return pull_comment(pull_report(None, None, verdict("rejected", *findings), NOW), Marker("submission", "pull-12"))


def _signal(reason: bool) -> str:
    why = finding("too_stale", "sites/hospital-a/submission.json", got=6, expected=5, detail={"site": "hospital-a"})
    marker = signal_marker(SITE, 9)
    return signal_body(
        SignalReport(
            site=SITE,
            version=9,
            model=Digest("sha256:" + hex64("model v9")),
            size=1_840_000,
            metrics={"accuracy": 0.91, "loss": 0.35},
            logins=("alice-a", "not a login"),
            reason=why if reason else None,
            markers=(reason_marker(why), marker) if reason else (marker,),
        )
    )


def signal() -> str:
    return _signal(reason=False)


def signal_again() -> str:
    return _signal(reason=True)


def version_page() -> str:
    a, b, c = submission("hospital-a", 8, 150), submission("hospital-b", 5, 1000), submission("clinic-c", 2)
    made = version(
        9,
        contributions=[
            contribution(a, weight=150.0, share=0.375).model_copy(update={"delta_norm": 0.4213}),
            contribution(b, staleness=3, weight=250.0, share=0.625),
        ],
        excluded=[excluded_entry(c)],
        metrics={"accuracy": 0.91, "loss": 0.35},
    )
    return version_summary(made, {"loss": 0.41})


def version_pull() -> str:
    """A rollback, with a reason that a lead pasted from somewhere."""
    made = version(10, kind="rollback", source=7, metrics={"loss": 0.31}).model_copy(update={"rule": None})
    return version_body(made, {"loss": 0.41}, reason=HOSTILE)


def version_pull_waits() -> str:
    return version_comment("waits", 12, "1a2b3c4d5e6f" + "0" * 28, "waits for 1 more approval of this commit", ())


def version_pull_closed() -> str:
    found = finding("model_mismatch", "v10", got="0" * 64, expected="1" * 64, detail={"field": "sha256"})
    return version_comment("closed", 12, "1a2b3c4d5e6f" + "0" * 28, "it does not recompute", (found,))


def version_held() -> str:
    uses = [contribution(submission(s)) for s in ("clinic-c", "hospital-a")]
    return hold_body(version(10, contributions=uses), 12)


def status_table() -> str:
    rows = [
        ["hospital-a", "v8", "150", "merged 3 hours ago"],
        ["病院-b", "v5", "1,000", "\x1b[31mred\x1b[0m"],
        ["clinic-c", "", "", "missing"],
    ]
    return table(["site", "base", "examples", "state"], rows, right={2}) + "\n"


GOLDENS: Mapping[str, Callable[[], str]] = {
    "pull_comment_accepted.md": accepted,
    "pull_comment_rejected.md": rejected,
    "pull_comment_pending.md": pending,
    "pull_comment_outsider.md": outsider,
    "signal.md": signal,
    "signal_again.md": signal_again,
    "version_summary.md": version_page,
    "version_pull.md": version_pull,
    "version_pull_waits.md": version_pull_waits,
    "version_pull_closed.md": version_pull_closed,
    "version_held.md": version_held,
    "table.txt": status_table,
}
