"""The text of `fedops aggregate`, for people."""

from __future__ import annotations

from fedops.core.aggregated import AggregatedContribution, AggregatedModel, AggregatedVersion, LeftOut, Outcome
from fedops.core.findings import finding
from fedops.core.records import RuleEntry, StrategyEntry
from fedops.core.settings import Integers, Staleness, Weights
from fedops.render.aggregate import aggregate_text

RULE = RuleEntry(
    engine=1,
    strategy=StrategyEntry(name="fedavg", provider="fedops", code="sha256:" + "0" * 64),
    staleness=Staleness(),
    weights=Weights(),
    integers=Integers(),
    privacy=None,
)


def contribution(
    site: str, base: int, n: int, weight: float, share: float, **more: float | str
) -> AggregatedContribution:
    fields = {"delta_norm": None, "clip_factor": None, "sha256": None} | more
    return AggregatedContribution.model_validate(
        {
            "site": site,
            "base_version": base,
            "staleness": 7 - base,
            "num_examples": n,
            "weight": weight,
            "share": share,
            **fields,
        }
    )


def version(*contributions: AggregatedContribution, excluded: tuple[LeftOut, ...] = ()) -> AggregatedVersion:
    return AggregatedVersion(
        outcome="partial" if excluded else "complete",
        version=8,
        base_version=7,
        model=AggregatedModel(sha256="ab" * 32, size=160, tensors={}),
        rule=RULE,
        denominator=150.0,
        contributions=contributions,
        metrics={},
        excluded=excluded,
    )


TWO = (contribution("hospital-a", 7, 1000, 1000.0, 2 / 3), contribution("hospital-b", 4, 1000, 500.0, 1 / 3))


def test_a_complete_version_is_a_table_a_digest_and_two_files() -> None:
    text = aggregate_text(Outcome(version(*TWO), True, ()), "next")
    assert text == (
        "v8 from v7 (fedavg, 2 sites)\n"
        "\n"
        "site        base  stale  examples  weight   share\n"
        "hospital-a  v7        0     1,000    1000  66.7 %\n"
        "hospital-b  v4        3     1,000     500  33.3 %\n"
        "\n"
        f"sha256 {'ab' * 32}\n"
        "written: next/model.safetensors (160 bytes) and version.json"
    )


def test_columns_that_somebody_fills_are_shown() -> None:
    rows = (contribution("a", 7, 1, 1.0, 1.0, delta_norm=5.0, clip_factor=0.5, sha256="c" * 64),)
    lines = aggregate_text(Outcome(version(*rows), True, ()), "next").splitlines()
    assert lines[2:4] == [
        "site  base  stale  examples  weight    share  norm  clip  update",
        "a     v7        0         1       1  100.0 %     5   0.5  cccccccccccc",
    ]


def test_every_finding_is_told_with_its_hint() -> None:
    left_out = LeftOut(submission="submissions/2", site="c", id="FO-210", slug="empty_update")
    twice = (left_out, left_out.model_copy(update={"id": "FO-220"}))
    found = finding("empty_update", "submissions/2", detail={"site": "c"})
    text = aggregate_text(Outcome(version(*TWO, excluded=twice), True, (found, found)), "next")
    assert text.startswith("v8 from v7 (fedavg, 2 sites), without 1 refused submission\n")
    block = text.split("\n\n")[2].splitlines()
    line = "submissions/2: the update has no tensors (site c) [FO-210]"
    assert block == [line, line, "  hint: save all tensors of the model"]


def test_warnings_are_marked() -> None:
    found = finding("metadata_dropped", "submissions/0", got="__metadata__")
    text = aggregate_text(Outcome(version(*TWO), True, (found,)), "next")
    assert "\n\nwarning: submissions/0: free metadata" in text


def test_a_refusal_says_that_nothing_was_written() -> None:
    found = finding("too_few_updates", "policy", got=1, expected=3)
    assert aggregate_text(Outcome(None, False, (found,)), "next") == (
        "refused: nothing was written\n"
        "\n"
        "policy: there are fewer usable updates than the policy asks for, 1 -> 3 [FO-303]\n"
        "  hint: wait for more sites, or change `trigger.quorum`"
    )


def test_the_last_line_says_what_happened_to_the_files() -> None:
    for changed, dry_run, word in (
        (True, False, "written"),
        (True, True, "would write"),
        (False, False, "already there"),
        (False, True, "already there"),
    ):
        last = aggregate_text(Outcome(version(*TWO), changed, ()), "next", dry_run=dry_run).splitlines()[-1]
        assert last == f"{word}: next/model.safetensors (160 bytes) and version.json"
