"""Model artifacts as the store keeps them: names, tags and manifest bytes, written and read by pure functions.

The bytes of a manifest are a function of what it describes, so that anybody can recompute its digest from a record, and
so that a store can copy an artifact without being handed the bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fedops.core.catalogue import Slug
from fedops.core.documents import BadJson, parse_json
from fedops.core.facts import Json, Layer
from fedops.core.findings import Finding, finding
from fedops.core.ids import Digest, SiteId, digest_of_hex, hex_of_digest, is_digest, repository_of, site_id_fault

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
ARTIFACT_TYPE = "application/vnd.fedops.model.v1"
PROPOSAL_TYPE = "application/vnd.fedops.proposal.v1+json"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
TITLE_KEY = "org.opencontainers.image.title"
# Types of artifacts that were made before fedops; read by `fedops check` alone.
UPDATE_TYPE = "application/vnd.fedops.update.v1"

MAX_MANIFEST_BYTES = 1 << 20
MAX_SIZE = 2**63 - 1  # of a blob: what readers of other languages count in
MAX_CONFIG_BYTES = 16 << 20  # a proposal names every tensor

ARCHIVE = "archive"
EMPTY_CONFIG = b"{}"
FIRST_ANNOTATIONS = {"fl.version": "0"}  # of v0; no time in it: its digest is a function of the bytes
EXTENSIONS: Mapping[str, str] = {"safetensors": "safetensors", "opaque": "bin"}  # by the federation's model format
TITLES = frozenset(f"{name}.{extension}" for name in ("update", "model") for extension in EXTENSIONS.values())

_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z")
_CONTENT_TAG = re.compile(r"(md5-[0-9a-f]{32}|m-[0-9a-f]{64})\Z")


@dataclass(frozen=True)
class Blob:
    """What a manifest says of a blob: its bytes' digest and number."""

    sha256: str  # hex
    size: int


@dataclass(frozen=True)
class ParsedManifest:
    """A manifest that was read; `layer` and `config` are None as soon as there is one finding."""

    layer: Layer | None
    annotations: Mapping[str, str]
    config: Blob | None
    findings: tuple[Finding, ...]


def is_repository(name: str) -> bool:
    """True for the names a store has: `global`, `archive`, `sites/<id>`; no other may become a path or a URL."""
    site = SiteId(name.removeprefix("sites/"))
    return name in (repository_of(None), ARCHIVE) or (name == repository_of(site) and site_id_fault(site) is None)


def split_ref(ref: str) -> tuple[str, str] | None:
    """Read `<repository>:<tag>` into its two parts; None for anything else."""
    repository, _, tag = ref.partition(":")
    return (repository, tag) if is_repository(repository) and _TAG.match(tag) else None


def is_display_tag(tag: str) -> bool:
    """True for a tag such as `v9` that may be set and moved; those derived from content never are."""
    return _TAG.match(tag) is not None and _CONTENT_TAG.match(tag) is None


def md5_tag(md5: str) -> str:
    """The tag by which DVC finds the bytes."""
    return f"md5-{md5}"


def manifest_tag(digest: Digest) -> str:
    """The tag that keeps a registry from collecting a manifest which only git names."""
    return f"m-{hex_of_digest(digest)}"


def layer_title(repository: str, extension: str) -> str:
    """The file name under which a model of this extension is put into a repository."""
    return f"{'model' if repository == repository_of(None) else 'update'}.{extension}"


def titles_of(repository: str) -> frozenset[str]:
    """The names that a layer of this repository may carry; the archive holds copies of all."""
    if repository == ARCHIVE:
        return TITLES
    return frozenset(layer_title(repository, extension) for extension in EXTENSIONS.values())


def format_of_title(title: str) -> str:
    """The model format of a fixed title; inverse of EXTENSIONS."""
    return "opaque" if title.endswith(".bin") else "safetensors"


def update_annotations(*, site: SiteId, base_version: int, num_examples: int, created_at: str) -> dict[str, str]:
    """Annotations of a site's update; equal to its record, in which `created_at` is written as here."""
    return {
        "fl.client-id": site,
        "fl.base-version": str(base_version),
        "fl.num-examples": str(num_examples),
        "fl.timestamp": created_at,
    }


def manifest_digest(data: bytes) -> Digest:
    """The digest of manifest bytes, over the bytes as stored."""
    return digest_of_hex(hashlib.sha256(data).hexdigest())


