"""Tell people of a published version, on a forge that has pages for that. What counts is the tag."""

from __future__ import annotations

import logging

from fedops.app.context import Context
from fedops.core.errors import ForgeError
from fedops.core.ids import GlobalVersion
from fedops.core.records import VersionRecord
from fedops.core.settings import Federation
from fedops.ports import Releases
from fedops.render.release import release_page

_log = logging.getLogger(__name__)


def announce(ctx: Context, federation: Federation, record: VersionRecord) -> bool:
    """Have the page of a version whose tag is pushed; True if something changed.

    A forge that refuses stops nothing: the version is out. The next run tries again.
    """
    if not isinstance(ctx.forge, Releases):
        return False
    tag = GlobalVersion(record.version).tag
    title, body = release_page(record, federation)
    try:
        return ctx.forge.ensure_release(tag, title, body)
    except ForgeError as e:
        _log.warning("no release of %s: %s", tag, e.message)
        return False
