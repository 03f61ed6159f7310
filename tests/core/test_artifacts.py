from __future__ import annotations

import hashlib
import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.core import artifacts
from fedops.core.artifacts import Blob, ParsedManifest, build_manifest, manifest_digest, parse_manifest
from fedops.core.catalogue import CATALOGUE
from fedops.core.facts import Layer
from fedops.core.findings import message
from fedops.core.ids import Digest, SiteId

MODEL_SHA256 = "fa9c471a1208a8612de6af504c230d7793e48da52ca626a823ba178ab999cfd6"
LAYER = Layer(MODEL_SHA256, 160, "update.safetensors")
EMPTY_SHA256 = (
    "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"  # stated by the OCI image specification
)
EMPTY = {"mediaType": "application/vnd.oci.empty.v1+json", "digest": f"sha256:{EMPTY_SHA256}", "size": 2}


def _document(**changes: Any) -> dict[str, Any]:
    """The canonical manifest of LAYER, key by key; a change of None removes the key."""
    document: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": "application/vnd.fedops.model.v1",
        "config": EMPTY,
        "layers": [_layer()],
    } | changes
    return {key: value for key, value in document.items() if value is not None}


def _layer(**changes: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "mediaType": "application/vnd.fedops.model.v1+safetensors",
        "digest": f"sha256:{MODEL_SHA256}",
        "size": 160,
        "annotations": {"org.opencontainers.image.title": "update.safetensors"},
    } | changes
    return {key: value for key, value in entry.items() if value is not None}


def _titled(title: object) -> dict[str, Any]:
    return _document(layers=[_layer(annotations={"org.opencontainers.image.title": title})])


def _bytes(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _parse(document: Any, **options: Any) -> ParsedManifest:
    return parse_manifest(document if isinstance(document, bytes) else _bytes(document), where="m.json", **options)


def _slugs(parsed: ParsedManifest) -> set[str]:
    if parsed.findings:
        assert parsed.layer is None, "a layer that was refused must not be handed out"
        assert parsed.config is None
    for found in parsed.findings:
        assert message(found).startswith("m.json: ")
        assert found.id == CATALOGUE[found.slug].id
    return {found.slug for found in parsed.findings}


# building


def test_update_manifest_is_these_bytes() -> None:
    annotations = artifacts.update_annotations(
        site=SiteId("hospital-a"), base_version=8, num_examples=150, created_at="2026-03-02T09:30:00Z"
    )
    data = build_manifest(LAYER, annotations, b"{}")
    expected = _document(
        annotations={
            "fl.base-version": "8",
            "fl.client-id": "hospital-a",
            "fl.num-examples": "150",
            "fl.timestamp": "2026-03-02T09:30:00Z",
        }
    )
    assert data == _bytes(expected)
    assert manifest_digest(data) == "sha256:" + hashlib.sha256(_bytes(expected)).hexdigest()


def test_model_without_annotations_has_no_such_key() -> None:
    assert build_manifest(LAYER, {}, b"{}") == _bytes(_document())


def test_proposal_is_a_config_of_its_own_type() -> None:
    proposal = b'{"schema":"fedops.proposal/v1"}'
    config = {
        "mediaType": "application/vnd.fedops.proposal.v1+json",
        "digest": "sha256:" + hashlib.sha256(proposal).hexdigest(),
        "size": len(proposal),
    }
    data = build_manifest(LAYER, {}, proposal)
    assert data == _bytes(_document(config=config))
    assert _parse(data).config == Blob(hashlib.sha256(proposal).hexdigest(), len(proposal))


def test_opaque_model_is_a_bin_layer() -> None:
    data = build_manifest(Layer(MODEL_SHA256, 160, "model.bin"), {}, b"{}", format="opaque")
    assert json.loads(data)["layers"][0]["mediaType"] == "application/vnd.fedops.model.v1+bin"
    assert _parse(data).layer == Layer(MODEL_SHA256, 160, "model.bin")


@pytest.mark.parametrize(
    ("title", "model_format"), [("update.bin", "safetensors"), ("x.safetensors", "opaque"), ("x", "npz")]
)
def test_title_of_another_format_is_a_bug_of_the_caller(title: str, model_format: str) -> None:
    with pytest.raises(ValueError, match="title"):
        build_manifest(Layer(MODEL_SHA256, 160, title), {}, b"{}", format=model_format)


_LAYERS = st.builds(
    Layer,
    st.text("0123456789abcdef", min_size=64, max_size=64),
    st.integers(1, 2**62),
    st.sampled_from(sorted(artifacts.TITLES)),
)


@given(_LAYERS, st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=5), st.binary(min_size=1))
def test_what_is_built_is_read_back(layer: Layer, annotations: dict[str, str], config: bytes) -> None:
    data = build_manifest(layer, annotations, config, format=artifacts.format_of_title(layer.title))
    parsed = _parse(data)
    assert parsed == ParsedManifest(layer, annotations, Blob(hashlib.sha256(config).hexdigest(), len(config)), ())
    # Order of the caller's map plays no part.
    again = build_manifest(
        layer, dict(reversed(annotations.items())), config, format=artifacts.format_of_title(layer.title)
    )
    assert again == data


