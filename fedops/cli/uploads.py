"""Which models a command really uploaded, for its result."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from fedops.app.context import Context
    from fedops.core.facts import Artifact
    from fedops.ports import Models, Store


class _NotingStore:
    """A store that notes, for each model put, whether it was not there yet as it is now."""

    def __init__(self, inner: Store, models: Models, uploads: list[bool]) -> None:
        self._inner, self._models, self._uploads = inner, models, uploads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put(self, repository: str, file: Path, annotations: Mapping[str, str], config: bytes = b"{}") -> Artifact:
        from fedops.core.artifacts import md5_tag

        before = self._inner.resolve(f"{repository}:{md5_tag(self._models.digests(file)[1])}")
        stored = self._inner.put(repository, file, annotations, config)
        self._uploads.append(before != stored.manifest)
        return stored


def noting_uploads(ctx: Context) -> tuple[Context, list[bool]]:
    """The context with stores that note each upload: True for one that the store did not have."""
    uploads: list[bool] = []
    stores = ctx.stores
    noting = lambda url: cast("Store", _NotingStore(stores(url), ctx.models, uploads))  # noqa: E731 one use
    return dataclasses.replace(ctx, stores=noting), uploads
