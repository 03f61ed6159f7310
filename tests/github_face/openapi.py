"""Holds exchanges to GitHub's own OpenAPI description: what a client sent, and what the face answered."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from openapi_schema_validator import OAS30Validator
from referencing import Registry
from referencing.jsonschema import DRAFT4

from tests.github_face.trim_openapi import DESCRIPTION

# GitHub answers these anywhere, and documents them in prose alone; their body is a basic error.
EVERYWHERE = {401, 403, 429, 500, 502, 503}
# (operation, status) that GitHub gives, and its description forgets.
FORGOTTEN = {
    ("pulls/list-reviews", 404),
    ("pulls/create-review", 404),
    ("issues/list-comments", 422),
    ("packages/get-package-for-organization", 404),
    ("packages/get-package-for-user", 404),
    ("actions/create-workflow-dispatch", 404),
    ("repos/get-environment", 404),
}
# Ends of the way to a field that GitHub sends as null although the description does not say so: the reason of an open
# issue, and the source of a pull request whose fork was deleted.
NULL_TOO = {("state_reason",), ("head", "repo")}


@dataclass(frozen=True)
class Exchange:
    """One request and its answer; the path as sent, below the API's address."""

    method: str
    path: str
    body: Any
    status: int
    answer: Any


@dataclass(frozen=True)
class Operation:
    pointer: str
    methods: re.Pattern[str]
    data: Mapping[str, Any]


class Description:
    """GitHub's description, cut down by trim_openapi.py."""

    def __init__(self, document: Any) -> None:
        self.document = document
        resource = DRAFT4.create_resource(document)
        self._registry: Registry[Any] = Registry().with_resource("urn:github", resource)
        self._operations = {
            (method.upper(), path): Operation(f"/paths/{_escaped(path)}/{method}", _pattern(self, path, data), data)
            for path, methods in document["paths"].items()
            for method, data in methods.items()
        }
        self._validators: dict[str, OAS30Validator] = {}

    def faults(self, exchange: Exchange) -> list[str]:
        """What the description has against an exchange; empty if nothing."""
        url = urlsplit(exchange.path)
        found = [
            operation
            for (method, _), operation in self._operations.items()
            if method == exchange.method and operation.methods.match(url.path)
        ]
        if not found:
            return [f"{exchange.method} {url.path}: no such operation"]
        # A branch's name may have slashes: what says more of the path in its own words is meant.
        operation = max(found, key=lambda operation: len(operation.pointer))
        name = operation.data["operationId"]
        return [f"{name}: {fault}" for fault in self._faults(operation, url.query, exchange)]

    def _faults(self, operation: Operation, query: str, exchange: Exchange) -> Iterator[str]:
        yield from self._query_faults(operation, dict(parse_qsl(query, keep_blank_values=True)))
        yield from self._body_faults(operation, exchange.body)
        yield from self._answer_faults(operation, exchange)

    def _query_faults(self, operation: Operation, query: Mapping[str, str]) -> Iterator[str]:
        parameters = [self.resolved(p) for p in operation.data.get("parameters", [])]
        known = {p["name"]: p for p in parameters if p["in"] == "query"}
        for name, value in query.items():
            if name not in known:
                yield f"query: unknown {name}"
                continue
            schema = known[name]["schema"]
            kind = schema.get("type")
            read: Any = int(value) if kind == "integer" and value.isdigit() else value
            yield from (f"query {name}: {e.message}" for e in OAS30Validator(schema).iter_errors(read))

    def _body_faults(self, operation: Operation, body: Any) -> Iterator[str]:
        wanted = operation.data.get("requestBody")
        if wanted is None:
            if body is not None:
                yield "body: not expected"
            return
        if body is None:
            if wanted.get("required"):
                yield "body: missing"
            return
        schema = wanted["content"]["application/json"]["schema"]
        pointer = f"{operation.pointer}/requestBody/content/application~1json/schema"
        yield from (f"body: {e.message}" for e in self._validator(pointer).iter_errors(body))
        if isinstance(body, dict) and "properties" in schema:
            yield from (f"body: unknown {name}" for name in sorted(body.keys() - schema["properties"].keys()))

    def _answer_faults(self, operation: Operation, exchange: Exchange) -> Iterator[str]:
        responses, status = operation.data["responses"], str(exchange.status)
        if status not in responses:
            known = exchange.status in EVERYWHERE or (operation.data["operationId"], exchange.status) in FORGOTTEN
            if not known:
                yield f"status {status}: not documented"
            pointer = "/components/schemas/basic-error"
        else:
            response, at = responses[status], f"{operation.pointer}/responses/{status}"
            if "$ref" in response:
                at = response["$ref"].removeprefix("#")
            content = self.resolved(response).get("content")
            if content is None:
                return
            pointer = f"{at}/content/application~1json/schema"
        for error in self._validator(pointer).iter_errors(exchange.answer):
            way = tuple(error.absolute_path)
            if error.instance is not None or not NULL_TOO & {way[-1:], way[-2:]}:
                yield f"answer {status}: {'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"

    def _validator(self, pointer: str) -> OAS30Validator:
        if pointer not in self._validators:
            self._validators[pointer] = OAS30Validator({"$ref": f"urn:github#{pointer}"}, registry=self._registry)
        return self._validators[pointer]

    def resolved(self, value: Any) -> Any:
        """What a reference leads to."""
        while "$ref" in value:
            parts = value["$ref"].removeprefix("#/").split("/")
            value = functools.reduce(lambda at, part: at[part], parts, self.document)
        return value

    def filled(self, schema: Any, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values, and for each other property that GitHub always gives something neutral of the right type.

        Args:
            schema: a schema, or the name of one.
        """
        found = self.resolved(self.document["components"]["schemas"][schema] if isinstance(schema, str) else schema)
        properties = found.get("properties", {})
        out = {name: self._neutral(properties[name]) for name in found.get("required", []) if name not in values}
        return out | dict(values)

    def _neutral(self, schema: Any) -> Any:
        found = self.resolved(schema)
        for key in ("anyOf", "oneOf", "allOf"):
            if key in found and not found.get("nullable"):
                return self._neutral(found[key][0])
        if found.get("nullable"):
            return None
        if "enum" in found:
            return found["enum"][0]
        if found.get("type") == "object" or "properties" in found:
            return self.filled(found, {})
        text = "2000-01-01T00:00:00Z" if found.get("format") == "date-time" else ""
        return {"string": text, "integer": 0, "number": 0, "boolean": False, "array": []}[found.get("type", "string")]


def _escaped(path: str) -> str:
    return path.replace("~", "~0").replace("/", "~1").replace("{", "%7B").replace("}", "%7D")


def _pattern(description: Description, path: str, operation: Mapping[str, Any]) -> re.Pattern[str]:
    parameters = [description.resolved(p) for p in operation.get("parameters", [])]
    wide = {p["name"] for p in parameters if p.get("x-multi-segment")}
    whole = {p["name"] for p in parameters if p["in"] == "path" and p["schema"].get("type") == "integer"}

    def part(match: re.Match[str]) -> str:
        return r"(.+)" if match[1] in wide else r"(\d+)" if match[1] in whole else r"([^/]+)"

    return re.compile(re.sub(r"\\{(\w+)\\}", part, re.escape(unquote(path))) + r"\Z")


@functools.cache
def github() -> Description:
    return Description(json.loads(DESCRIPTION.read_bytes()))