# reading: titles


@pytest.mark.parametrize("title", ["update.safetensors", "model.safetensors"])
def test_fixed_titles_are_taken(title: str) -> None:
    parsed = _parse(_titled(title))
    assert parsed.layer == Layer(MODEL_SHA256, 160, title)
    assert parsed.findings == ()


@pytest.mark.parametrize(
    "title",
    ["../../.github/workflows/x.yml", "..", "/outside/x.yml", "/update.safetensors", "..\\x.yml", "a/update.safetensors",
     "a\\update.safetensors", "./update.safetensors", ".", "", "update.safetensors\x00.yml", "update.safetensors\n",
     "submission.json.sh", "UPDATE.safetensors", "upd\u0430te.safetensors", "\ud800", 7, True, ["update.safetensors"], {}, None,
     "update.bin", "x" * 5000],
)  # fmt: skip
@pytest.mark.parametrize("lenient", [False, True])
def test_any_other_title_is_refused(title: object, lenient: bool) -> None:
    parsed = _parse(_titled(title), lenient_types=lenient)
    assert _slugs(parsed) == {"layer_title_invalid"}
    assert len(repr(parsed.findings)) < 2000, "a report stays small whatever a site writes"


@pytest.mark.parametrize("annotations", [None, [], "update.safetensors", {"title": "update.safetensors"}])
def test_layer_without_title_is_refused(annotations: object) -> None:
    assert _slugs(_parse(_document(layers=[_layer(annotations=annotations)]))) == {"layer_title_invalid"}


def test_only_the_titles_of_its_place_are_taken() -> None:
    assert _slugs(_parse(_document(), allowed_titles=artifacts.titles_of("global"))) == {"layer_title_invalid"}
    assert _slugs(_parse(_document(), allowed_titles=artifacts.titles_of("sites/hospital-a"))) == set()
    assert _slugs(_parse(_document(), allowed_titles=artifacts.titles_of("archive"))) == set()


# reading: foreign things


@pytest.mark.parametrize(
    "document",
    [
        pytest.param([], id="not an object"),
        pytest.param(7, id="a number"),
        pytest.param(_document(schemaVersion=1), id="schema version 1"),
        pytest.param(_document(schemaVersion=2.0), id="a float that equals 2"),
        pytest.param(_document(schemaVersion=True), id="true"),
        pytest.param(_document(schemaVersion=None), id="no schema version"),
        pytest.param(_document(mediaType="application/vnd.oci.image.index.v1+json"), id="an index"),
        pytest.param(_document(mediaType="application/vnd.docker.distribution.manifest.v2+json"), id="docker"),
        pytest.param(_document(artifactType=None), id="an image"),
        pytest.param(_document(artifactType=["application/vnd.fedops.model.v1"]), id="type in a list"),
        pytest.param(_document(artifactType="application/vnd.fedops.update.v1"), id="type from before"),
        pytest.param(_document(subject=EMPTY), id="refers to another manifest"),
        pytest.param(_document(layers=None), id="no layers"),
        pytest.param(_document(layers={"0": _layer()}), id="layers in a map"),
        pytest.param(_document(layers=[]), id="no layer"),
        pytest.param(_document(layers=[_layer(), _layer()]), id="two layers"),
        pytest.param(_document(layers=["sha256:" + MODEL_SHA256]), id="layer is text"),
        pytest.param(_document(layers=[_layer(urls=["http://127.0.0.1:9/x"])]), id="bytes elsewhere"),
        pytest.param(_document(layers=[_layer(urls=[])]), id="urls, though empty"),
        pytest.param(_document(layers=[_layer(mediaType="application/vnd.oci.image.layer.v1.tar+gzip")]), id="archive"),
        pytest.param(_document(layers=[_layer(mediaType="application/vnd.fedops.update.v1+safetensors")]), id="old layer"),
        pytest.param(_document(layers=[_layer(data="e30=")]), id="bytes in the manifest"),
        pytest.param(_document(config=None), id="no config"),
        pytest.param(_document(config=EMPTY | {"urls": ["http://127.0.0.1:9/x"]}), id="config elsewhere"),
        pytest.param(_document(config=EMPTY | {"size": 3}), id="empty config of three bytes"),
        pytest.param(_document(config=EMPTY | {"digest": f"sha256:{MODEL_SHA256}"}), id="empty config of other bytes"),
        pytest.param(_document(config=EMPTY | {"mediaType": "application/vnd.fedops.proposal.v1+json"}), id="no proposal"),
        pytest.param(_document(config=EMPTY | {"mediaType": "application/vnd.oci.image.config.v1+json"}), id="image config"),
        pytest.param(_document(config={"digest": f"sha256:{MODEL_SHA256}", "size": 9}), id="config without type"),
        pytest.param(
            _document(
                config={
                    "mediaType": "application/vnd.fedops.proposal.v1+json",
                    "digest": f"sha256:{MODEL_SHA256}",
                    "size": 16 * 1024 * 1024 + 1,
                }
            ),
            id="config too large to read",
        ),
        pytest.param(_document(note="free text"), id="unknown key"),
        pytest.param(_document(annotations={}), id="empty annotations, which are left out"),
        pytest.param(dict(reversed(_document().items())), id="other key order"),
        pytest.param(_document(layers=[_layer(platform={"os": "linux"})]), id="unknown key of the layer"),
        pytest.param(_bytes(_document()) + b"\n", id="final newline"),
        pytest.param(json.dumps(_document()).encode(), id="spaces"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"<html>502</html>", id="a web page"),
        pytest.param(b"\xff\xfe{}", id="not UTF-8"),
        pytest.param(b"\xef\xbb\xbf" + _bytes(_document()), id="byte order mark"),
        pytest.param(_bytes(_document())[:-1] + b',"schemaVersion":2}', id="repeated key"),
        pytest.param(b'{"schemaVersion":NaN}', id="NaN"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="deep nesting"),
        pytest.param(_bytes(_document(annotations={"x": "y" * (1 << 20)})), id="above 1 MiB"),
    ],
)  # fmt: skip
def test_anything_but_one_plain_model_is_refused(document: object) -> None:
    assert _slugs(_parse(document)) == {"foreign_layer_refused"}


