"""`fedops ci retain` on real git and a real store: shown, deleted, and what an auditor sees before and after."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.scenario.auditing import Auditor
from tests.scenario.test_verify_damage import retain
from tests.scenario.test_verify_forged import record
from tests.verify_world import NEWEST


def layers(auditor: Auditor, number: int) -> list[Path]:
    """Both copies of each input of a version."""
    return [
        auditor.store / repository / "blobs" / "sha256" / c["sha256"]
        for c in record(number, auditor.forger())["contributions"]
        for repository in ("archive", f"sites/{c['site']}")
    ]


def test_a_dry_run_shows_what_a_run_deletes_and_verify_says_what_it_means(auditor: Auditor) -> None:
    retain(auditor, 3)
    clone = auditor.clone()
    sites = sorted(c["site"] for c in record(1, auditor.forger())["contributions"])
    code, out, _ = auditor.call(clone, "ci", "retain", "--dry-run")
    assert (code, out.splitlines()) == (0, [f"would delete: v1 {site}" for site in sites])
    assert all(p.exists() for p in layers(auditor, 1))
    code, out, _ = auditor.call(clone, "ci", "retain", "--format", "json")
    told = json.loads(out)
    assert (code, told["ok"], told["changed"], told["left"]) == (0, True, True, False)
    assert [(d["version"], d["site"], d["own"]) for d in told["dropped"]] == [(1, site, True) for site in sites]
    assert not any(p.exists() for p in layers(auditor, 1))
    assert all(p.exists() for number in range(2, NEWEST + 1) for p in layers(auditor, number))
    report = auditor.verify()
    assert (report.code, report.findings) == (0, [])
    assert report.levels == ["inputs", "lineage", "inputs", "inputs", "inputs"]
    assert auditor.call(clone, "ci", "retain")[:2] == (0, "nothing to delete\n")


def test_what_is_left_is_a_layout_that_other_tools_read(auditor: Auditor) -> None:
    """The index names no manifest that is gone, and no blob is left that nothing names."""
    retain(auditor, 1)
    auditor.call(auditor.clone(), "ci", "retain")
    for folder in (auditor.store / "archive", *(auditor.store / "sites").iterdir()):
        index = json.loads((folder / "index.json").read_bytes())
        there = {p.name for p in (folder / "blobs" / "sha256").iterdir()}
        manifests = {m["digest"].removeprefix("sha256:") for m in index["manifests"]}
        assert manifests <= there
        needed = set(manifests)
        for name in manifests:
            manifest = json.loads((folder / "blobs" / "sha256" / name).read_bytes())
            needed |= {d["digest"].removeprefix("sha256:") for d in (manifest["config"], *manifest["layers"])}
        assert there == needed


def test_a_signal_job_deletes_too(auditor: Auditor) -> None:
    retain(auditor, 3)
    clone = auditor.clone()
    for key, value in (("user.name", "ci"), ("user.email", "ci@example.invalid")):
        subprocess.run(["git", "-C", str(clone), "config", key, value], check=True)
    code, out, err = auditor.call(clone, "ci", "signal", "--format", "json")
    assert code == 0, err
    assert json.loads(out)["mended"] == [
        f"v1 {c['site']}: deleted, no longer kept" for c in record(1, auditor.forger())["contributions"]
    ]
