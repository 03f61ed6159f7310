"""Teaches DVC the stores' addresses, in this process: it has no plug-ins for remotes, so three of its parts are extended.

These are the table of filesystems; the schema of remotes, wrapped rather than edited, since DVC copies it when it is
imported; `DataCloud.get_remote`, since only there is known which clone a relative folder starts from; and `Repo.find_root`.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedops.adapters.dvc_plots import extend_plots
from fedops.core.errors import ConfigError
from fedops.core.ids import FOLDER_SCHEME, REGISTRY_SCHEME

# NOTE: the plain `dvc` command imports this too, in projects that have nothing to do with fedops: pydantic must wait.
if TYPE_CHECKING:
    from fedops.ports import Progress, Store

TESTED = ">=3.66,<3.68"  # the pin of pyproject.toml
SCHEMES: Mapping[str, str] = {
    REGISTRY_SCHEME: "fedops.adapters.dvc_filesystem.RegistryRemote",
    FOLDER_SCHEME: "fedops.adapters.dvc_filesystem.FolderRemote",
}
_MD5 = "0123456789abcdef0123456789abcdef"


@dataclass(frozen=True)
class Stores:
    """How stores are opened; handed in, since only the command line builds adapters.

    Args:
        open: the store of a URL, whose folder is absolute; reports the bytes that it moves.
        base: the folder from which relative folders of stores start, for a clone or a bare repository.
    """

    open: Callable[[str, Progress], Store]
    base: Callable[[Path], Path]


_known: list[Stores] = []  # DVC makes filesystems by a class's name, so what they need must be found here


def known_stores() -> Stores:
    """What was registered."""
    return _known[0]


def register(stores: Stores) -> None:
    """Let DVC take `oci://` and `ocidir://` remotes in this process, and try whether it does; harmless when repeated.

    Raises:
        ConfigError: this DVC does not fit.
    """
    try:
        extend_schema(importlib.import_module("dvc.config_schema"), stores)
        extend_cloud(importlib.import_module("dvc.data_cloud"))
        extend_repository(importlib.import_module("dvc.repo"))
        extend_plots(importlib.import_module("dvc.render.converter.vega"))
        if (config := sys.modules.get("dvc.config")) is not None:
            config.get_compiled_schema.memory.clear()  # compiled before it was extended
        _try_out()
    except Exception as e:
        raise misfit(e) from e


def misfit(error: Exception) -> ConfigError:
    """What to do about a DVC that cannot be extended like this."""
    return ConfigError(
        f"DVC {version('dvc')}: its remotes are made otherwise than in the releases {TESTED} that fedops was tested "
        f"with, got {type(error).__name__}: {error}",
        hint=f"pip install 'dvc{TESTED}', or a newer fedops; `fedops pull` fetches models without DVC",
        slug="dvc_misfit",
    )


def extend_schema(schema: Any, stores: Stores) -> None:
    """Extend the table of filesystems and `dvc.config_schema`, which is `schema`."""
    from dvc_objects.fs import known_implementations
    from voluptuous import Optional, Schema

    _known[:] = [stores]
    for scheme, name in SCHEMES.items():
        known_implementations[scheme] = {"class": name, "err": f"{scheme} needs fedops"}
    remotes = schema.SCHEMA["remote"]
    others = remotes[str]
    if getattr(others, "fedops", False):
        return
    # NOTE: DVC's own default for `verify` is to check out whatever bytes a remote has.
    ours = Schema(
        {"url": str, Optional("verify", default=True): schema.Bool}
        | {key: schema.REMOTE_COMMON[key] for key in ("jobs", "checksum_jobs")}
    )

    def validate(data: Mapping[str, Any]) -> Any:
        return (ours if str(data.get("url", "")).startswith(_PREFIXES) else others)(data)

    validate.fedops = True  # type: ignore[attr-defined]  # marks that it is done
    remotes[str] = validate


_PREFIXES = tuple(f"{scheme}://" for scheme in SCHEMES)


def extend_cloud(cloud: Any) -> None:
    """Extend `dvc.data_cloud`, which is `cloud`: remotes of ours start from the clone's origin, and know the clone."""
    plain = cloud.DataCloud.get_remote
    if getattr(plain, "fedops", False):
        return

    @functools.wraps(plain)
    def get_remote(self: Any, *args: Any, **options: Any) -> Any:
        remote = plain(self, *args, **options)
        if remote.fs.protocol in SCHEMES:
            _settle(remote, self.repo)
        return remote

    get_remote.fedops = True  # type: ignore[attr-defined]  # marks that it is done
    cloud.DataCloud.get_remote = get_remote


def extend_repository(repository: Any) -> None:
    """Extend `dvc.repo`, which is `repository`: a bare git repository belongs to no project in a folder above it.

    DVC would take that project for the one whose URL it was given.
    """
    plain = repository.Repo.find_root.__func__
    if getattr(plain, "fedops", False):
        return

    @functools.wraps(plain)
    def find_root(cls: Any, root: Any = None, fs: Any = None) -> Any:
        from dvc.exceptions import NotDvcRepoError
        from dvc.fs import LocalFileSystem

        from fedops.adapters.git_setup import is_bare

        here = fs is None or isinstance(fs, LocalFileSystem)  # else it is a commit's tree
        if root is not None and here and is_bare(Path(root)):
            raise NotDvcRepoError(f"{root}: a bare git repository")
        return plain(cls, root, fs)

    find_root.fedops = True  # type: ignore[attr-defined]  # marks that it is done
    repository.Repo.find_root = classmethod(find_root)


def _settle(remote: Any, repo: Any) -> None:
    """Make a remote's path absolute, so that remotes of two repositories never compare equal; tell it of the clone."""
    from dvc.fs import LocalFileSystem

    from fedops.core.remotes import parse_remote_url, remote_url

    in_work_tree = isinstance(repo.fs, LocalFileSystem)
    if in_work_tree:
        remote.fs.fs.root = Path(repo.root_dir)
    place = parse_remote_url(remote.path)
    if place is None or not place[0].startswith(f"{FOLDER_SCHEME}:"):
        return
    folder = Path(place[0].removeprefix(f"{FOLDER_SCHEME}:"))
    if not folder.is_absolute():
        # Of `dvc get URL` the clone is a temporary one; a folder that it was made from may itself be a clone.
        source = Path(repo.url) if repo.url and Path(repo.url).is_dir() else None
        base = known_stores().base(source or Path(repo.root_dir if in_work_tree else repo.scm.root_dir))
        remote.path = remote_url(f"{FOLDER_SCHEME}:{(base / folder).resolve().as_posix()}", place[1])


def _try_out() -> None:
    """See whether DVC now makes a remote of ours from an address, checks its bytes, and looks for them where we think."""
    from dvc.data_cloud import Remote
    from dvc.fs import get_cloud_fs

    from fedops.core.remotes import object_url

    for scheme in SCHEMES:
        url = f"{scheme}://self.test/global"
        kind, options, path = get_cloud_fs({}, url=url)
        remote = Remote("self-test", path, kind(**options), **options)
        made = (f"{kind.__module__}.{kind.__qualname__}", remote.odb.verify, remote.odb.oid_to_path(_MD5))
        store = url.removesuffix("/global") if scheme == REGISTRY_SCHEME else f"{FOLDER_SCHEME}:self.test"
        wanted = (SCHEMES[scheme], True, object_url(store, "global", _MD5))
        if made != wanted:
            raise TypeError(f"{url}: {made} -> {wanted}")
