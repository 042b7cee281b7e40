"""What callers give, looked at before anything is done with it: texts, numbers and documents that a row can hold."""

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
"""Characters of one text."""
LARGEST, DEEPEST = 1 << 18, 32
"""Characters, and levels, of one document; each of its values counts as one character more."""
_WHOLE = range(-(1 << 63), 1 << 63)
_PATHS = frozenset({"path", "cwd"})
"""They may hold any byte but NUL, those that are no UTF-8 as half characters."""
_PROSE = frozenset({"message", "reason", "note", "remark"})
"""They may have several lines."""
_WHOLE_REQUESTS = frozenset({"given"})
"""Their fields are named by themselves."""
_OF_THE_HOST = frozenset({"words", "env", "secrets"})
"""Looked at by what takes them, which knows more of them."""


def checked(work: Callable[P, R]) -> Callable[P, R]:
    """The function, its arguments looked at first. Raises InvalidRequest, which names the argument."""
    names = tuple(inspect.signature(work).parameters)

    @functools.wraps(work)
    def looked_at(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in chain(zip(names, args, strict=False), kwargs.items()):
            if type(value) is not str or len(value) > LONGEST or not value.isprintable():
                look(name, value)
        return work(*args, **kwargs)

    return looked_at


def look(name: str, value: Any) -> None:
    """One argument, and what is in it. Raises InvalidRequest."""
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
            look(name, one)


def text(value: str, field: str, *, path: bool = False, lines: bool = False) -> None:
    """Raises InvalidRequest for a text that is too long or holds what no row, page or terminal should."""
    if len(value) > LONGEST:
        raise InvalidRequest(f"It has {len(value)} characters; at most {LONGEST} are taken.", field=field)
    if path and "\0" not in value:
        return
    if odd := first_unsafe(value, allowed="\n\t" if lines else ""):
        raise InvalidRequest(f"It holds the character U+{ord(odd):04X}; {NOT_TAKEN}.", field=field)


def number(value: int, field: str) -> None:
    """Raises InvalidRequest for a whole number of more than 64 bits."""
    if value not in _WHOLE:
        raise InvalidRequest("It is a number of more than 64 bits.", field=field)


def document(value: Mapping[str, Any], field: str) -> None:
    """Raises InvalidRequest for what cannot be stored as JSON, is too large, or nested too deeply."""
    left, size = [(field, value, 0)], 0
    while left:
        where, one, depth = left.pop()
        if isinstance(one, Mapping | list | tuple):
            if depth == DEEPEST:
                raise InvalidRequest(f"It is nested more than {DEEPEST} levels deep.", field=field)
            left.extend(_inside(where, one, depth + 1))
            size += len(one)
        size += len(one) if isinstance(one, str) else 0
        if size > LARGEST:
            raise InvalidRequest(f"It is larger than {LARGEST >> 10} KiB.", field=field)
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
            raise InvalidRequest(f"It holds the character U+{ord(odd):04X}, which no text does.", field=where)
    elif isinstance(value, int):
        number(value, where)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidRequest("It is not a number.", field=where)


def printable(value: str, most: int = 200) -> str:
    """The beginning of a text as it may stand in an event or a message: what is odd in it is written out."""
    short = value[:most]
    plain = short if short.isprintable() else json.dumps(short)[1:-1]
    return plain + ("…" if len(value) > most else "")
