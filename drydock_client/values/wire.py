"""Convert JSON to values: the inverse of `to_json`."""

from __future__ import annotations

import dataclasses
import datetime as dt
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

Value = TypeVar("Value")


def from_json(of: type[Value], given: Any) -> Value:
    """Convert JSON from `to_json` to a value of class `of`. Ignores unknown fields, which a newer server may send.

    Raises ValueError if a field is missing or has another type.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"this is not a valid {of.__name__}")
    try:
        return of(**{name: read(given[name]) for name, read in _fields(typing.cast(Any, of)).items() if name in given})
    except (TypeError, AttributeError) as error:
        raise ValueError(f"this is not a valid {of.__name__}: {error}") from None


@lru_cache(maxsize=64)
def _fields(of: Any) -> Mapping[str, Callable[[Any], Any]]:
    hints = typing.get_type_hints(of)
    return {field.name: _reader(hints[field.name]) for field in dataclasses.fields(of)}


def _same(value: Any) -> Any:
    return value


def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return the function that reads a value of a type."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        readers = [_reader(one) for one in inner if one is not types.NoneType]
        return _optional(readers[0]) if len(readers) == 1 else _same
    if dataclasses.is_dataclass(hint):
        return lambda value: from_json(typing.cast(Any, hint), value)
    if hint is dt.datetime:
        return dt.datetime.fromisoformat
    if hint is dt.timedelta:
        return lambda value: dt.timedelta(seconds=value)
    if origin is tuple:
        return _many(_reader(inner[0]), tuple)
    if origin in (list, Sequence):
        return _many(_reader(inner[0]), list)
    if origin in (dict, Mapping):
        return _mapping(_reader(inner[1]))
    return _same


def _optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _many(read: Callable[[Any], Any], made: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: made(read(value) for value in values)


def _mapping(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: {key: read(value) for key, value in values.items()}
