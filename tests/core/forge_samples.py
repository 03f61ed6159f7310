"""Settings of a repository on GitHub as the set-up guide has them, to be changed by tests."""

from __future__ import annotations

from dataclasses import replace

from fedops.core.facts import Account
from fedops.core.forge_settings import (
    ForgeSettings,
    ForkRuns,
    JobRights,
    Package,
    Publisher,
    Rule,
    Unread,
    Workflows,
)
from fedops.core.settings import Aggregation, Lead, MergePolicy, PublishPolicy, Sites

LENA, OTTO, ALICE, EVE = Account("lena", 1), Account("otto", 2), Account("alice-a", 1001), Account("eve", 7)
SITES = Sites.model_validate(
    {
        "schema": "fedops.sites/v1",
        "leads": ({"login": "lena", "id": 1},),
        "sites": {"hospital-a": {"accounts": ({"login": "alice-a", "id": 1001},)}},
    }
)
TWO_LEADS = SITES.model_copy(update={"leads": (*SITES.leads, Lead(login="otto", id=2))})
AUTO = Aggregation.model_validate({"schema": "fedops.aggregation/v1"})
REVIEW = AUTO.model_copy(update={"merge": MergePolicy(mode="review", approvals=1)})  # as level 2 demands it
VERSIONS_REVIEWED = AUTO.model_copy(update={"publish": PublishPolicy(mode="review")})
PAGE = "https://github.com/acme/heart/settings"
NO = Unread("403, no rights")
KEPT = tuple(Rule(kind, "ruleset 'main'", f"{PAGE}/rules/1") for kind in ("non_fast_forward", "deletion"))
TAGS = tuple(Rule(kind, "ruleset 'tags'", f"{PAGE}/rules/2") for kind in ("update", "deletion"))
WELL = ForgeSettings(
    name="acme/heart",
    page=PAGE,
    account=LENA,
    is_person=True,
    may_write=True,
    default_branch="main",
    archived=False,
    has_issues=True,
    merge_commits=True,
    other_merges=False,
    rules=KEPT,
    protection=(),
    tag_rules=TAGS,
    writers=(LENA,),
    workflows=Workflows(enabled=True),
    job_rights=JobRights("read", pulls=False),
    first_runs="first_time_contributors",
    packages=(("heart/global", "https://github.com/p", Package("private", "acme/heart")),),
)

# Level 2 as the guide has it, and a private repository.
STRICT = "ruleset 'strict'"
PULLS = Rule("pull_request", STRICT, f"{PAGE}/rules/3", ("DeployKey",), approvals=1, dismisses=True, last_push=True)
GREEN = Rule("required_status_checks", STRICT, f"{PAGE}/rules/3", ("DeployKey",), statuses=("build", "fedops/verdict"))
PUBLISHER = Publisher(environment=True, refs=("refs/heads/main",), secret=True, keys=("fedops publish",))
WELL_2 = replace(WELL, rules=(*KEPT, PULLS, GREEN), publisher=PUBLISHER, writers=(LENA, OTTO))
PRIVATE = replace(WELL, private=True, may_fork=True, first_runs=NO, fork_runs=ForkRuns(True, False, False))
