"""A site's starter file: written and read back, with no secret in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.core.documents import load_document
from fedops.core.errors import ConfigError
from fedops.core.settings import Forge
from fedops.core.starter import Shared, Starter, address, render_starter

SHARED = Shared(
    federation="heart",
    origin="https://git.example.org/heart.git",
    branch="main",
    first_version="a" * 40,
    fedops="0.1.0",
    forge=Forge(),
    store="ocidir:store",
)


def read(data: bytes) -> Starter:
    return load_document(data, Starter, "starter.yaml")


@given(
    login=st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=100),
    number=st.integers(0, 2**53),
    store=st.sampled_from(["ocidir:store", "ocidir:/srv/a b/#c", "oci://host/ns: x"]),
    own=st.sampled_from([None, "ocidir:/srv/a b/#c", "oci://ghcr.io/alice-a/heart"]),
)
def test_what_is_written_is_read_back(login: str, number: int, store: str, own: str | None) -> None:
    shared = SHARED.model_copy(update={"store": store})
    starter = Starter(site="hospital-a", login=login, id=number, store=own, shared=shared)
    assert read(render_starter(starter)) == starter


def test_a_sites_own_store_stands_beside_the_site_and_one_without_has_no_line_for_it() -> None:
    plain = Starter(site="a", login="a", id=1, shared=SHARED)
    own = Starter(site="a", login="a", id=1, store="oci://ghcr.io/alice-a/heart", shared=SHARED)
    before, after = render_starter(plain).decode(), render_starter(own).decode()
    assert after == before.replace("\nshared:", '\nstore: "oci://ghcr.io/alice-a/heart"\nshared:')


@pytest.mark.parametrize(
    ("origin", "shown"),
    [
        ("https://alice:secret@git.example.org/heart.git", "https://git.example.org/heart.git"),
        ("https://alice:p@ss@git.example.org/heart.git", "https://git.example.org/heart.git"),
        ("https://token@git.example.org/heart.git", "https://git.example.org/heart.git"),
        ("git@git.example.org:heart.git", "git@git.example.org:heart.git"),
        ("ssh://git@git.example.org/heart.git", "ssh://git@git.example.org/heart.git"),
        ("ssh://git:se@cret@git.example.org:22/heart.git", "ssh://git@git.example.org:22/heart.git"),
        ("/srv/fed/heart.git", "/srv/fed/heart.git"),
    ],
)
def test_an_address_is_told_without_credentials(origin: str, shown: str) -> None:
    assert address(origin) == shown


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("https://git.", "https://alice:secret@git.", "without user name and password"),
        ("https://git.example.org/heart.git", "ext::sh -c true", "origin"),
        ("https://git.example.org/heart.git", "ext::true", "not a command"),
        ("https://git.example.org/heart.git", "--upload-pack=true", "origin"),
        ("site: a", "site: global", "site_id_reserved"),
        ("site: a", "site: ../x", "site_id_invalid"),
        ("aaaa", "AAAA", "first_version"),
        ("branch: main", "branch: -x", "branch"),
        ("\nshared:", "\nstore: ftp://host/heart\nshared:", "store: "),
    ],
)
def test_a_forged_starter_is_refused(before: str, after: str, said: str) -> None:
    text = render_starter(Starter(site="a", login="a", id=1, shared=SHARED)).decode()
    assert before in text
    with pytest.raises(ConfigError, match=said):
        read(text.replace(before, after).encode())
