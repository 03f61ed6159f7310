"""No handed case is forgotten: each is executed by a test here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.cases.harness import Cases

NUMBER = re.compile(r"H[0-9]{2}\Z")
SWITCHES = {"skip", "skipif", "xfail", "importorskip"}


def modules() -> dict[str, ast.Module]:
    paths = sorted(Path(__file__).parent.glob("test_*_cases.py"))
    return {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def executed() -> dict[str, set[str]]:
    """Case number -> modules with a test that names it, in its body or in what it is parametrized by."""
    found: dict[str, set[str]] = {}
    for module, tree in modules().items():
        for test in tree.body:
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                for node in ast.walk(test):
                    if isinstance(node, ast.Constant) and isinstance(node.value, str) and NUMBER.match(node.value):
                        found.setdefault(node.value, set()).add(module)
    return found


def test_every_case_is_executed(cases: Cases) -> None:
    handed = {name.split("-")[0] for name in cases.documents}
    assert handed == {f"H{i:02d}" for i in range(1, 46)}
    assert executed().keys() == handed


def test_a_case_with_numbers_is_aggregated_not_only_checked(cases: Cases) -> None:
    numbers = {name.split("-")[0] for name, document in cases.documents.items() if document["op"] == "aggregate"}
    assert numbers
    for number in numbers:
        assert "test_aggregate_cases" in executed()[number], number


def test_no_case_is_switched_off() -> None:
    assert modules()
    for module, tree in modules().items():
        words = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not words & SWITCHES, module