@pytest.mark.parametrize("size", [0, -1, True, 160.0, "160", None, [160], 2**63])
@pytest.mark.parametrize("place", ["layer", "config"])
def test_size_that_is_no_positive_integer_is_refused(size: object, place: str) -> None:
    changed = {"layers": [_layer(size=size)]} if place == "layer" else {"config": EMPTY | {"size": size}}
    assert _slugs(_parse(_document(**changed), lenient_types=True)) == {"foreign_layer_refused"}


@pytest.mark.parametrize(
    "digest",
    [None, 7, "", MODEL_SHA256, "sha256:" + MODEL_SHA256.upper(), "sha256:" + MODEL_SHA256[:-1], "sha512:" + "0" * 128,
     "sha256:../../index.json", "sha256:" + MODEL_SHA256 + "\n"],
)  # fmt: skip
@pytest.mark.parametrize("place", ["layer", "config"])
def test_digest_that_is_no_sha256_is_refused(digest: object, place: str) -> None:
    changed = {"layers": [_layer(digest=digest)]} if place == "layer" else {"config": EMPTY | {"digest": digest}}
    assert _slugs(_parse(_document(**changed), lenient_types=True)) == {"foreign_layer_refused"}


@pytest.mark.parametrize("annotations", [[], "x", {"fl.num-examples": 150}, {"fl.client-id": None}, {"x": {"y": "z"}}])
def test_annotations_that_are_not_strings_are_refused(annotations: object) -> None:
    parsed = _parse(_document(annotations=annotations))
    assert _slugs(parsed) == {"annotation_mismatch"}
    assert parsed.annotations == {}


def test_all_findings_are_reported_not_the_first() -> None:
    bad = _layer(annotations={"org.opencontainers.image.title": ".."}, urls=["http://127.0.0.1:9/x"])
    parsed = _parse(_document(schemaVersion=1, layers=[bad], annotations={"fl.num-examples": 150}))
    assert [(f.slug, f.detail) for f in parsed.findings] == [
        ("foreign_layer_refused", {"field": "schemaVersion"}),
        ("foreign_layer_refused", {"field": "layers[0].urls"}),
        ("layer_title_invalid", {"field": "title"}),
        ("annotation_mismatch", {"field": "annotations"}),
    ]


# reading: artifacts from before fedops


def _before(**changes: Any) -> dict[str, Any]:
    layer = _layer(mediaType="application/vnd.fedops.update.v1+safetensors")
    return _document(artifactType="application/vnd.fedops.update.v1", layers=[layer], **changes)


