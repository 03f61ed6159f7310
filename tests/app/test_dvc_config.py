"""`.dvc/config`: read by DVC's own parser, it has one verified remote per site."""

from __future__ import annotations

import configobj  # type: ignore[import-untyped]  # has no stubs
import pytest

from fedops.app.dvc_config import render_dvc_config, with_site_remote
from fedops.core.ids import SiteId
from fedops.core.settings import Person, Site

PERSON = (Person(login="a", id=1),)
SITES = {"b": Site(accounts=PERSON), "a": Site(accounts=PERSON, store="oci://h/a")}


def parsed(data: bytes) -> dict[str, dict[str, str]]:
    config = configobj.ConfigObj(data.decode().splitlines())
    return {section: dict(config[section]) for section in config}


def test_the_default_remote_is_the_global_one_and_nothing_phones_home() -> None:
    assert parsed(render_dvc_config("ocidir:store", {})) == {
        "core": {"remote": "global", "analytics": "false", "check_update": "false"},
        'remote "global"': {"url": "ocidir://store/global", "verify": "true"},
    }


def test_each_site_has_its_remote_in_its_own_store() -> None:
    config = parsed(render_dvc_config("ocidir:store", SITES))
    assert config['remote "sites-a"'] == {"url": "oci://h/a/sites/a", "verify": "true"}
    assert config['remote "sites-b"'] == {"url": "ocidir://store/sites/b", "verify": "true"}
    assert list(config) == ["core", 'remote "global"', 'remote "sites-a"', 'remote "sites-b"']


def test_a_second_time_changes_nothing() -> None:
    data = render_dvc_config("ocidir:store", SITES)
    assert with_site_remote(data, SiteId("b"), "ocidir:store") == data


def test_a_site_that_moved_gets_the_new_address_and_keeps_its_options() -> None:
    data = b"[core]\n    remote = global\n['remote \"sites-b\"']\n    timeout = 9\n    url = ocidir://old\n    verify = true\n[x]\n    url = y\n"
    moved = with_site_remote(data, SiteId("b"), "oci://h/n")
    assert moved == data.replace(b"ocidir://old", b"oci://h/n/sites/b")


@pytest.mark.parametrize(
    "before", [b"", b"[core]\n    remote = mine", b"['remote \"sites-b\"']\n    verify = false\n[core]\n"]
)
def test_what_people_wrote_stays_in_front(before: bytes) -> None:
    after = with_site_remote(before, SiteId("c"), "ocidir:s")
    assert after.startswith(before)
    assert parsed(after)['remote "sites-c"'] == {"url": "ocidir://s/sites/c", "verify": "true"}


def test_a_section_without_an_address_gets_one() -> None:
    before = b"['remote \"sites-b\"']\n    verify = false\n[core]\n    url = x"
    config = parsed(with_site_remote(before, SiteId("b"), "ocidir:s"))
    assert config == {'remote "sites-b"': {"url": "ocidir://s/sites/b", "verify": "false"}, "core": {"url": "x"}}
