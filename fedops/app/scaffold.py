"""The files of a new federation, rendered from the package's templates: values in, path -> bytes out."""

from __future__ import annotations

import hashlib
import importlib.resources
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from fedops.app.dvc_config import DVC_CONFIG_PATH, render_dvc_config
from fedops.core.documents import Document, Json, dump_json
from fedops.core.errors import ConfigError
from fedops.core.ids import (
    AGGREGATION_PATH,
    FEDERATION_PATH,
    SITES_GUIDE_PATH,
    SITES_PATH,
    SUBMISSION_POLICY_PATH,
    TRAINING_PATH,
    RepoPath,
)
from fedops.core.registry_address import store_url_fault
from fedops.core.settings import EXTENSIONS, Forge, Lead, Site, Wheel
from fedops.core.yaml_text import scalar

README_PATH = RepoPath("README.md")
GITIGNORE_PATH = RepoPath(".gitignore")
GITATTRIBUTES_PATH = RepoPath(".gitattributes")
SCHEMA_KINDS = ("federation", "sites", "submission-policy", "training", "aggregation", "submission", "version")
# No repository of a forge can have this name, since it has no owner: the jobs of a federation on forge git stay idle.
NO_REPOSITORY = "none"
# NOTE: of history a run needs commits and trees; an old blob is fetched when it is asked for. Never a depth: git takes
# the end of a shallow clone for the beginning of history (fedops would fetch the rest before it looks).
BLOBLESS = "\n          filter: blob:none # old blobs come when they are asked for"

# Digests of what was written last, so that `fedops upgrade` knows what people changed.
GENERATED_PATH = RepoPath(".fedops-generated.json")

# Where a template is written; names without a dot in front, so that they act on no repository of ours.
TEMPLATES: Mapping[RepoPath, str] = {
    FEDERATION_PATH: "federation.yaml",
    SITES_PATH: "policies/sites.yaml",
    SUBMISSION_POLICY_PATH: "policies/submission.yaml",
    TRAINING_PATH: "policies/training.yaml",
    AGGREGATION_PATH: "policies/aggregation.yaml",
    SITES_GUIDE_PATH: "sites-README.md",
    RepoPath("dvc.yaml"): "dvc.yaml",
    RepoPath(".dvc/.gitignore"): "dvc-gitignore",
    RepoPath(".github/workflows/validate.yml"): "workflows/validate.yml",
    RepoPath(".github/workflows/reconcile.yml"): "workflows/reconcile.yml",
    RepoPath(".github/workflows/audit.yml"): "workflows/audit.yml",
    RepoPath(".github/requirements.txt"): "requirements.txt",
    RepoPath(".github/CODEOWNERS"): "CODEOWNERS",
    GITATTRIBUTES_PATH: "gitattributes",
    GITIGNORE_PATH: "gitignore",
    README_PATH: "README.md",
} | {RepoPath(f"schemas/{kind}.schema.json"): f"schemas/{kind}.schema.json" for kind in SCHEMA_KINDS}

# People's own from the first commit on.
_PEOPLES = {FEDERATION_PATH, SITES_PATH, SUBMISSION_POLICY_PATH, TRAINING_PATH, AGGREGATION_PATH, README_PATH}
# Files that people add lines to: fedops' lines must be there, whatever else is.
BY_LINES = (GITATTRIBUTES_PATH, GITIGNORE_PATH)
# Files that are fedops' as a whole.
GENERATED = tuple(sorted(path for path in TEMPLATES if path not in _PEOPLES and path not in BY_LINES))

_SLOT = re.compile(r"@@([a-z_]+)@@")


class Generated(Document):
    """Which version of fedops wrote the generated files, and the sha256 of what it wrote for each."""

    schema_: Literal["fedops.generated/v1"] = Field(default="fedops.generated/v1", alias="schema")
    fedops: str
    files: dict[str, str]


@dataclass(frozen=True)
class Scaffold:
    """What the templates are filled with.

    Args:
        fedops: exact version that CI installs.
        wheel: its file; without one the jobs stop at the installation.
        sites: roster at the start, usually empty.
        hyperparameters: handed to the sites' code; plain values.
    """

    name: str
    store: str
    fedops: str
    wheel: Wheel | None = None
    forge: Forge = field(default_factory=Forge)
    branch: str = "main"
    leads: tuple[Lead, ...] = ()
    sites: Mapping[str, Site] = field(default_factory=dict)
    quorum: int = 3
    require_signed: bool = True
    hyperparameters: Mapping[str, Json] = field(default_factory=dict)

    @property
    def extension(self) -> str:
        return EXTENSIONS["safetensors"]


def render(scaffold: Scaffold) -> dict[RepoPath, bytes]:
    """All files of a new federation but those below global/, which the first version brings."""
    slots = _slots(scaffold)
    files = {path: fill(template_text(name), slots).encode() for path, name in TEMPLATES.items()}
    files[DVC_CONFIG_PATH] = render_dvc_config(scaffold.store, scaffold.sites)
    digests = {str(path): hashlib.sha256(files[path]).hexdigest() for path in GENERATED}
    files[GENERATED_PATH] = dump_json(Generated(fedops=scaffold.fedops, files=digests))
    return dict(sorted(files.items()))