def config_blob(config: bytes) -> Blob:
    """What a manifest says of its config bytes."""
    return Blob(hashlib.sha256(config).hexdigest(), len(config))


_EMPTY_BLOB = config_blob(EMPTY_CONFIG)


def build_manifest(
    layer: Layer,
    annotations: Mapping[str, str],
    config: bytes = EMPTY_CONFIG,
    *,
    format: str = "safetensors",  # noqa: A002 the word of federation.yaml
) -> bytes:
    """Write the canonical OCI image manifest of one model: compact ASCII JSON, fixed key order, annotations sorted.

    Args:
        layer: the model's bytes; its title must end with the extension of the format.
        annotations: of the manifest; left out when empty.
        config: `{}`, or the proposal that goes with an aggregated model.
        format: "safetensors" or "opaque".

    Raises:
        ValueError: unknown format, or a title of another one.
    """
    if not layer.title.endswith(f".{EXTENSIONS.get(format)}"):
        raise ValueError(f"title {layer.title!r} is not one of format {format!r}")
    return _render(layer, annotations, config_blob(config))


def _render(layer: Layer, annotations: Mapping[str, str], config: Blob) -> bytes:
    config_type = EMPTY_TYPE if config == _EMPTY_BLOB else PROPOSAL_TYPE
    layer_type = f"{ARTIFACT_TYPE}+{EXTENSIONS[format_of_title(layer.title)]}"
    layer_entry = _descriptor(layer_type, layer.sha256, layer.size) | {"annotations": {TITLE_KEY: layer.title}}
    document: dict[str, Json] = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": ARTIFACT_TYPE,
        "config": _descriptor(config_type, config.sha256, config.size),
        "layers": [layer_entry],
    }
    if annotations:
        document["annotations"] = {key: annotations[key] for key in sorted(annotations)}
    return json.dumps(document, separators=(",", ":")).encode("ascii")


def _descriptor(media_type: str, sha256: str, size: int) -> dict[str, Json]:
    return {"mediaType": media_type, "digest": digest_of_hex(sha256), "size": size}


def parse_manifest(
    data: bytes, *, where: str, allowed_titles: frozenset[str] = TITLES, lenient_types: bool = False
) -> ParsedManifest:
    """Read the manifest of one model; anything but one plain layer of a known type under a fixed title is a finding.

    Args:
        data: manifest bytes from anywhere.
        where: for the findings.
        allowed_titles: names that the layer may carry.
        lenient_types: also take types of artifacts made before fedops and bytes that are not the canonical ones.

    Returns:
        All findings, not the first; slugs foreign_layer_refused, layer_title_invalid, annotation_mismatch.
    """
    try:
        document = parse_json(data, max_bytes=MAX_MANIFEST_BYTES)
    except BadJson as e:
        found = finding("foreign_layer_refused", where, got=_brief(str(e)), expected="an OCI image manifest")
        return ParsedManifest(None, {}, None, (found,))
    reader = _Reader(where, lenient_types)
    layer, annotations, config = reader.manifest(document, allowed_titles)
    if reader.found or layer is None or config is None:
        return ParsedManifest(None, annotations, None, tuple(reader.found))
    canonical = _render(layer, annotations, config)
    # A manifest that is valid but written otherwise could be merged, and then not be recomputed for the archive copy.
    if not lenient_types and canonical != data:
        reader.refuse("manifest", manifest_digest(data), manifest_digest(canonical))
        return ParsedManifest(None, annotations, None, tuple(reader.found))
    return ParsedManifest(layer, annotations, config, ())


