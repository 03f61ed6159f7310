"""A site's starter file: all that a site must be told to join, made by the lead; no secrets are in it."""

from __future__ import annotations

import json
import re
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from fedops.core.documents import Document, plain
from fedops.core.ids import site_id_fault
from fedops.core.settings import Forge, Name
from fedops.core.yaml_text import scalar

# NOTE: up to the last `@` before the path, as git and curl read it: a password may hold one itself.
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")
_PASSWORD = re.compile(r"(?<=ssh://)([^/:@\s]*):[^/\s]*(?=@)")


class Shared(Document):
    """What is the same, byte for byte, in the starters of all sites.

    Args:
        first_version: commit of v0; no other federation has it, whatever it is called.
    """

    federation: Name
    origin: Annotated[str, StringConstraints(pattern=r"^[^-\s][^\s]*$", max_length=1000)]
    branch: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,100}$")
    first_version: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
    fedops: str
    forge: Forge
    store: str

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
    site: str
    login: str = Field(min_length=1, max_length=100)
    id: Annotated[int, Field(ge=0)]
    shared: Shared

    @field_validator("site")
    @classmethod
    def _is_an_id(cls, value: str) -> str:
        if fault := site_id_fault(value):
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
    return (
        f"# Starter of {starter.site} in the federation {starter.shared.federation}. There are no secrets in it.\n"
        "# In an empty folder, with fedops installed:  fedops join --bundle THIS-FILE --generate-key\n"
        f"schema: {starter.schema_}\n"
        f"site: {scalar(starter.site)}\n"
        f"login: {scalar(starter.login)}\n"
        f"id: {starter.id}\n"
        "shared: # the same in every site's file\n"
        + "".join(f"  {name}: {_value(value)}\n" for name, value in shared.items())
    ).encode()


def _value(value: object) -> str:
    return scalar(value) if isinstance(value, str) else json.dumps(value)
