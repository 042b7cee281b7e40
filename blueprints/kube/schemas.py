"""Structural schemas: which fields of an object are unknown, missing or invalid, found in the order of API servers.

A server drops unknown fields, fills in defaults, and then validates
(https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema).
Schemas are plain JSON, as in a CRD, without descriptions.
"""

from __future__ import annotations

import copy
import ipaddress
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from blueprints.kube.comparison import join
from blueprints.kube.objects import Json
from drydock.core.errors import Problem

_PRESERVE, _EITHER = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"
_EMBEDDED = "x-kubernetes-embedded-resource"
_METADATA = {
    "annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generateName",
    "generation", "labels", "managedFields", "name", "namespace", "ownerReferences", "resourceVersion", "selfLink",
    "uid",
}  # fmt: skip
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?\Z")
_DURATION = re.compile(
    r"[-+]?(0|(\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))*)\Z"
)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)\Z")
_KEPT = {
    "type", "properties", "required", "items", "additionalProperties", "enum", "pattern", "minLength", "maxLength",
    "minItems", "maxItems", "minProperties", "maxProperties", "minimum", "maximum", "exclusiveMinimum", "uniqueItems",
    "exclusiveMaximum", "multipleOf", "format", "nullable", "default", "anyOf", "allOf", "oneOf", "not", _PRESERVE,
    _EITHER, _EMBEDDED, "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-validations",
}  # fmt: skip
MOST_LEVELS = 60


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The problems of a manifest, by path."""

    unknown: tuple[str, ...] = ()
    """Fields that the server does not have. A lenient server drops them."""
    missing: tuple[str, ...] = ()
    """Required fields that are absent."""
    invalid: tuple[Problem, ...] = ()
    """Fields whose value is not allowed, and why."""
    unchecked: tuple[Problem, ...] = ()
    """Rules of the CRD that could not be evaluated here."""

    def __bool__(self) -> bool:
        return bool(self.unknown or self.missing or self.invalid)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all fields that are wrong."""
        return (*self.unknown, *self.missing, *(one.field for one in self.invalid))

    def sentences(self) -> list[str]:
        """Return one sentence for each field."""
        return [
            *(f"{path}: the server does not know this field." for path in self.unknown),
            *(f"{path}: this field is required." for path in self.missing),
            *(f"{one.field}: {one.message}" for one in self.invalid),
        ]


def compact(schema: Any, depth: int = 0) -> Json:
    """Return a schema without descriptions and other keywords that do not constrain values."""
    if not isinstance(schema, dict) or depth > MOST_LEVELS:
        return {_PRESERVE: True}
    made: Json = {key: value for key, value in schema.items() if key in _KEPT}
    if "properties" in made:
        found = schema["properties"]
        made["properties"] = {
            name: compact(one, depth + 1) for name, one in (found.items() if isinstance(found, dict) else ())
        }
    for key in ("items", "additionalProperties", "not"):
        if isinstance(made.get(key), dict):
            made[key] = compact(made[key], depth + 1)
    for key in ("anyOf", "allOf", "oneOf"):
        if isinstance(made.get(key), list):
            made[key] = [compact(one, depth + 1) for one in made[key]]
    return made


def check(manifest: Json, schema: Json, *, namespaced: bool = True) -> tuple[Findings, Json, bool]:
    """Compare a manifest with the schema of its type.

    Returns what is wrong; the object as a server would then store it, with defaults; and whether its rules can be
    evaluated, which servers do only if no field is missing and all have the right type and length.
    """
    stored = copy.deepcopy(manifest)
    unknown = [f"metadata.{key}" for key in _metadata(stored) if key not in _METADATA]
    unknown += _prune(stored, _root(schema), "", root=True)
    _fill(stored, schema)
    problems = list(_metadata_problems(stored, namespaced))
    missing: list[str] = []
    for path, kind, message in _problems(stored, _root(schema), ""):
        if kind == "missing":
            missing.append(path)
        else:
            problems.append(_Wrong(path, kind, message))
    blocked = bool(missing) or any(one.kind in ("type", "length") for one in problems)
    findings = Findings(
        unknown=tuple(sorted(unknown)), missing=tuple(sorted(missing)),
        invalid=tuple(
            Problem(field=one.path, message=one.message) for one in sorted(problems, key=lambda one: one.path)
        ),
    )  # fmt: skip
    return findings, stored, not blocked


