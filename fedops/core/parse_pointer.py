"""A lone .dvc file read strictly, for `fedops check`; in a repository pointers are compared, never parsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fedops.core.brief import brief, brief_text
from fedops.core.catalogue import Slug
from fedops.core.errors import ConfigError
from fedops.core.facts import Json
from fedops.core.findings import Finding, finding
from fedops.core.ids import Digest, SiteId, is_digest, is_hex, remote_of, repository_of, site_id_fault, site_of_path
from fedops.core.records import Pointer
from fedops.core.validate_change import MAX_FINDINGS
from fedops.core.yaml_reader import parse_yaml

_OUT = ("md5", "size", "hash", "path")
_ENDING = ".dvc"
_ABSENT: Json = object()


def parse_pointer(data: bytes, where: str, placed_at: str) -> tuple[Pointer | None, tuple[Finding, ...]]:
    """Read a pointer that claims to belong at a path of a federation repository.

    Accepted are exactly the keys that `render_pointer` writes, in block or flow style, with LF or CRLF line ends.

    Args:
        data: the file's bytes.
        where: for the findings.
        placed_at: "sites/<id>/update.safetensors.dvc" or "global/model.safetensors.dvc".

    Returns:
        The pointer, None if there is an error; and all findings.
    """
    reader = _Reader(where)
    site, name = reader.place(placed_at)
    try:
        value, _ = parse_yaml(data, where)
    except ConfigError as e:
        reader.refuse("", e.message.removeprefix(f"{where}:").strip(), "the YAML that DVC writes")
        return None, tuple(reader.found)
    pointer = reader.pointer(value, site, name)
    return (None if reader.found else pointer), tuple(reader.found[:MAX_FINDINGS])


def leaves_folder(path: str) -> bool:
    """True for a path that is absolute, climbs, names a drive or an address, or uses backslashes."""
    return path.startswith(("/", "~")) or "\\" in path or ":" in path or ".." in path.split("/")


@dataclass
class _Reader:
    """Collects what is wrong with one pointer."""

    where: str
    found: list[Finding] = field(default_factory=list)

    def refuse(self, name: str, got: Json, expected: Json, slug: Slug = "dvc_schema") -> None:
        detail = {"field": name} if name else None
        self.found.append(finding(slug, self.where, got=brief(got), expected=expected, detail=detail))

    def place(self, placed_at: str) -> tuple[SiteId | None, str]:
        """Site (None: the global model) and output name that the pointer's own path implies."""
        folder, _, file = placed_at.rpartition("/")
        site = site_of_path(placed_at)
        fault = None if site is None else site_id_fault(site)
        if fault is not None:
            self.refuse(
                "placed_at", site, None, "site_id_reserved" if fault == "site_id_reserved" else "site_id_invalid"
            )
        elif folder not in ("global", f"sites/{site}") or not file.endswith(_ENDING):
            self.refuse("placed_at", placed_at, "sites/<id>/update.safetensors.dvc", "path_not_allowed")
        return (None if site is None else SiteId(site)), file.removesuffix(_ENDING)

    def pointer(self, value: Json, site: SiteId | None, name: str) -> Pointer | None:
        """The pointer's facts; None if a part that they need is wrong."""
        top = self.map("", value, ("outs", "meta"))
        self.stays("wdir", top.get("wdir"))
        out = self.only_out(top.get("outs", _ABSENT), _OUT if site is None else (*_OUT, "remote"))
        self.check(out, "outs.0", "md5", lambda v: is_hex(v, 32), "32 lower-case hex digits")
        # NOTE: type, not isinstance: true is an int for Python.
        self.check(out, "outs.0", "size", lambda v: type(v) is int and v > 0, "bytes, greater than 0")
        self.check(out, "outs.0", "hash", lambda v: v == "md5", "md5")
        self.check(out, "outs.0", "path", lambda v: v == name or (isinstance(v, str) and leaves_folder(v)), name)
        if site is not None:
            self.check(out, "outs.0", "remote", lambda v: v == remote_of(site), remote_of(site))
        meta = self.map("meta", top.get("meta", _ABSENT), ("fedops",))
        fedops = self.map("meta.fedops", meta.get("fedops", _ABSENT), ("repository", "manifest", "sha256"))
        repository = repository_of(site)
        self.check(fedops, "meta.fedops", "repository", lambda v: v == repository, repository)
        self.check(fedops, "meta.fedops", "manifest", is_digest, "sha256:<64 hex>")
        self.check(fedops, "meta.fedops", "sha256", lambda v: is_hex(v, 64), "64 lower-case hex digits")
        if self.found:
            return None
        return Pointer(name, out["md5"], out["size"], fedops["sha256"], Digest(fedops["manifest"]), site)

    def map(self, name: str, value: Json, keys: tuple[str, ...]) -> Mapping[str, Json]:
        """A map of exactly these keys; what is there of it, if it is not."""
        if value is _ABSENT:
            return {}
        if not isinstance(value, dict):
            self.refuse(name, value, "a map")
            return {}
        prefix = f"{name}." if name else ""
        for key in keys:
            if key not in value:
                self.refuse(prefix + key, "absent", "required")
        for key in sorted(value.keys() - set(keys)):
            self.refuse(prefix + brief_text(key), "unknown key", "absent")
        return value

    def only_out(self, outs: Json, keys: tuple[str, ...]) -> Mapping[str, Json]:
        """The single output; the paths of all others are looked at too."""
        if outs is _ABSENT:
            return {}
        if not isinstance(outs, list):
            self.refuse("outs", outs, "a list of one entry")
            return {}
        for i, entry in enumerate(outs):
            if isinstance(entry, dict):
                self.stays(f"outs.{i}.path", entry.get("path"))
        if len(outs) != 1:
            self.refuse("outs", len(outs), 1)
            return {}
        return self.map("outs.0", outs[0], keys)

    def stays(self, name: str, path: Json) -> None:
        """Refuse a path by which DVC would write outside the pointer's folder."""
        if isinstance(path, str) and leaves_folder(path):
            self.refuse(name, path, "a plain file name", "dvc_path_escape")

    def check(
        self, entry: Mapping[str, Json], prefix: str, key: str, is_good: Callable[[Json], bool], expected: Json
    ) -> None:
        """Refuse a value that is there and not good; an absent one was told by `map`."""
        if key in entry and not is_good(entry[key]):
            self.refuse(f"{prefix}.{key}", entry[key], expected)
