"""Other processes at work on an `ocidir:` store; run as `python -m tests.adapters.layout_processes WHAT ARGS…`."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedops.adapters.store_layout import LayoutStore
from fedops.core.ids import Digest

SITE, ARCHIVE = "sites/hospital-a", "archive"
KILLED = 137
# Every call that changes a name or makes bytes durable: between two of these a kill may fall.
BOUNDARIES = ("mkdir", "replace", "unlink", "fsync")


def do(what: str, store: LayoutStore, update: Path, digest: Digest) -> None:
    """One operation of the kind that is interrupted; `digest` is an artifact that the site has put before."""
    if what == "put":
        store.put(SITE, update, {"n": "2"}, b"a config")
    elif what == "tag":
        store.tag(SITE, digest, "v8")
    elif what == "drop":
        store.drop(SITE, digest)
    elif what == "copy":
        store.copy(store, SITE, digest, ARCHIVE)


def kill_at_every_step(what: str, pristine: str, update: str, digest: str) -> None:
    """Do one thing on copies `<pristine>-0`, `-1`, …, killed before its first, second, … boundary, until it ends."""
    for step in range(1000):
        root = Path(f"{pristine}-{step}")
        shutil.copytree(pristine, root)
        child = os.fork()
        if child == 0:
            _die_before(step)
            do(what, LayoutStore(root), Path(update), Digest(digest))
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != KILLED:
            sys.exit(code)


def _die_before(step: int) -> None:
    count = 0

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **options: Any) -> Any:
            nonlocal count
            if count == step:
                os._exit(KILLED)  # no finally runs, no buffer is flushed: as with kill -9
            count += 1
            return call(*args, **options)

        return wrapper

    for name in BOUNDARIES:
        setattr(os, name, dying(getattr(os, name)))


def put_many(root: str, folder: str, count: str) -> None:
    """Put `count` models of its own, and one that all processes share."""
    for i in range(int(count)):
        model = Path(folder) / f"model-{os.getpid()}-{i}"
        model.write_text(f"{os.getpid()} {i}")
        LayoutStore(Path(root)).put(SITE, model, {})
        model.write_text("shared")
        LayoutStore(Path(root)).put(SITE, model, {})


def hang_with_the_lock(root: str, update: str) -> None:
    """Stop for ever where the index is about to be replaced; says so on stdout."""

    def hang(source: Any, target: Any) -> None:
        if Path(target).name == "index.json":
            sys.stdout.write("locked\n")
            sys.stdout.flush()
            signal.pause()
        rename(source, target)

    rename = os.replace
    os.replace = hang  # type: ignore[assignment]  # the signature without its keywords
    LayoutStore(Path(root)).put(SITE, Path(update), {})


if __name__ == "__main__":
    {f.__name__: f for f in (kill_at_every_step, put_many, hang_with_the_lock)}[sys.argv[1]](*sys.argv[2:])
