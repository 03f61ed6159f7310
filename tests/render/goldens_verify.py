"""Goldens of what an auditor sees: file name -> how it is made; `python -m tests.render.goldens_verify` writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from fedops.app.verify import Checked
from fedops.cli.console import document
from fedops.cli.verify import parts
from fedops.core.findings import finding
from fedops.core.ids import CommitId
from fedops.render.verify import audit_text, verify_text
from tests.core.samples import blob


def commit(name: str) -> CommitId:
    return CommitId(blob(name))


UNCHECKED = finding("exclusion_unchecked", "v1", got="norm_exceeded", detail={"site": "clinic-c"})
DENOMINATOR = finding("record_mismatch", "v2", got=171.0, expected=170.0, detail={"field": "denominator"})
ARCHIVE = finding("hash_mismatch", "v2: archive", got="archive@sha256:…: other bytes", detail={"site": "hospital-a"})
FORGE = finding("object_corrupt", "git", got=blob("a note of the forge"))
CHECKED = (
    Checked(0, commit("v0"), "lineage", ()),
    Checked(1, commit("v1"), "inputs", (UNCHECKED,)),
    Checked(2, commit("v2"), "none", (DENOMINATOR, ARCHIVE)),
    Checked(None, commit("main"), "none", (FORGE,)),
)


def verified() -> str:
    _, rows, whole = parts(CHECKED)
    return verify_text(rows, whole=whole) + "\n"


def one() -> str:
    _, rows, whole = parts(CHECKED[1:2])
    return verify_text(rows, whole=whole) + "\n"


def remembered() -> str:
    short = finding("level_not_reached", "v0", got="lineage", expected="inputs")
    _, rows, whole = parts((replace(CHECKED[0], findings=(short,)), CHECKED[1]))
    return verify_text(rows, whole=whole, remembered={"files": 44, "bytes": 880_400_000}) + "\n"


def audited() -> str:
    _, rows, whole = parts(CHECKED[:2])
    return audit_text(rows, {"open_pulls": 1, "open_signals": 3}, whole=whole) + "\n"


def as_document() -> str:
    findings, rows, _ = parts(CHECKED)
    whole = document("verify", ok=False, changed=False, findings=findings, versions=rows)
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


VERIFY_GOLDENS: Mapping[str, Callable[[], str]] = {
    "audit.txt": audited,
    "verify.json": as_document,
    "verify.txt": verified,
    "verify_one.txt": one,
    "verify_remembered.txt": remembered,
}
