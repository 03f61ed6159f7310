"""Addresses of DVC remotes: the store's own URL with the repository behind it; written and read here alone."""

from __future__ import annotations

from fedops.core.artifacts import is_repository

_FOLDER, _FOLDER_REMOTE, _REGISTRY = "ocidir:", "ocidir://", "oci://"


def remote_url(store: str, repository: str) -> str:
    """The DVC remote URL of one repository of a store.

    `ocidir:.fedops/store` and "global" give `ocidir://.fedops/store/global`; a relative folder stays relative, and is
    resolved like the store's. `oci://host/ns` gives `oci://host/ns/global`.
    """
    if store.startswith(_FOLDER):
        return f"{_FOLDER_REMOTE}{store.removeprefix(_FOLDER).rstrip('/')}/{repository}"
    return f"{store.rstrip('/')}/{repository}"


def parse_remote_url(url: str) -> tuple[str, str] | None:
    """Read a remote URL into (store URL, repository); inverse of `remote_url`, None for anything else."""
    for remote, store in ((_FOLDER_REMOTE, _FOLDER), (_REGISTRY, _REGISTRY)):
        rest = url.removeprefix(remote)
        if rest == url:
            continue
        parts = rest.split("/")
        for size in (1, 2):  # "global", "archive"; "sites/<id>"
            repository = "/".join(parts[-size:])
            if len(parts) > size and "/".join(parts[:-size]) and is_repository(repository):
                return store + "/".join(parts[:-size]), repository
    return None
