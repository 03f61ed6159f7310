"""The real parts together: five versions on a GitHub and a registry with scoped tokens, and verify from a fresh clone.

Over loopback HTTP: PyGithub and git's smart HTTP against the face of tests/github_face, oras against the distribution
registry. Sites hand in signed commits from forks, one of them with a store of its own; a lead approves each head. What
nobody signed is refused, and each job of CI has the rights that its workflow file gives it, and no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedops.core.ids import Digest
from tests.cli_world import EXAMPLES, SITES, STEPS, git
from tests.github_face.cli_world import JOB, GitHubWorld, github_cli
from tests.github_face.settings import set_up
from tests.registry.accounts import PASSWORDS, PATH, rights, sign_in
from tests.registry.proxy import FaultProxy, fault_proxy
from tests.registry.server import registry_server
from tests.registry.tokens import TokenService
from tests.registry.worlds import registry_store

C, A, B = SITES
OWN = f"{C}-login/fed"  # the namespace of clinic-c's own account
VERSIONS = 5


@dataclass
class Values:
    """FedAvg by hand, in fractions; each model is one number, since all start at zero and a step adds the same to all.

    Attributes:
        of: the value of each version.
    """

    of: list[Fraction] = field(default_factory=lambda: [Fraction(0)])

    def add(self, **bases: int) -> None:
        """Make the next version of these sites' updates, each on its base version."""
        current = len(self.of) - 1
        total = weights = Fraction(0)
        for site, base in bases.items():
            name = site.replace("_", "-")
            weight = Fraction(EXAMPLES[name], 1 + current - base)
            trained = np.float32(self.of[base]) + np.float32(STEPS[name])  # a site trains in float32
            total += weight * (Fraction(float(trained)) - self.of[base])
            weights += weight
        self.of.append(Fraction(float(np.float32(float(self.of[current] + total / weights)))))


@dataclass(frozen=True)
class Fed:
    world: GitHubWorld
    proxy: FaultProxy
    service: TokenService


@pytest.fixture
def fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fed]:
    own = {(who, f"{OWN}/sites/{C}"): "pull,push" if who == C else "pull" for who in PASSWORDS}
    with (
        TokenService(PASSWORDS, rights() | own).running() as service,
        registry_server(tmp_path / "registry", auth=service.auth(tmp_path / "registry")) as server,
        fault_proxy(server.host) as proxy,
        github_cli(
            tmp_path / "world",
            monkeypatch,
            review=True,
            store=f"oci://{proxy.host}/{PATH}",
            stores={C: f"oci://{proxy.host}/{OWN}"},
            sign_in=lambda who: sign_in(service, who),
        ) as world,
    ):
        set_up(world.hub, "lena")
        yield Fed(world, proxy, service)


def open_signals(world: GitHubWorld) -> list[str]:
    return sorted(i.title for i in world.hub.items.values() if i.state == "open" and "signal:train" in i.labels)


def train_again(world: GitHubWorld, site: str, examples: int) -> Any:
    """Another update on the same base, over the one that is handed in already."""
    own = world.clone(site) / "own.json"
    before = own.read_text()
    own.write_text(f'{{"step": {STEPS[site]}, "examples": {examples}}}')
    world(site, "train", "--client", "ours:Ours", "--again")
    own.write_text(before)
    return world.json(site, "submit")["pull"]


def refuses_what_nobody_signed(world: GitHubWorld, site: str) -> None:
    """Although everything else of it is right, and a lead approved it."""
    [number] = world.hand_in(site)
    world.unsign(site, number)
    world.approve(number)
    assert world.jobs()["due"] == "false"
    [comment] = [c.body for c in world.hub.comments.values() if c.number == number]
    assert "signature_invalid" in comment
    assert world.hub.statuses[-1].description == "rejected: signature_invalid"
    assert (world.hub.items[number].state, submissions(world)) == ("open", [])


def play(world: GitHubWorld) -> Values:
    """Five versions; what each is made of, by hand."""
    values = Values()
    world.jobs()  # as the lead's first push wakes them
    assert [r.tag for r in world.hub.releases] == ["global@v0.0.0"]
    assert open_signals(world) == [f"Train on v0: {site}" for site in SITES]

    refuses_what_nobody_signed(world, A)
    world.approve(*world.hand_in(*SITES))
    values.add(clinic_c=0, hospital_a=0, hospital_b=0)
    made(world, values, {A: 1, B: 1, C: 1})

    numbers = dict(zip(SITES, world.hand_in(*SITES), strict=True))
    world.approve(*numbers.values())
    assert train_again(world, C, 31) == numbers[C], "a push after the approval: it is void"
    values.add(hospital_a=1, hospital_b=1)
    made(world, values, {A: 2, B: 2, C: 1})
    assert world.hub.items[numbers[C]].state == "open", "nothing is merged without an approval of its head"

    late = world.hand_in(C)
    assert late == [numbers[C]], "one site, one open pull request"
    reject(world, *late)
    world.approve(*world.hand_in(A, B))
    values.add(hospital_a=2, hospital_b=2)
    made(world, values, {A: 3, B: 3, C: 1})
    assert world.hub.items[numbers[C]].state == "open", "what a lead rejected is not merged, and its site may go on"
    assert "a lead asks for changes" in [status.description for status in world.hub.statuses]

    world.approve(*late, *world.hand_in(A))
    values.add(clinic_c=2, hospital_a=3)  # clinic-c comes late, with half of its weight
    made(world, values, {A: 4, B: 3, C: 4})

    world.approve(*world.hand_in(*SITES))
    values.add(clinic_c=4, hospital_a=4, hospital_b=4)
    made(world, values, {A: 5, B: 5, C: 5})
    return values


