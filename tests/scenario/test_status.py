"""`fedops status` says of every federation that CI leaves waiting why it waits: the state is made by real runs of CI."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedops.app.reconcile import Reconciled
from fedops.app.status import status
from fedops.core.facts import Aggregate, Pull, RefUpdate, Wait
from fedops.core.findings import errors
from fedops.core.ids import CommitId, Digest, RepoPath, SiteId
from fedops.core.status import Blocked, SiteLine, StatusReport
from fedops.render.status import status_text
from tests.scenario.fed import Fed, GitFed, MemoryFed

A, B, C, D = (SiteId(s) for s in ("bank-d", "clinic-c", "hospital-a", "hospital-b"))
DUE = "CI makes v1 on its next run"


@pytest.fixture
def fed(tmp_path: Path) -> Fed:
    return MemoryFed(tmp_path)


def look(fed: Fed, *, offline: bool = False, own: SiteId | None = None) -> StatusReport:
    """What a person sees in a clone of their own, offline as last fetched."""
    repository = fed.repositories["lena"]
    repository.fetch()
    forge = None if offline else fed.forge("lena")
    return status(repository, forge, fed.folder, own=own, now=fed.clock.now())


def sentence(report: StatusReport) -> str:
    """What the page says of the federation."""
    return status_text(report, report.made_at).splitlines()[1]


def line(report: StatusReport, site: SiteId) -> SiteLine:
    return next(one for one in report.sites if one.site == site)


def merge_by_hand(fed: Fed, pull: Pull) -> None:
    """As a forge's button does, with the number in the subject."""
    assert fed.merge_by_hand(pull.number, f"Merge pull request #{pull.number} from submit")


def lose(fed: Fed, site: SiteId) -> None:
    """Delete the artifact of the site's last upload."""
    manifest = [m for s, m in fed.uploads if s == site][-1]
    assert fed.lose(f"sites/{site}", Digest(manifest), damage=False)


def waits(done: Reconciled, reason: str) -> None:
    assert isinstance(done.decision, Wait)
    assert done.decision.reason == reason


def hand_in(fed: Fed, *sites: SiteId, base: int | None = None) -> list[Pull]:
    return [fed.submit(site, 1000.0 + len(fed.uploads), base=base) for site in sites]


# ---------------------------------------------------------------- bytes that are gone


@pytest.fixture
def lossy(fed: Fed) -> Fed:
    """Three updates are merged and three are wanted; the bytes of one are gone, which CI has seen."""
    fed.set_rules(trigger={"quorum": 3})
    [pull] = hand_in(fed, B)
    merge_by_hand(fed, pull)
    lose(fed, B)
    hand_in(fed, A, C)
    waits(fed.reconcile(), "unavailable")
    return fed


def test_the_site_whose_bytes_ci_could_not_get_is_named_and_does_not_count(lossy: Fed) -> None:
    seen = look(lossy)
    assert isinstance(seen.decision, Wait)
    assert (seen.decision.reason, seen.decision.missing) == ("unavailable", (B, D))
    assert (seen.ready, seen.unavailable) == ((A, C), (B,))
    assert sentence(seen) == "waits for 1 more submission: 2 of 3; CI could not get the bytes of clinic-c"
    assert line(seen, B).is_unavailable
    assert "clinic-c, to bring its bytes back: object_missing" in status_text(seen, seen.made_at)


def test_offline_nobody_knows_of_lost_bytes_that_only_a_signal_tells(lossy: Fed) -> None:
    seen = look(lossy, offline=True)
    assert isinstance(seen.decision, Aggregate)
    assert "pull requests and signals not looked at" in status_text(seen, seen.made_at)


def test_if_enough_are_left_without_the_lost_bytes_the_version_is_due(lossy: Fed) -> None:
    lossy.set_rules(trigger={"quorum": 2})
    seen = look(lossy)
    assert isinstance(seen.decision, Aggregate)
    assert (seen.ready, seen.unavailable) == ((A, C), (B,))
    assert DUE in sentence(seen)
    [made] = lossy.reconcile().published
    assert [c.site for c in made.contributions] == [A, C]


