"""First stage of validation: who changes which paths, in which commit; no content is looked at."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from fedops.core.brief import like
from fedops.core.catalogue import Slug
from fedops.core.facts import Account, Change, Commit
from fedops.core.findings import Finding, finding
from fedops.core.ids import (
    METRICS_PATH,
    SITES_GUIDE_PATH,
    SITES_PATH,
    VERSION_PATH,
    RepoPath,
    SiteId,
    model_pointer_path,
    record_path,
    site_folder,
    site_id_fault,
    site_of_path,
    update_path,
)
from fedops.core.settings import Sites, SubmissionPolicy

MAX_FINDINGS = 50  # of one stage: more tell a person nothing new, and a hostile change could have a million
_MODES: dict[str, Slug] = {"120000": "symlink_refused", "160000": "submodule_refused"}
_PLAIN = "100644"
_OF_CI = ("sites", "global")
_SEPARATOR = re.compile(r"[/\\]")
_SHORT_NAME = re.compile(r"~\d")  # as Windows makes one of a long name


def is_submission(changes: Sequence[Change]) -> bool:
    """True if a change touches anything below sites/; others are proposals, judged by people."""
    return any(c.path == "sites" or c.path.startswith("sites/") for c in changes)


def is_for_people(changes: Sequence[Change]) -> bool:
    """True if a change keeps away from what CI alone brings to main: sites/ and global/, however they are spelled.

    The one file there that is nobody's, and that `fedops upgrade` writes, may change.
    """
    return not any(_is_of_ci(_SEPARATOR.split(c.path)[0]) for c in changes if not _is_guide(c))


def _is_of_ci(folder: str) -> bool:
    """True if some file system might take a folder at the top for sites/ or global/."""
    seen = "".join(c for c in _fold(folder) if unicodedata.category(c) != "Cf").rstrip(". ")
    return seen in _OF_CI or _SHORT_NAME.search(folder) is not None


def _is_guide(change: Change) -> bool:
    return change.path == SITES_GUIDE_PATH and (change.status == "D" or change.mode == _PLAIN)


def validate_change(
    head_changes: Sequence[Change],
    author: Account,
    sites: Sites,
    *,
    extension: str,
    base_paths: Collection[str] = (),
) -> tuple[SiteId | None, tuple[Finding, ...]]:
    """Find the one site that a change hands in for, and everything that it may not do.

    Allowed is: add or modify the known files of one site that the author owns, the record among them, as plain files.

    Args:
        head_changes: against the merge base; renames are a D and an A.
        author: who opened the pull request, as the forge says; only the numeric id counts.
        sites: the roster of the base branch.
        extension: of the federation's model files.
        base_paths: all paths of the base tree, for the search of twins.

    Returns:
        The site, None if no folder could be one; and at most MAX_FINDINGS findings.
    """
    changes = sorted(head_changes, key=lambda c: c.path)
    owned = sites.site_of(author.id)
    folders = sorted({folder for c in changes if (folder := site_of_path(c.path)) is not None})
    target = owned if owned in folders else next(iter(folders), None)
    found: list[Finding] = []
    for folder in folders:
        found += _folder_faults(folder, author, owned, sites, is_target=folder == target)
    known = _known_files(target, extension)
    for change in changes:
        found += _path_faults(change, known)
    found += _twins(changes, base_paths)
    record = record_path(SiteId(target)) if target is not None else "sites/<site>/submission.json"
    # Where anything else is wrong the branch is rebuilt anyway, with all that belongs to it.
    if not found and not any(c.path == record for c in changes):
        found.append(finding("files_missing", _shown(record), got="absent", expected="added or modified"))
    site = SiteId(target) if target is not None and site_id_fault(target) is None else None
    return site, tuple(found[:MAX_FINDINGS])


def _known_files(site: str | None, extension: str) -> tuple[str, ...]:
    """What a submission may change."""
    if site is None:
        return ()
    # NOTE: not evaluation.json: until somebody checks its content, it would carry anything to main.
    return (record_path(SiteId(site)), update_path(SiteId(site), extension))


def foreign_files(paths: Iterable[RepoPath], extension: str) -> tuple[RepoPath, ...]:
    """The files below sites/ and global/ that fedops does not write there, ascending."""
    ours = {SITES_GUIDE_PATH, VERSION_PATH, METRICS_PATH, model_pointer_path(extension)}
    below = (path for path in paths if path.startswith(("sites/", "global/")) and path not in ours)
    return tuple(sorted(path for path in below if path not in _known_files(site_of_path(path), extension)))


def _folder_faults(
    folder: str, author: Account, owned: SiteId | None, sites: Sites, *, is_target: bool
) -> Iterator[Finding]:
    """What is wrong with one folder below sites/ as the author's own."""
    where = _shown(f"sites/{folder}")
    fault = site_id_fault(folder)
    if fault == "site_id_reserved":
        yield finding("site_id_reserved", where, got=_shown(folder))
    elif fault is not None:
        yield finding("site_id_invalid", where, got=_shown(folder))
    elif folder not in sites.sites:
        yield finding("site_unknown", where, got=folder, expected=like(folder, sites.sites, f"a site of {SITES_PATH}"))
    elif folder == owned and sites.sites[folder].state == "suspended":
        yield finding("site_suspended", where, detail={"site": folder})
    # A foreign folder beside one's own is told path by path; alone, the account is the point.
    if is_target and owned != folder and (fault is None and (owned is not None or folder in sites.sites)):
        yield _mismatch(where, folder, author, owned)


