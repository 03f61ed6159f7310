"""GitHub's refusals as ForgeErrors: which slug and cause, and what a person does next."""

from __future__ import annotations

from fedops.adapters.github_retry import Answer, free_at
from fedops.core.errors import ForgeError, SpentError
from fedops.render.text import printable

_SHOWN = 300  # characters of GitHub's own words in a message


class UnclearError(ForgeError):
    """No answer, or a server's fault: nobody can say whether the request was carried out."""


def error_of(verb: str, path: str, answer: Answer) -> ForgeError:
    """The error for an answer that is no success.

    Args:
        path: "/repos/owner/name/…", without query.
    """
    said = printable(answer.said)[:_SHOWN]
    what = f"GitHub: {verb} {printable(path)}: {answer.status or 'no answer'}" + (f", {said}" if said else "")
    if answer.is_limited:
        again = free_at(answer)
        when = f", until {again:%H:%M:%S} UTC" if again is not None else ""
        return SpentError(f"{what}{when}", hint="nothing is lost: run it again later", cause="temporary")
    if answer.is_unclear:
        return UnclearError(what, hint="check the connection and GitHub's status page, then repeat", cause="temporary")
    if answer.status == 401:
        hint = "the token is wrong or has expired: set GITHUB_TOKEN (or FEDOPS_TOKEN) anew"
        return ForgeError(what, hint=hint, slug="auth_failed", cause="auth")
    if answer.status == 403:
        hint = "the token may not do this: see its permissions; `fedops doctor` checks the settings"
        return ForgeError(what, hint=hint, slug="auth_failed", cause="auth")
    if answer.status == 404:
        return ForgeError(
            what, hint="there is no such thing, or the token may not see it (forge.repository, GITHUB_TOKEN)"
        )
    if 300 <= answer.status < 400:
        return ForgeError(what, hint="GitHub has it at another address: see forge.repository in federation.yaml")
    return ForgeError(what, hint="`fedops doctor` checks the repository's settings")
