"""The readers of what strangers send, each against the reference reader of its format.

Each check gives True for bytes that fedops takes, False for those that it refuses, and fails if fedops crashes, takes
what the reference does not, or reads something else than it.
"""

from __future__ import annotations

import atexit
import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from fedops.adapters.forge_git_documents import CommentFile, IssueFile, PullFile, ReviewFile, StatusFile
from fedops.adapters.git_objects import RawObject, parse_commit
from fedops.adapters.git_signing import signature_of
from fedops.adapters.model_files import ModelFiles
from fedops.core.artifacts import build_manifest, parse_manifest
from fedops.core.documents import BadJson, Document, dump_json, load_json_document, parse_json
from fedops.core.errors import ConfigError, GitError
from fedops.core.facts import Layer
from fedops.core.ids import CommitId, GlobalVersion, StoreRef, site_id_fault
from fedops.core.parse_pointer import parse_pointer
from fedops.core.parse_record import parse_record
from fedops.core.records import VersionRecord, render_pointer, update_pointer
from fedops.core.settings import Limits
from fedops.core.tensors import canonical_layout, data_bytes
from fedops.core.yaml_reader import parse_yaml
from tests.core.samples import contribution, hex64, record, submission, version
from tests.core.test_zip_directory import as_zip64

LIMITS = Limits(update_bytes=1 << 20, expanded_bytes=1 << 20, header_bytes=1 << 16, tensors=100)
_FOLDER = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)
_FILE = _FOLDER / "x"


@dataclass(frozen=True)
class Reader:
    """One reader under test.

    Attributes:
        seeds: valid inputs.
        words: what means something in the format.
        refused: inputs that another reader would take, or that this one once took.
    """

    check: Callable[[bytes], bool]
    seeds: Sequence[bytes]
    words: Sequence[bytes]
    refused: Sequence[bytes] = ()

    @property
    def corpus(self) -> Sequence[bytes]:
        """What damaged inputs are made of."""
        return (*self.seeds, *self.refused)


# ---------------------------------------------------------------- models


def _arrays() -> list[dict[str, np.ndarray[Any, Any]]]:
    return [
        {"w": np.arange(4, dtype=np.float32)},
        {"a": np.ones((2, 3), np.float16), "n": np.array(7, np.int64), "z": np.zeros(0, np.float64)},
        {
            "b": np.array([True, False]),
            "é": np.arange(6, dtype=np.uint8).reshape(1, 2, 3),
            "x.y": np.ones(1, np.float64),
        },
    ]


def _npz(arrays: Mapping[str, np.ndarray[Any, Any]], write: Any) -> bytes:
    out = io.BytesIO()
    write(out, **arrays)
    return out.getvalue()


