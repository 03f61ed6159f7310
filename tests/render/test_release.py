"""A version's page: what it is made of, and commands that fetch exactly it."""

from __future__ import annotations

import pytest

from fedops.core.settings import Federation
from fedops.render.release import release_page
from tests.core.samples import version


def federation(store: str = "ocidir:store", **forge: str) -> Federation:
    document = {"schema": "fedops.federation/v1", "name": "fed", "fedops": "0.1.0", "store": {"url": store}}
    return Federation.model_validate(document | ({"forge": {"kind": "github", **forge}} if forge else {}))


def test_the_page_names_digest_sites_and_commands() -> None:
    record = version(9)
    title, body = release_page(record, federation("oci://ghcr.io/fed-org/demo", repository="fed-org/demo"))
    assert title.startswith("global: v9 (")
    for text in (
        f"sha256:{record.model.sha256}",
        *(c.site for c in record.contributions),
        "$ fedops pull v9",
        "$ fedops dvc get https://github.com/fed-org/demo global/model.safetensors --rev global@v9.0.0",
        f"$ oras pull ghcr.io/fed-org/demo/global@{record.model.manifest}",
        "fedops verify v9",
    ):
        assert text in body


def test_another_server_has_another_address() -> None:
    _, body = release_page(version(9), federation(repository="o/n", api_url="https://ghe.example/api/v3"))
    assert "dvc get https://ghe.example/o/n " in body


@pytest.mark.parametrize("absent", ["oras pull", "dvc get"])
def test_what_cannot_be_had_that_way_is_not_offered(absent: str) -> None:
    _, body = release_page(version(9), federation())
    assert absent not in body
    assert "fedops pull v9" in body