def reject(world: GitHubWorld, number: int) -> None:
    """A lead who had approved says no by a command; on GitHub's page it is a request for changes."""
    world.approve(number)
    assert "approved" in world("lead", "review", str(number), "--approve").out, "said twice, it is said once"
    world("lead", "review", str(number), "--reject", code=2)  # a site must be told why
    said = world("lead", "review", str(number), "--reject", "--reason", "train longer").out
    assert said.startswith(f"#{number} ")
    mine = [r for r in world.hub.reviews if r.number == number and r.author.login == "lena"]
    assert [(r.state, r.body) for r in mine[-2:]] == [("APPROVED", ""), ("CHANGES_REQUESTED", "train longer")]


def made(world: GitHubWorld, values: Values, told: Mapping[str, int]) -> None:
    """CI's jobs make the next version, and tell the sites."""
    assert world.jobs()["due"] == "true"
    version = len(values.of) - 1
    assert world.version()["version"] == version
    assert open_signals(world) == sorted(f"Train on v{number}: {site}" for site, number in told.items())


def submissions(world: GitHubWorld) -> list[str]:
    """The commits that sites handed in and that were merged."""
    merges = git(world.origin, "log", "--first-parent", "--merges", "--format=%P", "main").splitlines()
    return [parents.split()[1] for parents in merges]


@pytest.mark.long
def test_three_fork_sites_make_five_versions_that_anybody_verifies(fed: Fed) -> None:
    world = fed.world
    values = play(world)
    world.new_clone("auditor")  # an account that may write nothing, on GitHub or in the registry
    for version, value in enumerate(values.of):
        out = world.folder / f"v{version}.safetensors"
        world("auditor", "pull", f"v{version}", "--out", str(out))
        np.testing.assert_array_equal(dict(load_file(out))["w"], np.full((2, 3), float(value), np.float32))
    verified = world.json("auditor", "verify", "--all")
    assert verified["ok"] is True
    assert [v["version"] for v in verified["versions"]] == [*range(VERSIONS + 1)]

    assert [r.tag for r in world.hub.releases] == [f"global@v{n}.0.0" for n in range(VERSIONS + 1)]
    record, page = world.version(), world.hub.releases[-1].body
    for text in (record["model"]["sha256"], f"fedops pull v{VERSIONS}", f"--rev global@v{VERSIONS}.0.0", *SITES):
        assert text in page

    commits = submissions(world)
    assert len(commits) == 3 + 2 + 2 + 2 + 3, "clinic-c's two on v1 were pushed over"
    assert "require_signed: true" in world.show("policies/submission.yaml")
    assert all("BEGIN SSH SIGNATURE" in git(world.origin, "cat-file", "commit", c) for c in commits)

    with closing(registry_store(fed.proxy.host, token_hosts=frozenset({fed.service.host}), path=PATH)) as anybody:
        names = [anybody.resolve(f"global:v{n}") for n in range(VERSIONS + 1)]
    assert names == [Digest(world.version(f"global@v{n}.0.0")["model"]["manifest"]) for n in range(VERSIONS + 1)]

    before = world.hub.snapshot()
    world.jobs()
    assert world.hub.snapshot() == before, "run again, the jobs change nothing"
    assert world.job("audit", file="audit.yml")["ok"] is True
    assert world.hub.refused == [], "each job's rights suffice"
    well_set_up(world)
    nothing_leaked(fed)


def well_set_up(world: GitHubWorld) -> None:
    """The doctor finds nothing to better on GitHub, for the lead and for a site."""
    lead, site = ({c["name"]: c["state"] for c in world.json(who, "doctor")["checks"]} for who in ("lead", A))
    names = ("token", "merge commits", "main: force pushes", "tags global@*: update", "write access", "actions")
    assert {lead[name] for name in (*names, "workflow permissions", "workflows of forks")} == {"ok"}
    assert [site[name] for name in ("token", "own store", "rules and rights")] == ["ok"] * 3


def nothing_leaked(fed: Fed) -> None:
    """Passwords went to the token service alone, GitHub's tokens to GitHub alone; none stands in any file."""
    kinds = {seen.headers.get("authorization", "none").partition(" ")[0] for seen in fed.proxy.seen}
    assert kinds == {"none", "Bearer"}
    files = [p for p in fed.world.folder.rglob("*") if p.is_file() and "objects" not in p.parts]
    tokens = (JOB, *fed.world.hub.minted, *fed.world.hub.users)
    secrets = [text.encode() for text in (*tokens, *PASSWORDS.values())]
    assert [(p, s) for p in files for s in secrets if s in p.read_bytes()] == []
