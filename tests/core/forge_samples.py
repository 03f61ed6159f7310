"""Settings of a repository on GitHub as the set-up guide has them, to be changed by tests."""

from __future__ import annotations

from fedops.core.facts import Account
from fedops.core.forge_settings import ForgeSettings, JobRights, Package, Rule, Unread, Workflows
from fedops.core.settings import Sites

LENA, ALICE, EVE = Account("lena", 1), Account("alice-a", 1001), Account("eve", 7)
SITES = Sites.model_validate(
    {
        "schema": "fedops.sites/v1",
        "leads": ({"login": "lena", "id": 1},),
        "sites": {"hospital-a": {"accounts": ({"login": "alice-a", "id": 1001},)}},
    }
)
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
