"""A random story of a federation: sites, leads, storage and several runs of CI, one step at a time, all from one seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fedops.app.rollback import rollback
from fedops.app.version_pulls import look
from fedops.core.errors import FedopsError, StoreError
from fedops.core.facts import Pull, RefUpdate
from fedops.core.ids import CommitId, Digest, is_version_branch
from fedops.core.records import Record
from tests.scenario.actors import Actor
from tests.scenario.fed import Fed, MemoryFed, watched

RULES: dict[str, list[Any]] = {
    "trigger": [
        {"quorum": 1},
        {"quorum": 2},
        {"quorum": 3},
        {"quorum": 4, "max_wait_hours": 2.0, "quorum_after_wait": 1},
    ],
    "staleness": [{"kind": "inverse", "max": 1}, {"kind": "constant", "max": None}, {"kind": "inverse", "max": 5}],
    "weights": [{"max_share": 0.5}, {"by": "uniform"}, {}],
    "merge": [{"mode": "auto"}, {"mode": "review", "approvals": 1}, {"mode": "review", "approvals": 2}],
    "publish": [{"mode": "push"}, {"mode": "review"}, {"mode": "review", "approvals": 2}],
    "signals": [{"to": "contributors"}, {"to": "all"}],
    "stop": [{"max_version": None}, {"max_version": None}, {"max_version": 4}],
}
DELICATE = ["repository.push"] * 3 + ["store.copy", "store.put", "store.tag", "forge.merge", "forge.ensure_issue"]


@dataclass
class Story:
    """One seed's federation on its way.

    Attributes:
        log: what happened, for the message of a failure.
    """

    fed: Fed
    rng: random.Random
    runs: list[Actor] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    value: int = 0
    lost: list[tuple[str, Record]] = field(default_factory=list)
    damaged: set[str] = field(default_factory=set)  # repositories of the store

    def note(self, text: str) -> None:
        self.log.append(text)

    # sites

    def _site(self) -> str:
        return self.rng.choice(sorted(self.fed.states))

    def _fresh(self) -> float:
        self.value += 1
        return float(self.value)

    def submit(self) -> None:
        """On the current version, or on an older one."""
        site = self._site()
        current = self.fed.main(site).version.version
        base = current if self.rng.random() < 0.7 else self.rng.randint(max(0, current - 3), current)
        self._hand_in(site, base, self._fresh())

    def everybody_submits(self) -> None:
        """Most sites on the current version, as after a signal."""
        for site in sorted(self.fed.states):
            if self.rng.random() < 0.8:
                self._hand_in(site, self.fed.version.version, self._fresh())

    def _hand_in(self, site: str, base: int, value: float, *, signed: bool = True) -> None:
        number = self.rng.randint(1, 40)
        pull = self.fed.submit(site, value, base=base, num_examples=number, signed=signed)
        self.note(f"{site} hands in {value} on v{base}, n={number}: #{pull.number} {'' if signed else '(unsigned)'}")

    def resubmit(self) -> None:
        """Other bytes on the base of the site's record on main."""
        site = self._site()
        mine = [u.record for (s, _), u in self.fed.uploads.items() if s == site]
        if mine:
            self._hand_in(site, mine[-1].base_version, self._fresh())

    def copy(self) -> None:
        """The bytes of somebody else."""
        site = self._site()
        others = [u.data for (s, _), u in self.fed.uploads.items() if s != site]
        if others:
            base = self.fed.main(site).version.version
            record = self.fed.upload(site, base, self.rng.choice(others[-3:]))
            pull = self.fed.open_pull(site, self.fed.handed_in(record))
            self.note(f"{site} hands in a copy on v{base}: #{pull.number}")

    def submit_unsigned(self) -> None:
        self._hand_in(self._site(), self.fed.version.version, self._fresh(), signed=False)

    def submit_on_old_main(self) -> None:
        """A commit that a merge cannot put on main as it is, if the site's files changed since."""
        site = self._site()
        self.fed.repositories[site].fetch()
        line = list(self.fed.repositories[site].commits(None, self.fed.main(site).commit))
        old = self.rng.choice(line[:8]).id
        pull = self.fed.submit(site, self._fresh(), parents=[CommitId(old)])
        self.note(f"{site} hands in on main as it was at {old[:8]}: #{pull.number}")

    # storage

    def lose(self) -> None:
        there = [(s, u.record) for (s, _), u in self.fed.uploads.items() if (s, u.record) not in self.lost]
        if there:
            site, record = self.rng.choice(there[-6:])
            what = self.rng.choice([record.manifest, f"sha256:{record.sha256}"])
            is_damage = self.rng.random() < 0.5
            if self.fed.lose(f"sites/{site}", Digest(what), damage=is_damage):
                if is_damage:
                    self.damaged.add(f"sites/{site}")
                self.lost.append((site, record))
                self.note(f"bytes of {site} on v{record.base_version} are {'damaged' if is_damage else 'lost'}")

    def restore(self) -> None:
        if self.lost:
            site, record = self.lost.pop(self.rng.randrange(len(self.lost)))
            again = self.fed.uploads[site, record.manifest]
            made = self.fed.upload(
                site,
                record.base_version,
                again.data,
                num_examples=record.num_examples,
                created_at=record.created_at,
            )
            assert made.manifest == record.manifest
            self.note(f"bytes of {site} on v{record.base_version} are there again")

    def hiccup(self) -> None:
        """The store does not answer once."""
        if isinstance(self.fed, MemoryFed):
            operation: Any = self.rng.choice(["manifest", "get", "copy", "tag", "resolve"])
            self.fed.store.fail_next(operation, StoreError(f"{operation}: 503", cause="temporary"))
            self.note(f"the store's next {operation} fails")

    # leads

    def review(self) -> None:
        lead = self.rng.choice(["lena", "leo"])
        pulls = self.fed.forge(lead).open_pulls()
        if pulls:
            versions = [pull for pull in pulls if is_version_branch(pull.branch)]
            pull = self.rng.choice(versions if versions and self.rng.random() < 0.7 else pulls)
            state: Any = "approved" if self.rng.random() < 0.8 else "changes_requested"
            self.fed.forge(lead).review(pull.number, pull.head, state, "")
            self.note(f"{lead}: #{pull.number} {state}")

    def change_policy(self) -> None:
        name = self.rng.choice(sorted(RULES))
        value = self.rng.choice(RULES[name])
        self.fed.set_rules(**{name: value})
        self.note(f"policy {name} = {value}")

    def change_submission_policy(self) -> None:
        changes: list[Any] = [{"resubmit": "supersede"}, {"resubmit": "reject"}, {"num_examples_max": 30}]
        change = self.rng.choice([*changes, {"num_examples_max": 1000}])
        self.fed.submission = {**self.fed.submission, **change}
        self.fed.push_policies()
        self.note(f"policy {change}")

    def suspend_or_activate(self) -> None:
        site = self._site()
        state = "suspended" if self.fed.states[site] == "active" else "active"
        self.fed.set_state(site, state)
        self.note(f"{site} is {state}")

    def merge_by_hand(self) -> None:
        pulls = self.fed.forge("lena").open_pulls()
        if pulls:
            pull = self.rng.choice(pulls)
            squash = self.rng.random() < 0.2
            if is_version_branch(pull.branch) and not self._may_merge(pull):
                return
            done = self.fed.merge_by_hand(pull.number, squash=squash)
            self.note(f"lena merges #{pull.number} by hand{' (squash)' if squash else ''}: {done}")

    def _may_merge(self, pull: Pull) -> bool:
        """Whether a version is good as it is and lena's signature is the approval that it lacks."""
        main = self.fed.main()
        repository, forge = self.fed.repositories["lena"], self.fed.forge("lena")
        found = look(repository, forge, main, [pull]).counting
        return found is not None and not found.is_rollback and main.aggregation.publish.approvals == 1

    def rollback(self) -> None:
        """A lead proposes the model of an earlier version."""
        lead = self.rng.choice(["lena", "leo"])
        current = self.fed.version.version
        if current == 0:
            return
        repository = self.fed.repositories[lead]
        ctx = self.fed.context(repository=repository, forge=self.fed.forge(lead))
        number = self.rng.randrange(current)
        try:
            done: Any = rollback(ctx, number, key=self.fed.keys[lead].private)
        except FedopsError as e:
            self.note(f"{lead}: no rollback to v{number}: {e.message}")
        else:
            self.note(f"{lead}: rollback to v{number}: {done.outcome}, #{done.pull}")

    def unrelated(self) -> None:
        self.fed.commit({"README.md": f"{self._fresh()}\n".encode()})
        self.note("a commit outside of sites/")

    def garbage(self) -> None:
        site = self._site()
        self.fed.commit({f"sites/{site}/submission.json": b"{nonsense"}, "by hand: garbage")
        self.note(f"garbage in the place of {site}'s record")

    def stray_tag(self) -> None:
        """Somebody makes a version tag by hand, and takes it away again."""
        repository = self.fed.repositories["lena"]
        main = self.fed.main()
        above = [t for t in repository.versions() if t.message == "by hand"]
        if above:
            ref, old, new = f"refs/tags/{above[0].tag}", above[0].object, None
        else:
            ref, old = f"refs/tags/global@v{main.version.version + self.rng.randint(1, 2)}.0.0", None
            new = repository.write_tag(ref.removeprefix("refs/tags/"), main.commit, "by hand")
        done = repository.push([RefUpdate(ref, old, new)])
        self.note(f"{ref} {'made' if new else 'taken away'}: {done}")

    # time and CI

    def pass_time(self) -> None:
        seconds = self.rng.choice([1, 60, 3600, 3 * 3600])
        self.fed.clock.sleep(seconds)
        self.note(f"{seconds} s pass")

    def start_run(self) -> None:
        if len([r for r in self.runs if not r.done]) < 4:
            fed = self.fed
            name = f"run {len(self.runs)}"
            self.runs.append(Actor(name, lambda point: fed.reconcile(watched(fed, point))))
            self.note(f"{name} starts")

    def continue_run(self) -> None:
        alive = [r for r in self.runs if not r.done]
        if not alive:
            self.start_run()
        else:
            run = self.rng.choice(alive)
            calls = self.rng.choice([1, 2, 3, 5, 8, 13, 40, None])
            run.advance(calls)
            self.note(f"{run.name} goes on for {calls}: {'done' if run.done else 'before ' + run.last}")
            self.check_run(run)

    def stop_run_before(self) -> None:
        """Stop a run where others can hurt it most."""
        alive = [r for r in self.runs if not r.done]
        if alive:
            run = self.rng.choice(alive)
            run.advance_to(self.rng.choice(DELICATE))
            self.note(f"{run.name} goes on: {'done' if run.done else 'before ' + run.last}")
            self.check_run(run)

    def kill_run(self) -> None:
        alive = [r for r in self.runs if not r.done]
        if alive:
            run = self.rng.choice(alive)
            run.kill()
            self.note(f"{run.name} is killed before {run.last}")

    def check_run(self, run: Actor) -> None:
        """A run may end because it lost a race for too long, never because of a fault of its own."""
        if run.error is not None:
            if isinstance(run.error, FedopsError) and run.error.cause == "temporary":
                self.note(f"{run.name} gave up: {run.error.message}")
                run.error = None
            else:
                raise AssertionError(f"{run.name}: {run.error!r}") from run.error

    def finish(self) -> None:
        """Let all runs end, in a random order of small steps; then have one that nobody disturbs."""
        while alive := [r for r in self.runs if not r.done]:
            run = self.rng.choice(alive)
            run.advance(self.rng.choice([1, 5, 30, None]))
            self.note(f"{run.name} goes on: {'done' if run.done else 'before ' + run.last}")
            self.check_run(run)
        if isinstance(self.fed, MemoryFed):
            self.fed.store._faults.clear()
        self.fed.main()
        above = [t for t in self.fed.repositories["lena"].versions() if t.message == "by hand"]
        if above:
            found = self.fed.reconcile()
            assert "tag_moved" in {f.slug for f in found.findings}, "a stray tag is not reported"
            assert not found.published, "a version in spite of a stray tag"
            self.stray_tag()
        for _ in range(2):
            last = self.fed.reconcile()
            assert not last.again
        assert not last.changed, "the second quiet run changed something"

    def close(self) -> None:
        for run in self.runs:
            if not run.done:
                run.kill()


STEPS: list[tuple[int, Callable[[Story], None]]] = [
    (6, Story.submit),
    (6, Story.everybody_submits),
    (3, Story.resubmit),
    (1, Story.copy),
    (1, Story.submit_unsigned),
    (1, Story.submit_on_old_main),
    (3, Story.lose),
    (1, Story.restore),
    (1, Story.hiccup),
    (6, Story.review),
    (1, Story.rollback),
    (2, Story.change_policy),
    (1, Story.change_submission_policy),
    (1, Story.suspend_or_activate),
    (2, Story.merge_by_hand),
    (2, Story.unrelated),
    (1, Story.garbage),
    (1, Story.stray_tag),
    (2, Story.pass_time),
    (6, Story.start_run),
    (10, Story.continue_run),
    (10, Story.stop_run_before),
    (2, Story.kill_run),
]


def tell(story: Story, steps: int) -> None:
    """So many random steps, then the end."""
    weights = [weight for weight, _ in STEPS]
    for _ in range(steps):
        [(_, step)] = story.rng.choices(STEPS, weights)
        step(story)
    story.finish()
