"""The example federation: three synthetic sites and a tiny model; the same bytes whenever and wherever it is made."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path

from fedops import __version__
from fedops.app.first_model import Generated, first_model
from fedops.app.founding import Wanted, first_record
from fedops.app.scaffold import Scaffold, render
from fedops.core.facts import TensorSpec
from fedops.core.ids import CommitId, RepoPath
from fedops.core.plan import plan_version
from fedops.core.records import model_pointer
from fedops.core.settings import Lead, Person, Site
from fedops.ports import Models

EXAMPLE_TIME = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
EXAMPLE_SOFTWARE: Mapping[str, str] = {"fedops": __version__}  # no versions of this machine's libraries
# Public halves alone; their private halves were thrown away, so nobody can sign for these people.
_KEYS = {
    "lena": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIALZwQ3ScWAHxcQy1LPtA9NrtON4KmKIbDFrQkjdknoG lena (example)",
    "alice-a": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK+RLvBGouFbTTapL5MnFnV9xg2mPbanFDFyulJU1v2T alice-a (example)",
    "bob-b": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP0a0iFFKEDkHm+6WiWU692QIZO9glVgGcEeq3dQJdrO bob-b (example)",
    "carol-c": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHl1Srb3eVOyhc9zwfPkfX1K8YVlk6fuqPSDlhBcI00f carol-c (example)",
}


def example() -> Wanted:
    """What `fedops init --example` founds."""
    sites = {
        site: Site(accounts=(Person(login=login, id=number),), keys=(_KEYS[login],))
        for site, login, number in (
            ("clinic-c", "carol-c", 1003),
            ("hospital-a", "alice-a", 1001),
            ("hospital-b", "bob-b", 1002),
        )
    }
    scaffold = Scaffold(
        name="breast-cancer",
        store="ocidir:.fedops/store",
        fedops=__version__,
        leads=(Lead(login="lena", id=1, keys=(_KEYS["lena"],)),),
        sites=sites,
    )
    specs = {"coef": TensorSpec("F32", (1, 30)), "intercept": TensorSpec("F32", (1,))}
    return Wanted(scaffold, Generated("normal", 1, specs), decided_at=EXAMPLE_TIME, software=EXAMPLE_SOFTWARE)


def example_files(models: Models, folder: Path) -> dict[RepoPath, bytes]:
    """Every file of the example federation, computed without git and without a store.

    Args:
        folder: for the model's bytes, which are no file of the federation.
    """
    wanted = example()
    files = render(wanted.scaffold)
    assert wanted.model is not None
    model, _ = first_model(models, wanted.model, folder)
    assert model is not None
    record = first_record(files, model, EXAMPLE_TIME, EXAMPLE_SOFTWARE)
    extension = wanted.scaffold.extension
    plan = plan_version(
        record, model_pointer(record, extension), CommitId("0" * 40), extension=extension, at=EXAMPLE_TIME
    )
    return dict(sorted({**files, **plan.files}.items()))
