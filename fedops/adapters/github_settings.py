"""A repository's settings on GitHub, read for `fedops doctor`; what the token may not read is noted, not guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import quote

from fedops.adapters.github_asking import NO_ACCESS, asked, listed, unread
from fedops.adapters.github_http import GitHubApi
from fedops.adapters.github_people import People
from fedops.adapters.github_publisher import read_publisher
from fedops.adapters.github_shapes import account_of
from fedops.core.errors import ForgeError
from fedops.core.facts import Account
from fedops.core.forge_settings import (
    NOT_ASKED,
    ForgeSettings,
    ForkRuns,
    JobRights,
    Package,
    Rule,
    Unread,
    Workflows,
    applies,
    wants_deploy_key,
)
from fedops.render.text import printable

T = TypeVar("T")

_DOTCOM = "https://github.com"  # packages of ghcr.io are shown here, wherever the repository is
_BRANCH_RULES = {  # of classic branch protection -> the word for the same rule of a ruleset
    "required_pull_request_reviews": "pull_request",
    "required_status_checks": "required_status_checks",
    "restrictions": "update",
}
_BRANCH_SWITCHES = {
    "required_linear_history": "required_linear_history",
    "required_signatures": "required_signatures",
    "lock_branch": "update",
}


class SettingsReader:
    """Reads one repository's settings: about fifteen requests, at level 2 up to five more; two of them are the overview.

    So many where no list has a second page; of a list with too many the rest is unread, and so is the whole.
    """

    def __init__(self, api: GitHubApi, people: People) -> None:
        self._api = api
        self._people = people
        self._page = f"{api.host.web}/{api.name}/settings"

    def read(self, branch: str, tag: str, packages: Sequence[tuple[str, str]]) -> ForgeSettings:
        """Everything that can be read.

        Args:
            branch: short name of the main branch.
            tag: a version's tag, there or not.
            packages: (owner, name) in GitHub's own registry.

        Raises:
            ForgeError: the repository itself cannot be read, or GitHub does not answer.
        """
        seen = self.overview()
        rulesets = self._rulesets()
        rules, protection = self._branch_rules(branch, rulesets), self._protection(branch)
        on_main = [rule for part in (rules, protection) if not isinstance(part, Unread) for rule in part]
        return replace(
            seen,
            rules=rules,
            protection=protection,
            tag_rules=_tag_rules(f"refs/tags/{tag}", rulesets, self._rule),
            writers=self._writers(),
            workflows=self._workflows(),
            job_rights=self._asked(
                "/actions/permissions/workflow",
                lambda data: JobRights(
                    str(data["default_workflow_permissions"]), bool(data["can_approve_pull_request_reviews"])
                ),
            ),
            publisher=read_publisher(self._api) if wants_deploy_key(on_main) else seen.publisher,
            first_runs=NOT_ASKED if seen.private else self._first_runs(),
            fork_runs=self._fork_runs() if seen.private else NOT_ASKED,
            packages=tuple(self._packages(packages)),
        )

    def overview(self) -> ForgeSettings:
        """The repository and the account alone.

        Raises:
            ForgeError: as `read`.
        """
        facts = self._api.facts()
        account, is_person = self._who()
        return ForgeSettings(
            name=str(facts["full_name"]),
            page=self._page,
            account=account,
            is_person=is_person,
            may_write=facts["permissions"]["push"] if facts.get("permissions") else None,
            default_branch=str(facts["default_branch"]),
            archived=bool(facts["archived"]),
            has_issues=bool(facts["has_issues"]),
            merge_commits=facts.get("allow_merge_commit"),
            other_merges=bool(facts.get("allow_squash_merge") or facts.get("allow_rebase_merge")),
            private=bool(facts["private"]),
            may_fork=facts.get("allow_forking"),
        )

    def _who(self) -> tuple[Account | Unread, bool]:
        try:
            return self._people.me(), self._people.has_user()
        except ForgeError as e:
            if e.cause != "auth":
                raise
            return Unread(e.message), False

    def _asked(self, path: str, read: Callable[[Any], T], **parameters: str | int) -> T | Unread:
        """What is read from an answer about the repository, or why there is none."""
        return asked(self._api, path, read, **parameters)

    # ------------------------------------------------------------ rules

    def _rulesets(self) -> Mapping[int, Mapping[str, Any]] | Unread:
        """The active rulesets, whole: number -> document."""
        known = listed(self._api, "/rulesets")  # with those of the organization
        if isinstance(known, Unread):
            return known
        found: dict[int, Mapping[str, Any]] = {}
        for number in (int(one["id"]) for one in known if one["enforcement"] == "active"):
            one = self._asked(f"/rulesets/{number}", dict)
            if isinstance(one, Unread):
                return one
            found[number] = one
        return found

    def _branch_rules(
        self, branch: str, rulesets: Mapping[int, Mapping[str, Any]] | Unread
    ) -> tuple[Rule, ...] | Unread:
        known = listed(self._api, f"/rules/branches/{quote(branch, safe='')}")
        if isinstance(known, Unread):
            return known
        of = rulesets if not isinstance(rulesets, Unread) else {}
        return tuple(self._rule(data, of.get(int(data.get("ruleset_id", 0)))) for data in known)

    def _rule(self, data: Mapping[str, Any], ruleset: Mapping[str, Any] | None) -> Rule:
        parameters = data.get("parameters") or {}
        source = f"ruleset {printable(str(ruleset['name']))!r}" if ruleset is not None else "a ruleset"
        number = int(data.get("ruleset_id") or (ruleset or {}).get("id") or 0)
        of_repository = ruleset is not None and ruleset.get("source_type", "Repository") == "Repository"
        page = f"{self._page}/rules/{number}" if of_repository else f"{self._page}/rules"
        return Rule(
            str(data["type"]),
            source,
            page,
            _bypass(ruleset),
            methods=tuple(parameters.get("allowed_merge_methods") or ("merge", "squash", "rebase")),
            statuses=tuple(str(one["context"]) for one in parameters.get("required_status_checks") or ()),
            approvals=int(parameters.get("required_approving_review_count") or 0),
            dismisses=bool(parameters.get("dismiss_stale_reviews_on_push")),
            last_push=bool(parameters.get("require_last_push_approval")),
        )

    def _protection(self, branch: str) -> tuple[Rule, ...] | Unread:
        """The rules of classic branch protection, which is beside rulesets."""
        at = f"/branches/{quote(branch, safe='')}"
        is_protected = self._asked(at, lambda data: bool(data["protected"]))
        if isinstance(is_protected, Unread) or not is_protected:
            return is_protected or ()
        answer = self._api.call("GET", f"{at}/protection", accept=NO_ACCESS)
        if answer.ok:
            return tuple(_protection_rules(answer.data, f"{self._page}/branches"))
        # NOTE: a branch that only rulesets protect is "protected" too; GitHub says so to those who may know.
        return () if "not protected" in answer.said else unread(answer)

    # ------------------------------------------------------------ rights

    def _writers(self) -> tuple[Account, ...] | Unread:
        found = listed(self._api, "/collaborators", permission="push")
        return found if isinstance(found, Unread) else tuple(account_of(one) for one in found)

    def _workflows(self) -> Workflows | Unread:
        found = self._asked("/actions/permissions", dict)
        if isinstance(found, Unread):
            return found
        allowed = found.get("allowed_actions", "all")
        owned: bool | Unread = True
        if allowed == "selected":
            owned = self._asked("/actions/permissions/selected-actions", lambda d: bool(d.get("github_owned_allowed")))
        return Workflows(bool(found["enabled"]), allowed, owned)

    def _first_runs(self) -> str | Unread:
        at = "/actions/permissions/fork-pr-contributor-approval"
        return self._asked(at, lambda data: str(data["approval_policy"]))

    def _fork_runs(self) -> ForkRuns | Unread:
        return self._asked(
            "/actions/permissions/fork-pr-workflows-private-repos",
            lambda data: ForkRuns(
                bool(data["run_workflows_from_fork_pull_requests"]),
                bool(data["send_write_tokens_to_workflows"]),
                bool(data["send_secrets_and_variables"]),
            ),
        )

    def _packages(self, wanted: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, Package | Unread]]:
        for owner, name in wanted:
            answer = self._api.anywhere(f"/users/{quote(owner)}", accept=NO_ACCESS)
            kind = "orgs" if answer.ok and answer.data["type"] == "Organization" else "users"
            encoded = quote(name, safe="")
            page = f"{_DOTCOM}/{kind}/{quote(owner)}/packages/container/{encoded}/settings"
            answer = self._api.anywhere(f"/{kind}/{quote(owner)}/packages/container/{encoded}", accept=NO_ACCESS)
            yield name, page, _package(answer.data) if answer.ok else unread(answer)


def _tag_rules(
    ref: str,
    rulesets: Mapping[int, Mapping[str, Any]] | Unread,
    rule: Callable[[Mapping[str, Any], Mapping[str, Any]], Rule],
) -> tuple[Rule, ...] | Unread:
    if isinstance(rulesets, Unread):
        return rulesets
    return tuple(
        rule(data, one)
        for one in rulesets.values()
        if one.get("target") == "tag" and _takes_in(one, ref)
        for data in one.get("rules") or ()
    )


def _takes_in(ruleset: Mapping[str, Any], ref: str) -> bool:
    names = (ruleset.get("conditions") or {}).get("ref_name") or {}
    return applies(ref, names.get("include") or (), names.get("exclude") or ())


def _bypass(ruleset: Mapping[str, Any] | None) -> tuple[str, ...] | Unread:
    if ruleset is None or "bypass_actors" not in ruleset:
        return Unread("GitHub shows it to those alone who may change the ruleset")
    actors = ruleset["bypass_actors"] or ()
    return tuple(sorted({str(a["actor_type"]) for a in actors if a.get("bypass_mode", "always") != "pull_request"}))


def _protection_rules(data: Mapping[str, Any], page: str) -> Iterator[Rule]:
    for key, kind in _BRANCH_RULES.items():
        found = data.get(key)
        if found is not None:
            allowed = found if key == "restrictions" else found.get("bypass_pull_request_allowances") or {}
            yield Rule(
                kind,
                "branch protection",
                page,
                ("Integration",) if allowed.get("apps") else (),
                statuses=tuple(map(str, found.get("contexts") or ())),
                approvals=int(found.get("required_approving_review_count") or 0),
                dismisses=bool(found.get("dismiss_stale_reviews")),
                last_push=bool(found.get("require_last_push_approval")),
            )
    for key, kind in _BRANCH_SWITCHES.items():
        if (data.get(key) or {}).get("enabled"):
            yield Rule(kind, "branch protection", page)
    for key, kind in (("allow_force_pushes", "non_fast_forward"), ("allow_deletions", "deletion")):
        if not (data.get(key) or {}).get("enabled"):
            yield Rule(kind, "branch protection", page)


def _package(data: Mapping[str, Any]) -> Package:
    connected = data.get("repository")
    return Package(str(data["visibility"]), str(connected["full_name"]) if connected else None)