def test_older_types_are_taken_only_when_asked_for() -> None:
    assert _slugs(_parse(_before())) == {"foreign_layer_refused"}
    assert _parse(_before(), lenient_types=True) == ParsedManifest(LAYER, {}, Blob(EMPTY_SHA256, 2), ())
    assert _parse(_document(), lenient_types=True).layer == LAYER


def test_size_may_be_as_large_as_a_file_can_be() -> None:
    parsed = _parse(_document(layers=[_layer(size=2**63 - 1)]))
    assert parsed.layer == replace(LAYER, size=2**63 - 1)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (_document(manifests=[]), "manifests"),
        (_document(fsLayers=[]), "fsLayers"),
        (_document(note="free text"), "note"),
        (_document(layers=[_layer(data="e30=")]), "layers[0].data"),
        (_document(layers=[_layer(platform={"os": "linux"})]), "layers[0].platform"),
    ],
)
def test_leniency_takes_no_further_content(document: dict[str, Any], field: str) -> None:
    parsed = _parse(document, lenient_types=True)
    assert [(f.slug, f.detail) for f in parsed.findings] == [("foreign_layer_refused", {"field": field})]


def test_leniency_is_about_types_and_layout_not_about_where_the_bytes_are() -> None:
    pretty = json.dumps(_before(), indent=2).encode()
    assert _slugs(_parse(pretty, lenient_types=True)) == set()
    assert _slugs(_parse(_before(subject=EMPTY), lenient_types=True)) == {"foreign_layer_refused"}
    remote = _layer(mediaType="application/vnd.fedops.update.v1+safetensors", urls=["http://127.0.0.1:9/x"])
    assert _slugs(_parse(_document(layers=[remote]), lenient_types=True)) == {"foreign_layer_refused"}


def test_handed_manifests_with_path_tricks_get_their_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case H38 of the handed cases, written by their own generator."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "cases"))
    generator = importlib.import_module("gen_handed")
    suite = generator.Suite(str(tmp_path), "handed")
    generator.h38(suite)
    case = suite.cases["H38-oci-title"].d
    verdicts = {}
    for name, file in case["files"]["variants"].items():
        found = _parse((tmp_path / file).read_bytes(), lenient_types=True).findings
        verdicts[name] = {"error": found[0].slug} if found else {"ok": True}
    assert verdicts == case["expected"]["variants"]
    assert len(verdicts) == 9


# names and tags


@pytest.mark.parametrize("name", ["global", "archive", "sites/hospital-a", "sites/a", "sites/" + "x" * 63])
def test_repositories_of_a_store(name: str) -> None:
    assert artifacts.is_repository(name)
    assert artifacts.split_ref(f"{name}:v9") == (name, "v9")


@pytest.mark.parametrize(
    "name",
    ["", "sites", "sites/", "hospital-a", "sites/global", "sites/archive", "sites/sites/a", "sites/a/b", "sites/..",
     "../global", "Global", "sites/con", "sites/A", "global\n", "sites/a:v1", "sites/" + "x" * 64],
)  # fmt: skip
def test_other_names_are_no_repositories(name: str) -> None:
    assert not artifacts.is_repository(name)
    assert artifacts.split_ref(f"{name}:v9") is None


@pytest.mark.parametrize("ref", ["global", "global:", "global:v9\n", "global:.v9", "global:a b", "global:v9:v9", ":v9"])
def test_other_references_are_not_split(ref: str) -> None:
    assert artifacts.split_ref(ref) is None


def test_tags_of_content_are_no_display_tags() -> None:
    digest = Digest("sha256:" + MODEL_SHA256)
    assert artifacts.md5_tag("0" * 32) == "md5-" + "0" * 32
    assert artifacts.manifest_tag(digest) == "m-" + MODEL_SHA256
    assert not artifacts.is_display_tag(artifacts.md5_tag("0" * 32))
    assert not artifacts.is_display_tag(artifacts.manifest_tag(digest))
    for tag in ("v9", "latest", "md5-short", "m-1", "x" * 128):
        assert artifacts.is_display_tag(tag)
        assert artifacts.split_ref(f"global:{tag}") == ("global", tag)


@pytest.mark.parametrize(
    ("repository", "extension", "title"),
    [
        ("global", "safetensors", "model.safetensors"),
        ("global", "bin", "model.bin"),
        ("sites/hospital-a", "bin", "update.bin"),
        ("archive", "safetensors", "update.safetensors"),
    ],
)
def test_title_of_a_repository(repository: str, extension: str, title: str) -> None:
    assert artifacts.layer_title(repository, extension) == title
    assert title in artifacts.titles_of(repository)
    assert artifacts.EXTENSIONS[artifacts.format_of_title(title)] == extension
