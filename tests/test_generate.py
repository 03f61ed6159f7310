"""`python -m tests.generate`: finds what is stale, rewrites it, and then finds nothing."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from fedops.core.catalogue import CATALOGUE
from fedops.core.settings import Sites
from tests.generate import GENERATORS, ROOT, findings_page, helps, main, schema, schemas, stale, zone


def one() -> dict[str, bytes]:
    return {"a/b.txt": b"new\n", "c.txt": b"same\n"}


def test_check_names_what_differs_and_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.txt").write_bytes(b"same\n")
    assert main(["--check"], tmp_path, [one]) == 1
    out = capsys.readouterr().out
    assert "differs: a/b.txt\n" in out
    assert "c.txt" not in out
    assert "python -m tests.generate" in out
    assert not (tmp_path / "a").exists()


def test_without_check_it_is_rewritten_and_then_nothing_differs(tmp_path: Path) -> None:
    assert main([], tmp_path, [one]) == 0
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"new\n"
    assert main(["--check"], tmp_path, [one]) == 0


def test_other_arguments_are_refused(tmp_path: Path) -> None:
    assert main(["--chek"], tmp_path, [one]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda g: g.__name__)
def test_everything_generated_in_this_repository_is_fresh(generator: object) -> None:
    assert callable(generator)
    assert stale(ROOT, generator()) == [], "run: python -m tests.generate"


def test_schemas_reach_the_zone_unchanged() -> None:
    made, written = schemas(), zone()
    assert len(made) == 7
    for path, data in made.items():
        assert written[path.removeprefix("fedops/template/")] == data


def test_a_schema_has_no_titles_but_keeps_a_field_of_that_name() -> None:
    assert b'"title"' not in schema(Sites)
    assert b'"accounts"' in schema(Sites)


def test_every_finding_has_its_section_and_a_link_to_it() -> None:
    page = findings_page()["docs/reference/findings.md"].decode()
    for slug, rule in CATALOGUE.items():
        assert f"\n## {rule.id} {slug}\n" in page
        assert f"(#{rule.id.lower()}-{slug})" in page


def test_help_is_shown_for_every_command_whatever_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.group()
    def top() -> None:
        """Top."""

    @top.command()
    def below() -> None:
        """Below."""

    monkeypatch.setenv("COLUMNS", "30")
    pages = dict(helps(top, "top"))
    assert list(pages) == ["top", "top below"]
    assert pages["top below"].startswith("Usage: top below [OPTIONS]")
