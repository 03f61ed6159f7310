"""A store as an fsspec filesystem, in which DVC finds its objects: `<remote>/files/md5/ab/cdef…` is the tag `md5-abcdef…`."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn

from dvc.exceptions import DvcException
from dvc_objects.fs.base import ObjectFileSystem
from fsspec import AbstractFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK, Callback

from fedops.adapters.dvc_offer import check_bytes, check_record, offer
from fedops.adapters.dvc_remote import known_stores
from fedops.adapters.dvc_transfer import CallbackProgress, PassingFile, named
from fedops.core.artifacts import md5_tag
from fedops.core.errors import FedopsError, StoreError
from fedops.core.facts import Artifact, Json
from fedops.core.ids import FOLDER_SCHEME, REGISTRY_SCHEME, Digest
from fedops.core.remotes import parse_object_url
from fedops.ports import Progress, Store

OpenStore = Callable[[str, Progress], Store]

_KEPT = (
    "fedops decides what a store keeps: `retain_updates` in federation.yaml; "
    "`fedops dvc gc` without --cloud cleans the cache of this clone"
)
_DAMAGED = "the store's copy is damaged: tell the lead; `fedops verify` says which versions it touches"
_CORRUPT = frozenset({"hash_mismatch", "size_mismatch"})
_WRONG = frozenset({"digest_mismatch", "foreign_layer_refused", "layer_title_invalid", "annotation_mismatch"})
_OWN_SETTINGS = frozenset({"credential_scope", "credentials_incomplete"})  # of whoever runs this: to be put right first
_log = logging.getLogger("dvc.fedops")  # below DVC's own logger, so that it is shown as DVC's own words are


class StoreFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """One store's repositories; paths are whole URLs, those that `object_url` writes.

    Nothing that DVC reads here is unchecked: sha256 and size by the manifest, md5 by the name that DVC asks for. Where a
    record of the clone describes bytes of that md5, its sha256 is what counts: md5 is not safe against forgery.

    Args:
        open_store: opens a store by its URL; called once in each thread.
        root: of the clone whose records say what may be put; None: nothing may.
    """

    protocol = "fedops"
    cachable = False
    root_marker = ""

    def __init__(self, open_store: OpenStore, root: Path | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.root = root
        self._open_store = open_store
        self._mine = _Mine()
        self._said: set[str] = set()
        self._is_away = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path

    def exists(self, path: str, **_: Any) -> bool:
        """True if the object is in the store, or if the path is a remote's own: the store is not asked for that.

        A store that does not answer, such as another site's private one, is told once and has nothing: so DVC gets what
        it can, and then says what it could not get. Raised, the error would end the whole command.

        Raises:
            DvcException: a setting of the caller's own is wrong; what DVC would say of missing files misses that.
        """
        place = parse_object_url(path)
        if place is None or place[2] is None:
            return place is not None
        if self._is_away:
            return False
        try:
            store, repository, md5 = self._place(path)
            self._artifact(store, repository, md5 or "")
        except FileNotFoundError:
            return False
        except FedopsError as e:
            if e.slug in _OWN_SETTINGS:
                raise DvcException(_words(e)) from None
            self._warn(e)
            return False
        return True

    def _warn(self, error: FedopsError) -> None:
        if error.slug != "object_missing" and error.message not in self._said:
            self._said.add(error.message)
            _log.warning("%s", _words(error))
        if error.cause != "permanent":  # it was asked several times before it said so
            self._is_away = True

    def isfile(self, path: str) -> bool:
        place = parse_object_url(path)
        return place is not None and place[2] is not None and self.exists(path)

    def info(self, path: str, **_: Any) -> dict[str, Json]:
        with _told():
            store, repository, md5 = self._place(path)
            if md5 is None:
                return {"name": path, "size": 0, "type": "directory"}
            artifact = self._artifact(store, repository, md5)
        return {"name": path, "size": artifact.layer.size, "type": "file", "md5": md5}

    def get_file(self, rpath: str, lpath: str, callback: Callback = DEFAULT_CALLBACK, **_: Any) -> None:
        """Copy an object to a file; nothing is there before size, sha256 and md5 were found right."""
        with _told():
            store, repository, md5 = self._place(rpath)
            if md5 is None:
                raise IsADirectoryError(rpath)
            layer = self._artifact(store, repository, md5).layer
            check_record(layer, repository, md5, self.root)
            with self._mine.progress.shown(callback, layer.size):
                store.get(repository, layer, Path(lpath), md5=md5)

    def put_file(self, lpath: str, rpath: str, callback: Callback = DEFAULT_CALLBACK, **_: Any) -> None:
        """Put a file that a record of the clone describes, so that its manifest is the one that the record names."""
        with _told():
            try:
                store, repository, md5 = self._place(rpath)
            except FileNotFoundError:
                md5 = None
            if md5 is None:
                what = f"{rpath}: not one model file: a store keeps no folders and no other data"
                raise StoreError(what, hint="`fedops dvc remote add mine URL`, then `fedops dvc push -r mine`")
            file = Path(lpath)
            wanted = offer(store, repository, md5, self.root)
            check_bytes(file, wanted)
            with self._mine.progress.shown(callback, wanted.layer.size), named(file, wanted.layer.title) as source:
                got = store.put(repository, source, wanted.annotations, wanted.config)
            if got.manifest != wanted.manifest:
                what = f"{got.ref}: manifest {got.manifest} -> {wanted.manifest}, as the record says"
                raise StoreError(what, hint="the store changes what it is given; tell its operator")

    def _open(self, path: str, mode: str = "rb", **_: Any) -> BufferedReader:
        if mode != "rb":
            raise NotImplementedError(f"{path}: mode {mode}")
        folder = tempfile.mkdtemp(prefix="fedops-")
        try:
            self.get_file(path, os.path.join(folder, "object"))  # noqa: PTH118 a str, as fsspec has it
            return BufferedReader(PassingFile(folder))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def ls(self, path: str, detail: bool = True, **_: Any) -> NoReturn:
        raise NotImplementedError(path)  # DVC then makes no list, and asks for each object

    def find(self, path: str, **_: Any) -> NoReturn:
        raise DvcException(f"{path}: cannot be listed; {_KEPT}")

    def rm_file(self, path: str) -> NoReturn:
        raise DvcException(f"{path}: not removed; {_KEPT}")

    def _place(self, path: str) -> tuple[Store, str, str | None]:
        place = parse_object_url(path)
        if place is None:
            raise FileNotFoundError(f"{path}: no object of a store")
        url, repository, md5 = place
        mine = self._mine
        if url not in mine.stores:
            mine.stores[url] = self._open_store(url, mine.progress)
        return mine.stores[url], repository, md5

    def _artifact(self, store: Store, repository: str, md5: str) -> Artifact:
        """The manifest that the tag of this md5 names now.

        Raises:
            FileNotFoundError: there is none, or it is none of a model.
            StoreError: the store cannot be asked.
        """
        digest: Digest | None = store.resolve(f"{repository}:{md5_tag(md5)}")
        if digest is None:
            raise FileNotFoundError(f"{repository}:{md5_tag(md5)}: not in the store")
        try:
            return store.manifest(repository, digest)
        except StoreError as e:
            if e.slug in _WRONG:
                _log.warning("%s", e.message)
                raise FileNotFoundError(e.message) from None
            raise


class FolderRemote(ObjectFileSystem):  # type: ignore[misc]  # dvc-objects has no types
    """What DVC makes of an `ocidir://` remote."""

    protocol = FOLDER_SCHEME
    PARAM_CHECKSUM = "md5"
    CAN_TRAVERSE = False  # one question for each object, instead of a list of all

    @staticmethod
    def _get_kwargs_from_urls(urlpath: str) -> dict[str, Json]:  # noqa: ARG004 as DVC has it
        return {}

    @cached_property
    def fs(self) -> StoreFileSystem:
        return StoreFileSystem(known_stores().open, **self.fs_args)


class RegistryRemote(FolderRemote):
    """What DVC makes of an `oci://` remote."""

    protocol = REGISTRY_SCHEME


class _Mine(threading.local):
    """Of each thread its own: stores keep connections and tokens."""

    def __init__(self) -> None:
        self.stores: dict[str, Store] = {}
        self.progress = CallbackProgress()


@contextmanager
def _told() -> Iterator[None]:
    """What a store says no to, as DVC tells it: an absent object as an absent file, everything else in our words."""
    try:
        yield
    except FedopsError as e:
        # NOTE: not `from e`: DVC joins the messages of all causes into one line.
        if e.slug == "object_missing":
            raise FileNotFoundError(e.message) from None
        raise DvcException(_words(e)) from None


def _words(error: FedopsError) -> str:
    hint = _DAMAGED if error.slug in _CORRUPT else error.hint
    return f"{error.message}\n  hint: {hint}" if hint else error.message
