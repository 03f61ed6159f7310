"""What lies where in the tree of refs/fedops/forge, and how it is read without trusting it."""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from fedops.adapters.forge_git_documents import MAX_NUMBER, Doc, IssueFile, Item, parse_time
from fedops.core.documents import MAX_DOCUMENT_BYTES, Document, load_json_document
from fedops.core.errors import ConfigError, FedopsError, ForgeError
from fedops.core.facts import Marker, RefUpdate, TreeEntry
from fedops.core.ids import BlobId, CommitId, RepoPath
from fedops.ports import Repository

FORGE_REF = "refs/fedops/forge"
Kind = Literal["pulls", "issues"]
_BY_HUNDREDS = 100
_HUNDRED = re.compile(r"(?:0|[1-9][0-9]{0,6})\Z")
_ITEM = re.compile(r"(?:pulls|issues)/(?:open|closed/[0-9]+)/([1-9][0-9]{0,8})\.json\Z")
_log = logging.getLogger(__name__)


def item_path(kind: Kind, number: int, *, is_open: bool) -> RepoPath:
    """Path of a pull or issue.

    Open ones lie by themselves, so listing them costs what is open; closed ones lie by hundreds, so that a change
    rewrites small trees only.
    """
    return RepoPath(
        f"{kind}/open/{number}.json" if is_open else f"{kind}/closed/{number // _BY_HUNDREDS}/{number}.json"
    )


def folder_of(what: Literal["comments", "reviews"], number: int) -> str:
    """Folder of what belongs to a pull or issue, with its final slash."""
    return f"{what}/{number // _BY_HUNDREDS}/{number}/"


def status_path(commit: CommitId) -> RepoPath:
    return RepoPath(f"statuses/{commit[:2]}/{commit}.json")


def marker_path(marker: Marker) -> RepoPath:
    name = sha256(marker.text.encode()).hexdigest()
    return RepoPath(f"markers/{name[:2]}/{name}.json")


def pull_ref(number: int) -> str:
    return f"refs/pull/{number}/head"


@dataclass(frozen=True)
class Edit:
    """One change of the forge: becomes one commit, and one atomic push together with `refs`.

    Args:
        files: new bytes by path; None deletes.
        refs: further refs that move with it.
        parents: further parents of the forge's commit, which keep these objects reachable.
    """

    message: str
    files: Mapping[RepoPath, bytes | None]
    refs: tuple[RefUpdate, ...] = ()
    parents: tuple[CommitId, ...] = ()


# ---------------------------------------------------------------- reading


def damaged(ref: str, path: RepoPath, what: str) -> ForgeError:
    """The error for a file that is not what fedops writes."""
    return ForgeError(
        f"{ref}:{path}: {what}",
        slug="object_corrupt",
        hint=f"`git log -p {ref} -- {path}` shows who changed it; a lead restores the last good version",
    )


def read_document(
    repository: Repository, entry: TreeEntry, model: type[Doc], ref: str, *, max_bytes: int = MAX_DOCUMENT_BYTES
) -> Doc:
    """Read one file below a ref.

    Raises:
        ForgeError: not a plain file, too large, not strict JSON or not this document.
    """
    if entry.mode != "100644" or entry.size > max_bytes:
        got = f"mode {entry.mode}, {entry.size} bytes"
        raise damaged(ref, entry.path, f"{got} -> a plain file of at most {max_bytes} bytes")
    data = repository.read(entry.blob, max_bytes=max_bytes)
    try:
        return load_json_document(data, model, entry.path, max_bytes=max_bytes)
    except ConfigError as e:
        raise damaged(ref, entry.path, e.message.removeprefix(f"{entry.path}: ")) from e


