"""Google's discovery documents of Compute Engine and Cloud Resource Manager: which calls there are, and what goes in
and out of each.

The documents are shipped with google-api-python-client. Converted once per process into JSON Schema.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator

COMPUTE, MANAGER = "compute.v1", "cloudresourcemanager.v3"
SYSTEM = {"$alt": "alt", "$prettyPrint": "prettyPrint", "$fields": "fields"}
NUMBERS = {"int64": r"^-?\d{1,19}$", "uint64": r"^\d{1,20}$"}


class Refused(Exception):
    """What Google answers in place of a result."""

    def __init__(self, status: int, reason: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message
        self.headers = dict(headers or {})


@dataclass(frozen=True)
class Method:
    """One call of the API."""

    id: str
    verb: str
    path: re.Pattern[str]
    parameters: Mapping[str, Mapping[str, Any]]
    slashes: int
    request: str = ""
    response: str = ""


@dataclass(frozen=True)
class Call:
    """One request, found to be in order."""

    method: Method
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Mapping[str, Any] = field(default_factory=dict)


class Discovery:
    """The document, ready to check by."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._system = document["parameters"]
        self._prefix = f"/{document['servicePath']}"
        self._definitions = {name: _schema(it) for name, it in document["schemas"].items()}
        self._needed = {name: _needed(it) for name, it in document["schemas"].items()}
        self._methods: dict[tuple[str, int], list[Method]] = defaultdict(list)
        for method in sorted(_methods(document["resources"]), key=lambda one: one.path.groups):
            self._methods[method.verb, method.slashes].append(method)
        self._validators: dict[str, Draft7Validator] = {}

    def route(self, verb: str, path: str) -> tuple[Method, dict[str, str]]:
        """The method of a path, and what the path says. Raises Refused 404."""
        rest = path.removeprefix(self._prefix)
        for method in self._methods[verb, rest.count("/")]:
            match = method.path.fullmatch(rest)
            if match and path.startswith(self._prefix):
                return method, match.groupdict()
        raise Refused(404, "notFound", f"There is no {verb} {path}.")

    def call(self, verb: str, path: str, query: Mapping[str, Sequence[str]], body: Any) -> Call:
        """Check all of a request. Raises Refused 400 for anything that Google does not know."""
        method, said = self.route(verb, path)
        for name, value in said.items():
            _check(name, value, method.parameters.get(name, {}))
        return Call(method, said, self._query(method, query), self._body(method, body))

    def _query(self, method: Method, query: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        known = {name: it for name, it in method.parameters.items() if it["location"] == "query"}
        given: dict[str, Any] = {}
        for name, values in query.items():
            spec = known.get(name) or self._system.get(SYSTEM.get(name, name))
            if spec is None:
                raise Refused(400, "invalidParameter", f"Unknown name {name!r}: Cannot bind query parameter.")
            if len(values) > 1 and not spec.get("repeated"):
                raise Refused(400, "invalidParameter", f"{name!r} is given more than once.")
            given[name] = (
                [_check(name, value, spec) for value in values]
                if spec.get("repeated")
                else (_check(name, values[0], spec))
            )
        missing = [name for name, it in known.items() if it.get("required") and name not in given]
        if missing:
            raise Refused(400, "required", f"Required parameter: {', '.join(missing)}")
        return given

    def _body(self, method: Method, body: Any) -> Mapping[str, Any]:
        if not method.request:
            if body:
                raise Refused(400, "parseError", "This call takes no body.")
            return {}
        problems = self.problems(method.request, body if body is not None else {})
        if problems:
            raise Refused(400, "invalid", f"Invalid value for field {problems[0]}")
        missing = [name for name in self._needed[method.request].get(method.id, ()) if name not in (body or {})]
        if missing:
            raise Refused(400, "required", f"Required field {missing[0]!r} not specified")
        return dict(body or {})

    def problems(self, schema: str, value: Any) -> list[str]:
        """What is wrong with a value of a schema, in words."""
        if schema not in self._validators:
            whole = {"$ref": f"#/definitions/{schema}", "definitions": self._definitions}
            self._validators[schema] = Draft7Validator(whole)
        errors = self._validators[schema].iter_errors(value)
        return [f"'{'/'.join(map(str, one.absolute_path))}': {one.message[:300]}" for one in errors]


def _check(name: str, value: str, spec: Mapping[str, Any]) -> Any:
    kind, pattern = spec.get("type"), spec.get("pattern")
    if kind == "integer" and not re.fullmatch(r"-?\d+", value):
        raise Refused(400, "invalidParameter", f"Invalid value {value!r} for {name!r}: an integer.")
    if kind == "boolean" and value not in ("true", "false"):
        raise Refused(400, "invalidParameter", f"Invalid value {value!r} for {name!r}: true or false.")
    if "enum" in spec and value not in spec["enum"] and name not in SYSTEM:
        raise Refused(400, "invalidParameter", f"Invalid value {value!r} for {name!r}: one of {spec['enum']}.")
    if pattern and not re.fullmatch(pattern, value):
        raise Refused(400, "invalidParameter", f"Invalid value {value!r} for {name!r}: it must match {pattern}.")
    return int(value) if kind == "integer" else value == "true" if kind == "boolean" else value


def _methods(resources: Mapping[str, Any]) -> Iterator[Method]:
    for resource in resources.values():
        for it in resource.get("methods", {}).values():
            flat = it.get("flatPath", it["path"])
            path = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(flat))
            yield Method(
                id=it["id"],
                verb=it["httpMethod"],
                path=re.compile(path),
                parameters=it.get("parameters", {}),
                slashes=flat.count("/"),
                request=it.get("request", {}).get("$ref", ""),
                response=it.get("response", {}).get("$ref", ""),
            )
        yield from _methods(resource.get("resources", {}))


def _needed(schema: Mapping[str, Any]) -> dict[str, list[str]]:
    """Method -> the fields that it cannot do without."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, it in schema.get("properties", {}).items():
        for method in it.get("annotations", {}).get("required", ()):
            found[method].append(name)
    return dict(found)


def _schema(node: Mapping[str, Any]) -> dict[str, Any]:
    """One schema of the document as JSON Schema: closed where it has properties, 64-bit numbers as digits."""
    if "$ref" in node:
        return {"$ref": f"#/definitions/{node['$ref']}"}
    made: dict[str, Any] = {name: node[name] for name in ("enum",) if name in node}
    if node.get("type") not in (None, "any"):
        made["type"] = node["type"]
    if "properties" in node:
        made["properties"] = {name: _schema(it) for name, it in node["properties"].items()}
        made["additionalProperties"] = False
    elif "additionalProperties" in node:
        made["additionalProperties"] = _schema(node["additionalProperties"])
    if "items" in node:
        made["items"] = _schema(node["items"])
    if node.get("type") == "string" and node.get("format") in NUMBERS:
        made["pattern"] = NUMBERS[node["format"]]
    elif node.get("type") == "string" and "pattern" in node:
        made["pattern"] = f"^(?:{node['pattern']})$"
    elif node.get("type") == "array" and "pattern" in node:
        made["items"] = {**made.get("items", {}), "pattern": f"^(?:{node['pattern']})$"}
    return made


@cache
def discovery(name: str = COMPUTE) -> Discovery:
    """Of one service."""
    spec = find_spec("googleapiclient.discovery_cache")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent / "documents" / f"{name}.json"
    return Discovery(json.loads(path.read_text()))
