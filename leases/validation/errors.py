"""Reword pydantic's validation errors for people: they say what is wrong and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

_MUST_BE = {
    "bool_type": "must be true or false", "bool_parsing": "must be true or false",
    "int_type": "must be a whole number", "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number", "float_type": "must be a number", "float_parsing": "must be a number",
    "finite_number": "must be a finite number", "string_type": "must be text", "bytes_type": "must be text",
    "list_type": "must be a list", "tuple_type": "must be a list", "set_type": "must be a list",
    "dict_type": "must be a mapping of names to values", "model_type": "must be a mapping of names to values",
    "none_required": "is not allowed", "missing": "is required",
    "string_pattern_mismatch": "contains a character that is not allowed, or is empty",
    "string_unicode": "contains a character that is not text", "datetime_type": "must be a time with a time zone",
    "datetime_parsing": "must be a time such as 2030-01-31T18:00:00+01:00",
}  # fmt: skip

_BOUNDS = {
    "greater_than_equal": ("must be at least {ge}", "ge"), "greater_than": ("must be more than {gt}", "gt"),
    "less_than_equal": ("must be at most {le}", "le"), "less_than": ("must be less than {lt}", "lt"),
    "string_too_short": ("must have at least {min_length} characters", "min_length"),
    "string_too_long": ("must have at most {max_length} characters", "max_length"),
    "too_long": ("must have at most {max_length} items", "max_length"),
    "literal_error": ("must be one of: {expected}", "expected"), "enum": ("must be one of: {expected}", "expected"),
}  # fmt: skip

_LONGEST = 300

"""The maximum length of a message that repeats the caller's input, in characters."""

_ONE = re.compile(r"\b1 (character|item)s\b")


def plain_message(found: Any, known: Collection[str] = ()) -> str:
    """Return one of pydantic's errors as a sentence without a full stop.

    `known` are the fields of the model that was read. They are listed if the error is an unknown field at the top
    level.
    """
    kind, context = found["type"], found.get("ctx") or {}
    if kind == "extra_forbidden":
        name = str(found["loc"][-1])
        there = f". Known: {', '.join(known)}" if known and len(found["loc"]) == 1 else ""
        return f"Unknown field {name!r}{there}"
    if kind == "too_short":
        least = context.get("min_length", 1)
        return "Give at least one" if least == 1 else f"Give at least {least}"
    if kind in _BOUNDS:
        form, needed = _BOUNDS[kind]
        if needed in context:
            return _sentence(_ONE.sub(r"1 \1", form.format(**context)))
    if kind in _MUST_BE:
        return _sentence(_MUST_BE[kind])
    said = str(found["msg"]).removeprefix("Value error, ").replace("Input should be", "It must be")
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]} ..."


def _sentence(what: str) -> str:
    return f"It {what}"
