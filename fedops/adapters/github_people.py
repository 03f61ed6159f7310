"""Who a token is."""

from __future__ import annotations

from urllib.parse import quote

from fedops.adapters.github_http import GitHubApi
from fedops.adapters.github_shapes import account_of
from fedops.core.facts import Account

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
            # NOTE: the token of a workflow's job is refused with 403 "Resource not accessible by integration".
            answer = self._api.anywhere("/user", accept=(403,))
            self._has_user = answer.ok
            if not answer.ok:
                answer = self._api.anywhere(f"/users/{quote(self._bot)}")
            self._me = account_of(answer.data)
        return self._me
