"""How a site's files came to main, in history that somebody re-created: modes that no tool writes, merges without trailers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fedops.core.findings import errors
from fedops.core.ids import CommitId
from tests.forgery import Forger
from tests.scenario.auditing import Auditor
from tests.scenario.fed import MemoryFed
from tests.verify_world import NEWEST

RECORD, POINTER = "submission.json", "update.safetensors.dvc"
USED = "merge(hospital-b): update on v0"  # by v1, with hospital-a's
ELSEWHERE = b"1" * 40  # a commit of some other repository


# ---------------------------------------------------------------- modes


@pytest.mark.parametrize("mode", ["120000", "160000", "100755"])
@pytest.mark.parametrize(("name", "what"), [(RECORD, "record"), (POINTER, "pointer")])
def test_a_used_file_that_became_no_plain_file(auditor: Auditor, name: str, what: str, mode: str) -> None:
    """A link that points to nothing, a submodule, an executable: the same bytes where there are any."""
    forger = auditor.forger()
    merge, path = forger.commit(USED), f"sites/hospital-b/{name}"
    data = ELSEWHERE if mode == "160000" else forger.read(merge, path)
    forger.rewrite({merge: {path: data}}, mode=mode)
    report = auditor.verify()
    assert (report.code, report.failed[0], report.slugs(0)) == (3, 1, [])
    assert report.names(1, "record_mismatch", field=what, site="hospital-b", got=f"mode {mode}", expected="mode 100644")
    # Without it the other site's would have been alone, below the quorum.
    assert report.names(1, "record_mismatch", field="decision")
    assert [row["version"] for row in report.document["versions"]] == list(range(NEWEST + 1))


# ---------------------------------------------------------------- trailers


def said_again(forger: Forger, merge: str, change: Callable[[str], str]) -> CommitId:
    """Let a merge have another message, and re-create what comes after it; the new merge."""
    head, text = forger.objects[merge][1].split(b"\n\n", 1)
    again = forger.put("commit", head + b"\n\n" + change(text.decode()).encode())
    forger.follow(merge, again)
    return CommitId(again)


def without(*keys: str) -> Callable[[str], str]:
    """A message without the trailers of these names."""
    return lambda text: "".join(
        line for line in text.splitlines(keepends=True) if not line.startswith(tuple(f"{key}:" for key in keys))
    )


@pytest.mark.parametrize(
    "change",
    [
        without("Fedops-Site", "Fedops-Author", "Fedops-Head", "Fedops-Policy"),
        without("Fedops-Author"),
        without("Fedops-Policy"),
        lambda text: "Merge pull request #3 from hospital-b/submit\n",
        lambda text: text.replace("Fedops-Site: hospital-b", "Fedops-Site: hospital-a"),
        lambda text: re.sub("Fedops-Head: .{40}", f"Fedops-Head: {'1' * 40}", text),
        lambda text: text + "\nand so on\n",
    ],
    ids=["none", "no author", "no policy", "by button", "another site", "another head", "text below"],
)
def test_a_merge_whose_trailers_do_not_say_what_it_merged(auditor: Auditor, change: Callable[[str], str]) -> None:
    forger = auditor.forger()
    merge = said_again(forger, forger.commit(USED), change)
    report = auditor.verify()
    assert (report.code, report.failed[0], report.slugs(0)) == (3, 1, [])
    assert report.names(1, "merged_by_hand", site="hospital-b", got=merge, severity="warning")
    # Trailers are text; what names the forgery is that the version was decided on another history.
    assert report.names(1, "lineage_broken", field="witness.input_commit", why="not on main")
    assert [row for row in report.findings if row["slug"] == "merged_by_hand"] == [
        f for f in report.of(1) if f["slug"] == "merged_by_hand"
    ]


@pytest.mark.parametrize("squash", [False, True])
def test_a_persons_merge_counts_and_is_told_while_it_waits_and_by_every_verify(tmp_path: Path, squash: bool) -> None:
    fed = MemoryFed(tmp_path, submission={"require_signed": False}, rules={"trigger": {"quorum": 2}})
    assert fed.merge_by_hand(fed.submit("hospital-a", 1.0).number, squash=squash)
    by_hand = fed.main().commit
    [warning] = fed.reconcile().findings
    where = "sites/hospital-a/submission.json"
    assert (warning.slug, warning.severity, warning.where, warning.got) == ("merged_by_hand", "warning", where, by_hand)
    fed.submit("hospital-b", 2.0)
    assert [[c.site for c in v.contributions] for v in fed.reconcile().published] == [["hospital-a", "hospital-b"]]
    first, second = fed.verify()
    assert (first.findings, second.level) == ((), "inputs")
    assert (second.findings, errors(second.findings)) == ((warning,), ())
    fed.submit("hospital-a", 3.0, base=1)
    fed.submit("hospital-b", 4.0, base=1)
    assert [v.version for v in fed.reconcile().published] == [2]
    assert fed.verify()[2].findings == ()
