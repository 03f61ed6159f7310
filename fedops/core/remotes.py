"""Addresses of DVC remotes: the store's own URL with the repository behind it; written and read here alone."""

from __future__ import annotations

import re

from fedops.core.artifacts import is_repository
from fedops.core.ids import FOLDER_SCHEME, REGISTRY_SCHEME

_FOLDER, _FOLDER_REMOTE, _REGISTRY = f"{FOLDER_SCHEME}:", f"{FOLDER_SCHEME}://", f"{REGISTRY_SCHEME}://"
_HERE = "localhost"  # the host of an absolute folder
_OBJECTS = "/files/md5"  # where DVC keeps its objects below a remote
_OBJECT = re.compile(rf"(.+?)(?:{_OBJECTS}(?:/([0-9a-f]{{2}})/([0-9a-f]{{30}}))?)?/?\Z")


def remote_url(store: str, repository: str) -> str:
    """The DVC remote URL of one repository of a store.

    `ocidir:.fedops/store` and "global" give `ocidir://.fedops/store/global`; a relative folder stays relative, and is
    resolved like the store's. `ocidir:/srv/store` gives `ocidir://localhost/srv/store/global`, and `oci://host/ns` gives
    `oci://host/ns/global`.
    """
    if store.startswith(_FOLDER):
        folder = store.removeprefix(_FOLDER).rstrip("/")
        # NOTE: never an empty host: a DVC without fedops would take the address for the name of a folder of its own,
        # and push into it without complaint.
        if folder.startswith("/"):
            folder = _HERE + folder
        elif folder.split("/")[0] == _HERE:
            folder = f"./{folder}"
        return f"{_FOLDER_REMOTE}{folder}/{repository}"
    return f"{store.rstrip('/')}/{repository}"


def parse_remote_url(url: str) -> tuple[str, str] | None:
    """Read a remote URL into (store URL, repository); inverse of `remote_url`, None for anything else."""
    for remote, store in ((_FOLDER_REMOTE, _FOLDER), (_REGISTRY, _REGISTRY)):
        rest = url.removeprefix(remote)
        if rest == url:
            continue
        if remote == _FOLDER_REMOTE and rest.startswith((f"{_HERE}/", f"./{_HERE}/")):
            rest = rest.removeprefix(_HERE).removeprefix("./")
        parts = rest.split("/")
        for size in (1, 2):  # "global", "archive"; "sites/<id>"
            repository = "/".join(parts[-size:])
            if len(parts) > size and "/".join(parts[:-size]) and is_repository(repository):
                return store + "/".join(parts[:-size]), repository
    return None


def object_url(store: str, repository: str, md5: str) -> str:
    """The address at which DVC looks for the bytes of an md5: two digits of it are a folder."""
    return f"{remote_url(store, repository)}{_OBJECTS}/{md5[:2]}/{md5[2:]}"


def parse_object_url(url: str) -> tuple[str, str, str | None] | None:
    """Read an address that DVC makes below a remote; inverse of `object_url`.

    Returns:
        (store URL, repository, md5); md5 is None for the remote itself and for the folder of its objects; None for
        anything else, which is nothing that a store can have: DVC's folder listings (`….dir`) among it.
    """
    match = _OBJECT.match(url)
    place = parse_remote_url(match[1]) if match else None
    return (*place, match[2] + match[3] if match[2] else None) if match and place else None
