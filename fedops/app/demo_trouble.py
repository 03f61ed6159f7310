"""What goes wrong in the demo, and what people do about it: a kill, two runners, lost bytes, a review, a rollback.

Each happens once, when a certain version is the current one; shorter demos leave the later ones out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from fedops.app.demo_stage import Stage
from fedops.core.errors import FedopsError
from fedops.core.ids import AGGREGATION_PATH, SITES_PATH, GlobalVersion

LEADS = {"lena": 1, "mia": 2}
PROPOSER, APPROVER = LEADS
CI = ("ci", "ci-2")
# Current version -> what happens while the next one is made.
KILLED_AT, RACE_AT, LOST_AT, REVIEW_AT = 2, 3, 4, 6
KILLED, LOST = "hospital-b", "hospital-a"
LATE = "clinic-d"  # trains so slowly that others make versions meanwhile
KINDS = {"killed", "race", "lost", "review", "rollback", "stale"}
ROLLBACK_FROM = 8  # versions that a demo has to have
SLOW = "epochs: 1000000000\n"  # nobody waits for the end of this training


@dataclass
class Troubles:
    """What happened, and which version came of it.

    Attributes:
        events: {"version": 5, "what": …}, in order.
        happened: kinds that are over, or under way.
    """

    events: list[Mapping[str, Any]] = field(default_factory=list)
    happened: set[str] = field(default_factory=set)
    _noted: set[str] = field(default_factory=set)

    def once(self, kind: str) -> bool:
        """True at the first call."""
        first = kind not in self.happened
        self.happened.add(kind)
        return first

    def published(self, version: Mapping[str, Any]) -> None:
        """Note what a new version shows of it."""
        number, sites = version["version"], {c["site"] for c in version["contributions"]}
        if version["kind"] == "rollback":
            text = f"the model of v{version['source']} again: proposed by {PROPOSER}, approved by {APPROVER}"
            self._note("rollback", number, text)
        if KILLED in sites:
            self._note("killed", number, f"{KILLED}'s training was killed (SIGKILL) in the middle, and started again")
        if number == RACE_AT + 1:
            self._note("race", number, "two CI runners at once; the push of one of them made it")
        if LOST not in sites:
            self._note("lost", number, f"made without {LOST}, which had deleted its bytes after the merge")
        if any(c["site"] == LATE and c["staleness"] > 0 for c in version["contributions"]):
            self._noted.add("stale")  # which the table of versions shows
        if number == REVIEW_AT + 1:
            self._note("review", number, f"waited in a pull request until {APPROVER} approved it")

    def demand_all(self) -> None:
        """Raise if something did not come: nobody may read of a kill that there was not."""
        if missing := sorted(KINDS - self._noted):
            raise FedopsError(f"demo: did not happen: {', '.join(missing)}")

    def _note(self, kind: str, version: int, what: str) -> None:
        if (kind in self.happened or kind == "rollback") and kind not in self._noted:
            self._noted.add(kind)
            self.events.append({"version": version, "what": what})


def found_leads(stage: Stage) -> None:
    """The first lead puts the second on the roster, by an edit as any other."""
    key = stage.keys[APPROVER].with_suffix(".pub").read_text("utf-8").strip()
    person = {"login": APPROVER, "id": LEADS[APPROVER], "keys": [key]}
    change_file(stage, SITES_PATH, lambda data: stage.editor.append(data, ("leads",), person), f"add lead {APPROVER}")


def change_file(stage: Stage, path: str, edit: Callable[[bytes], bytes], what: str) -> None:
    """A lead edits a policy, and pushes it."""
    lead = stage.clone_of("lead")
    stage.run.git(lead, "pull", "--quiet", "--ff-only")
    file = lead / path
    file.write_bytes(edit(file.read_bytes()))
    stage.run.git(lead, "commit", "--quiet", "-m", f"policy: {what}", "--", path)
    stage.run.git(lead, "push", "--quiet", "origin", "main")


def killed_in_training(stage: Stage, site: str, base: int, client: Sequence[str]) -> None:
    """Start a training that would take for ever, and kill it once it has begun to compute."""
    clone, short = stage.clone_of(site), GlobalVersion(base).short
    slow = clone / "slow.yaml"
    slow.write_text(SLOW, "utf-8")
    begun = clone / ".fedops" / "versions" / short / "train.log"
    begun.unlink(missing_ok=True)
    stage.run.kill(clone, begun, "train", *client, "--base", short, "--config", slow.name)
    slow.unlink()


def race(stage: Stage) -> Mapping[str, Any]:
    """Two runners reconcile at the same time; what they did together."""
    with ThreadPoolExecutor(len(CI)) as pool:
        both = list(pool.map(lambda clone: stage.json(clone, "ci", "reconcile"), CI))
    pulls = {p["pull"]: p for one in both for p in one["pulls"]}
    # Deciding in the same second they make the same commit, bit for bit, and both may find it pushed.
    published = {v["version"]: v for one in both for v in one["published"]}
    if any(v != published[v["version"]] for one in both for v in one["published"]):
        raise FedopsError("demo: two runners published different versions under one number")
    later = max(both, key=lambda one: len(one["published"]))
    return {**later, "pulls": [pulls[n] for n in sorted(pulls)], "published": [published[n] for n in sorted(published)]}


def lose_bytes(stage: Stage, site: str, sha256: str) -> None:
    """A site deletes what it has handed in, after the merge."""
    blob = stage.folder / "store" / "sites" / site / "blobs" / "sha256" / sha256
    blob.unlink()
    stage.tell(f"{site}: deletes the bytes of its merged update from the store")


def set_publish(stage: Stage, mode: str) -> None:
    stage.tell(f"{PROPOSER}, a lead, sets publish.mode to {mode} in {AGGREGATION_PATH}")
    path = ("publish", "mode")
    change_file(stage, AGGREGATION_PATH, lambda data: stage.editor.put(data, path, mode), f"publish by {mode}")


def approve(stage: Stage, pull: int) -> None:
    """The other lead approves the pull request of a version."""
    stage.tell(f"{APPROVER}, a lead, approves pull request #{pull}")
    stage.json("lead", "review", str(pull), "--approve", "--key", str(stage.keys[APPROVER]))


def roll_back(stage: Stage, to: int) -> int:
    """One lead proposes to go back; the number of the pull request."""
    short = GlobalVersion(to).short
    stage.tell(f"{PROPOSER}, a lead, proposes to go back to {short}")
    said = ("--reason", f"{short} did better on our own patients", "--key", str(stage.keys[PROPOSER]))
    return int(stage.json("lead", "rollback", short, *said)["pull"])
