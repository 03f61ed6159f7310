"""What `fedops doctor` judges of a repository's settings on GitHub, against levels 1 and 2 of the set-up guide; pure.

Level 1: sites hand in from forks, only leads may write, main and the versions' tags cannot be rewritten, and no rule
keeps the job's token from pushing. Level 2: a pull request, approvals of its newest commit and CI's verdict are
required, and versions are pushed with a deploy key, which alone may bypass that. What the token may not read is said to
be unchecked, and where a person sees it.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedops.core.facts import Account
from fedops.core.forge_settings import ForgeSettings, Unread
from fedops.core.health import Check
from fedops.core.health_forks import check_forks
from fedops.core.health_level_2 import check_level_2, unread
from fedops.core.health_rules import check_main, check_version_tags
from fedops.core.ids import SiteId
from fedops.core.settings import Aggregation, Sites


def check_forge(
    seen: ForgeSettings, branch: str, sites: Sites, site: SiteId | None, policy: Aggregation
) -> Iterator[Check]:
    """All that is to say; of a site's clone only what concerns the site.

    Args:
        branch: main's name by federation.yaml.
        policy: what it demands of CI, people must need too, and a version under review is a pull request of a job.
    """
    yield check_token(seen, sites, site)
    yield from check_repository(seen, branch)
    if site is not None:
        yield Check("rules and rights", "ok", f"the leads' business: asked in a lead's clone, of {seen.page}")
        return
    yield check_merges(seen)
    yield from check_main(seen, branch)
    yield from check_level_2(seen, branch, sites, policy)
    yield from check_version_tags(seen)
    yield check_writers(seen, sites)
    yield from check_workflows(seen, jobs_open_pulls=policy.publish.mode == "review")
    yield from check_forks(seen)
    yield from check_packages(seen)


def check_token(seen: ForgeSettings, sites: Sites, site: SiteId | None) -> Check:
    """Whose token it is, and whether it has the rights of its owner's part, no less and no more."""
    name, account = "token", seen.account
    if isinstance(account, Unread):
        return Check(name, "warning", f"none that counts: {account.reason}", "one of yours", "export FEDOPS_TOKEN=…")
    if not seen.is_person or seen.may_write is None:
        return Check(name, "ok", f"{account.login}; GitHub does not say what it may do here")
    if any(lead.id == account.id for lead in sites.leads):
        if seen.may_write:
            return Check(name, "ok", f"{account.login}, a lead, may write to {seen.name}")
        return Check(
            name,
            "warning",
            f"{account.login}, a lead, may only read {seen.name}",
            "the right to push policies",
            f"a token with contents: write, and the role: {seen.page}/access",
        )
    if seen.may_write:
        return Check(
            name,
            "warning",
            f"{account.login}, no lead of the roster, may write to {seen.name}: so it can rewrite main",
            "read access, and a fork" if site is not None else "write access for leads alone",
            f"a lead: {seen.page}/access",
        )
    return Check(name, "ok", f"{account.login}, may read {seen.name}")


def check_repository(seen: ForgeSettings, branch: str) -> Iterator[Check]:
    """What no part of the loop can work without."""
    name = "repository"
    if seen.archived:
        yield Check(name, "broken", f"{seen.name} is archived", "open for writing", f"Unarchive: {seen.page}")
    elif not seen.has_issues:
        yield Check(
            name,
            "broken",
            f"{seen.name} has no issues: nobody is told to train",
            "on",
            f"Features, Issues: {seen.page}",
        )
    else:
        yield Check(name, "ok", seen.name)
    name = "default branch"
    if seen.default_branch == branch:
        yield Check(name, "ok", branch)
    else:
        got = f"{seen.default_branch}: schedules run there alone, and forks start there"
        yield Check(name, "broken", got, f"{branch}, as in federation.yaml", f"Default branch: {seen.page}")