@pytest.mark.parametrize("merged", ["by CI", "by hand"])
def test_a_signal_says_nothing_of_what_was_handed_in_after_it(lossy: Fed, merged: str) -> None:
    lossy.set_rules(trigger={"quorum": 4})
    [pull] = hand_in(lossy, B)
    if merged == "by CI":
        waits(lossy.reconcile(), "quorum")
    else:
        merge_by_hand(lossy, pull)
    [signal] = [i for i in lossy.forge("lena").issues(frozenset({f"site:{B}"})) if "object_missing" in i.body]
    assert signal.number < pull.number
    seen = look(lossy)
    assert isinstance(seen.decision, Wait)
    assert (seen.decision.reason, seen.ready, seen.unavailable) == ("quorum", (A, B, C), ())
    assert sentence(seen) == "waits for 1 more submission: 3 of 4"


def test_a_merge_without_a_number_is_taken_for_the_one_that_the_signal_speaks_of(fed: Fed) -> None:
    [pull] = hand_in(fed, B)
    assert fed.merge_by_hand(pull.number, "merged it")
    lose(fed, B)
    hand_in(fed, A)
    waits(fed.reconcile(), "unavailable")
    assert look(fed).unavailable == (B,)


def test_bytes_that_are_there_and_wrong_exclude_the_site_as_in_ci(fed: Fed) -> None:
    record = fed.upload(B, 0, b"no model")
    merge_by_hand(fed, fed.open_pull(B, fed.handed_in(record)))
    hand_in(fed, A)
    done = fed.reconcile()
    waits(done, "quorum")
    [fault] = done.findings[:1]
    seen = look(fed)
    assert isinstance(seen.decision, Wait)
    assert (seen.decision.reason, seen.ready, seen.unavailable) == ("quorum", (A,), ())
    refused = line(seen, B)
    assert refused.reason is not None
    assert (refused.phase, refused.reason.slug) == ("refused", fault.slug)


# What the current version could not have is in its record: known offline too.


@pytest.fixture
def left_out(fed: Fed) -> Fed:
    """v1 was made without the update of a site whose bytes were gone."""
    fed.set_rules(merge={"mode": "review", "approvals": 1})
    pulls = hand_in(fed, B, A, C)
    for pull in pulls:
        merge_by_hand(fed, pull)
    lose(fed, B)
    return fed


def test_what_the_version_could_not_have_waits_for_its_bytes_also_offline(left_out: Fed) -> None:
    [made] = left_out.reconcile().published
    assert [u.site for u in made.witness.unavailable] == [B]
    left_out.set_rules(trigger={"quorum": 1})
    for offline in (False, True):
        seen = look(left_out, offline=offline)
        assert isinstance(seen.decision, Wait)
        assert (seen.decision.reason, seen.unavailable) == ("unavailable", (B,))
        assert sentence(seen) == "waits for 1 more submission: 0 of 1; CI could not get the bytes of clinic-c"


def test_its_signal_says_nothing_of_a_later_update_whose_pull_request_was_already_open(left_out: Fed) -> None:
    [later] = hand_in(left_out, B)
    left_out.reconcile()
    [signal] = [i for i in left_out.forge("lena").issues(frozenset({f"site:{B}"})) if "object_missing" in i.body]
    assert signal.number > later.number
    merge_by_hand(left_out, later)
    seen = look(left_out)
    assert (seen.version, seen.ready, seen.unavailable) == (1, (B,), ())


def test_a_signal_for_another_reason_does_not_make_bytes_lost(fed: Fed) -> None:
    merge_by_hand(fed, fed.submit(B, 3.0, num_examples=50))
    fed.submission = {"num_examples_max": 40}
    fed.push_policies()
    fed.reconcile()
    assert line(look(fed), B).phase == "refused"
    fed.submission = {}
    fed.push_policies()
    seen = look(fed)
    assert (seen.ready, seen.unavailable) == ((B,), ())


# ---------------------------------------------------------------- a version that leads rejected