@dataclass
class _Reader:
    """Collects what is wrong with one manifest."""

    where: str
    lenient: bool
    found: list[Finding] = field(default_factory=list)

    def refuse(self, name: str, got: Json, expected: Json = None, slug: Slug = "foreign_layer_refused") -> None:
        self.found.append(finding(slug, self.where, got=_brief(got), expected=expected, detail={"field": name}))

    def manifest(self, document: Json, titles: frozenset[str]) -> tuple[Layer | None, Mapping[str, str], Blob | None]:
        if not isinstance(document, dict):
            self.refuse("manifest", document, "a JSON object")
            return None, {}, None
        version = document.get("schemaVersion")
        if type(version) is not int or version != 2:
            self.refuse("schemaVersion", version, 2)
        self.kind("mediaType", document.get("mediaType"), [MANIFEST_TYPE])
        self.kind("artifactType", document.get("artifactType"), self.artifact_types())
        # NOTE: with `manifests` beside its layers it would be an index to some readers: other bytes, the same digest.
        self.only("", document, "schemaVersion", "mediaType", "artifactType", "config", "layers", "annotations")
        config = self.config(document.get("config"))
        layers = document.get("layers")
        layer = None
        if isinstance(layers, list) and len(layers) == 1:
            layer = self.layer(layers[0], titles)
        else:
            self.refuse("layers", len(layers) if isinstance(layers, list) else layers, 1)
        return layer, self.annotations(document.get("annotations", {})), config

    def artifact_types(self) -> list[str]:
        return [ARTIFACT_TYPE, UPDATE_TYPE] if self.lenient else [ARTIFACT_TYPE]

    def kind(self, name: str, got: Json, known: list[str]) -> None:
        if got not in known:
            self.refuse(name, got, known if len(known) > 1 else known[0])

    def only(self, name: str, entry: Mapping[str, Json], *known: str) -> None:
        for key in sorted(entry.keys() - set(known)):
            self.refuse(f"{name}{_brief(key)}", "present", "absent")

    def blob(self, name: str, entry: Json, known: list[str]) -> Blob | None:
        """A descriptor whose bytes are in this repository; None if it is not one."""
        if not isinstance(entry, dict):
            self.refuse(name, entry, "a JSON object")
            return None
        self.kind(f"{name}.mediaType", entry.get("mediaType"), known)
        digest: Json = entry.get("digest")
        size: Json = entry.get("size")
        if not is_digest(digest):
            self.refuse(f"{name}.digest", digest, "sha256:<64 hex>")
            return None
        # NOTE: type, not isinstance: true is an int for Python, and 160.0 equals 160.
        if type(size) is not int or not 0 < size <= MAX_SIZE:
            self.refuse(f"{name}.size", size, "bytes, greater than 0")
            return None
        return Blob(hex_of_digest(Digest(digest)), size)

    def config(self, entry: Json) -> Blob | None:
        blob = self.blob("config", entry, [EMPTY_TYPE, PROPOSAL_TYPE])
        if blob is None:
            return None
        self.only("config.", entry, "mediaType", "digest", "size", "annotations", "data")
        if blob.size > MAX_CONFIG_BYTES:
            self.refuse("config.size", blob.size, MAX_CONFIG_BYTES)
        if (entry.get("mediaType") == EMPTY_TYPE) != (blob == _EMPTY_BLOB):
            self.refuse("config", blob.sha256, _EMPTY_BLOB.sha256)
        return blob

    def layer(self, entry: Json, titles: frozenset[str]) -> Layer | None:
        known = [f"{base}+{extension}" for base in self.artifact_types() for extension in EXTENSIONS.values()]
        blob = self.blob("layers[0]", entry, known)
        if blob is None:
            return None
        self.only("layers[0].", entry, "mediaType", "digest", "size", "annotations")
        annotations = entry.get("annotations")
        title = annotations.get(TITLE_KEY) if isinstance(annotations, dict) else None
        # The set holds the only good names: dots, slashes and control characters need no rules of their own.
        if not isinstance(title, str) or title not in titles:
            self.refuse("title", title, sorted(titles), "layer_title_invalid")
            return None
        kind = entry.get("mediaType")
        if kind in known and not kind.endswith(f"+{EXTENSIONS[format_of_title(title)]}"):
            self.refuse("title", title, f"the extension of {kind}", "layer_title_invalid")
        return Layer(blob.sha256, blob.size, title)

    def annotations(self, entry: Json) -> Mapping[str, str]:
        if isinstance(entry, dict) and all(isinstance(value, str) for value in entry.values()):
            return entry
        self.refuse("annotations", entry, "a map of strings", "annotation_mismatch")
        return {}


def _brief(value: Json) -> Json:
    """A value from outside, small enough for a report: long text cut, containers named only."""
    if isinstance(value, str):
        return value[:200].encode("utf-8", "backslashreplace").decode("utf-8")  # a lone surrogate cannot be printed
    return type(value).__name__ if isinstance(value, (dict, list)) else value
