"""Each change of the forge as a pure function: the files as they are -> the edit that is missing, if any, and the answer.

A change that loses the race is simply asked again, with the files that the winner left.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Literal

from fedops.adapters.forge_git_documents import (
    CommentFile,
    IssueFile,
    MarkerFile,
    PullFile,
    ReviewFile,
    StatusEntry,
    StatusFile,
    make,
    time_text,
)
from fedops.adapters.forge_git_state import (
    FORGE_REF,
    Edit,
    View,
    damaged,
    folder_of,
    item_path,
    marker_path,
    pull_ref,
    status_path,
)
from fedops.core.documents import dump_json
from fedops.core.errors import ForgeError
from fedops.core.facts import Marker, RefUpdate
from fedops.core.ids import CommitId, RepoPath

_COMMENT = re.compile(r"([0-9]{6})\.json\Z")


def say(text: str) -> str:
    """A text in one line of a commit message: no control characters, not long."""
    return "".join(c if c.isprintable() else "?" for c in text)[:100]


def new_pull(number: int, head: CommitId, branch: str, title: str, body: str, at: dt.datetime) -> tuple[Edit, PullFile]:
    """Open a pull under a number whose refs/pull/<number>/head is free."""
    fields = {"number": number, "state": "open", "branch": branch, "title": title, "body": body}
    pull = make(PullFile, f"pull of {branch}", fields | {"head": head, "opened_at": time_text(at)})
    edit = Edit(
        f"pull {number}: opened from {say(branch)} at {head[:12]}",
        {item_path("pulls", number, is_open=True): dump_json(pull)},
        (RefUpdate(pull_ref(number), None, head),),
    )
    return edit, pull


def move_pull(pull: PullFile, head: CommitId, title: str, body: str, ref: CommitId | None) -> tuple[Edit, PullFile]:
    """Move an open pull to another head; reviews stay with the head that they are of.

    Args:
        ref: what refs/pull/<number>/head names now, None if it is gone.
    """
    fields = pull.model_dump(by_alias=True) | {"head": head, "title": title, "body": body}
    moved = make(PullFile, f"pull {pull.number}", fields)
    edit = Edit(
        f"pull {pull.number}: moved to {head[:12]}",
        {item_path("pulls", pull.number, is_open=True): dump_json(moved)},
        (RefUpdate(pull_ref(pull.number), ref, head),),
    )
    return edit, moved


def settle_pull(
    pull: PullFile, state: Literal["merged", "closed"], head: CommitId, how: str, refs: tuple[RefUpdate, ...] = ()
) -> Edit:
    """Turn an open pull into a merged or closed one.

    Args:
        head: the head at its end.
        how: said in the log: "merged as 0123456789ab".
    """
    done = pull.model_copy(update={"state": state, "head": head})
    files = {
        item_path("pulls", pull.number, is_open=True): None,
        item_path("pulls", pull.number, is_open=False): dump_json(done),
    }
    return Edit(f"pull {pull.number}: {how}", files, refs)


def find_issue(view: View, marker: Marker) -> IssueFile | None:
    """The issue of a marker, open or closed; None if there is none.

    Raises:
        ForgeError: the marker leads to something else.
    """
    path = marker_path(marker)
    if path in view:
        number = view.load(path, MarkerFile).number
        issue = view.item("issues", number, IssueFile)
        if issue.marker != marker.text:
            raise damaged(FORGE_REF, path, f"leads to issue {number}, which has another marker -> {marker.text}")
        return issue
    # Somebody removed the way to it; the open ones are few.
    return next((i for i in view.items("issues", IssueFile, is_open=True) if i.marker == marker.text), None)


def ensure_issue(
    view: View, number: int, marker: Marker, title: str, body: str, labels: frozenset[str], at: dt.datetime
) -> tuple[Edit | None, IssueFile]:
    """Open the issue of a marker, unless there is or was one."""
    issue = find_issue(view, marker)
    if issue is not None:
        return None, issue
    fields = {"number": number, "state": "open", "marker": marker.text, "title": title, "body": marker.stamp(body)}
    issue = make(IssueFile, f"issue {marker.text}", fields | {"labels": sorted(labels), "opened_at": time_text(at)})
    edit = Edit(
        f"issue {number}: {say(title)}",
        {
            item_path("issues", number, is_open=True): dump_json(issue),
            marker_path(marker): dump_json(MarkerFile(number=number)),
        },
    )
    return edit, issue


def close_issue(view: View, number: int) -> Edit | None:
    """Close an issue, if it is open."""
    issue = view.item("issues", number, IssueFile)
    if issue.state == "closed":
        return None
    files = {
        item_path("issues", number, is_open=True): None,
        item_path("issues", number, is_open=False): dump_json(issue.model_copy(update={"state": "closed"})),
    }
    return Edit(f"issue {number}: closed", files)


def upsert_comment(view: View, number: int, marker: Marker, body: str, at: dt.datetime) -> Edit | None:
    """Write or change the one comment of a marker on a pull or issue."""
    require_item(view, number)
    paths = view.under(folder_of("comments", number))
    found = next(((p, c) for p, c in view.readable(paths, CommentFile) if c.marker == marker.text), None)
    text = marker.stamp(body)
    if found is not None and found[1].body == text:
        return None
    path = found[0] if found is not None else _next_comment(view, number)
    first = found[1].at if found is not None else time_text(at)
    comment = make(CommentFile, f"comment on {number}", {"marker": marker.text, "body": text, "at": first})
    return Edit(f"comment on {number}: {say(marker.kind)} {say(marker.key)}", {path: dump_json(comment)})


def comments(view: View, number: int) -> list[str]:
    """Bodies of the readable comments, oldest first."""
    require_item(view, number)
    # Names are numbers of equal length, so their order is that in which they were written.
    return [c.body for _, c in view.readable(view.under(folder_of("comments", number)), CommentFile)]


def _next_comment(view: View, number: int) -> RepoPath:
    folder = folder_of("comments", number)
    names = [_COMMENT.match(path.removeprefix(folder)) for path in view.under(folder)]
    last = max((int(name[1]) for name in names if name), default=0)
    return RepoPath(f"{folder}{last + 1:06}.json")


def require_item(view: View, number: int) -> None:
    """Raise a ForgeError if there is neither a pull nor an issue of that number."""
    kinds: tuple[Literal["pulls", "issues"], ...] = ("pulls", "issues")
    if not any(item_path(kind, number, is_open=is_open) in view for kind in kinds for is_open in (True, False)):
        raise ForgeError(f"{number}: no such pull or issue", hint="`fedops status` lists the open ones")


def set_status(
    view: View, commit: CommitId, state: Literal["success", "failure", "pending"], context: str, text: str
) -> Edit | None:
    """Set one status of a commit; a damaged file of statuses is replaced."""
    path = status_path(commit)
    before: StatusFile | None = None
    if path in view:
        before = next((s for _, s in view.readable([path], StatusFile)), None)
    entry = make(StatusEntry, f"status of {commit[:12]}", {"state": state, "text": text})
    statuses = dict(before.statuses) if before is not None else {}
    if statuses.get(context) == entry:
        return None
    after = StatusFile(statuses=statuses | {context: entry})
    return Edit(f"status of {commit[:12]}: {say(context)} {state}", {path: dump_json(after)})


def status(view: View, commit: CommitId, context: str) -> tuple[str, str] | None:
    """(state, text) of one context, None if it was never set."""
    path = status_path(commit)
    entry = view.load(path, StatusFile).statuses.get(context) if path in view else None
    return (entry.state, entry.text) if entry is not None else None


def add_review(number: int, review: ReviewFile, commit: CommitId) -> Edit:
    """Put a review, that is its signed commit, on the forge."""
    # The second parent keeps the signed commit reachable and makes it travel with the forge; this copy is for people.
    path = RepoPath(f"{folder_of('reviews', number)}{commit}.json")
    message = f"pull {number}: {review.state} at {review.head[:12]}"
    return Edit(message, {path: dump_json(review)}, parents=(commit,))
