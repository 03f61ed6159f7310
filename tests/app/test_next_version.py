"""The two halves of the next version, and its pull request, at the edges that no story reaches."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedops.app.context import Context
from fedops.app.deciding import make_witness, situation_of, version_record, weighing
from fedops.app.merged import merged_state
from fedops.app.next_version import Ticket, bring, prepare, record_digest, untagged
from fedops.app.propose import propose
from fedops.app.publish import publish, read_proposal
from fedops.app.reconcile import stray_tags
from fedops.app.version_pulls import Refused, Stale, VersionPull, judge, look
from fedops.app.version_push import Lost, Opened, Replan
from fedops.app.version_review import publish_pull, version_head
from fedops.core.errors import ForgeError, GitError
from fedops.core.facts import Aggregate, Pull, RefUpdate, Review
from fedops.core.findings import finding
from fedops.core.ids import Digest, RepoPath
from fedops.core.policy import Weighing
from fedops.core.records import VersionRecord
from fedops.render.version_pull import version_body
from tests.core.samples import version
from tests.founding_world import Wrapped
from tests.scenario.fed import Fed, MemoryFed
from tests.scenario.test_version_review import files_of, hand_merge, make, proposed, say, the_pull

B, C = "hospital-a", "hospital-b"
HALF: Any = {"jitter": lambda: 0.5}


@pytest.fixture
def fed(tmp_path: Path) -> Fed:
    return make(MemoryFed, tmp_path)


def fetched(fed: Fed) -> Context:
    ctx = fed.context()
    ctx.repository.fetch()
    return ctx


def proposal(fed: Fed) -> tuple[Digest, dt.datetime]:
    """Two sites hand in and are merged; the version of the two is in the store."""
    for site, value in ((B, 1.0), (C, 2.0)):
        fed.merge_by_hand(fed.submit(site, value).number)
    ctx, at = fetched(fed), fed.clock.now()
    plan = propose(ctx, fed.main(), merged_state(ctx.repository, fed.main()), at, unavailable={})
    assert plan.manifest is not None
    return plan.manifest, at


def record_of(fed: Fed, manifest: Digest, at: dt.datetime) -> VersionRecord:
    """What publish makes of a proposal."""
    ctx, main = fetched(fed), fed.main()
    here = situation_of(main, merged_state(ctx.repository, main), now=at)
    assert isinstance(here.decision, Aggregate)
    weights = weighing(main, here.decision)
    assert isinstance(weights, Weighing)
    witness = make_witness(here, here.decision, at, ctx.software, None)
    return version_record(here, here.decision, weights, read_proposal(ctx, main, manifest), manifest, witness)


# ---------------------------------------------------------------- tickets


@pytest.mark.parametrize("of", ["record", "proposal"])
def test_a_ticket_is_read_as_it_was_written(of: Any) -> None:
    ticket = Ticket(of, Digest("sha256:" + "5" * 64))
    assert Ticket.parse(ticket.text) == ticket


@pytest.mark.parametrize("text", ["", "record:", "record:x", "proposal:sha256:" + "5" * 64, "sha256:5", "5" * 64])
def test_anything_else_is_no_ticket(text: str) -> None:
    assert Ticket.parse(text) is None


def test_a_ticket_of_what_is_gone_or_has_changed_brings_nothing(fed: Fed) -> None:
    manifest, at = proposal(fed)
    commit = fed.main().commit
    nothing = Ticket("record", manifest)
    assert bring(fed.context(), commit, at, nothing, **HALF) == Replan({})
    opened = bring(fed.context(), commit, at, Ticket("proposal", manifest), **HALF)
    assert isinstance(opened, Opened)
    before = fed.state()
    assert bring(fed.context(), commit, at, Ticket("proposal", manifest), **HALF) == Replan({})
    assert bring(fed.context(), commit, at, nothing, **HALF) == Replan({})
    assert fed.state() == before
    assert publish(fetched(fed), commit, at, manifest, **HALF) == Lost(), "one is open already"
    say(fed, "lena", opened.pull)
    fed.reconcile()
    assert publish(fetched(fed), commit, at, manifest, **HALF) == Lost(), "it is published"


# ---------------------------------------------------------------- an approved pull request


def approved(fed: Fed) -> VersionPull:
    say(fed, "lena", proposed(fed))
    ctx = fetched(fed)
    found = look(ctx.repository, ctx.forge, fed.main(), ctx.forge.open_pulls()).counting
    assert found is not None
    assert found.approval.given
    return found


def test_an_approved_version_is_not_pushed_when_something_has_changed(fed: Fed) -> None:
    found = approved(fed)
    say(fed, "leo", found.pull, "changes_requested")
    assert publish_pull(fetched(fed), found, **HALF) == Replan({})
    say(fed, "leo", found.pull)
    fed.set_rules(weights={"by": "uniform"})
    assert publish_pull(fetched(fed), found, **HALF) == Replan({})


def test_an_approved_version_is_not_pushed_under_a_tag_that_somebody_made(fed: Fed) -> None:
    found = approved(fed)
    repository = fed.repositories["lena"]
    tag = repository.write_tag("global@v1.0.0", fed.main().commit, "by hand")
    assert repository.push([RefUpdate("refs/tags/global@v1.0.0", None, tag)])
    assert publish_pull(fetched(fed), found, **HALF) == Replan({})


def test_an_approved_version_is_not_pushed_once_it_is_closed_or_made(fed: Fed) -> None:
    found = approved(fed)
    fed.forge("lena").close_pull(found.pull.number)
    assert publish_pull(fetched(fed), found, **HALF) == Replan({})
    fed.reconcile()
    say(fed, "lena", the_pull(fed))
    fed.reconcile()
    assert fed.version.version == 1
    assert publish_pull(fetched(fed), found, **HALF) == Lost()


def test_a_forge_that_has_not_noticed_the_merge_yet_is_left_alone(fed: Fed) -> None:
    found = approved(fed)
    ctx = fetched(fed)

    class Late(Wrapped):
        closed: Sequence[int] = ()

        def pull(self, number: int) -> Pull:
            return found.pull

        def close_pull(self, number: int) -> None:
            raise AssertionError

    forge: Any = Late(ctx.forge)
    publish_pull(fed.context(repository=ctx.repository, forge=forge), found, **HALF)
    assert fed.version.version == 1


# ---------------------------------------------------------------- a version that a person brought


def test_a_version_that_came_otherwise_than_it_was_verified_is_not_tagged(fed: Fed) -> None:
    """The record is the verified one, but meanwhile main was rewritten and the commit brings something more."""
    pull = proposed(fed)
    commit = hand_merge(fed, pull, "squash")
    ctx, at = fetched(fed), fed.clock.now()
    main = fed.main()
    step = prepare(ctx, main, at, None, unavailable={})
    assert step.ticket == Ticket("record", record_digest(main.version))
    repository = fed.repositories["lena"]
    base = repository.commit(commit).parents[0]
    files: dict[RepoPath, bytes | None] = {
        e.path: repository.read(e.blob, max_bytes=2**20) for e in main.files.values()
    }
    other = repository.write_commit([base], files | {RepoPath("more.txt"): b"x"}, "v1", at=fed.clock.now())
    assert repository.push([RefUpdate("refs/heads/main", commit, other)])
    before = fed.state()
    assert bring(fed.context(), main.commit, at, step.ticket, **HALF) == Replan({})
    assert bring(fed.context(), main.commit, at, Ticket("record", Digest("sha256:" + "0" * 64)), **HALF) == Replan({})
    assert fed.state() == before


def test_a_number_that_was_left_out_is_named(fed: Fed) -> None:
    pull = proposed(fed)
    files = files_of(fed, pull)
    path = RepoPath("global/version.json")
    files[path] = files[path].replace(b'"version": 1,', b'"version": 2,', 1)
    fed.commit({str(p): d for p, d in files.items()})
    done = fed.reconcile()
    assert [(f.slug, f.where) for f in done.findings][:1] == [("lineage_broken", "v1")]
    assert (done.published, done.signals) == ([], [])


def test_all_tags_that_are_gone_are_made_again_one_after_the_other(fed: Fed) -> None:
    say(fed, "lena", proposed(fed))
    fed.reconcile()
    repository = fed.repositories["lena"]
    fed.main()
    before = {t.tag: t.object for t in repository.versions()}
    assert repository.push([RefUpdate(f"refs/tags/{tag}", name, None) for tag, name in before.items()])
    assert untagged(fed.main()) == 0
    fed.reconcile()
    fed.main()
    assert {t.tag: t.object for t in repository.versions()} == before


def test_a_tag_that_names_what_was_only_proposed_is_misplaced(fed: Fed) -> None:
    """That commit is an ancestor of main and has the same record; but it is not the one that brought it."""
    pull = proposed(fed)
    hand_merge(fed, pull, "merge")
    repository = fed.repositories["lena"]
    tag = repository.write_tag("global@v1.0.0", pull.head, "by hand")
    assert repository.push([RefUpdate("refs/tags/global@v1.0.0", None, tag)])
    [found] = stray_tags(fetched(fed), fed.main())
    assert (found.slug, found.got) == ("tag_moved", pull.head)


# ---------------------------------------------------------------- judging


def judged(fed: Fed, pull: Pull, **replaced: Any) -> object:
    ctx = fetched(fed)
    return judge(replaced.get("repository", ctx.repository), replaced.get("forge", ctx.forge), fed.main(), pull)


def test_a_version_that_is_not_ci_s_way_under_push_never_counts(tmp_path: Path) -> None:
    fed = make(MemoryFed, tmp_path, rules={"trigger": {"quorum": 2}})
    manifest, at = proposal(fed)
    ctx = fetched(fed)
    head = version_head(ctx, fed.main(), record_of(fed, manifest, at), at)
    pull = ctx.forge.submit_pull(head, "fedops/v1", "v1", "")
    found = judged(fed, pull)
    assert isinstance(found, Refused)
    assert [(f.slug, f.got) for f in found.findings] == [("lead_required", "publish.mode push")]


def test_a_decision_on_a_commit_that_is_not_on_main_s_line_is_out_of_date(fed: Fed) -> None:
    pull = proposed(fed)
    bot = fed.new_clone("bot")
    main = fed.main()
    side = bot.write_commit([main.commit], {RepoPath("x"): b"x"}, "side", at=fed.clock.now())
    assert bot.push([RefUpdate("refs/fedops/side", None, side)])
    files = files_of(fed, pull)
    path = RepoPath("global/version.json")
    for named in (side, "1" * 40):
        other = files | {path: files[path].replace(main.commit.encode(), named.encode())}
        head = bot.write_commit([main.commit], other, "v1", at=fed.clock.now())
        moved = fed.forge("bot", bot).submit_pull(head, "fedops/v1", "v1", "")
        found = judged(fed, moved)
        assert isinstance(found, Stale)
        assert found.why == "the commit that it was decided on is no longer on main"


@pytest.mark.parametrize("cause", ["temporary", "auth"])
def test_what_may_pass_stops_the_run_and_decides_nothing(fed: Fed, cause: Any) -> None:
    pull = proposed(fed)
    ctx = fetched(fed)

    class Away(Wrapped):
        def reviews(self, number: int) -> Sequence[Review]:
            raise ForgeError("no answer", cause=cause)

    forge: Any = Away(ctx.forge)
    with pytest.raises(ForgeError, match="no answer"):
        look(ctx.repository, forge, fed.main(), [pull])

    class Cut(Wrapped):
        def changes(self, *_: Any) -> Any:
            raise GitError("cut off", cause=cause)

    repository: Any = Cut(ctx.repository)
    with pytest.raises(GitError, match="cut off"):
        look(repository, ctx.forge, fed.main(), [pull])


def test_what_is_wrong_for_good_with_one_pull_request_is_its_own_affair(fed: Fed) -> None:
    pull = proposed(fed)
    ctx = fetched(fed)

    class Broken(Wrapped):
        def reviews(self, number: int) -> Sequence[Review]:
            raise ForgeError("damaged")

    forge: Any = Broken(ctx.forge)
    seen = look(ctx.repository, forge, fed.main(), [pull])
    assert (seen.counting, [f.got for r in seen.refused for f in r.findings]) == (None, ["damaged"])


def test_a_proposal_that_merges_is_no_proposal(fed: Fed) -> None:
    pull = proposed(fed)
    bot = fed.new_clone("bot")
    main = fed.main()
    head = bot.write_commit([main.commit, pull.head], files_of(fed, pull), "v1", at=fed.clock.now())
    found = judged(fed, fed.forge("bot", bot).submit_pull(head, "fedops/v1", "v1", ""))
    assert isinstance(found, Refused)
    assert [f.slug for f in found.findings] == ["commit_shape"]


def test_warnings_are_told_to_reviewers() -> None:
    warning = finding("share_capped", "policies/aggregation.yaml", got=0.5, expected=0.3)
    page = version_body(version(9), {}, findings=[warning])
    assert "Noted:" in page
    assert "FO-306" in page
    assert "Noted:" not in version_body(version(9), {})