def _stored(npz: bytes) -> bytes:
    """The same members written by another tool: with a comment, and one more copy of their sizes."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(npz)) as source, zipfile.ZipFile(out, "w") as target:
        target.comment = b"comment"
        for name in source.namelist():
            target.writestr(name, source.read(name))
    return out.getvalue()


def _taken_once(large: bytes) -> Sequence[bytes]:
    """Archives that zipfile refuses: of several disks, by number and by count; with an extra field cut off; with bytes
    behind the zip64 end.
    """
    locator = large.rindex(b"PK\x06\x07")
    field = large.index(b"\x01\x00\x18\x00", large.rindex(b"PK\x01\x02"))  # zip64, of 24 bytes
    places = ((locator + 4, 1), (locator + 16, 2), (field + 3, 1))
    changed = [large[:place] + bytes([value]) + large[place + 1 :] for place, value in places]
    return [*changed, large[:locator] + b"\xff" * 9 + large[locator:]]


def models(data: bytes) -> bool:
    """A model file by its content: safetensors, or npz."""
    _FILE.write_bytes(data)
    model, found = ModelFiles(_FOLDER).open(_FILE, LIMITS, "x")
    if model is None:
        assert found
        return False
    with model:
        theirs = _safetensors(data) if model.format == "safetensors" else _numpy(data)
        ours = {name: (spec.dtype, tuple(spec.shape)) for name, spec in model.specs.items()}
        assert ours == {name: (dtype, shape) for name, (dtype, shape, _) in theirs.items()}
        total = data_bytes(model.specs)
        assert total <= LIMITS.expanded_bytes
        read = bytearray(total)
        model.read_into(0, memoryview(read))
        assert bytes(read) == b"".join(theirs[placed.name][2] for placed in canonical_layout(model.specs))
        return True


def _safetensors(data: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    try:
        found = deserialize(data)  # type: ignore[no-untyped-call]  # compiled
    except SafetensorError as e:
        raise AssertionError(f"safetensors refuses it: {e}") from e
    return {name: (t["dtype"], tuple(t["shape"]), bytes(t["data"])) for name, t in found}


_DTYPES = {"f4": "F32", "f8": "F64", "f2": "F16", "b1": "BOOL"} | {
    f"{kind}{size}": f"{kind.upper()}{8 * size}" for kind in "iu" for size in (1, 2, 4, 8)
}


def _numpy(data: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    out = {}
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            for name in archive.files:
                array = archive[name]
                native = array.astype(array.dtype.newbyteorder("<"), copy=False)
                out[name] = (_DTYPES[array.dtype.str[1:]], array.shape, native.tobytes("C"))
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, KeyError, NotImplementedError) as e:
        raise AssertionError(f"numpy refuses it: {e!r}") from e
    return out


# ---------------------------------------------------------------- JSON


def json_text(data: bytes) -> bool:
    try:
        value = parse_json(data)
    except BadJson:
        return False
    assert _same(value, json.loads(data))
    return True


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one) == json.dumps(other)


def json_document(model: type[Document], data: bytes) -> bool:
    try:
        document = load_json_document(data, model, "x", max_bytes=1 << 20)
    except ConfigError:
        return False
    json.loads(data)
    again = dump_json(document)
    assert load_json_document(again, model, "x", max_bytes=1 << 22) == document
    return True


def site_record(data: bytes) -> bool:
    found, faults = parse_record(data, "sites/hospital-a/submission.json", max_bytes=16_384)
    assert len(json.dumps([f.got for f in faults], default=str)) < 20_000, "a long report"
    if found is None or faults:
        return False
    assert _same(json.loads(dump_json(found)), {**json.loads(data), **json.loads(dump_json(found))})
    return True


def manifest(data: bytes) -> bool:
    parsed = parse_manifest(data, where="x")
    if parsed.findings or parsed.layer is None:
        assert parsed.findings
        return False
    theirs = json.loads(data)
    [entry] = theirs["layers"]
    assert (entry["digest"], entry["size"]) == (f"sha256:{parsed.layer.sha256}", parsed.layer.size)
    assert theirs.get("annotations", {}) == dict(parsed.annotations)
    return True


# ---------------------------------------------------------------- YAML


def yaml_text(data: bytes) -> bool:
    try:
        value, _ = parse_yaml(data, "x")
    except ConfigError:
        return False
    theirs = yaml.load(data.decode(), Loader=yaml.BaseLoader)
    assert _same_shape(value, theirs), (value, theirs)
    return True


def _same_shape(ours: Any, theirs: Any) -> bool:
    """All structure and texts are the same; a scalar of another type was written as such."""
    if isinstance(ours, dict):
        return (
            isinstance(theirs, dict)
            and ours.keys() == theirs.keys()
            and all(_same_shape(v, theirs[k]) for k, v in ours.items())
        )
    if isinstance(ours, list):
        return isinstance(theirs, list) and len(ours) == len(theirs) and all(map(_same_shape, ours, theirs))
    if not isinstance(theirs, str):
        return ours is None and theirs is None
    written = {True: "true", False: "false"}.get(ours) if isinstance(ours, bool) else None
    if isinstance(ours, (int, float)) and written is None:
        return float(theirs) == float(ours)
    return theirs in ("", "~", "null") if ours is None else theirs == (written or ours)


def pointer(data: bytes) -> bool:
    place = "sites/hospital-a/update.safetensors.dvc"
    found, faults = parse_pointer(data, place, place)
    if found is None:
        assert faults
        return False
    theirs = yaml.load(data.decode(), Loader=yaml.BaseLoader)["outs"][0]
    assert (theirs["md5"], theirs["size"], theirs["path"]) == (found.md5, str(found.size), found.path)
    again, _ = parse_pointer(render_pointer(found), place, place)
    assert again == found
    return True


# ---------------------------------------------------------------- names and git


def names(data: bytes) -> bool:
    """Tags, versions, references to the store, site ids: what is taken is written in exactly one way."""
    text = data.decode("utf-8", "surrogateescape")
    tag, short, ref = GlobalVersion.from_tag(text), GlobalVersion.from_short(text), StoreRef.parse(text)
    assert tag is None or tag.tag == text
    assert short is None or short.short == text
    assert ref is None or ref.text == text
    good = site_id_fault(text) is None
    assert not good or (text.isascii() and text == text.lower() and 1 <= len(text) <= 63 and "/" not in text)
    return good or tag is not None or short is not None or ref is not None


def git_commit(data: bytes) -> bool:
    RawObject.parse(data)
    signature_of(data)
    try:
        commit = parse_commit(CommitId("1" * 40), data)
    except GitError:
        return False
    assert all(len(parent) == 40 for parent in commit.parents)
    return True


_COMMIT = b"""tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904
parent 1111111111111111111111111111111111111111
author A <a@example.invalid> 1772443800 +0100
committer A <a@example.invalid> 1772443800 +0100
gpgsig -----BEGIN SSH SIGNATURE-----
 U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAg
 -----END SSH SIGNATURE-----

submit(hospital-a): update on v8

