"""A store as DVC's filesystem: what is there, what is read, what may be put, and in which words it is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from dvc.exceptions import DvcException

from fedops.adapters.dvc_filesystem import StoreFileSystem
from fedops.cli.stores import Registries
from fedops.cli.wire import SystemClock
from fedops.core.errors import Cause, ConfigError, StoreError
from fedops.core.ids import Digest
from fedops.core.remotes import object_url, remote_url
from fedops.ports import Progress, Store
from tests.contract.store_backends import BACKENDS, Backend
from tests.dvc_world import ANNOTATIONS, DATA, MD5, SITE, URL, Seen, opened, path_of, put
from tests.fakes_store import FakeStore


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    yield from BACKENDS[request.param](tmp_path)


def test_what_was_put_is_there_with_its_size_and_is_read_whole(backend: Backend, tmp_path: Path) -> None:
    put(backend.store, tmp_path)
    fs = opened(backend.store)
    assert fs.exists(path_of())
    assert fs.isfile(path_of())
    assert fs.info(path_of()) == {"name": path_of(), "size": len(DATA), "type": "file", "md5": MD5}
    seen = Seen()
    fs.get_file(path_of(), str(tmp_path / "got"), callback=seen)
    assert (tmp_path / "got").read_bytes() == DATA
    assert seen.told[-1] == (len(DATA), len(DATA))
    with fs.open(path_of(), "rb") as handle:
        folder = Path(handle.raw.name).parent
        assert (handle.read(12), handle.seek(0), handle.read()) == (DATA[:12], 0, DATA)
    assert not folder.exists()


def test_what_is_not_there_is_an_absent_file(backend: Backend, tmp_path: Path) -> None:
    put(backend.store, tmp_path)
    fs = opened(backend.store)
    others = (path_of(md5=32 * "0"), path_of("global"), path_of("sites/hospital-b"), f"{path_of()}.dir", "oci://host/x")
    for path in others:
        assert not fs.exists(path)
        assert not fs.isfile(path)
        with pytest.raises(FileNotFoundError):
            fs.info(path)
        with pytest.raises(FileNotFoundError):
            fs.get_file(path, str(tmp_path / "got"))
        with pytest.raises(FileNotFoundError):
            fs.open(path, "rb")
    assert not (tmp_path / "got").exists()


def test_a_remote_itself_is_a_folder_that_is_there_without_asking_the_store() -> None:
    fs = StoreFileSystem(lambda url, _: pytest.fail(url), skip_instance_cache=True)
    for path in (remote_url(URL, SITE), f"{remote_url(URL, 'global')}/files/md5"):
        assert fs.exists(path)
        assert not fs.isfile(path)
    fs = opened(FakeStore())
    assert fs.info(remote_url(URL, SITE))["type"] == "directory"
    with pytest.raises(IsADirectoryError):
        fs.get_file(remote_url(URL, SITE), "nowhere")


def test_wrong_bytes_are_refused_and_nothing_is_left(backend: Backend, tmp_path: Path) -> None:
    artifact = put(backend.store, tmp_path)
    backend.damage(SITE, Digest(f"sha256:{artifact.layer.sha256}"))
    fs = opened(backend.store)
    with pytest.raises(DvcException) as caught:
        fs.get_file(path_of(), str(tmp_path / "got"))
    assert "the store's copy is damaged" in str(caught.value)
    assert caught.value.__cause__ is None  # DVC would print it again
    with pytest.raises(DvcException):
        fs.open(path_of(), "rb")
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("got")) == []


def test_bytes_that_are_right_for_the_manifest_and_wrong_for_the_name_are_refused(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody moved the tag md5-… to a manifest of other bytes."""
    put(backend.store, tmp_path)
    (tmp_path / "other").write_bytes(b"other")
    other = backend.store.put(SITE, tmp_path / "other", ANNOTATIONS).manifest
    monkeypatch.setattr(backend.store, "resolve", lambda ref: other)
    with pytest.raises(DvcException, match="the store's copy is damaged"):
        opened(backend.store).get_file(path_of(), str(tmp_path / "got"))
    assert not (tmp_path / "got").exists()


