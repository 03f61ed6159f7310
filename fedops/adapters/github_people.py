"""Who a token is."""

from __future__ import annotations

from urllib.parse import quote

from fedops.adapters.github_http import GitHubApi
from fedops.adapters.github_shapes import account_of
from fedops.core.facts import Account, Json

JOB_TOKEN = "github-actions[bot]"  # noqa: S105 a login


class People:
    """Looks the account up once.

    Args:
        bot: login of the account behind a token that has no user: GitHub does not say which app such a token is of.
    """

    def __init__(self, api: GitHubApi, bot: str) -> None:
        self._api = api
        self._bot = bot
        self._me: Account | None = None
        self._has_user = True

    def has_user(self) -> bool:
        """False for a token that is no person's: of a workflow's job, or of an app on this repository."""
        self.me()
        return self._has_user

    def me(self) -> Account:
        """The token's account.

        Raises:
            ForgeError: auth, without a token or with one that is refused.
        """
        if self._me is None:
            user = None if self._api.is_app else self._user()
            self._has_user = user is not None
            self._me = account_of(user or self._api.anywhere(f"/users/{quote(self._bot)}").data)
        return self._me

    def _user(self) -> Json:
        """GitHub's document; None for a token that no user is behind."""
        # NOTE: 403 "Resource not accessible by integration", where the token's own words do not say so.
        answer = self._api.anywhere("/user", accept=(403,))
        return answer.data if answer.ok else None
