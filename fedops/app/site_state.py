"""`.fedops/site.yaml` of a clone: which site works here and with which key; it is git-ignored and never leaves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from fedops.app.work import write_through
from fedops.core.documents import Document, load_document
from fedops.core.yaml_text import scalar

SITE_STATE = Path(".fedops", "site.yaml")


class _Stored(Document):
    schema_: Literal["fedops.site-state/v1"] = Field(alias="schema")
    site: str
    key: str | None = None


@dataclass(frozen=True)
class SiteState:
    """Attributes:
    site: the site's id.
    key: absolute path of the private key that signs here; None: nothing is signed.
    """

    site: str
    key: str | None


def read_site_state(root: Path) -> SiteState | None:
    """What `fedops join` noted in the clone at `root`; None if this is no site's clone.

    Raises:
        ConfigError: the file cannot be used.
    """
    path = root / SITE_STATE
    if not path.is_file():
        return None
    stored = load_document(path.read_bytes(), _Stored, SITE_STATE.as_posix())
    return SiteState(stored.site, str((root / stored.key).absolute()) if stored.key else None)


def write_site_state(root: Path, state: SiteState) -> bool:
    """Note the site and its key; True if the file changed. A key inside the clone is noted relative to it."""
    path = root / SITE_STATE
    data = _render(root.absolute(), state)
    if path.is_file() and path.read_bytes() == data:
        return False
    write_through(path, lambda part: part.write_bytes(data))
    return True


def _render(root: Path, state: SiteState) -> bytes:
    key = "null"
    if state.key:
        place = Path(state.key).absolute()
        key = json.dumps(place.relative_to(root).as_posix() if place.is_relative_to(root) else str(place))
    return (
        "# Written by `fedops join`; stays in this clone.\n"
        "schema: fedops.site-state/v1\n"
        f"site: {scalar(state.site)}\n"
        f"key: {key}\n"
    ).encode()
