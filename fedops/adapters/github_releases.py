"""Releases on GitHub: a page for people beside each version's tag. What counts is the tag."""

from __future__ import annotations

from urllib.parse import quote

from fedops.adapters.github_http import GitHubApi
from fedops.adapters.github_shapes import same_text
from fedops.core.errors import ForgeError


def ensure_release(api: GitHubApi, tag: str, title: str, body: str) -> bool:
    """Have a release of a tag with this title and text; True: something changed.

    Raises:
        ForgeError: there is no such tag. GitHub would make one, of its own kind.
    """
    at = f"/releases/tags/{quote(tag, safe='')}"
    found = api.find(at)
    if found is None:
        if api.find(f"/git/ref/tags/{quote(tag, safe='')}") is None:
            raise ForgeError(f"GitHub: no tag {tag}: no release of it", hint="git fetch --tags; fedops ci reconcile")
        wanted = {"tag_name": tag, "name": title, "body": body}
        api.create("/releases", wanted, lambda: api.find(at), accept=(422,))
        return True
    if found["name"] == title and same_text(found["body"], body):
        return False
    api.patch(f"/releases/{found['id']}", {"name": title, "body": body})
    return True