def template_text(name: str) -> str:
    """One template of the package, as it is stored."""
    # Bytes first: text mode would turn line ends, and these files enter digests.
    return importlib.resources.files("fedops.template").joinpath(name).read_bytes().decode("utf-8")


def fill(text: str, slots: Mapping[str, str]) -> str:
    """Put values into a template's `@@name@@` slots; what is put in is not looked at again.

    Raises:
        KeyError: a slot that has no value.
    """
    return _SLOT.sub(lambda match: slots[match[1]], text)


def render_site(site: str, entry: Site) -> str:
    """One site's entry of policies/sites.yaml, indented by two; `fedops site add` writes the same text."""
    lines = [f"  {scalar(site)}:", "    accounts:"]
    lines += [f"    - {{login: {scalar(a.login)}, id: {a.id}}}" for a in entry.accounts]
    lines += ["    keys:" if entry.keys else "    keys: []"]
    lines += [f"    - {json.dumps(key)}" for key in entry.keys]
    if entry.store is not None:
        lines.append(f"    store: {json.dumps(entry.store)}")
    return "\n".join([*lines, f"    state: {entry.state}"])


def checked_store(url: str) -> str:
    """A store URL from a command line, which goes into YAML and into DVC's configuration.

    Raises:
        ConfigError: not one.
    """
    if any(c.isspace() or not c.isprintable() or c in "\"'#;" for c in url):
        raise ConfigError(f"store {url!r}: spaces, quotes, # and ; cannot be in it")
    if (fault := store_url_fault(url)) is not None:
        raise ConfigError(f"store {url!r}: not a store: {fault}", hint="ocidir:PATH, or oci://HOST/NAMESPACE")
    return url


def _slots(scaffold: Scaffold) -> dict[str, str]:
    base = {
        "name": scalar(scaffold.name),
        "title": scaffold.name,
        "fedops": scaffold.fedops,
        "wheel": _wheel(scaffold.wheel),
        "requirement": _requirement(scaffold),
        "branch": scaffold.branch,
        "forge": _forge(scaffold.forge),
        "store": json.dumps(scaffold.store),
        "leads": _leads(scaffold.leads),
        "sites": "\n" + "\n".join(render_site(s, scaffold.sites[s]) for s in sorted(scaffold.sites)),
        "quorum": str(scaffold.quorum),
        "require_signed": "true" if scaffold.require_signed else "false",
        "hyperparameters": _flow_map(scaffold.hyperparameters),
        "extension": scaffold.extension,
        "guard": scaffold.forge.repository or NO_REPOSITORY,
        "owners": " ".join(f"@{lead.login}" for lead in scaffold.leads),
    }
    if not scaffold.sites:
        base["sites"] = " {}"
    setup = template_text("workflows/setup.yml.part")
    main = {"what": scaffold.branch, "ref": scaffold.branch, "filter": BLOBLESS}
    base["setup"] = fill(setup, base | main).rstrip("\n")
    # An audit reads all of history.
    base["whole_setup"] = fill(setup, base | main | {"filter": ""}).rstrip("\n")
    # What decides and what computes must be of one commit, also where main has moved in between.
    pinned = main | {"what": "the commit that was decided on", "ref": "${{ needs.merge.outputs.input_commit }}"}
    base["pinned_setup"] = fill(setup, base | pinned).rstrip("\n")
    return base


def _wheel(wheel: Wheel | None) -> str:
    if wheel is None:
        return "null"
    url = f", url: {json.dumps(wheel.url)}" if wheel.url else ""
    return f'{{sha256: "{wheel.sha256}"{url}}}'


def _requirement(scaffold: Scaffold) -> str:
    """The line of requirements.txt for fedops itself."""
    wheel = scaffold.wheel
    if wheel is None:
        return f"fedops-git=={scaffold.fedops}"
    source = wheel.url if wheel.url and wheel.url.startswith("./") else None
    name = source or (f"fedops-git @ {wheel.url}" if wheel.url else f"fedops-git=={scaffold.fedops}")
    return f"{name} --hash=sha256:{wheel.sha256}"


def _forge(forge: Forge) -> str:
    if forge.kind == "git":
        return "{kind: git}"
    api = f", api_url: {json.dumps(forge.api_url)}" if forge.api_url else ""
    return f"{{kind: github, repository: {json.dumps(forge.repository)}{api}}}"


def _flow_map(values: Mapping[str, Json]) -> str:
    return "{" + ", ".join(f"{scalar(k)}: {_flow(values[k])}" for k in values) + "}"


def _flow(value: Json) -> str:
    return scalar(value) if isinstance(value, str) else json.dumps(value)


def _leads(leads: tuple[Lead, ...]) -> str:
    lines: list[str] = []
    for lead in leads:
        lines += [f"- login: {scalar(lead.login)}", f"  id: {lead.id}"]
        lines += ["  keys:" if lead.keys else "  keys: []"]
        lines += [f"  - {json.dumps(key)}" for key in lead.keys]
    return "\n" + "\n".join(lines) if lines else " []"
