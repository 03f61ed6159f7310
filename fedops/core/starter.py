"""A site's starter file: all that a site must be told to join, made by the lead; no secrets are in it."""

from __future__ import annotations

import json
import re
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from fedops.core.documents import Document, plain
from fedops.core.ids import site_id_fault
from fedops.core.registry_address import store_url_fault
from fedops.core.settings import Forge, Name
from fedops.core.yaml_text import scalar

# NOTE: up to the last `@` before the path, as git and curl read it: a password may hold one itself.
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")
_PASSWORD = re.compile(r"(?<=ssh://)([^/:@\s]*):[^/\s]*(?=@)")


class Shared(Document):
    """What is the same, byte for byte, in the starters of all sites."""

    federation: Name = Field(description="its name")
    origin: Annotated[str, StringConstraints(pattern=r"^[^-\s][^\s]*$", max_length=1000)] = Field(
        description="where its repository is, without user and password"
    )
    branch: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,100}$", description="its main branch")
    first_version: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")] = Field(
        description="commit of v0; no other federation has it, whatever it is called"
    )
    fedops: str = Field(description="the version that its CI runs")
    forge: Forge = Field(description="as in federation.yaml")
    store: str = Field(description="the federation's; a site's own one stands beside the site")

    @field_validator("origin")
    @classmethod
    def _has_no_secret(cls, value: str) -> str:
        if address(value) != value:
            raise ValueError("an address without user name and password")
        if value.startswith("ext::"):
            raise ValueError("an address, not a command")
        return value


class Starter(Document):
    """`fedops site add --bundle` writes it, `fedops join --bundle` reads it."""

    schema_: Literal["fedops.starter/v1"] = Field(default="fedops.starter/v1", alias="schema")
    site: str = Field(description="site id")
    login: str = Field(min_length=1, max_length=100, description="forge account that hands in")
    id: Annotated[int, Field(ge=0)] = Field(description="its numeric id")
    store: str | None = Field(default=None, description="the site's own, as on the roster; absent: the federation's")
    shared: Shared = Field(description="the same in every site's file")
    absent_if_none = frozenset({"store"})

    @field_validator("site")
    @classmethod
    def _is_an_id(cls, value: str) -> str:
        if fault := site_id_fault(value):
            raise ValueError(fault)
        return value

    @field_validator("store")
    @classmethod
    def _is_a_store(cls, value: str | None) -> str | None:
        if value is not None and (fault := store_url_fault(value)) is not None:
            raise ValueError(fault)
        return value


def address(origin: str) -> str:
    """Where a federation lives, without credentials; the user of an ssh address is none, and stays."""
    if origin.startswith("ssh://"):
        return _PASSWORD.sub(r"\1", origin)
    return _CREDENTIALS.sub("", origin)


def render_starter(starter: Starter) -> bytes:
    """The file; `load_document(…, Starter, …)` reads it back."""
    shared = plain(starter.shared)
    own = "" if starter.store is None else f"store: {scalar(starter.store)}\n"
    return (
        f"# Starter of {starter.site} in the federation {starter.shared.federation}. There are no secrets in it.\n"
        "# In an empty folder, with fedops installed:  fedops join --bundle THIS-FILE --generate-key\n"
        f"schema: {starter.schema_}\n"
        f"site: {scalar(starter.site)}\n"
        f"login: {scalar(starter.login)}\n"
        f"id: {starter.id}\n"
        f"{own}"
        "shared: # the same in every site's file\n"
        + "".join(f"  {name}: {_value(value)}\n" for name, value in shared.items())
    ).encode()


def _value(value: object) -> str:
    return scalar(value) if isinstance(value, str) else json.dumps(value)