def below(schema: Json, path: str) -> Json | None:
    """Return the schema of the field at a path such as `spec.dpuSets[].nameSuffix`; None if there is no such field."""
    found: Any = schema
    for part in path.split("."):
        name, brackets = part.removesuffix("[]"), part.endswith("[]")
        properties = found.get("properties") or {}
        if name in properties:
            found = properties[name]
        elif isinstance(found.get("additionalProperties"), dict):
            found = found["additionalProperties"]
        else:
            anything = not found.get("type") and not properties and found is not schema
            return {} if found.get(_PRESERVE) or anything else None
        if brackets:
            if not isinstance(found.get("items"), dict):
                return None
            found = found["items"]
    return found if isinstance(found, dict) else None


@dataclass(frozen=True)
class _Wrong:
    path: str
    kind: str
    message: str


def _metadata(manifest: Json) -> Json:
    found = manifest.get("metadata")
    return found if isinstance(found, dict) else {}


def _root(schema: Json) -> Json:
    """Return a schema without the fields that every object has, which are checked apart."""
    properties = {
        name: one
        for name, one in (schema.get("properties") or {}).items()
        if name not in ("apiVersion", "kind", "metadata")
    }
    required = [name for name in schema.get("required") or () if name not in ("apiVersion", "kind", "metadata")]
    return {**schema, "properties": properties, "required": required}


def _prune(value: Any, schema: Json, path: str, *, root: bool = False) -> Iterator[str]:
    """Remove and yield the fields that a schema does not have, the topmost of each branch."""
    if isinstance(value, dict):
        properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
        free = bool(schema.get(_PRESERVE)) or (not schema.get("type") and not properties and not schema.get(_EITHER))
        own = ("apiVersion", "kind", "metadata") if root or schema.get(_EMBEDDED) else ()
        for key in list(value):
            if key in properties:
                yield from _prune(value[key], properties[key], join(path, key))
            elif isinstance(others, dict):
                yield from _prune(value[key], others, join(path, key))
            elif key not in own and others is not True and not free:
                del value[key]
                yield join(path, key)
    elif isinstance(value, list):
        items = schema.get("items")
        for number, one in enumerate(value):
            yield from _prune(one, items if isinstance(items, dict) else {_PRESERVE: True}, f"{path}[{number}]")


def _fill(value: Any, schema: Json) -> None:
    """Fill in defaults. Null in a field that cannot be null counts as absent if the field has a default."""
    if isinstance(value, dict):
        others = schema.get("additionalProperties")
        for name, one in (schema.get("properties") or {}).items():
            if "default" in one and (name not in value or (value[name] is None and not one.get("nullable"))):
                value[name] = copy.deepcopy(one["default"])
            if name in value:
                _fill(value[name], one)
        if isinstance(others, dict):
            for one in value.values():
                _fill(one, others)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for one in value:
            _fill(one, schema["items"])


def _metadata_problems(manifest: Json, namespaced: bool) -> Iterator[_Wrong]:
    meta = manifest.get("metadata")
    if not isinstance(meta, dict):
        yield _Wrong("metadata", "type", "It must be a mapping with a name.")
        return
    name, namespace = meta.get("name", ""), meta.get("namespace", "")
    valid = isinstance(name, str) and len(name) <= 253 and _SUBDOMAIN.match(name)
    if not valid and (name or not meta.get("generateName")):
        said = "It must have lower-case letters, digits, hyphens and dots, and begin and end with a letter or digit."
        yield _Wrong("metadata.name", "value", said)
    if namespace and (not namespaced or not isinstance(namespace, str) or not _NAMESPACE.match(namespace)):
        said = "It is not a valid namespace." if namespaced else "Objects of this kind have no namespace."
        yield _Wrong("metadata.namespace", "value", said)
    for field, values in (("labels", _VALUE), ("annotations", None)):
        found = meta.get(field)
        if found is None:
            continue
        if not isinstance(found, dict):
            yield _Wrong(f"metadata.{field}", "type", "It must be a mapping of texts.")
            continue
        for key, value in found.items():
            if not _KEY.match(key) or not isinstance(value, str) or (values and not values.match(value)):
                yield _Wrong(f"metadata.{field}[{key}]", "value", f"It is not valid among {field}.")