@pytest.fixture
def rejected(fed: Fed) -> Fed:
    fed.set_rules(publish={"mode": "review", "approvals": 1})
    hand_in(fed, A, B)
    fed.reconcile()
    [pull] = fed.forge("lena").open_pulls()
    assert look(fed).decision == Wait("review", (C, D), pull=pull.number)
    fed.forge("leo").review(pull.number, pull.head, "changes_requested", "no")
    waits(fed.reconcile(), "rejected")
    return fed


def hold(fed: Fed) -> int:
    [issue] = fed.forge("lena").issues(frozenset({"version:rejected"}))
    return issue.number


def test_a_version_that_leads_rejected_is_held_by_an_issue(rejected: Fed) -> None:
    seen = look(rejected)
    assert (seen.decision, seen.held_by) == (Wait("rejected", (C, D)), hold(rejected))
    assert sentence(seen) == (
        "waits: leads rejected v1 of these 2 submissions; another submission or policy makes another version; "
        f"to have this one proposed again, close issue #{hold(rejected)}"
    )


@pytest.mark.parametrize("change", ["submission", "policy", "issue", "mode"])
def test_what_ends_the_hold_for_ci_ends_it_for_status(rejected: Fed, change: str) -> None:
    if change == "submission":
        merge_by_hand(rejected, *hand_in(rejected, C))
    elif change == "policy":
        rejected.set_rules(weights={"by": "uniform"})
    elif change == "issue":
        rejected.forge("lena").close_issue(hold(rejected))
    else:
        rejected.set_rules(publish={"mode": "push"})
    seen = look(rejected)
    assert isinstance(seen.decision, Aggregate)
    assert seen.held_by is None
    done = rejected.reconcile()
    assert done.published or done.reviews, "and CI makes it"


def test_a_hold_takes_what_is_excluded_and_what_is_lost_into_account(fed: Fed) -> None:
    """The rejected version left out a copy, and a site whose bytes were gone: with both there, it is still that version."""
    fed.set_rules(publish={"mode": "review", "approvals": 1})
    hand_in(fed, A)
    fed.reconcile()
    copy = fed.upload(D, 0, fed.uploads[next(iter(fed.uploads))].data)
    merge_by_hand(fed, fed.open_pull(D, fed.handed_in(copy)))
    [pull] = hand_in(fed, C)
    merge_by_hand(fed, pull)
    lose(fed, C)
    hand_in(fed, B)
    fed.reconcile()
    [proposal] = fed.forge("lena").open_pulls()
    fed.forge("leo").review(proposal.number, proposal.head, "changes_requested", "no")
    waits(fed.reconcile(), "rejected")
    seen = look(fed)
    assert (seen.decision, seen.held_by) == (Wait("rejected", (C, D)), hold(fed))
    assert (seen.ready, seen.unavailable) == ((A, B), (C,))


# ---------------------------------------------------------------- tags


def put_tag(fed: Fed, number: int, at: CommitId) -> RefUpdate:
    """Push a version tag by hand; gives what takes it away again."""
    repository = fed.repositories["lena"]
    name = f"global@v{number}.0.0"
    tag = repository.write_tag(name, at, "by hand")
    assert repository.push([RefUpdate(f"refs/tags/{name}", None, tag)])
    return RefUpdate(f"refs/tags/{name}", tag, None)


@pytest.fixture(params=[MemoryFed, GitFed])
def ready(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fed]:
    """Two updates that nobody has looked at yet are merged, of two that are wanted."""
    kind: type[Fed] = request.param
    fed = kind(tmp_path, people=("lena", A, B), sites=(A, B))
    for pull in hand_in(fed, A, B):
        merge_by_hand(fed, pull)
    yield fed
    fed.close()