def _mismatch(where: str, folder: str, author: Account, owned: SiteId | None) -> Finding:
    if owned is None and author.id < 0:  # a forge without accounts found nobody by the signature
        got, detail = "unsigned, or signed by a key that is not on the roster", {"author": author.login}
        return finding("site_mismatch", where, got=got, expected=f"a key of {folder} in {SITES_PATH}", detail=detail)
    return finding(
        "site_mismatch",
        where,
        got=owned if owned is not None else "an account of no site",
        expected=folder,
        detail={"author": author.login, "id": author.id},
    )


def _path_faults(change: Change, known: tuple[str, ...]) -> Iterator[Finding]:
    """What is wrong with one changed path by itself."""
    where = _shown(change.path)
    if change.status == "D":
        yield finding("path_not_allowed", where, got="deleted", expected="added or modified")
        return
    is_module_list = change.path.rpartition("/")[2] == ".gitmodules"
    if change.mode in _MODES:
        yield finding(_MODES[change.mode], where, got=change.mode, expected=_PLAIN)
    elif is_module_list:
        yield finding("submodule_refused", where, got=".gitmodules")
    if change.path not in known and not is_module_list:
        yield finding("path_not_allowed", where, detail={"allowed": list(known)} if known else None)
    if change.mode not in (_PLAIN, *_MODES):
        yield finding("mode_refused", where, got=change.mode, expected=_PLAIN)
    elif change.mode == _PLAIN and change.status == "T":
        yield finding("mode_refused", where, got="another type of file before", expected=_PLAIN)


def _fold(text: str) -> str:
    """What file systems that ignore case or normalise names may take a name for."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _prefixes(path: str) -> Iterator[str]:
    """The path and all folders above it: two folders that differ by case are one folder elsewhere."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def _twins(changes: Sequence[Change], base_paths: Collection[str]) -> Iterator[Finding]:
    """Changed paths that another path of the change or of the base equals after folding."""
    alive = [c.path for c in changes if c.status != "D"]
    spelled: dict[str, set[str]] = defaultdict(set)
    wanted = {_fold(p) for path in alive for p in _prefixes(path)}
    for path in (*alive, *base_paths):
        for prefix in _prefixes(path):
            folded = _fold(prefix)
            if folded in wanted:
                spelled[folded].add(prefix)
    for path in alive:
        twins = {t for p in _prefixes(path) for t in spelled[_fold(p)] - {p}}
        if twins:
            yield finding("path_case_conflict", _shown(path), detail={"twins": sorted(map(_shown, twins))[:5]})


def _shown(path: str) -> str:
    """A path that can be printed and encoded: git allows bytes in it that are not UTF-8."""
    return path.encode("utf-8", "backslashreplace").decode()


def validate_commit(head: Commit, on_main: bool) -> tuple[Finding, ...]:
    """Check that a submission is exactly one commit that is not a merge, on an ancestor of main.

    Args:
        head: the pull request's head.
        on_main: the head's first parent is main's tip or one of its ancestors.
    """
    if len(head.parents) != 1:
        return (finding("commit_shape", head.id, got=f"{len(head.parents)} parents", expected="one parent"),)
    if not on_main:
        return (finding("commit_shape", head.id, got="more than one commit", expected="one commit on main"),)
    return ()


def validate_signature(
    signer: str | None, site: SiteId, sites: Sites, policy: SubmissionPolicy, *, same_repository: bool
) -> tuple[Finding, ...]:
    """Check that a site's commit is signed by one of its keys, where the policy or the branch's place asks for it.

    Args:
        signer: the public key whose signature the commit carries, as the roster writes it; None without a valid one.
        sites: the roster that counts: of the base branch, or of the merge's first parent.
        same_repository: the branch lies in the federation's repository, where an account proves less than a fork's.
    """
    if not (policy.require_signed or same_repository):
        return ()
    entry = sites.sites.get(site)
    if signer is not None and entry is not None and signer in entry.keys:
        return ()
    got = "no valid signature" if signer is None else "a key of somebody else"
    expected = f"a key of {site} in {SITES_PATH}"
    return (finding("signature_invalid", site_folder(site), got=got, expected=expected, detail={"site": site}),)