def test_a_tag_that_names_no_model_is_told_and_has_nothing(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(backend.store, tmp_path)
    planted = backend.plant(SITE, b'{"schemaVersion": 2}')
    monkeypatch.setattr(backend.store, "resolve", lambda ref: planted)
    assert not opened(backend.store).exists(path_of())
    assert [SITE in told for told in caplog.messages] == [True]


@pytest.mark.parametrize(("cause", "asked"), [("auth", 1), ("temporary", 1), ("permanent", 3)])
def test_a_store_that_does_not_answer_is_told_once_and_has_nothing(
    cause: Cause, asked: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its adapter repeats what may pass, so that asking for each of many objects would take for ever."""
    opens: list[str] = []

    def closed(url: str, _: Progress) -> Store:
        opens.append(url)
        raise StoreError(f"{url}: no right to read", cause=cause, hint="ask its owner")

    fs = StoreFileSystem(closed, skip_instance_cache=True)
    assert [fs.exists(path_of(md5=c * 32)) for c in "123"] == [False] * 3
    assert caplog.messages == [f"{URL}: no right to read\n  hint: ask its owner"]
    assert len(opens) == asked
    for ask in (fs.info, lambda path: fs.get_file(path, str(tmp_path / "got")), lambda path: fs.open(path, "rb")):
        with pytest.raises(DvcException, match="no right to read"):
            ask(path_of())


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        (
            {"FEDOPS_REGISTRY_USERNAME": "alice", "FEDOPS_REGISTRY_PASSWORD": "s3cret-word"},
            "FEDOPS_REGISTRY_USERNAME: for which registry?\n  hint: export FEDOPS_REGISTRY_HOST=registry.example:5000 if",
        ),
        ({"FEDOPS_REGISTRY_USERNAME": "alice"}, "FEDOPS_REGISTRY_PASSWORD: not set, but its twin is\n  hint: set both"),
        ({"FEDOPS_REGISTRY_PASSWORD": "s3cret-word"}, "FEDOPS_REGISTRY_USERNAME: not set, but its twin is"),
    ],
)
def test_a_setting_of_ones_own_that_is_wrong_ends_the_command_in_our_words(
    environ: dict[str, str], says: str, tmp_path: Path
) -> None:
    """DVC would say that files are missing, of which there is no telling as long as nobody can ask."""
    registries = Registries(environ, home="ocidir:store", clock=SystemClock())
    fs = StoreFileSystem(lambda url, _: registries.open(url), skip_instance_cache=True)
    path = object_url("oci://registry.example:5000/fed", SITE, MD5)
    for call in (fs.exists, fs.info, lambda path: fs.get_file(path, str(tmp_path / "got"))):
        with pytest.raises(DvcException) as caught:
            call(path)
        assert str(caught.value).startswith(says)
        assert "s3cret-word" not in str(caught.value)
    with pytest.raises(ConfigError) as plain:
        registries.open("oci://registry.example:5000/fed")
    assert f"{plain.value.message}\n  hint: {plain.value.hint}" == str(caught.value), "as `fedops pull` says it"


def test_an_error_on_the_way_is_in_the_stores_words(tmp_path: Path) -> None:
    store = FakeStore()
    put(store, tmp_path)
    for operation in ("resolve", "manifest", "get"):
        store.fail_next(operation, StoreError("503 of a proxy", cause="temporary"))
        with pytest.raises(DvcException, match="503 of a proxy"):
            opened(store).get_file(path_of(), str(tmp_path / "got"))
    store.fail_next("get", StoreError("gone meanwhile", slug="object_missing"))
    with pytest.raises(FileNotFoundError, match="gone meanwhile"):
        opened(store).get_file(path_of(), str(tmp_path / "got"))


def test_a_manifest_that_is_lost_is_an_absent_object(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = FakeStore()
    store.lose(SITE, put(store, tmp_path).manifest)
    assert not opened(store).exists(path_of())
    assert caplog.messages == []


def test_a_store_is_opened_once_in_each_thread() -> None:
    opens: list[str] = []
    store = FakeStore()

    def open_store(url: str, _: Progress) -> Store:
        opens.append(url)
        return store

    fs = StoreFileSystem(open_store, skip_instance_cache=True)
    assert not any(fs.exists(path_of()) for _ in range(3))
    assert opens == [URL]
    with ThreadPoolExecutor(1) as pool:
        assert not any(pool.map(fs.exists, [path_of(), path_of()]))
    assert opens == [URL, URL]


def test_a_store_that_tells_its_progress_is_shown_in_dvcs_own_bar(tmp_path: Path) -> None:
    store = FakeStore()
    put(store, tmp_path)

    class Telling:
        def __init__(self, progress: Progress) -> None:
            self.progress = progress

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def get(self, *args: Any, **kwargs: Any) -> None:
            task = self.progress.start("download", len(DATA), "bytes")
            for _ in range(4):
                self.progress.advance(task, len(DATA) // 4)
            self.progress.finish(task)
            store.get(*args, **kwargs)

    fs = StoreFileSystem(lambda _, progress: Telling(progress), skip_instance_cache=True)
    seen = Seen()
    fs.get_file(path_of(), str(tmp_path / "got"), callback=seen)
    assert [value for _, value in seen.told] == [0, 3000, 6000, 9000, 12000, 12000]
    assert {size for size, _ in seen.told} == {len(DATA)}


@pytest.mark.parametrize("call", [lambda fs, path: fs.find(path), lambda fs, path: fs.rm_file(path)])
def test_nothing_is_listed_for_removal_nor_removed(call: Callable[[StoreFileSystem, str], Any]) -> None:
    """`dvc gc --cloud` would take the manifests of versions along."""
    with pytest.raises(DvcException, match="retain_updates"):
        call(opened(FakeStore()), path_of())


def test_what_dvc_asks_without_need_is_not_implemented() -> None:
    fs = opened(FakeStore())
    with pytest.raises(NotImplementedError):
        fs.ls(remote_url(URL, SITE))
    with pytest.raises(NotImplementedError):
        fs.open(path_of(), "wb")
