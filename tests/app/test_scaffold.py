"""The files of a new federation: read back as documents they say what was asked for, and no more than the defaults."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import jsonschema
import pytest

from fedops.adapters.yaml_edit import RoundTripEditor
from fedops.app.scaffold import (
    GENERATED,
    GENERATED_PATH,
    TEMPLATES,
    Generated,
    Scaffold,
    checked_store,
    fill,
    render,
    render_site,
)
from fedops.core.documents import Document, load_document, load_json_document
from fedops.core.errors import ConfigError
from fedops.core.ids import (
    AGGREGATION_PATH,
    FEDERATION_PATH,
    SITES_PATH,
    SUBMISSION_POLICY_PATH,
    TRAINING_PATH,
    RepoPath,
)
from fedops.core.settings import (
    Aggregation,
    Federation,
    Forge,
    Lead,
    Person,
    Site,
    Sites,
    SubmissionPolicy,
    Training,
)
from fedops.core.yaml_reader import parse_yaml

PLAIN = Scaffold(name="fed", store="ocidir:store", fedops="0.1.0")
SITE = Site(accounts=(Person(login="alice-a", id=1001),), keys=("ssh-ed25519 AAAA alice",))
FULL = Scaffold(
    name="123",
    store="oci://host/ns",
    fedops="0.1.0",
    forge=Forge(kind="github", repository="acme/fed", api_url="https://git.acme.example/api/v3"),
    leads=(Lead(login="on", id=1, keys=("ssh-ed25519 AAAA on",)), Lead(login="mia", id=2)),
    sites={"z9": SITE, "7up": Site(accounts=(Person(login="b.b", id=2),), store="oci://h/x", state="suspended")},
    quorum=2,
    require_signed=False,
    hyperparameters={"lr": 0.1, "epochs": 3, "name": "a b", "on": True, "small": 1e-07, "none": None},
)


@pytest.mark.parametrize(
    ("path", "model"),
    [(SUBMISSION_POLICY_PATH, SubmissionPolicy), (TRAINING_PATH, Training), (AGGREGATION_PATH, Aggregation)],
)
def test_policies_spell_out_the_defaults(path: RepoPath, model: type[Document]) -> None:
    assert load_document(render(PLAIN)[path], model, path) == model()


def test_every_key_of_a_policy_is_in_its_file_for_people_to_see() -> None:
    files = render(PLAIN)
    for path, model in ((SUBMISSION_POLICY_PATH, SubmissionPolicy), (AGGREGATION_PATH, Aggregation)):
        value, _ = parse_yaml(files[path], path)
        assert set(value) == {info.alias or name for name, info in model.model_fields.items()}


def test_a_new_federation_has_no_sites_and_no_leads() -> None:
    files = render(PLAIN)
    assert load_document(files[SITES_PATH], Sites, SITES_PATH) == Sites(schema_="fedops.sites/v1")
    federation = load_document(files[FEDERATION_PATH], Federation, FEDERATION_PATH)
    assert (federation.name, federation.store.url, federation.forge.kind) == ("fed", "ocidir:store", "git")


def test_names_that_yaml_would_misread_come_back_as_text() -> None:
    files = render(FULL)
    federation = load_document(files[FEDERATION_PATH], Federation, FEDERATION_PATH)
    assert federation.name == "123"
    assert federation.forge == FULL.forge
    sites = load_document(files[SITES_PATH], Sites, SITES_PATH)
    assert sites.leads == FULL.leads
    assert sites.sites == FULL.sites
    training = load_document(files[TRAINING_PATH], Training, TRAINING_PATH)
    assert training.hyperparameters == FULL.hyperparameters
    assert load_document(files[AGGREGATION_PATH], Aggregation, "a").trigger.quorum == 2
    assert load_document(files[SUBMISSION_POLICY_PATH], SubmissionPolicy, "s").require_signed is False


def test_jobs_run_in_the_federations_own_repository_only() -> None:
    for scaffold, guard in ((FULL, "acme/fed"), (PLAIN, "none")):
        files = render(scaffold)
        for name in ("validate", "reconcile", "audit"):
            text = files[RepoPath(f".github/workflows/{name}.yml")].decode()
            first_job = text.split("\njobs:\n")[1].split("steps:")[0]
            assert f"if: github.repository == '{guard}'" in first_job


def test_leads_own_what_decides_and_what_runs() -> None:
    owners = render(FULL)[RepoPath(".github/CODEOWNERS")].decode()
    for path in ("/policies/", "/.github/", "/federation.yaml"):
        assert f"{path} @on @mia\n" in owners


def test_no_slot_is_left_and_every_file_is_plain_text() -> None:
    for path, data in render(FULL).items():
        text = data.decode("utf-8")
        assert "@@" not in text, path
        assert text.endswith("\n"), path
        assert not re.search(r"[ \t\r]\n", text), path


def test_an_unknown_slot_is_a_bug_in_the_template() -> None:
    with pytest.raises(KeyError):
        fill("@@nothing@@", {})


def test_what_is_filled_in_is_not_looked_at_again() -> None:
    assert fill("@@name@@", {"name": "@@name@@"}) == "@@name@@"


def test_all_paths_are_written_but_those_of_global() -> None:
    paths = set(render(PLAIN))
    assert paths == {*TEMPLATES, ".dvc/config", GENERATED_PATH}
    assert not [p for p in paths if p.startswith("global/")]


def test_digests_are_noted_of_what_is_fedops_own_and_of_nothing_else() -> None:
    files = render(FULL)
    noted = load_json_document(files[GENERATED_PATH], Generated, GENERATED_PATH)
    assert noted.fedops == "0.1.0"
    assert noted.files == {path: hashlib.sha256(files[RepoPath(path)]).hexdigest() for path in GENERATED}
    theirs = {"README.md", "federation.yaml", ".gitignore", ".gitattributes", ".dvc/config", GENERATED_PATH}
    assert set(files) - set(GENERATED) == theirs | {p for p in files if p.startswith("policies/")}


def test_a_site_is_written_as_the_editor_writes_it() -> None:
    text = render(PLAIN)[SITES_PATH]
    for site, entry in FULL.sites.items():
        people = [{"login": a.login, "id": a.id} for a in entry.accounts]
        plain: dict[str, Any] = {"accounts": people, "keys": list(entry.keys)}
        plain |= {"store": entry.store} if entry.store else {}
        text = RoundTripEditor().put(text, ("sites", site), plain | {"state": entry.state})
        assert render_site(site, entry) + "\n" in text.decode()


def document_schema(files: dict[RepoPath, bytes], kind: str) -> Any:
    schema = json.loads(files[RepoPath(f"schemas/{kind}.schema.json")])
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("scaffold", [PLAIN, FULL])
def test_each_document_names_a_schema_that_it_passes(scaffold: Scaffold) -> None:
    files = render(scaffold)
    for path in (FEDERATION_PATH, SITES_PATH, SUBMISSION_POLICY_PATH, TRAINING_PATH, AGGREGATION_PATH):
        named = re.match(
            r"# yaml-language-server: \$schema=(?:\.\./)?schemas/([a-z-]+)\.schema\.json\n", files[path].decode()
        )
        assert named, path
        value, _ = parse_yaml(files[path], path)
        document_schema(files, named[1]).validate(value)


def test_the_schemas_refuse_what_the_documents_refuse() -> None:
    validator = document_schema(render(PLAIN), "aggregation")
    assert validator.is_valid({"schema": "fedops.aggregation/v1", "trigger": {"quorum": 2}})
    assert not validator.is_valid({"schema": "fedops.aggregation/v1", "trigger": {"quorum": 0}})
    assert not validator.is_valid({"schema": "fedops.aggregation/v1", "tigger": {}})


@pytest.mark.parametrize("url", ["ocidir:store", "ocidir:/srv/fed", "oci://host:5000/ns/fed"])
def test_stores_are_taken(url: str) -> None:
    assert checked_store(url) == url


@pytest.mark.parametrize(
    "url", ["", "store", "ocidir:", "https://host/x", "ocidir:a b", 'oci://h/"x', "ocidir:a\nb = c"]
)
def test_what_is_no_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="store"):
        checked_store(url)
