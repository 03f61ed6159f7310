from __future__ import annotations

import datetime as dt

from fedops.core.facts import VersionTag
from fedops.core.health import Check
from fedops.core.health_federation import check_ci_store, check_clock, check_own_store, check_pin, check_tags
from fedops.core.ids import CommitId, GlobalVersion
from tests.doctor_report import whole

NOW = dt.datetime(2026, 3, 2, 9, 30, tzinfo=dt.UTC)


def states(*checks: Check) -> list[str]:
    return [whole(check).state for check in checks]


def test_another_version_than_the_pinned_one_is_a_warning() -> None:
    assert states(check_pin("0.1.0", "0.1.0"), check_pin("0.1.0", "0.2.0")) == ["ok", "warning"]
    assert check_pin("0.1.0", "0.2.0").next == "pip install fedops-git==0.1.0"


def tag(number: int) -> VersionTag:
    return VersionTag(number, GlobalVersion(number).tag, "0" * 40, CommitId("0" * 40), True, "")


def test_a_tag_above_the_record_is_broken_and_a_missing_one_a_warning() -> None:
    tags = [tag(0), tag(1), tag(2)]
    assert states(check_tags(tags, 2), check_tags(tags, 1), check_tags(tags, 3), check_tags([], 0)) == [
        "ok",
        "broken",
        "warning",
        "warning",
    ]
    assert check_tags(tags, 1).got == "global@v2.0.0"


def test_the_current_versions_tag_names_the_commit_that_brought_it() -> None:
    moved = check_tags([tag(1)], 1, "ab" * 20)
    assert (moved.state, moved.got, moved.expected) == (
        "broken",
        "global@v1.0.0 names abababababab",
        "the commit that brought v1",
    )
    assert check_tags([tag(0)], 1, "ab" * 20).state == "warning", "there is none to be elsewhere"


def test_a_main_from_the_future_is_a_warning_after_a_quarter_of_an_hour() -> None:
    late = [dt.timedelta(minutes=m) for m in (-600, 0, 15, 16)]
    assert states(*(check_clock(NOW + m, NOW) for m in late)) == ["ok", "ok", "ok", "warning"]
    assert "16 minutes" in check_clock(NOW + late[-1], NOW).got


# ---------------------------------------------------------------- the stores


def test_a_site_that_may_not_write_its_store_is_broken() -> None:
    checks = [check_own_store("sites/hospital-a", fault) for fault in (None, "/srv/fed: no right to write")]
    assert states(*checks) == ["ok", "broken"]
    assert (checks[0].got, checks[1].got) == ("sites/hospital-a: may be written", "/srv/fed: no right to write")


def test_a_lead_who_may_only_read_cis_store_is_told_that_this_may_be_meant() -> None:
    checks = [check_ci_store("archive", fault) for fault in (None, "/srv/fed: no right to write")]
    assert states(*checks) == ["ok", "warning"]
    assert {c.name for c in checks} == {"store: archive"}
    assert checks[1].got == "read-only here: /srv/fed: no right to write"
    assert checks[1].next.startswith("if CI runs as this account: ")
    assert checks[1].next.endswith("; else nothing")