Fedops-Site: hospital-a
"""
_JSON_WORDS = (b"{", b"}", b"[", b"]", b":", b",", b'"', b"null", b"true", b"NaN", b"1e999", b"-0", b"\\ud800", b"\\u0000",
    b'{"a":', b"[" * 40, b'"schema"', b'"site": "x",', b"\xef\xbb\xbf", b"\xff", b"1.0", b"Infinity", b" ", b"\n")  # fmt: skip
_YAML_WORDS = (b": ", b"\n", b"  ", b"- ", b"[", b"]", b"{", b"}", b", ", b"&a ", b"*a", b"!t ", b"|\n", b">-\n", b"? ", b"no", b"007",
    b"1e5", b"~", b"---\n", b"...\n", b"%YAML 1.2\n", b"\t", b"\r\n", b"'", b'"', b"#", b"<<: ", b"0x1", b"\xc2\x85", b"\xe2\x80\xa8")  # fmt: skip
_FORGE: Mapping[type[Document], dict[str, Any]] = {
    PullFile: {"number": 1, "state": "open", "branch": "submit/a", "title": "t", "body": "b", "head": "1" * 40, "opened_at": "2026-03-02T09:30:00Z"},
    IssueFile: {"number": 2, "state": "open", "marker": None, "title": "t", "body": "b", "labels": ["fedops"], "opened_at": "2026-03-02T09:30:00Z"},
    CommentFile: {"marker": "m", "body": "b", "at": "2026-03-02T09:30:00.500000Z"},
    StatusFile: {"statuses": {"fedops/verdict": {"state": "success", "text": "t"}}},
    ReviewFile: {"pull": 1, "head": "1" * 40, "state": "approved", "body": "b", "sequence": 1, "at": "2026-03-02T09:30:00Z"},
}  # fmt: skip


def forge_file(data: bytes) -> bool:
    taken = [json_document(model, data) for model in _FORGE]
    return any(taken)


def _readers() -> Mapping[str, Reader]:
    handed = record(base_version=3, base_sha256=hex64("b"), software={"fedops": "0.1.0"})
    full = version(
        9, contributions=[contribution(submission("hospital-a"))], consumed={"hospital-a": 8}, metrics={"loss": 0.3}
    )
    plain = [save({n: np.ascontiguousarray(a) for n, a in one.items()}) for one in _arrays()]
    npz = [_npz(one, write) for one in _arrays() for write in (np.savez, np.savez_compressed)]
    large = as_zip64(_npz({"w": np.arange(4, dtype=np.float32)}, np.savez))
    policy = (
        b"# who\nschema: fedops.sites/v1\nsites:\n  a: {accounts: [{login: x, id: 3}], keys: ['k 1'], state: active}\n"
    )
    layer = Layer(hex64("l"), 160, "update.safetensors")
    forge = [dump_json(model.model_validate_json(json.dumps(values))) for model, values in _FORGE.items()]
    return {
        "safetensors": Reader(models, plain, (b'"dtype":"F32"', b'"shape":[2]', b'"data_offsets":[0,16]', b'"__metadata__":{"a":"b"}', *_JSON_WORDS)),
        "npz": Reader(models, [*npz, *map(_stored, npz), large], (b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"\x93NUMPY\x01\x00", b"'<f4'", b"'|O'", b"(3,)", b"True", b".npy", b"PK\x06\x06", b"PK\x06\x07"), _taken_once(large)),
        "json": Reader(json_text, [dump_json(handed), dump_json(full), b"[1, -2.5e3, true, null, \"\\u00e9\"]"], _JSON_WORDS),
        "record": Reader(site_record, [dump_json(record()), dump_json(handed)], _JSON_WORDS),
        "version": Reader(lambda data: json_document(VersionRecord, data), [dump_json(version()), dump_json(full)], _JSON_WORDS),
        "forge": Reader(forge_file, forge, _JSON_WORDS),
        "manifest": Reader(manifest, [build_manifest(layer, {}), build_manifest(layer, {"fl.client-id": "hospital-a"}, b"{}")], _JSON_WORDS),
        "yaml": Reader(yaml_text, [policy, b"a: [1, 2.5, ~]\nb: |\n  text\n  more\nc: \"q\\n\"\n", b"- x\n- y: z\n"], _YAML_WORDS),
        "pointer": Reader(pointer, [render_pointer(update_pointer(handed, "safetensors"))], _YAML_WORDS),
        "refs": Reader(names, [b"global@v12.0.0", b"v9", b"sites/hospital-a:v3", b"global:v12", b"hospital-a"], (b"/", b"..", b"@", b":", b"-", b"0", b"\xcc\x81", b"\n", b"global", b"con")),
        "commit": Reader(git_commit, [_COMMIT], (b"\n", b"\0", b"parent ", b"tree ", b"gpgsig ", b" ", b"99999999999999", b"committer ")),
    }  # fmt: skip


READERS = _readers()
