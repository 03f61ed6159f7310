"""Teaching DVC the stores' addresses, in this process, with the real DVC; and what is said of one that does not fit."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dvc.cachemgr
import dvc.config_schema
import dvc.data_cloud
import pytest
from dvc.config import Config
from dvc.config import ConfigError as DvcConfigError
from dvc.fs import LocalFileSystem, get_cloud_fs

from fedops.adapters.dvc_command import run_dvc
from fedops.adapters.dvc_filesystem import FolderRemote, RegistryRemote
from fedops.adapters.dvc_remote import TESTED, Stores, known_stores, register
from fedops.core.errors import ConfigError
from tests.fakes_store import FakeStore

ROOT = Path(__file__).resolve().parents[2]


def stores(base: Path = Path("/base")) -> Stores:
    return Stores(open=lambda url, _: FakeStore(), base=lambda folder: base / folder.name)


@pytest.fixture(autouse=True)
def registered() -> None:
    register(stores())


def test_the_releases_that_were_tested_are_those_that_may_be_installed() -> None:
    pins = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"dvc{TESTED}" in pins


@pytest.mark.parametrize(
    ("url", "kind"), [("oci://host:5000/fed/global", RegistryRemote), ("ocidir://../store/global", FolderRemote)]
)
def test_an_address_of_a_store_makes_a_remote_that_checks_its_bytes(url: str, kind: type[Any]) -> None:
    made, options, path = get_cloud_fs({}, url=url)
    assert (made, path) == (kind, url)
    assert options == {"verify": True}
    remote = made(**options)
    assert remote.fs.root is None
    assert not remote.exists(f"{url}/files/md5/01/{30 * '0'}")


def test_registering_again_changes_nothing_but_the_stores() -> None:
    validator = dvc.config_schema.SCHEMA["remote"][str]
    get_remote = dvc.data_cloud.DataCloud.get_remote
    other = stores()
    register(other)
    assert dvc.config_schema.SCHEMA["remote"][str] is validator
    assert dvc.data_cloud.DataCloud.get_remote is get_remote
    assert known_stores() is other


def test_other_remotes_are_made_as_before(tmp_path: Path) -> None:
    made, options, path = get_cloud_fs({}, url=str(tmp_path))
    assert (made, path, options["verify"]) == (LocalFileSystem, str(tmp_path), False)
    with pytest.raises(Exception, match="Unsupported URL type nothing"):
        get_cloud_fs({}, url="nothing://x/y")


@pytest.mark.parametrize("option", ["version_aware = true", "worktree = true", "no_such = 1"])
def test_what_a_store_cannot_do_is_refused_as_configuration(option: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(f"['remote \"global\"']\n    url = oci://host/fed/global\n    {option}\n")
    with pytest.raises(DvcConfigError, match=option.split(maxsplit=1)[0]):
        Config(str(tmp_path))


def test_the_configuration_that_fedops_writes_is_good(tmp_path: Path) -> None:
    from fedops.app.dvc_config import render_dvc_config

    (tmp_path / "config").write_bytes(render_dvc_config("ocidir:/srv/store", {}))
    config = Config(str(tmp_path))
    assert config["remote"]["global"] == {"url": "ocidir://localhost/srv/store/global", "verify": True}
    assert (config["core"]["analytics"], config["core"]["check_update"]) == (False, False)


# ---------------------------------------------------------------- where relative folders start


def remote_of(address: str, /, **repo: Any) -> Any:
    """The remote that DVC makes in a repository, of which these facts are known."""
    config = {"core": {"remote": "global"}, "remote": {"global": {"url": address}}}
    facts = {"config": config, "fs": LocalFileSystem(), "url": None, "site_cache_dir": "x", "data_index": None, **repo}
    return dvc.data_cloud.DataCloud(SimpleNamespace(**facts)).get_remote()


def test_in_a_clone_a_relative_folder_starts_from_its_origin(tmp_path: Path) -> None:
    remote = remote_of("ocidir://../store/global", root_dir="/clones/mine")
    assert remote.path == "ocidir://localhost/base/store/global"
    assert remote.fs.fs.root == Path("/clones/mine")


def test_an_absolute_folder_and_a_registry_start_from_nowhere(tmp_path: Path) -> None:
    for url in ("ocidir://localhost/srv/store/sites/a", "oci://host/fed/sites/a"):
        remote = remote_of(url, root_dir="/clones/mine")
        assert (remote.path, remote.fs.fs.root) == (url, Path("/clones/mine"))


def test_for_an_address_of_a_repository_that_is_a_folder_it_is_that_folder_that_counts(tmp_path: Path) -> None:
    """`dvc get FOLDER` reads a temporary clone of it, at a revision."""
    at_revision = SimpleNamespace(protocol="git")
    remote = remote_of(
        "ocidir://store/global", fs=at_revision, url=str(tmp_path), scm=SimpleNamespace(root_dir="/tmp/x")
    )
    assert remote.path == f"ocidir://localhost/base/{tmp_path.name}/store/global"
    assert remote.fs.fs.root is None
    remote = remote_of(
        "ocidir://store/global", fs=at_revision, url="https://host/x", scm=SimpleNamespace(root_dir="/tmp/x")
    )
    assert remote.path == "ocidir://localhost/base/x/store/global"


def test_what_is_no_repository_of_a_store_stays_as_it_is() -> None:
    remote = remote_of("ocidir://elsewhere", root_dir="/clones/mine")
    assert remote.path == "ocidir://elsewhere"
    assert not remote.fs.exists(f"{remote.path}/files/md5/01/{30 * '0'}")


def test_remotes_of_others_are_left_alone(tmp_path: Path) -> None:
    assert remote_of(str(tmp_path), root_dir="/clones/mine").path == str(tmp_path)


# ---------------------------------------------------------------- a DVC that does not fit


def assert_misfit(said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        register(stores())
    assert (caught.value.slug, caught.value.cause) == ("dvc_misfit", "permanent")
    assert caught.value.message.startswith("DVC 3.")
    assert TESTED in caught.value.message
    assert f"pip install 'dvc{TESTED}'" in caught.value.hint
    assert "fedops pull" in caught.value.hint


def test_a_dvc_with_another_schema_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dvc.config_schema, "SCHEMA", {"core": {}})
    assert_misfit("KeyError: 'remote'")


def test_a_dvc_that_asks_elsewhere_for_remotes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dvc.data_cloud, "DataCloud", SimpleNamespace())
    assert_misfit("get_remote")


def test_a_dvc_that_keeps_objects_elsewhere_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dvc.cachemgr.CacheManager, "FILES_DIR", "objects")
    assert_misfit("objects/md5/01/")


def test_a_dvc_that_does_not_check_bytes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dvc_data.hashfile.db.HashFileDB.__init__", _without_verify)
    assert_misfit("False")


def _without_verify(self: Any, fs: Any, path: str, **_: Any) -> None:
    self.fs, self.path, self.verify = fs, path, False


# ---------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    ("ended", "code"), [(0, 0), (1, 1), (255, 255), (None, 0), (SystemExit(2), 2), (SystemExit(), 0)]
)
def test_the_exit_code_is_dvcs_own(ended: object, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def main(arguments: list[str]) -> object:
        assert arguments == ["plots", "diff", "--", "x"]
        if isinstance(ended, BaseException):
            raise ended
        return ended

    monkeypatch.setattr("dvc.cli.main", main)
    assert run_dvc(("plots", "diff", "--", "x"), stores()) == code


def test_no_server_is_asked_for_a_newer_dvc(monkeypatch: pytest.MonkeyPatch) -> None:
    import dvc.updater

    monkeypatch.setattr(dvc.updater, "notify_updates", lambda: pytest.fail("asked"))
    monkeypatch.setattr("dvc.cli.main", lambda _: dvc.updater.notify_updates())
    assert run_dvc(("version",), stores()) == 0