def test_a_tag_above_the_current_version_stops_ci_and_status_says_so_also_offline(ready: Fed) -> None:
    fed = ready
    assert DUE in sentence(look(fed))
    gone = put_tag(fed, 9, fed.main().commit)
    done = fed.reconcile()
    assert ([f.slug for f in errors(done.findings)], done.published) == (["tag_moved"], [])
    for offline in (False, True):
        seen = look(fed, offline=offline)
        assert seen.decision == Blocked(errors(done.findings))
        assert sentence(seen) == (
            "stopped: global@v9.0.0 stands above v0, the current version on main; "
            "CI makes no version until a lead has put that right"
        )
        assert [f.slug for f in seen.faults if f.severity == "error"] == ["tag_moved"]
    assert fed.repositories["lena"].push([gone])
    assert DUE in sentence(look(fed))
    assert [v.version for v in fed.reconcile().published] == [1]


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_tag_of_the_current_version_on_another_commit_stops_ci_too(ready: Fed, place: str) -> None:
    fed = ready
    before = fed.main().commit
    fed.reconcile()
    fed.commit({"README.md": b"hello\n"})
    repository = fed.repositories["lena"]
    repository.fetch()
    [made] = repository.versions(above=0)
    assert look(fed).decision == Wait("nothing_new", (A, B))
    assert repository.push([RefUpdate("refs/tags/global@v1.0.0", made.object, None)])
    put_tag(fed, 1, before if place == "before" else fed.main().commit)
    done = fed.reconcile()
    seen = look(fed)
    assert seen.decision == Blocked(errors(done.findings))
    assert sentence(seen).startswith("stopped: global@v1.0.0 does not name the commit that made v1; ")


@pytest.mark.parametrize(("way", "told"), [("revert", "went back"), ("force", "was set back")])
def test_a_tag_above_main_that_main_once_had_says_how_main_lost_its_version(ready: Fed, way: str, told: str) -> None:
    fed = ready
    before = fed.main()
    fed.reconcile()
    made = fed.main().commit
    if way == "force":
        assert fed.repositories["lena"].push([RefUpdate("refs/heads/main", made, before.commit)])
    else:
        paths = ("global/version.json", "global/metrics.json", "global/model.safetensors.dvc")
        fed.commit({path: before.bytes_of(RepoPath(path)) for path in paths}, "Revert")
    (found,) = (f for f in fed.reconcile().findings if f.slug == "tag_moved")
    assert (found.where, found.got, found.expected) == ("global@v1.0.0", made, f"v1 on main, which {told} to v0")


def test_a_version_without_a_tag_is_first_verified(ready: Fed) -> None:
    fed = ready
    repository = fed.repositories["lena"]
    repository.fetch()
    [first] = repository.versions()
    assert repository.push([RefUpdate("refs/tags/global@v0.0.0", first.object, None)])
    assert "CI first verifies v0 and tags it, then makes v1" in sentence(look(fed))


def test_after_the_last_version_a_stray_tag_stops_nothing_more(fed: Fed) -> None:
    fed.set_rules(stop={"max_version": 1})
    hand_in(fed, A, B)
    fed.reconcile()
    put_tag(fed, 9, fed.main().commit)
    assert sentence(look(fed)) == "done: this is the last version"


# ---------------------------------------------------------------- who was told, and when


def test_a_site_that_was_told_and_never_heard_of_is_stalled_since_its_oldest_open_signal(fed: Fed) -> None:
    fed.reconcile()
    hand_in(fed, A, B)
    fed.clock.sleep(3600)
    fed.reconcile()
    for number in range(2):
        fed.clock.sleep(7200)
        hand_in(fed, C, D) if number else hand_in(fed, A, C)
        fed.reconcile()
    assert fed.version.version == 3
    fed.clock.sleep(24 * 3600)
    seen = look(fed)
    made = {
        n: fed.main().repository.commit(t.commit).committed_at for n, t in enumerate(fed.main().repository.versions())
    }
    silences = {one.site: one.silence for one in seen.sites}
    # B was told of v1 and did nothing since; A of v2; C and D of v3, which is exactly a day old.
    assert {s: x and (x.version, x.since) for s, x in silences.items()} == {
        A: (2, made[2]), B: (1, made[1]), C: None, D: None,
    }  # fmt: skip
    assert made[3] - made[1] == dt.timedelta(hours=4)
    assert f"no heartbeat, stalled since {made[1]:%Y-%m-%d %H:%M} UTC, when v1 was made: clinic-c" in status_text(
        seen, fed.clock.now()
    )
