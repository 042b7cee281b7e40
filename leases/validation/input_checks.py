"""Checks the texts, numbers and documents that callers pass, before anything else is done with these values."""

from __future__ import annotations

import functools
import inspect
import json
import math
from collections.abc import Callable, Mapping, Set
from itertools import chain
from typing import Any, ParamSpec, TypeVar

from drydock.core.characters import NOT_TAKEN, first_unsafe
from drydock.core.errors import InvalidRequest

P = ParamSpec("P")

R = TypeVar("R")

LONGEST = 4096

"""The maximum length of one text, in characters."""

LARGEST, DEEPEST = 1 << 18, 32

"""The maximum size of a document, and its maximum nesting depth.

The size is the number of characters, plus one for each value.
"""

_WHOLE = range(-(1 << 63), 1 << 63)

_PATHS = frozenset({"path", "cwd"})

"""Arguments that may contain any byte except NUL. Bytes that are not UTF-8 are passed as surrogates."""

_PROSE = frozenset({"message", "reason", "note", "remark"})

"""Arguments that may have several lines."""

_WHOLE_REQUESTS = frozenset({"given"})

"""Arguments that are whole requests. Errors about them name only the field of the request."""

_OF_THE_HOST = frozenset({"words", "env", "secrets", "ca"})

"""Arguments that are checked by the functions that use them, because these know what is valid."""


def checked(work: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that its arguments are checked first. Raises InvalidRequest, which names the argument."""
    names = tuple(inspect.signature(work).parameters)

    @functools.wraps(work)
    def looked_at(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in chain(zip(names, args, strict=False), kwargs.items()):
            if type(value) is not str or len(value) > LONGEST or not value.isprintable():
                check(name, value)
        return work(*args, **kwargs)

    return looked_at


def check(name: str, value: Any) -> None:
    """Check an argument and all values in it. Raises InvalidRequest."""
    field = "" if name in _WHOLE_REQUESTS else name.rstrip("_").removesuffix("_id")
    if name in _OF_THE_HOST:
        return
    if isinstance(value, str):
        text(value, field, path=name in _PATHS, lines=name in _PROSE)
    elif isinstance(value, int):
        number(value, field)
    elif isinstance(value, Mapping):
        document(value, field)
    elif isinstance(value, list | tuple | Set):
        for one in value:
            check(name, one)


def text(value: str, field: str, *, path: bool = False, lines: bool = False) -> None:
    """Raise InvalidRequest if a text is too long or contains unsafe characters.

    Characters are unsafe if they could break a row, a page or a terminal.
    """
    if len(value) > LONGEST:
        raise InvalidRequest(f"The value has {len(value)} characters; at most {LONGEST} are allowed.", field=field)
    if path and "\0" not in value:
        return
    if odd := first_unsafe(value, allowed="\n\t" if lines else ""):
        raise InvalidRequest(f"The value contains the character U+{ord(odd):04X}; {NOT_TAKEN}.", field=field)


def number(value: int, field: str) -> None:
    """Raise InvalidRequest for an integer of more than 64 bits."""
    if value not in _WHOLE:
        raise InvalidRequest("It is an integer of more than 64 bits.", field=field)


def document(value: Mapping[str, Any], field: str) -> None:
    """Raise InvalidRequest for a document that cannot be stored as JSON, is too large, or is nested too deeply."""
    left, size = [(field, value, 0)], 0
    while left:
        where, one, depth = left.pop()
        if isinstance(one, Mapping | list | tuple):
            if depth == DEEPEST:
                raise InvalidRequest(f"The value is nested more than {DEEPEST} levels deep.", field=field)
            left.extend(_inside(where, one, depth + 1))
            size += len(one)
        size += len(one) if isinstance(one, str) else 0
        if size > LARGEST:
            raise InvalidRequest(f"The value is larger than {LARGEST >> 10} KiB.", field=field)
        _storable(one, where)


def _inside(where: str, value: Any, depth: int) -> list[tuple[str, Any, int]]:
    stem = f"{where}." if where else ""
    if not isinstance(value, Mapping):
        return [(f"{stem}{place}", one, depth) for place, one in enumerate(value)]
    names = [(where, str(name), depth) for name in value]
    return names + [(f"{stem}{str(name)[:63]}", one, depth) for name, one in value.items()]


def _storable(value: Any, where: str) -> None:
    if isinstance(value, str):
        if odd := next((c for c in value if c == "\0" or 0xD800 <= ord(c) <= 0xDFFF), ""):
            raise InvalidRequest(
                f"The value contains the character U+{ord(odd):04X}, which is not valid in text.", field=where
            )
    elif isinstance(value, int):
        number(value, where)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidRequest("It is not a number.", field=where)


def printable(value: str, most: int = 200) -> str:
    """Return at most `most` characters of a text for an event or a message, with unprintable ones escaped."""
    short = value[:most]
    plain = short if short.isprintable() else json.dumps(short)[1:-1]
    return plain + ("…" if len(value) > most else "")
