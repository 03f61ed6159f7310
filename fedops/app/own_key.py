"""The key that a site signs with: whether one is needed, and what is told of one that does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedops.app.snapshot import Snapshot
from fedops.core.findings import Finding, finding
from fedops.core.ids import SITES_PATH, SiteId, site_folder
from fedops.core.ssh_keys import fingerprint


def asks_signature(main: Snapshot) -> bool:
    """True if nothing is taken that no key of the roster signed."""
    return main.federation.forge.kind == "git" or main.submission_policy.require_signed


def no_key(main: Snapshot, site: SiteId, key: Path | None) -> tuple[Finding, ...]:
    """Why nothing can be handed in without a key, where a signature is asked for; empty if there is no such reason."""
    if key is not None or not asks_signature(main):
        return ()
    expected = f"a key of {site} in {SITES_PATH}"
    return (finding("signature_invalid", site_folder(site), got="no key", expected=expected, detail={"site": site}),)


def with_key(findings: Sequence[Finding], key: Path | None) -> tuple[Finding, ...]:
    """The findings; those of a key that is not the site's name the key, as the lead sees it on the roster."""
    if key is None or all(f.slug != "site_mismatch" for f in findings):
        return tuple(findings)
    named = {"key": _shown(key)}
    return tuple(replace(f, detail={**(f.detail or {}), **named}) if f.slug == "site_mismatch" else f for f in findings)


def _shown(key: Path) -> str:
    """The fingerprint and comment of a private key's public half, or the file's name if that does not lie beside it."""
    beside = key.with_name(f"{key.name}.pub")
    try:
        return fingerprint(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return str(key)
