"""DVC's own commands on a real registry: the same federation, its store moved there."""

from __future__ import annotations

import json

from fedops.adapters.store_layout import LayoutStore
from fedops.app.dvc_config import render_dvc_config
from fedops.core.ids import Digest
from fedops.core.settings import Person, Site
from tests.registry.server import registry_server
from tests.registry.worlds import registry_store
from tests.scenario.test_dvc_commands import GLOBAL, UPDATES, Place, place

__all__ = ["place"]  # a fixture


def test_pull_and_push_work_on_a_registry_too(place: Place) -> None:
    site = "sites/hospital-a"
    manifests = {
        "global": Digest(place.record(4)["model"]["manifest"]),
        site: Digest(json.loads((place.clone / site / "submission.json").read_text())["manifest"]),
    }
    with registry_server(place.folder / "registry") as server:
        registry = registry_store(server.host)
        folder = LayoutStore(place.origin / "store")
        for repository, manifest in manifests.items():
            artifact = folder.manifest(repository, manifest)
            folder.get(repository, artifact.layer, place.folder / "moving")
            registry.put(repository, place.folder / "moving", artifact.annotations, artifact.config)
        person = Person(login="a", id=1)
        sites = {name: Site(accounts=(person,)) for name in ("clinic-c", "hospital-a", "hospital-b")}
        (place.clone / ".dvc/config").write_bytes(render_dvc_config(f"oci://{server.host}/acme/fed", sites))

        place.dvc("pull", GLOBAL, UPDATES[0])
        assert place.models() == [GLOBAL, UPDATES[0]]
        assert place.sha256(GLOBAL) == place.record(4)["model"]["sha256"]
        assert place.sha256(UPDATES[0]) == place.recorded("hospital-a")

        assert registry.drop(site, manifests[site])
        assert "1 file pushed" in place.dvc("push", UPDATES[0]).stdout
        again = registry.manifest(site, manifests[site])
        assert again.layer.sha256 == place.recorded("hospital-a")
        registry.close()
