"""Whether another clone of the site handed in too, and its update took the place of this clone's."""

from __future__ import annotations

from pathlib import Path

from fedops.app.snapshot import Snapshot, site_record
from fedops.app.work import Work
from fedops.core.ids import SiteId, record_path
from fedops.core.site_loop import Replaced


def replaced(main: Snapshot, root: Path, site: SiteId) -> Replaced | None:
    """Compare the site's record on main, used or not, with what this clone's journal says it handed in on that version.

    None if this clone handed in nothing on it, or if there is no record to be read.

    Args:
        root: of the clone.
    """
    limit = main.submission_policy.limits.record_bytes
    entry = main.files.get(record_path(site))
    if entry is None or entry.size > limit:
        return None
    record, _ = site_record(main, site, max_bytes=limit)
    if record is None:
        return None
    number = record.base_version
    own = {
        line.get("sha256")
        for line in Work(root, main.federation.extension).noted()
        if (line.get("step"), line.get("site"), line.get("version")) == ("submitted", site, number)
    }
    return Replaced(number) if own and record.sha256 not in own else None
