"""Tags are made again for versions that hold, never for forged ones: on real git."""

from __future__ import annotations

from fedops.app.inspect import refreshed
from fedops.app.retag import restore_tags
from fedops.cli.wire import open_context
from tests.scenario.auditing import Auditor
from tests.scenario.test_verify_forged import VERSION, dump, record


def test_a_forged_version_gets_no_tag_and_the_others_do(auditor: Auditor) -> None:
    """Somebody changed v2 in the history, and deleted the tags that would have shown it."""
    forger = auditor.forger()
    forger.rewrite({forger.version(2): {VERSION: dump(record(2, forger) | {"denominator": 1.0})}})
    before = {n: forger.refs[f"refs/tags/global@v{n}.0.0"] for n in range(3)}
    for number in before:
        forger.set_ref(f"refs/tags/global@v{number}.0.0", None)
    with open_context(auditor.clone()) as (_, ctx):
        told = restore_tags(ctx, refreshed(ctx))
        again = restore_tags(ctx, refreshed(ctx))
    now = auditor.forger().refs
    assert told.numbers == (0, 1)
    assert {n: now.get(f"refs/tags/global@v{n}.0.0") for n in before} == {0: before[0], 1: before[1], 2: None}
    assert [(f.slug, f.where) for f in told.findings] == [("tag_missing", "global@v2.0.0")]
    assert "record_mismatch" in told.findings[0].got
    assert (again.numbers, again.findings) == ((), told.findings)


def test_a_lightweight_or_moved_tag_is_not_a_missing_one(auditor: Auditor) -> None:
    """What is there is not overwritten: verify names it, and people decide."""
    forger = auditor.forger()
    forger.set_ref("refs/tags/global@v1.0.0", forger.version(1))
    with open_context(auditor.clone()) as (_, ctx):
        assert restore_tags(ctx, refreshed(ctx)).numbers == ()
    assert auditor.verify().slugs(1) == ["tag_moved"]
