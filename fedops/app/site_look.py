"""One look at main, at the forge and at the clone's own work: all that a site's loop decides on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedops.app.context import Context
from fedops.app.snapshot import Snapshot, main_snapshot
from fedops.app.status import own_line
from fedops.app.work import Work
from fedops.core.errors import GitError
from fedops.core.facts import Pull
from fedops.core.ids import SiteId, record_path
from fedops.core.parse_record import parse_record
from fedops.core.policy import NEVER
from fedops.core.site_loop import SiteView
from fedops.core.status import SiteLine


def look(ctx: Context, root: Path, site: SiteId) -> tuple[Snapshot, SiteView]:
    """Fetch main, and say where the site is; what the caller alone knows (`refused`, `again`, `left`) is left open.

    What counts is main, its policies and the clone's journal; no issue is read.

    Raises:
        GitError, ForgeError: origin or forge does not answer.
        ConfigError: main cannot be read.
    """
    pulls = ctx.forge.open_pulls()
    ctx.repository.fetch(pulls=())
    main = main_snapshot(ctx.repository)
    line = own_line(ctx.forge, main, pulls, site)
    work = Work(root, main.federation.extension)
    consumed = main.version.consumed.get(site, NEVER)
    view = SiteView(
        current=main.version.version,
        final=main.version.status == "final",
        line=line,
        consumed=consumed,
        staleness_max=main.aggregation.staleness.max,
        pulled=work.model(main.version.version).is_file(),
        pull_base=_pull_base(main, pulls, line, site),
        trained=_trained(ctx, work, site, after=consumed),
    )
    return main, view


def _trained(ctx: Context, work: Work, site: SiteId, *, after: int) -> Mapping[int, bool]:
    """Base versions above `after` with a finished training here -> True if that very training was handed in.

    A kill between a result and its line in the journal is made good here: without the line, an update that was trained
    anew would be taken for the one that was handed in before.
    """
    trained: dict[int, bool] = {}
    for number in (n for n in work.versions() if n > after):
        done = work.trained(number)
        if done is None or done.site != site:
            continue
        lines = work.noted_of(site, number)
        if not lines or (lines[0].get("step"), lines[0].get("sha256")) != ("trained", done.sha256):
            work.note("trained", ctx.clock.now(), done.facts)
            lines = ()
        trained[number] = any(line.get("step") == "submitted" for line in lines)
    return trained


def _pull_base(main: Snapshot, pulls: Sequence[Pull], line: SiteLine | None, site: SiteId) -> int | None:
    """Base version that the record of the site's open pull request says; None if there is none to be read."""
    if line is None or line.pull is None:
        return None
    number, path = line.pull.number, record_path(site)
    head = next(pull.head for pull in pulls if pull.number == number)
    limit = main.submission_policy.limits.record_bytes
    try:
        entry = next((e for e in main.repository.entries(head, path) if e.path == path), None)
        data = main.repository.read(entry.blob, max_bytes=limit) if entry is not None else b""
    except GitError as e:
        if e.cause != "permanent":
            raise
        return None
    record, _ = parse_record(data, path, max_bytes=limit)
    return record.base_version if record is not None else None
