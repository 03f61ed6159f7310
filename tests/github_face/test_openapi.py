"""The checker refuses what GitHub's description does not have; without that its silence would mean nothing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.github_face.openapi import Exchange, github
from tests.github_face.trim_openapi import DESCRIPTION, LICENSE, OPERATIONS, VERSION, main, trim

ISSUE = github().filled("issue", {"number": 1, "state": "open", "title": "t", "labels": []})
GOOD = Exchange("POST", "/repos/o/n/issues", {"title": "t", "body": "b", "labels": ["fedops"]}, 201, ISSUE)
PULL = {"title": "t", "head": "a:b", "base": "main"}


def faults(**changes: Any) -> list[str]:
    return github().faults(dataclasses.replace(GOOD, **changes))


def test_a_right_exchange_has_no_faults() -> None:
    assert faults() == []


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"method": "PUT"}, "no such operation"),
        ({"path": "/repos/o/n/problems"}, "no such operation"),
        ({"path": "/repos/o/issues"}, "no such operation"),
        ({"body": {"body": "b"}}, "'title' is a required property"),
        ({"body": {"title": "t", "labels": "fedops"}}, "is not"),
        ({"body": {"title": "t", "colour": "red"}}, "unknown colour"),
        ({"body": None}, "missing"),
        ({"status": 204}, "not documented"),
        ({"answer": {}}, "is a required property"),
        ({"answer": {**ISSUE, "number": "1"}}, "number"),
        ({"answer": {**ISSUE, "user": {"login": "x"}}}, "user"),
        ({"status": 500, "answer": {"message": 5}}, "message"),
        ({"method": "GET", "body": {"title": "t"}, "status": 200, "answer": []}, "not expected"),
        (
            {"method": "GET", "body": None, "status": 200, "answer": [], "path": "/repos/o/n/issues?state=closd"},
            "state",
        ),
        (
            {"method": "GET", "body": None, "status": 200, "answer": [], "path": "/repos/o/n/issues?stat=all"},
            "unknown stat",
        ),
        ({"method": "GET", "body": None, "status": 200, "answer": [], "path": "/repos/o/n/issues?page=x"}, "page"),
        ({"path": "/repos/o/n/pulls", "body": {**PULL, "base": None}, "answer": {}}, "None is not of type"),
        ({"path": "/repos/o/n/pulls", "body": {"title": "t", "head": "a:b"}, "answer": {}}, "'base' is a required"),
    ],
)
def test_a_wrong_exchange_is_refused(changes: dict[str, Any], word: str) -> None:
    assert any(word in fault for fault in faults(**changes)), faults(**changes)


def test_an_open_issue_has_no_reason_whatever_the_description_says() -> None:
    assert faults(answer={**ISSUE, "state_reason": None}) == []
    assert faults(answer={**ISSUE, "state_reason": "whim"}) != []
    assert faults(answer={**ISSUE, "state": None}) != []


def test_of_two_operations_that_fit_the_one_with_more_words_is_meant() -> None:
    path = "/repos/o/n/branches/a/protection"
    [fault] = faults(method="GET", path=path, body=None, status=302, answer={})
    assert fault == "repos/get-branch-protection: status 302: not documented"


def test_a_limit_may_come_anywhere() -> None:
    assert faults(status=429, answer={"message": "slow down", "documentation_url": ""}) == []


def test_the_fixture_is_what_the_script_makes_of_itself() -> None:
    document = json.loads(DESCRIPTION.read_bytes())
    assert {path: sorted(methods) for path, methods in document["paths"].items()} == {
        path: sorted(methods) for path, methods in OPERATIONS.items()
    }
    assert trim(document) == document
    assert VERSION in document["info"]["version"]
    assert LICENSE.read_text().startswith("MIT License")


def test_the_script_takes_one_version_alone(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"version": "1.0.0"}')
    with pytest.raises(SystemExit, match=r"1\.0\.0"):
        main(tmp_path)
