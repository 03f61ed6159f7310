"""What `fedops doctor` says of forks of a private repository on GitHub."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedops.core.forge_settings import ForkRuns
from fedops.core.health_forge import check_forge
from tests.core.forge_samples import AUTO, NO, PAGE, PRIVATE, SITES
from tests.doctor_report import bad, by_name

RUNS = "workflows of forks"


@pytest.mark.parametrize(
    ("changes", "expected", "switch"),
    [
        ({}, {}, ""),
        ({"may_fork": False}, {"forks": "warning"}, "Features, Allow forking ("),
        ({"may_fork": None}, {"forks": "warning"}, "look there: "),
        ({"fork_runs": ForkRuns(False, False, False)}, {RUNS: "warning"}, "Run workflows from fork pull requests"),
        ({"fork_runs": ForkRuns(False, True, True)}, {RUNS: "warning"}, "Run workflows from fork pull requests"),
        ({"fork_runs": ForkRuns(True, True, False)}, {RUNS: "warning"}, "Send write tokens to workflows"),
        ({"fork_runs": ForkRuns(True, False, True)}, {RUNS: "warning"}, "Send secrets to workflows"),
        ({"fork_runs": NO}, {RUNS: "warning"}, "look there: "),
    ],
)
def test_the_switch_of_a_private_repository_that_is_not_right_is_named(
    changes: dict[str, Any], expected: dict[str, str], switch: str
) -> None:
    checks = by_name(check_forge(replace(PRIVATE, **changes), "main", SITES, None, AUTO))
    assert bad(checks.values()) == expected
    for name in expected:
        assert switch in f"{checks[name].expected} {checks[name].next}"
        assert PAGE in checks[name].next


def test_all_switches_that_are_wrong_are_named_at_once() -> None:
    seen = replace(PRIVATE, fork_runs=ForkRuns(True, True, True))
    check = by_name(check_forge(seen, "main", SITES, None, AUTO))[RUNS]
    assert "a token that may write and the repository's secrets" in check.got
    assert check.expected.count(": off") == 2


def test_of_a_public_repository_forks_are_not_asked_about() -> None:
    seen = replace(PRIVATE, private=False, may_fork=False, first_runs="all_external_contributors")
    checks = by_name(check_forge(seen, "main", SITES, None, AUTO))
    assert (bad(checks.values()), "forks" in checks) == ({}, False)
