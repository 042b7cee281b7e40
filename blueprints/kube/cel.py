"""Validation rules of CRDs (`x-kubernetes-validations`) in CEL, evaluated by cel-python. Only this module imports it.

The rules are those of https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules.
A rule that compares with the old object is not evaluated, because a new object has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import celpy
from celpy import celtypes

from blueprints.kube.comparison import join
from blueprints.kube.objects import Json
from drydock.core.errors import Problem

_RESERVED = {
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
    "loop", "package", "namespace", "return",
}  # fmt: skip
_ESCAPES = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))
_OLD = re.compile(r"\boldSelf\b")


def _text(method: str) -> Any:
    def call(text: celtypes.StringType) -> celtypes.StringType:
        """Change letters from A to Z only, as `lowerAscii` and `upperAscii` do."""
        return celtypes.StringType("".join(getattr(c, method)() if c.isascii() else c for c in str(text)))

    return call


FUNCTIONS = {"lowerAscii": _text("lower"), "upperAscii": _text("upper")}
"""Functions of Kubernetes that cel-python lacks and CRDs of DPF use."""


@lru_cache(maxsize=1000)
def program(rule: str) -> Any:
    """Return a compiled rule. Raises ValueError if it cannot be compiled."""
    environment = celpy.Environment()
    try:
        return environment.program(environment.compile(rule), functions=FUNCTIONS)
    except Exception as error:  # the parser raises errors of several libraries
        raise ValueError(" ".join(str(error).split())[:200]) from None


def rules(schema: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """Return the path and the text of every rule in a schema."""
    for one in schema.get("x-kubernetes-validations") or ():
        yield path, str(one.get("rule", ""))
    for name, below in (schema.get("properties") or {}).items():
        yield from rules(below, join(path, name))
    for key, suffix in (("items", "[]"), ("additionalProperties", "[]")):
        if isinstance(schema.get(key), dict):
            yield from rules(schema[key], path + suffix)


def violated(value: Any, schema: Json, path: str = "") -> Iterator[tuple[bool, Problem]]:
    """Evaluate the rules for a valid object, and yield those that do not hold.

    The first of each pair is False if a rule could not be evaluated, which then says nothing about the object.
    """
    if value is None:
        return
    given: Any = None
    for one in schema.get("x-kubernetes-validations") or ():
        rule = str(one.get("rule", ""))
        if _OLD.search(rule):
            continue
        given = _converted(_root(value) if not path else value, schema) if given is None else given
        yield from _evaluated(rule, one, given, path)
    if isinstance(value, dict):
        properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, below in value.items():
            of = properties.get(name, others)
            if isinstance(of, dict):
                yield from violated(below, of, join(path, name))
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for number, below in enumerate(value):
            yield from violated(below, schema["items"], f"{path}[{number}]")


def _evaluated(rule: str, declared: Json, given: Any, path: str) -> Iterator[tuple[bool, Problem]]:
    where = path + str(declared.get("fieldPath", ""))
    try:
        compiled = program(rule)
    except ValueError as error:
        yield False, Problem(field=where, message=f"The rule {rule} cannot be compiled: {error}")
        return
    try:
        result = compiled.evaluate({"self": given})
    except celpy.CELEvalError as error:
        said = " ".join(str(error).split())[:200]
        if "undeclared" in said or "unbound function" in said or "no such function" in said:
            yield False, Problem(field=where, message=f"The rule {rule} uses a function that is not available here.")
        else:  # as for a server, a rule that fails is a rule that does not hold
            yield True, Problem(field=where, message=f"The rule {rule} failed: {said}")
        return
    if result is not True and not (isinstance(result, celtypes.BoolType) and bool(result)):
        yield (
            True,
            Problem(field=where, message=str(declared.get("message") or f"The rule {rule} does not hold.")[:500]),
        )


def _root(value: Json) -> Json:
    """Return what rules of the whole object see: of metadata, only the names."""
    metadata = value.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return {**value, "metadata": {key: metadata[key] for key in ("name", "generateName") if key in metadata}}


def _converted(value: Any, schema: Json) -> Any:
    """Return a JSON value as a value of CEL, of the type that its schema declares."""
    if isinstance(value, bool):
        return celtypes.BoolType(value)
    if isinstance(value, int | float):
        wants_float = schema.get("type") == "number" or (isinstance(value, float) and not value.is_integer())
        return celtypes.DoubleType(value) if wants_float else celtypes.IntType(int(value))
    if isinstance(value, str):
        return celtypes.StringType(value)
    if isinstance(value, list):
        items = schema.get("items")
        return celtypes.ListType([_converted(one, items if isinstance(items, dict) else {}) for one in value])
    if isinstance(value, dict):
        properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
        is_map = isinstance(others, dict)
        rest: Json = others if isinstance(others, dict) else {}
        return celtypes.MapType(
            {
                celtypes.StringType(name if is_map else escaped(name)): _converted(one, properties.get(name, rest))
                for name, one in value.items()
                if one is not None
            }
        )
    return None


def escaped(name: str) -> str:
    """Return the name under which rules find a field whose own name is not a valid name in CEL."""
    if name in _RESERVED:
        return f"__{name}__"
    for plain, instead in _ESCAPES:
        name = name.replace(plain, instead)
    return name


def all_rules(schemas: Sequence[Json]) -> list[str]:
    """Return the text of every rule in some schemas, with repetitions."""
    return [rule for schema in schemas for _, rule in rules(schema)]
