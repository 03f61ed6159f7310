"""Who is told what, when: each site that must train has one open issue, whatever became of what it handed in."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedops.core.ids import Digest
from tests.scenario.fed import Fed, MemoryFed, watched
from tests.scenario.oracle import REASON, SIGNAL, check_all

A, B, C, D = "hospital-a", "hospital-b", "clinic-c", "bank-d"


@pytest.fixture
def fed(tmp_path: Path) -> Fed:
    return MemoryFed(tmp_path, rules={"trigger": {"quorum": 2}})


def open_signals(fed: Fed) -> dict[str, tuple[int, list[str]]]:
    """Site -> version of its one open signal, and the reasons that it gives."""
    out: dict[str, tuple[int, list[str]]] = {}
    for issue in fed.forge("lena").issues(frozenset({"fedops", "signal:train"})):
        [(site, number, _)] = SIGNAL.findall(issue.body)[-1:]
        assert site not in out, f"{site} has two open signals"
        out[site] = (int(number), REASON.findall(issue.body))
    return out


def hand_in(fed: Fed, *sites: str, base: int | None = None) -> None:
    for site in sites:
        fed.submit(site, 1000.0 + len(fed.uploads), base=base)


def test_after_the_first_version_everybody_is_told_and_then_who_contributed(fed: Fed) -> None:
    fed.reconcile()
    assert open_signals(fed) == {s: (0, []) for s in (A, B, C, D)}
    hand_in(fed, A, B)
    fed.reconcile()
    assert open_signals(fed) == {s: (1, []) for s in (A, B, C, D)}, "C and D have handed in nothing yet"
    hand_in(fed, C, D)
    fed.reconcile()
    assert open_signals(fed) == {A: (1, []), B: (1, []), C: (2, []), D: (2, [])}, "A and B are still training on v1"


def test_a_site_that_a_rule_excludes_is_told_although_no_version_comes(fed: Fed) -> None:
    hand_in(fed, A, B)
    fed.reconcile()
    fed.merge_by_hand(fed.submit(C, 3.0, base=0).number)
    fed.reconcile()
    assert open_signals(fed)[C] == (1, [])
    fed.set_rules(staleness={"kind": "inverse", "max": 0})
    done = fed.reconcile()
    assert done.published == []
    assert open_signals(fed)[C] == (1, ["too_stale"])
    check_all(fed, rerun=lambda: fed.reconcile().changed)


def test_a_site_whose_unsigned_commit_a_person_merged_is_told_and_is_nobodys_original(fed: Fed) -> None:
    """A copy that came first but does not count takes nothing away from the site that signed."""
    record = fed.upload(C, 0, fed.model())
    fed.merge_by_hand(fed.open_pull(C, fed.handed_in(record), signed=False).number)
    fed.clock.sleep(60)
    own = fed.upload(A, 0, fed.uploads[C, record.manifest].data)
    fed.merge_by_hand(fed.open_pull(A, fed.handed_in(own)).number)
    fed.reconcile()
    assert open_signals(fed)[C] == (0, ["signature_invalid"])
    assert open_signals(fed)[A] == (0, [])
    hand_in(fed, B)
    [made] = fed.reconcile().published
    assert [c.site for c in made.contributions] == [A, B]
    assert [(e.site, e.slug) for e in made.excluded] == [(C, "signature_invalid")]
    check_all(fed, rerun=lambda: fed.reconcile().changed)


def test_a_site_beyond_a_limit_that_came_later_is_excluded_and_told(fed: Fed) -> None:
    fed.merge_by_hand(fed.submit(C, 3.0, num_examples=50).number)
    fed.submission = {"num_examples_max": 40}
    fed.push_policies()
    fed.reconcile()
    assert open_signals(fed)[C] == (0, ["num_examples_invalid"])
    hand_in(fed, A, B)
    [made] = fed.reconcile().published
    assert [(e.site, e.slug, e.judged) for e in made.excluded] == [(C, "num_examples_invalid", "tree")]
    check_all(fed, rerun=lambda: fed.reconcile().changed)


def test_lost_bytes_that_no_version_waits_for_are_not_asked_for(fed: Fed) -> None:
    fed.set_rules(trigger={"quorum": 3})
    fed.merge_by_hand(fed.submit(C, 3.0).number)
    [(site, manifest)] = fed.uploads
    assert fed.lose(f"sites/{site}", Digest(manifest), damage=False)
    fed.reconcile()
    assert open_signals(fed)[C] == (0, [])
    hand_in(fed, A, B)
    done = fed.reconcile()
    assert done.published == []
    assert open_signals(fed)[C] == (0, ["object_missing"])
    check_all(fed, rerun=lambda: fed.reconcile().changed)


def test_a_site_whose_bytes_were_missing_is_told_although_the_run_died_before_it_could(fed: Fed) -> None:
    fed.merge_by_hand(fed.submit(C, 3.0).number)
    [(site, manifest)] = fed.uploads
    assert fed.lose(f"sites/{site}", Digest(manifest), damage=False)
    hand_in(fed, A, B)

    class Died(BaseException):
        pass

    def die(call: str) -> None:
        if call == "forge.issues" and fed.version.version == 1:
            raise Died

    with pytest.raises(Died):
        fed.reconcile(watched(fed, die))
    assert [u.site for u in fed.version.witness.unavailable] == [C]
    fed.reconcile()
    assert open_signals(fed)[C] == (1, ["object_missing"])
    check_all(fed, rerun=lambda: fed.reconcile().changed)


def test_a_final_version_closes_all_signals_and_nothing_is_made_after_it(fed: Fed) -> None:
    fed.set_rules(stop={"max_version": 1})
    fed.reconcile()
    assert len(open_signals(fed)) == 4
    hand_in(fed, A, B)
    [made] = fed.reconcile().published
    assert made.status == "final"
    assert open_signals(fed) == {}
    hand_in(fed, A, B, base=1)
    done = fed.reconcile()
    assert done.published == []
    assert {m.outcome for m in done.merged} == {"merged"}
    check_all(fed, rerun=lambda: fed.reconcile().changed)


def test_a_suspended_site_is_told_once_it_is_active_again(fed: Fed) -> None:
    hand_in(fed, A, B)
    fed.reconcile()
    fed.set_state(A, "suspended")
    fed.reconcile()
    fed.set_state(A, "active")
    fed.reconcile()
    assert open_signals(fed)[A] == (1, [])


def test_an_issue_that_a_person_closed_is_not_opened_again(fed: Fed) -> None:
    fed.reconcile()
    forge = fed.forge("lena")
    [issue] = forge.issues(frozenset({f"site:{A}"}))
    forge.close_issue(issue.number)
    assert not fed.reconcile().changed
    assert A not in open_signals(fed)
