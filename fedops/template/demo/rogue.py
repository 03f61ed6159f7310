"""What somebody with a site's key and a patched client could try: hand in without any of fedops' own checks.

    python rogue.py nan SITE         an update with NaN in it
    python rogue.py intruder SITE VICTIM   a change of another site's folder

CI must refuse both.
"""

import datetime as dt
import hashlib
import sys
from pathlib import Path

import numpy as np

from fedops.app.snapshot import main_snapshot, time_text
from fedops.cli.wire import open_context, signing_key
from fedops.core.artifacts import update_annotations
from fedops.core.documents import dump_json
from fedops.core.ids import Digest, SiteId, record_path, repository_of, update_path
from fedops.core.records import Record, render_pointer, update_pointer


def hand_in(site: SiteId, folder: SiteId, value: float) -> None:
    """Upload a model full of `value` as `site`, and open a pull request that changes the folder of `folder`."""
    from fedops.adapters.model_writer import save_arrays

    at = dt.datetime.now(dt.UTC).replace(microsecond=0)
    with open_context() as (root, ctx):
        ctx.repository.fetch()
        main = main_snapshot(ctx.repository)
        key = signing_key(root)
        path = Path(ctx.scratch) / "update.safetensors"
        save_arrays(path, {"coef": np.full((1, 30), value, "f4"), "intercept": np.zeros(1, "f4")})
        data = path.read_bytes()
        annotations = update_annotations(
            site=site, base_version=main.version.version, num_examples=100, created_at=time_text(at)
        )
        store = ctx.site_store(main.federation, main.sites, site)
        stored = store.put(repository_of(site), path, annotations)
        record = Record(
            site=folder,
            base_version=main.version.version,
            num_examples=100,
            format="safetensors",
            payload="full",
            sha256=hashlib.sha256(data).hexdigest(),
            md5=hashlib.md5(data, usedforsecurity=False).hexdigest(),
            size=len(data),
            manifest=Digest(stored.manifest),
            metrics={"loss": 0.01},
            created_at=time_text(at),
        )
        files = {
            record_path(folder): dump_json(record),
            update_path(folder, "safetensors"): render_pointer(update_pointer(record, "safetensors")),
        }
        head = ctx.repository.write_commit([main.commit], files, f"submit({folder}): update", at=at, key=key)
        pull = ctx.forge.submit_pull(head, f"submit/{site}", f"Update of {folder}", "Trust me.")
        sys.stdout.write(f"{pull.number}\n")


if __name__ == "__main__":
    kind, me = sys.argv[1], SiteId(sys.argv[2])
    if kind == "nan":
        hand_in(me, me, float("nan"))
    else:
        hand_in(me, SiteId(sys.argv[3]), 1.0)