def _problems(value: Any, schema: Json, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield path, kind (missing, type, length, value) and message of what is wrong."""
    if value is None:
        if not schema.get("nullable") and schema.get("type"):
            yield path, "type", "It must not be null."
        return
    wanted = schema.get("type")
    if schema.get(_EITHER) or (wanted == "string" and schema.get("format") == "int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield path, "type", "It must be an integer or a text."
            return
    elif wanted and not _is(value, wanted):
        yield path, "type", f"It must be of type {wanted}, not {_type_name(value)}."
        return
    yield from _limits(value, schema, path)
    yield from _combinations(value, schema, path)
    if isinstance(value, dict):
        properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
        for name in schema.get("required") or ():
            if name not in value:
                yield join(path, name), "missing", ""
        for name, one in value.items():
            below_it = properties.get(name, others)
            if isinstance(below_it, dict):
                yield from _problems(one, below_it, join(path, name))
    elif isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for number, one in enumerate(value):
                yield from _problems(one, items, f"{path}[{number}]")
        yield from _twice(value, schema, path)


def _limits(value: Any, schema: Json, path: str) -> Iterator[tuple[str, str, str]]:
    allowed = schema.get("enum")
    if isinstance(allowed, list) and value not in allowed:
        yield path, "value", f"Allowed are: {', '.join(json.dumps(one) for one in allowed[:20])}."
    if isinstance(value, str):
        yield from _size(len(value), schema, path, "Length", "characters")
        pattern = schema.get("pattern")
        if isinstance(pattern, str) and not _matches(pattern, value):
            yield path, "value", f"It must match {pattern}."
        if not _has_format(value, schema.get("format")):
            yield path, "value", f"It is not a valid {schema['format']}."
    elif isinstance(value, list):
        yield from _size(len(value), schema, path, "Items", "items")
    elif isinstance(value, dict):
        yield from _size(len(value), schema, path, "Properties", "fields")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum"), schema.get("maximum")
        if low is not None and (value < low or (schema.get("exclusiveMinimum") and value == low)):
            yield path, "value", f"It must be at least {low}."
        if high is not None and (value > high or (schema.get("exclusiveMaximum") and value == high)):
            yield path, "value", f"It must be at most {high}."
        bits = {"int32": 31, "int64": 63}.get(str(schema.get("format", "")))
        if bits and not -(1 << bits) <= value < (1 << bits):
            yield path, "value", f"It must fit into {schema['format']}."


def _size(size: int, schema: Json, path: str, suffix: str, what: str) -> Iterator[tuple[str, str, str]]:
    low, high = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
    if low is not None and size < low:
        yield path, "value", f"It must have at least {low} {what}."
    if high is not None and size > high:
        yield path, "length", f"It must have at most {high} {what}."


def _combinations(value: Any, schema: Json, path: str) -> Iterator[tuple[str, str, str]]:
    for one in schema.get("allOf") or ():
        yield from _problems(value, one, path)
    for key, most in (("anyOf", None), ("oneOf", 1)):
        given = schema.get(key)
        if isinstance(given, list) and not schema.get(_EITHER):
            fits = sum(not any(_problems(value, one, path)) for one in given)
            if not fits or (most and fits > most):
                yield (
                    path,
                    "value",
                    f"It must fulfil {'exactly one' if most else 'at least one'} of {len(given)} schemas.",
                )
    if isinstance(schema.get("not"), dict) and not any(_problems(value, schema["not"], path)):
        yield path, "value", "It has a form that is excluded."


def _twice(value: Sequence[Any], schema: Json, path: str) -> Iterator[tuple[str, str, str]]:
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or ()
    if kind not in ("set", "map") and not schema.get("uniqueItems"):
        return
    seen = set()
    for number, one in enumerate(value):
        if kind == "map":
            one = [one.get(key) for key in keys] if isinstance(one, dict) else one
        told = json.dumps(one, sort_keys=True, default=str)
        if told in seen:
            yield f"{path}[{number}]", "value", "It occurs twice in the list."
        seen.add(told)


def _is(value: Any, wanted: str) -> bool:
    if wanted == "integer":
        return (isinstance(value, int) and not isinstance(value, bool)) or (
            isinstance(value, float) and value.is_integer()
        )
    if wanted == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    types = {"object": dict, "array": list, "string": str, "boolean": bool}
    return isinstance(value, types.get(wanted, object))


def _type_name(value: Any) -> str:
    names = ((bool, "boolean"), (dict, "object"), (list, "array"), (str, "string"), (int, "integer"), (float, "number"))
    return next((name for kind, name in names if isinstance(value, kind)), "null")


def _has_format(value: str, wanted: Any) -> bool:
    """Return whether a text has one of the formats that API servers check and CRDs of DPF use."""
    if wanted in ("ipv4", "ipv6"):
        try:
            return ipaddress.ip_address(value).version == int(wanted[-1])
        except ValueError:
            return False
    pattern = {"date-time": _TIME, "duration": _DURATION}.get(wanted)
    return pattern is None or bool(pattern.match(value))


@lru_cache(maxsize=2000)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    # In Go, whose syntax this is, $ matches at the very end only.
    ends = pattern.endswith("$") and not pattern.endswith("\\$")
    try:
        return re.compile(pattern[:-1] + r"\Z" if ends else pattern)
    except re.error:
        return None


def _matches(pattern: str, value: str) -> bool:
    found = _compiled(pattern)
    return found is None or bool(found.search(value))
