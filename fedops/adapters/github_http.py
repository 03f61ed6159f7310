"""The way to GitHub's REST API, by PyGithub: one host, one token, complete lists, and no request repeated that may not be.

PyGithub's own retries are off, and so are its lazy objects: a look at a listed issue would send a request of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import requests
from github import Auth, Github

from fedops.adapters.github_errors import UnclearError, error_of
from fedops.adapters.github_retry import Answer, pause_before_next
from fedops.core.errors import ConfigError, ForgeError
from fedops.core.facts import Json
from fedops.core.github_hosts import Host
from fedops.ports import Clock

PACE = (0.25, 1.0)  # seconds between requests, and between those that write: GitHub asks for it
LOOK_AGAIN = (2.0, 5.0, 15.0)  # seconds; then it is looked whether a request without an answer was carried out
_TIMEOUT = 60  # seconds
_HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
_MAX_PAGES = 10_000
_LINK = re.compile(r"<([^>]*)>([^<]*)")
# How GitHub's tokens begin that are an app's on one repository, and no user's; the token of a workflow's job is one.
_APPS = "ghs_"


class GitHubApi:
    """One repository on one GitHub, for one token. One thread at a time.

    Args:
        repository: "owner/name".
        token: None reads what is public.
        pace: seconds between two requests, and between two that write; default: PACE.

    Attributes:
        is_app: the token says of itself that no user is behind it.
    """

    def __init__(
        self, host: Host, repository: str, token: str | None, clock: Clock, *, pace: tuple[float, float] | None = None
    ) -> None:
        self.host = host
        self.name = repository
        self.clock = clock
        self.is_app = token is not None and token.startswith(_APPS)
        self._has_token = bool(token)
        between, between_writes = PACE if pace is None else pace
        self._facts: Mapping[str, Any] | None = None
        self._github = Github(
            base_url=host.api,
            auth=Auth.Token(token) if token else None,
            timeout=_TIMEOUT,
            user_agent="fedops",
            retry=None,
            seconds_between_requests=between,
            seconds_between_writes=between_writes,
        )

    def close(self) -> None:
        self._github.close()

    # ------------------------------------------------------------ the repository

    def facts(self) -> Mapping[str, Any]:
        """What GitHub says of the repository; asked once.

        Raises:
            ForgeError: it was renamed. GitHub would redirect, and PyGithub then forgets the query: a list would silently
                be another one.
        """
        if self._facts is None:
            found = self._checked("GET", f"/repos/{self.name}").data
            name = str(found["full_name"])
            if name.casefold() != self.name.casefold():
                raise ForgeError(
                    f"GitHub: {self.name} is now {name}", hint=f"federation.yaml: forge.repository: {name}"
                )
            self._facts = found
        return self._facts

    # ------------------------------------------------------------ requests; paths are below the repository

    def get(self, path: str, **parameters: str | int) -> Json:
        return self.call("GET", path, parameters=parameters).data

    def find(self, path: str, *, absent: tuple[int, ...] = (404,)) -> Json | None:
        """What is at a path; None if GitHub says that nothing is."""
        answer = self.call("GET", path, accept=absent)
        return answer.data if answer.ok else None

    def pages(self, path: str, key: str | None = None, **parameters: str | int) -> Iterator[dict[str, Any]]:
        """All items of a list, page after page.

        Args:
            key: where the list is in each page's document; None: the document is the list.
        """
        answer = self.call("GET", path, parameters={**parameters, "per_page": 100})
        for _ in range(_MAX_PAGES):
            yield from answer.data if key is None else answer.data[key]
            following = self.following(answer)
            if following is None:
                return
            answer = self.anywhere(following)
        raise ForgeError(f"GitHub: {path}: more than {_MAX_PAGES} pages")

    def following(self, answer: Answer) -> str | None:
        """Where the page after the one that was answered is, to be read from `anywhere`; None: it was the last."""
        url = _next_page(answer.headers.get("link", ""))
        return self._own(url) if url is not None else None

    def put(self, path: str, body: Json, *, accept: tuple[int, ...] = ()) -> Answer:
        return self.call("PUT", path, body=body, accept=accept)

    def patch(self, path: str, body: Json) -> Json:
        return self.call("PATCH", path, body=body).data

    def post(self, path: str, body: Json, *, accept: tuple[int, ...] = ()) -> Answer:
        """Make something that GitHub makes once, however often it is asked to."""
        return self.call("POST", path, body=body, accept=accept)

    def create(
        self, path: str, body: Json, find: Callable[[], dict[str, Any] | None], *, accept: tuple[int, ...] = ()
    ) -> dict[str, Any]:
        """Make something that would be there twice if asked twice; after no clear answer it is looked for first.

        Args:
            find: looks whether it is there.
            accept: refusals that may mean that it is there already; then it is looked for too.
        """
        for pause in (*LOOK_AGAIN, None):
            try:
                answer = self.call("POST", path, body=body, accept=accept, may_repeat=False)
            except UnclearError:
                if pause is None:
                    raise
                self.clock.sleep(pause)
            else:
                if answer.ok:
                    return dict(answer.data)
                found = find()
                if found is None:
                    raise error_of("POST", path, answer)
                return found
            found = find()
            if found is not None:
                return found
        raise AssertionError  # the last pause is None

    def call(
        self,
        verb: str,
        path: str,
        *,
        parameters: Mapping[str, str | int] | None = None,
        body: Json = None,
        accept: tuple[int, ...] = (),
        may_repeat: bool = True,
    ) -> Answer:
        """One request below the repository; limits and, where nothing can happen twice, faults are waited out.

        Args:
            accept: refusals that the caller understands.

        Raises:
            ForgeError: any other answer than success.
        """
        self.facts()
        return self._checked(verb, f"/repos/{self.name}{path}", parameters, body, accept, may_repeat=may_repeat)

    def anywhere(self, path: str, *, accept: tuple[int, ...] = ()) -> Answer:
        """Read something outside of the repository, such as "/user"."""
        return self._checked("GET", path, accept=accept)

    def graph(self, fields: str, declared: str, variables: Mapping[str, str]) -> Mapping[str, Any] | None:
        """What GraphQL says of the repository; None where it does not answer in full, which is tried once.

        Args:
            fields: of the repository, in the words of GraphQL.
            declared: the types of `variables`; empty: there are none.
        """
        if not self._has_token:  # GraphQL answers nobody without one
            return None
        self.facts()  # whether it is this one
        owner, _, name = self.name.partition("/")
        typed = ",".join(filter(None, ["$owner:String!", "$name:String!", declared]))
        query = f"query({typed}){{repository(owner:$owner,name:$name){{{fields}}}}}"
        body = {"query": query, "variables": {"owner": owner, "name": name, **variables}}
        try:
            answer = self._once("POST", f"{self.host.api.removesuffix('/v3')}/graphql", None, body)
        except ForgeError:  # it leads to another host
            return None
        data = answer.data if answer.ok and isinstance(answer.data, dict) else {}
        found = (data.get("data") or {}).get("repository")
        return found if isinstance(found, dict) and not data.get("errors") else None

    def _checked(
        self,
        verb: str,
        path: str,
        parameters: Mapping[str, str | int] | None = None,
        body: Json = None,
        accept: tuple[int, ...] = (),
        *,
        may_repeat: bool = True,
    ) -> Answer:
        tries = 0
        while True:
            answer = self._once(verb, path, parameters, body)
            tries += 1
            if answer.ok:
                return answer
            pause = pause_before_next(answer, tries, self.clock.now(), may_repeat=may_repeat)
            if pause is None:
                if answer.status in accept and not answer.is_limited:
                    return answer
                raise error_of(verb, urlsplit(path).path, answer)
            self.clock.sleep(pause)

    def _once(self, verb: str, path: str, parameters: Mapping[str, str | int] | None, body: Json) -> Answer:
        try:
            status, headers, text = self._github.requester.requestJson(
                verb, path, dict(parameters or {}), dict(_HEADERS), body
            )
        except requests.RequestException as e:
            return Answer(0, {}, None, f"{type(e).__name__}")
        except RuntimeError as e:  # PyGithub's word for a redirection to another host, which it does not follow
            raise ForgeError(
                f"GitHub: {verb} {urlsplit(path).path}: it leads to another host", hint="see forge.api_url"
            ) from e
        try:
            return Answer(status, headers, json.loads(text) if text else None)
        except ValueError:
            # A proxy's page instead of GitHub's document: a success of that kind says nothing.
            return Answer(0 if 200 <= status < 300 else status, headers, None, f"{status}, and no JSON")

    def _own(self, url: str) -> str:
        """The path and query of an address that GitHub gave, if it is below the API of this host.

        Raises:
            ConfigError: it is not, and the token is not sent there.
        """
        got, own = urlsplit(url), urlsplit(self.host.api)
        if (got.scheme, got.netloc) != (own.scheme, own.netloc) or not got.path.startswith(own.path + "/"):
            raise ConfigError(
                f"GitHub: the next page is at {got.netloc} -> {own.netloc}",
                hint="the token goes to no other host; see forge.api_url",
                slug="credential_scope",
            )
        path = got.path.removeprefix(own.path)
        return f"{path}?{got.query}" if got.query else path


def _next_page(link: str) -> str | None:
    """The address with rel="next" of a Link header."""
    return next((url for url, rest in _LINK.findall(link) if 'rel="next"' in rest), None)
