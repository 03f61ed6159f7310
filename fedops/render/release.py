"""The page of a published version: what it is made of, and how to get it."""

from __future__ import annotations

from fedops.core.github_hosts import host_of
from fedops.core.ids import GlobalVersion, digest_of_hex, repository_of
from fedops.core.plan import version_title
from fedops.core.records import VersionRecord
from fedops.core.settings import Federation
from fedops.render.markdown import code, version_summary


def release_page(record: VersionRecord, federation: Federation) -> tuple[str, str]:
    """Title and Markdown text of a version's release: digest, contributions, metrics, and the commands that fetch it."""
    version = GlobalVersion(record.version)
    model = record.model
    lines = [f"fedops pull {version.short}  # in a clone of this repository"]
    if federation.forge.repository is not None:
        address = f"{host_of(federation.forge.api_url).web}/{federation.forge.repository}"
        file = f"global/model.{federation.extension}"
        lines.append(f"fedops dvc get {address} {file} --rev {version.tag}")
    if federation.store.url.startswith("oci://"):
        place = federation.store.url.removeprefix("oci://").rstrip("/")
        lines.append(f"oras pull {place}/{repository_of(None)}@{model.manifest}")
    parts = [
        version_summary(record),
        "\nTo get the model:\n\n```console\n",
        *(f"$ {line}\n" for line in lines),
        f"```\n\nIts bytes have the digest {code(digest_of_hex(model.sha256))}; ",
        f"what counts is `global/version.json` at the tag {code(version.tag)}.\n",
    ]
    return version_title(record), "".join(parts)