def check_merges(seen: ForgeSettings) -> Check:
    """Merge commits alone keep a site's signed commit."""
    name, page = "merge commits", seen.page
    if seen.merge_commits is None:
        return unread(name, "the token needs the right to write contents", page)
    if not seen.merge_commits:
        return Check(name, "broken", "off: nothing can be merged", "on", f"Pull Requests, Allow merge commits: {page}")
    if seen.other_merges:
        got = "on, but squash or rebase too: they lose the site's signed commit"
        return Check(
            name,
            "warning",
            got,
            "merge commits alone",
            f"Pull Requests, Allow squash merging, Allow rebase merging: {page}",
        )
    return Check(name, "ok", "on, and nothing else")


# ---------------------------------------------------------------- rights


def check_writers(seen: ForgeSettings, sites: Sites) -> Check:
    """Who may write can rewrite main, forge a status, and read the jobs' secrets."""
    name, page = "write access", f"{seen.page}/access"
    if isinstance(seen.writers, Unread):
        return unread(name, seen.writers, page)
    leads = {lead.id for lead in sites.leads}
    others = [account for account in seen.writers if account.id not in leads]
    if not others:
        return Check(name, "ok", f"leads alone, {len(seen.writers)} of {len(leads)}")
    shown = ", ".join(_shown(account, sites) for account in others[:5]) + (", …" if others[5:] else "")
    return Check(name, "warning", f"not on the roster as leads: {shown}", "leads alone; sites have forks", page)


def _shown(account: Account, sites: Sites) -> str:
    owned = (site for site, entry in sorted(sites.sites.items()) if any(a.id == account.id for a in entry.accounts))
    site = next(owned, None)
    return account.login if site is None else f"{account.login} (of {site})"


def check_workflows(seen: ForgeSettings, *, jobs_open_pulls: bool) -> Iterator[Check]:
    """Whether the three workflows run, and with which rights where a job names none."""
    page = f"{seen.page}/actions"
    yield _check_actions(seen, page)
    name, rights = "workflow permissions", seen.job_rights
    if isinstance(rights, Unread):
        yield unread(name, rights, page)
    elif jobs_open_pulls and not rights.pulls:
        got = "jobs may open no pull requests, and publish.mode is review: no version can be proposed"
        yield Check(name, "broken", got, "Allow GitHub Actions to create and approve pull requests", page)
    elif rights.default != "read":
        got = "a job that names no rights may write"
        yield Check(name, "warning", got, "Read repository contents and packages permissions", page)
    elif rights.pulls and not jobs_open_pulls:
        got = "jobs may open and approve pull requests, which none of them does"
        yield Check(name, "warning", got, "Allow GitHub Actions to create and approve pull requests: off", page)
    else:
        yield Check(name, "ok", "read, where a job names none")


def _check_actions(seen: ForgeSettings, page: str) -> Check:
    name, found = "actions", seen.workflows
    needed = "actions/checkout and actions/setup-python allowed"
    if isinstance(found, Unread):
        return unread(name, found, page)
    if not found.enabled:
        return Check(name, "broken", "off: no job runs", "on", f"Actions permissions: {page}")
    if found.allowed == "local_only":
        return Check(name, "broken", "only this owner's own actions may be used", needed, page)
    if isinstance(found.github_owned, Unread):
        return unread(name, found.github_owned, page)
    if found.allowed == "selected" and not found.github_owned:
        return Check(name, "warning", "only selected actions, and not GitHub's own as such", needed, page)
    return Check(name, "ok", f"on, {found.allowed} actions")


def check_packages(seen: ForgeSettings) -> Iterator[Check]:
    """As far as the API says; whether a repository's jobs may write a package, its page alone shows."""
    for name, page, found in seen.packages:
        what = f"package {name}"
        if isinstance(found, Unread):
            yield unread(what, found, page)
        elif (found.repository or "").casefold() != seen.name.casefold():
            got = f"{found.visibility}, connected to {found.repository or 'no repository'}"
            expected = f"{seen.name} with the role Write"
            yield Check(what, "warning", got, expected, f"Manage Actions access: {page}")
        else:
            got = f"{found.visibility}, connected to {found.repository}"
            if found.visibility != "public":
                readers = "sites" if name.rpartition("/")[2] == "global" else "auditors"
                got += f": {readers} need the role Read"
            yield Check(what, "ok", f"{got}; its rights: {page}")