class View:
    """The forge's files at one commit of its chain; folders are listed and documents read when asked for.

    So what is asked of a forge costs the same in every year, however much was closed in it.

    Args:
        tip: the commit, None for a forge that nobody has used yet.
        known: documents already read, by blob; shared by the views of one forge.
    """

    def __init__(
        self,
        repository: Repository,
        tip: CommitId | None,
        known: dict[tuple[BlobId, RepoPath], Document],
    ) -> None:
        self.tip = tip
        self._repository = repository
        self._listed: dict[str, dict[RepoPath, TreeEntry]] = {}  # folder -> its files
        self._known = known

    def _files(self, folder: str) -> dict[RepoPath, TreeEntry]:
        if folder not in self._listed:
            entries = self._repository.entries(self.tip, folder) if self.tip is not None else ()
            self._listed[folder] = {e.path: e for e in entries}
        return self._listed[folder]

    def list_at_once(self, folder: str) -> None:
        """List all folders below one by one process: for who is going to look into most of them."""
        for path, entry in list(self._files(folder).items()):
            self._listed.setdefault(path.rpartition("/")[0], {})[path] = entry

    def __contains__(self, path: RepoPath) -> bool:
        return path in self._files(path.rpartition("/")[0])

    def under(self, folder: str) -> list[RepoPath]:
        """Paths below a folder, given with its final slash, sorted."""
        return sorted(path for path in self._files(folder.removesuffix("/")) if path.startswith(folder))

    def load(self, path: RepoPath, model: type[Doc]) -> Doc:
        """Read one file that is there.

        Raises:
            ForgeError: it is not what fedops writes; says where, what and what to do.
        """
        entry = self._files(path.rpartition("/")[0])[path]
        document = self._known.get((entry.blob, path))
        if not isinstance(document, model):
            document = read_document(self._repository, entry, model, FORGE_REF)
            self._known[entry.blob, path] = document
        return document

    def readable(self, paths: Iterable[RepoPath], model: type[Doc]) -> Iterator[tuple[RepoPath, Doc]]:
        """Those of the files that can be read; the others are logged and do not stand in the way."""
        for path in paths:
            try:
                yield path, self.load(path, model)
            except FedopsError as e:
                _log.warning("left out: %s", e.message)

    def numbers(self, folder: str) -> list[int]:
        """Numbers of the items whose files lie below a folder, ascending."""
        return sorted(int(match[1]) for path in self.under(folder) if (match := _ITEM.match(path)))

    def _hundreds(self, kind: Kind) -> list[int]:
        """Names of the folders of closed items, the newest first."""
        names = self._repository.folders(self.tip, f"{kind}/closed") if self.tip is not None else ()
        return sorted((int(name) for name in names if _HUNDRED.match(name)), reverse=True)

    def item(self, kind: Kind, number: int, model: type[Item]) -> Item:
        """One pull or issue.

        Raises:
            ForgeError: there is none, or its file is damaged.
        """
        for is_open in (True, False):
            path = item_path(kind, number, is_open=is_open)
            if path not in self:
                continue
            item = self.load(path, model)
            if (item.number, item.state == "open") != (number, is_open):
                got = f"says number {item.number}, state {item.state}"
                raise damaged(FORGE_REF, path, f"{got} -> number {number}, {'' if is_open else 'not '}open")
            return item
        raise ForgeError(f"{kind}/{number}: there is none", hint="`fedops status` lists the open ones")

    def items(self, kind: Kind, model: type[Item], *, is_open: bool) -> Iterator[Item]:
        """All readable pulls or issues that are (not) open, ascending; the unreadable are logged."""
        numbers = self.numbers(f"{kind}/open/" if is_open else f"{kind}/closed/")
        for item in self._readable_items(kind, model, numbers):
            if (item.state == "open") == is_open:  # not so for a number that lies in both folders
                yield item

    def _readable_items(self, kind: Kind, model: type[Item], numbers: Iterable[int]) -> Iterator[Item]:
        for number in numbers:
            try:
                yield self.item(kind, number, model)
            except FedopsError as e:
                _log.warning("left out: %s", e.message)

    def closed_issues(self, since: dt.datetime | None) -> Iterator[IssueFile]:
        """The closed issues, the newest hundred first; with `since`, those that were opened before may be missing."""
        for hundred in self._hundreds("issues"):
            numbers = self.numbers(f"issues/closed/{hundred}/")
            issues = [i for i in self._readable_items("issues", IssueFile, numbers) if i.state != "open"]
            yield from issues
            if since is not None and issues and all(parse_time(i.opened_at) < since for i in issues):
                return

    def next_number(self) -> int:
        """The first number that neither a pull nor an issue has used."""
        kinds: tuple[Kind, ...] = ("pulls", "issues")
        folders = [f"{kind}/open/" for kind in kinds]
        folders += [f"{kind}/closed/{hundred}/" for kind in kinds for hundred in self._hundreds(kind)[:1]]
        number = max((n for folder in folders for n in self.numbers(folder)), default=0) + 1
        if number > MAX_NUMBER:
            raise ForgeError(f"{FORGE_REF}: number {number - 1} is taken -> at most {MAX_NUMBER - 1}")
        return number
