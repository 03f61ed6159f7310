"""Who is behind a commit of the git forge: the signature against main's current roster, never the name it claims."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from pathlib import Path

from fedops.core.documents import MAX_DOCUMENT_BYTES, load_document
from fedops.core.errors import ConfigError, MainFileError
from fedops.core.facts import Account
from fedops.core.ids import SITES_PATH, BlobId, CommitId
from fedops.core.settings import Lead, Person, Site, Sites
from fedops.ports import Repository

NOBODY = -1  # account id of whoever only claims a name
_NOT_IN_LOGIN = re.compile(r"[^A-Za-z0-9._-]+")
_LOGIN_LENGTH = 39


def claimed(name: str) -> Account:
    """The account of somebody who only says so.

    Args:
        name: "alice" or "Alice Doe <alice@example.org>"; what is not a plain login character becomes a dash.
    """
    login = _NOT_IN_LOGIN.sub("-", name.split(" <", 1)[0]).strip("-")[:_LOGIN_LENGTH]
    return Account(f"claimed:{login or 'unknown'}", NOBODY)


def _key_body(key: str) -> str:
    """Type and key material of a public key, without its comment."""
    return " ".join(key.split()[:2])


class Roster:
    """The roster of one commit of main, by key."""

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        holders: tuple[Site | Lead, ...] = (*sites.sites.values(), *sites.leads)
        self.keys = [key for holder in holders for key in holder.keys]

    def account(self, key: str, login: str) -> Account:
        """The account of whoever holds a key of this roster; the one with this login, if the key has several."""
        people = [p for s in self.sites.sites.values() for p in s.accounts if _has(s.keys, key)]
        people += [lead for lead in self.sites.leads if _has(lead.keys, key)]
        return _account(next((p for p in people if p.login == login), people[0]))

    def lead(self, key: str) -> Account | None:
        """The lead who holds a key, None if no lead does."""
        return next((_account(lead) for lead in self.sites.leads if _has(lead.keys, key)), None)


def _has(keys: Sequence[str], key: str) -> bool:
    return _key_body(key) in [_key_body(k) for k in keys]


def _account(person: Person) -> Account:
    return Account(person.login, person.id)


class People:
    """Answers from signatures and main's current roster; what was found out is kept as long as the roster is.

    Args:
        main_ref: "refs/heads/main", whatever its name is; read as origin's.
    """

    def __init__(self, repository: Repository, main_ref: str) -> None:
        self._repository = repository
        self._main_ref = main_ref
        self._main: CommitId | None = None
        self._blob: BlobId | None = None
        self._roster = Roster(_EMPTY)
        self._signers: dict[CommitId, str | None] = {}

    def roster(self) -> Roster:
        """The roster of main as last fetched; empty without one.

        Raises:
            MainFileError: policies/sites.yaml cannot be used, so that nobody can be told from anybody.
        """
        main = self._repository.resolve(self._main_ref)
        if main == self._main:
            return self._roster
        entries = self._repository.entries(main, SITES_PATH) if main is not None else ()
        blob = next((e.blob for e in entries if e.path == SITES_PATH), None)
        if blob != self._blob:
            sites = _EMPTY
            if blob is not None:
                data = self._repository.read(blob, max_bytes=MAX_DOCUMENT_BYTES)
                try:
                    sites = load_document(data, Sites, SITES_PATH)
                except ConfigError as e:
                    raise MainFileError(e.message, hint=MainFileError.CORRECTED) from e
            self._roster, self._blob = Roster(sites), blob
            self._signers.clear()
        self._main = main
        return self._roster

    def proof(self, key: Path | None) -> CommitId:
        """A constant commit on no ref, signed by a key; the same object each time for a key whose signatures are.

        Says whose key it is without a file of public keys, and that signing works.
        """
        return self._repository.write_commit((), {}, "fedops: who am I", at=_EPOCH, key=key)

    def author(self, head: CommitId, login: str | None = None) -> Account:
        """The account whose key signed a commit; else only a claim.

        Args:
            login: which of the key's accounts, or who claims to be the author; default: the committer's name.
        """
        name = login or self._repository.commit(head).committer.split(" <", 1)[0]
        key = self._signer(head)
        return self.roster().account(key, name) if key is not None else claimed(name)

    def lead(self, commit: CommitId) -> Account | None:
        """The lead whose key signed a commit; None if no lead's did."""
        key = self._signer(commit)
        return self.roster().lead(key) if key is not None else None

    def _signer(self, commit: CommitId) -> str | None:
        keys = self.roster().keys
        if commit not in self._signers:
            self._signers[commit] = self._repository.signer(commit, keys)
        return self._signers[commit]


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EMPTY = Sites.model_validate({"schema": "fedops.sites/v1"})
