"""The pages under docs/ name commands, files, settings and findings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedops.core.catalogue import CATALOGUE
from fedops.core.documents import load_document
from fedops.core.settings import Aggregation, SubmissionPolicy
from tests.pages import ROOT, command_of, fedops_lines, fenced, links, shell
from tests.template.test_workflows import option_names

PAGES = sorted(p for p in (ROOT / "docs").rglob("*.md") if "reference" not in p.parts)
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
NUMBERS = {rule.id: slug for slug, rule in CATALOGUE.items()}
POLICY = ROOT / "docs" / "how-to" / "write-a-policy.md"


@EACH_PAGE
def test_every_command_and_option_that_is_shown_exists(page: Path) -> None:
    for words in fedops_lines(page.read_text("utf-8")):
        path = command_of(words)
        if path[:1] == ["dvc"]:
            continue  # what follows is DVC's own
        given = {word.partition("=")[0] for word in words if word.startswith("--")} - {"--help"}
        assert given <= option_names(path), words


@EACH_PAGE
def test_every_file_that_is_linked_is_there(page: Path) -> None:
    assert [link for link in links(page.read_text("utf-8")) if not (page.parent / link).exists()] == []


@EACH_PAGE
def test_every_finding_that_is_named_exists_under_its_word(page: Path) -> None:
    for number, word in re.findall(r"(FO-\d+)(?: ([a-z]+_[a-z_]+))?", page.read_text("utf-8")):
        assert number in NUMBERS
        assert word in ("", NUMBERS[number])


def test_the_pages_are_found_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    reached, new = set[Path](), {(ROOT / link).resolve() for link in links(readme)}
    while new - reached:
        page = (new - reached).pop()
        reached.add(page)
        if page.suffix == ".md" and page.exists():
            new |= {(page.parent / link).resolve() for link in links(page.read_text("utf-8"))}
    assert [str(page) for page in PAGES if page not in reached] == []


def test_the_recipes_are_policies_that_load() -> None:
    recipes = fenced(POLICY.read_text("utf-8"), "yaml")
    assert len(recipes) > 5
    for recipe in recipes:
        model = SubmissionPolicy if recipe.startswith("update_norm_max") else Aggregation
        kind = "submission-policy" if model is SubmissionPolicy else "aggregation"
        load_document(f"schema: fedops.{kind}/v1\n{recipe}".encode(), model, "recipe")


def test_a_shell_script_is_what_follows_the_prompts() -> None:
    page = "a\n```console\n# said\n$ cat <<END\nx\nEND\n$ b\n```\n1. c\n   ```console\n   $ d\n   ```\n"
    assert shell(page) == "cat <<END\nx\nEND\nb\nd\n"
