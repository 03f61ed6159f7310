"""Writes commits and tags as objects: no ref, no work tree and not the user's index is touched."""

from __future__ import annotations

import datetime as dt
import hashlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedops.adapters.git_objects import METADATA_BYTES, ObjectReader, RawObject, object_id
from fedops.adapters.git_process import GitProcess, failure
from fedops.adapters.git_signing import no_ssh_keygen
from fedops.core.disk import about
from fedops.core.errors import ConfigError, GitError
from fedops.core.ids import CommitId, RepoPath

_KEY_HINT = (
    "the path is what --key or FEDOPS_KEY says, else the line `key:` of .fedops/site.yaml in this clone: "
    "`fedops join SITE --key PATH` puts it right"
)


def write_commit(
    git: GitProcess,
    parents: Sequence[CommitId],
    files: Mapping[RepoPath, bytes | None],
    message: str,
    *,
    at: dt.datetime,
    author: tuple[str, str] | None,
    key: Path | None,
) -> CommitId:
    """Write a commit whose tree is the first parent's with `files` replaced.

    Args:
        git: runs in the clone.
        parents: none for a root commit.
        files: path -> bytes, written with mode 100644; None deletes (a path that is not there: nothing happens).
        message: stored with one newline more, as git does; reading gives it back as it was.
        at: author and committer date; written in UTC, whole seconds.
        author: name and e-mail; None takes the user's git configuration.
        key: SSH private key file that signs.

    Raises:
        GitError: a path that git refuses, a file in the place of a folder or the reverse, an unknown parent.
        ConfigError: nobody to name as author, no such key file, no ssh-keygen.
    """
    if at.tzinfo is None:
        raise ValueError("the date of a commit needs a time zone")
    if key is not None and not key.is_file():
        raise ConfigError(f"{key}: no such key file", hint=_KEY_HINT)
    parents = [CommitId(object_id(parent)) for parent in parents]
    tree = _write_tree(git, parents[0] if parents else None, files)
    env = {"GIT_AUTHOR_DATE": f"@{int(at.timestamp())} +0000", "GIT_COMMITTER_DATE": f"@{int(at.timestamp())} +0000"}
    if author is not None:
        env |= dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), author[0])
        env |= dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), author[1])
    # NOTE: the signing program is named here, so that a repository's own configuration cannot name another one.
    signing = ("-c", "gpg.format=ssh", "-c", "gpg.ssh.program=ssh-keygen")
    command = ["commit-tree", "--no-gpg-sign" if key is None else f"-S{key.absolute()}", tree]
    for parent in parents:
        command += ["-p", parent]
    output = git.run(*signing, *command, stdin=_text(message), env=env)
    if output.code != 0:
        if key is not None and shutil.which("ssh-keygen") is None:
            raise no_ssh_keygen()
        if git.run("var", "GIT_COMMITTER_IDENT", env=env).code != 0:
            raise ConfigError(
                "git: does not know who writes the commit",
                hint="git config --global user.name NAME; git config --global user.email ADDRESS",
            )
        raise failure("git commit-tree", output)
    return CommitId(output.out.decode("ascii").strip())


def _write_tree(git: GitProcess, parent: CommitId | None, files: Mapping[RepoPath, bytes | None]) -> str:
    wanted: dict[bytes, tuple[str, str]] = _listing(git, parent) if parent is not None else {}
    with tempfile.TemporaryDirectory(prefix="fedops-") as folder:
        written = {path.encode("utf-8", "replace"): data for path, data in files.items() if data is not None}
        for path, data in files.items():
            if data is None:
                wanted.pop(path.encode("utf-8", "replace"), None)
        names = _write_blobs(git, Path(folder), list(written.values()))
        wanted |= {path: ("100644", name) for path, name in zip(written, names, strict=True)}
        lines = (f"{mode} {name}\t".encode() + path + b"\0" for path, (mode, name) in wanted.items())
        env = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        git.check("update-index", "-z", "--index-info", stdin=b"".join(lines), env=env)
        tree = git.check("write-tree", env=env).decode("ascii").strip()
    # NOTE: update-index leaves out a path that it does not like, and drops a/b for a new file a, with exit code 0.
    got = {path: name for path, (_, name) in _listing(git, tree).items()}
    if got != {path: name for path, (_, name) in wanted.items()}:
        odd = sorted(path.decode("utf-8", "replace") for path in wanted if path not in got)
        raise GitError(f"git: refuses the paths {odd[:5]}; a name that it forbids, or at once a file and a folder")
    return tree


def _listing(git: GitProcess, tree: str) -> dict[bytes, tuple[str, str]]:
    """Path -> mode, object id, of all files of a tree or commit."""
    listing = {}
    for record in git.check("ls-tree", "-r", "-z", "--full-tree", tree).split(b"\0")[:-1]:
        facts, _, path = record.partition(b"\t")
        mode, _, name = facts.decode("ascii").split()
        listing[path] = (mode, name)
    return listing


def _write_blobs(git: GitProcess, folder: Path, contents: Sequence[bytes]) -> list[str]:
    """Ids of new blobs with these bytes, in order, by one process."""
    names = []
    for number, data in enumerate(contents):
        name = folder / str(number)
        with about(name):
            name.write_bytes(data)
        names.append(f"{name}\n")
    return (
        git.check("hash-object", "-w", "--no-filters", "--stdin-paths", stdin="".join(names).encode()).decode().split()
    )


def write_tag(git: GitProcess, objects: ObjectReader, name: str, commit: CommitId, message: str) -> str:
    """Write an annotated tag object; tagger and date are those of its commit's committer.

    Raises:
        GitError: no such commit, a name that git refuses, a committer line that git would not write.
    """
    return git.check("mktag", stdin=_raw_tag(objects, name, commit, message)).decode("ascii").strip()


def tag_id(objects: ObjectReader, name: str, commit: CommitId, message: str) -> str:
    """The id of the object that write_tag would write; nothing is written, and the bytes are not judged."""
    raw = _raw_tag(objects, name, commit, message)
    return hashlib.sha1(b"tag %d\0" % len(raw) + raw, usedforsecurity=False).hexdigest()


def _raw_tag(objects: ObjectReader, name: str, commit: CommitId, message: str) -> bytes:
    if any(ord(c) < 32 for c in name):
        raise GitError(f"git: tag name {name!r} holds a control character")
    committer = RawObject.parse(objects.read(commit, "commit", max_bytes=METADATA_BYTES)).first(b"committer")
    head = f"object {commit}\ntype commit\ntag {name}\ntagger ".encode()
    return head + committer + b"\n\n" + _text(message)


def _text(message: str) -> bytes:
    """A message as stored: UTF-8 and one newline more, which reading takes off again."""
    return (message + "\n").encode("utf-8", "replace")
