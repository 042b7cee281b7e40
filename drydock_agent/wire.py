"""Convert frozen dataclasses to and from JSON. Reading is strict: unknown fields, wrong types and NaN are rejected."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import types
import typing
import zlib
from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

T = TypeVar("T")

MOST_ENTRIES, MOST_DEPTH, MOST_TEXT = 200_000, 8, 65_536


class Malformed(ValueError):
    """The document is invalid. The message names the field."""


def encoded(value: Any) -> Any:
    """Return a dataclass as JSON values, without fields that have their default values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {
            field.name: encoded(one) for field, one in pairs if field.name == "version" or not _is_default(field, one)
        }
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: encoded(one) for key, one in sorted(value.items())}
    return [encoded(one) for one in value] if isinstance(value, tuple | list) else value


def decoded(cls: type[T], document: object, *, version: int, entries: int = MOST_ENTRIES) -> T:
    """Parse the JSON form of a dataclass. Raises Malformed for unknown fields, wrong types, NaN, and excessive size."""
    if isinstance(document, Mapping) and document.get("version") != version:
        raise Malformed(f"version: {document.get('version')!r:.40}; this program reads version {version}")
    measure(document, entries)
    result: T = _value(cls, document, cls.__name__.lower())
    return result


def value(wanted: type[T], given: object) -> T:
    """Return a plain JSON value as a type, such as a dataclass that is part of a document. Raises Malformed."""
    found: T = _value(wanted, given, wanted.__name__.lower())
    return found


def unpacked(body: bytes, encoding: str, most: int) -> bytes:
    """Return a body of at most `most` bytes that may be compressed with gzip. Raises Malformed."""
    name = encoding.strip().lower()
    if name not in ("", "identity", "gzip"):
        raise Malformed(f"Content-Encoding: {encoding!r:.40} is not supported; use gzip, or none")
    if name == "gzip":
        unpacker = zlib.decompressobj(wbits=31)
        try:
            plain = unpacker.decompress(body, most + 1)
        except zlib.error:
            raise Malformed("The body is not valid gzip") from None
        # At the limit the stream is not at its end either, but the length says what is wrong.
        if len(plain) <= most and (not unpacker.eof or unpacker.unused_data):
            raise Malformed("The gzip stream is truncated, or more data follows it")
        body = plain
    if len(body) > most:
        raise Malformed(f"The body has more than {most} bytes unpacked")
    return body


def parsed(body: bytes) -> object:
    """Return the values of a JSON text. Raises Malformed for NaN, for repeated names and for what is not JSON."""
    try:
        return json.loads(body, object_pairs_hook=_unique, parse_constant=_refused)
    except (RecursionError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise Malformed(f"The body is not valid JSON: {error!s:.100}") from None
    except ValueError as error:
        # Also numbers with so many digits that Python refuses to convert them.
        raise error if isinstance(error, Malformed) else Malformed("A number has too many digits") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Malformed(f"{twice:.40}: this field is there more than once")
    return found


def _refused(name: str) -> object:
    raise Malformed(f"{name} is not a number in JSON")


def _is_default(field: dataclasses.Field[Any], value: object) -> bool:
    if field.default_factory is not dataclasses.MISSING:
        return bool(value == field.default_factory())
    return field.default is not dataclasses.MISSING and value == field.default and type(value) is type(field.default)


def measure(document: object, entries: int) -> None:
    """Raise Malformed if a document has more than `entries` values, or is nested too deep."""
    count, level = 0, [document]
    for _ in range(MOST_DEPTH + 1):
        below: list[object] = []
        for one in level:
            if isinstance(one, Mapping):
                below += one.values()
            elif isinstance(one, list):
                below += one
        count += len(below)
        if count > entries:
            raise Malformed(f"The document has more than {entries} values")
        if not below:
            return
        level = below
    raise Malformed(f"The document is nested more than {MOST_DEPTH} deep")


@lru_cache
def _hints(cls: Hashable) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _value(wanted: Any, given: object, path: str) -> Any:
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        return _either(arguments, given, path)
    if origin is tuple:
        if not isinstance(given, list):
            raise Malformed(f"{path}: a list is expected")
        return tuple(_value(arguments[0], one, f"{path}[{n}]") for n, one in enumerate(given))
    if origin is not None and issubclass(origin, Mapping):
        return {
            _value(str, key, path): _value(arguments[1], one, f"{path}.{key:.40}") for key, one in _mapping(given, path)
        }
    if dataclasses.is_dataclass(wanted):
        return _dataclass(typing.cast("type[Any]", wanted), given, path)
    if issubclass(wanted, enum.Enum):
        return _member(wanted, given, path)
    return _plain(wanted, given, path)


def _mapping(given: object, path: str) -> list[tuple[str, object]]:
    if not isinstance(given, Mapping):
        raise Malformed(f"{path}: an object is expected")
    return list(given.items())


def _dataclass(wanted: type[Any], given: object, path: str) -> Any:
    hints = _hints(typing.cast("Hashable", wanted))
    values = {}
    for key, one in _mapping(given, path):
        if key not in hints:
            raise Malformed(f"{path}.{key:.40}: this field is not known")
        values[key] = _value(hints[key], one, f"{path}.{key}")
    try:
        return wanted(**values)
    except TypeError as error:
        raise Malformed(f"{path}: {error}") from None


def _either(arguments: tuple[Any, ...], given: object, path: str) -> Any:
    if given is None and type(None) in arguments:
        return None
    choices = [one for one in arguments if one is not type(None)]
    for choice in choices:
        try:
            return _value(choice, given, path)
        except Malformed:
            if len(choices) == 1:
                raise
    raise Malformed(f"{path}: {type(given).__name__} is not an allowed type")


def _member(wanted: type[enum.Enum], given: object, path: str) -> enum.Enum:
    try:
        return wanted(given)
    except ValueError:
        raise Malformed(f"{path}: {given!r:.40} is not one of {', '.join(str(one.value) for one in wanted)}") from None


def _plain(wanted: type, given: object, path: str) -> object:
    if wanted is float and isinstance(given, int) and not isinstance(given, bool):
        given = float(given)
    if type(given) is not wanted:
        raise Malformed(f"{path}: {wanted.__name__} is expected")
    if isinstance(given, float) and not math.isfinite(given):
        raise Malformed(f"{path}: {given} is not a number")
    if isinstance(given, int) and not -(1 << 63) <= given < 1 << 63:
        raise Malformed(f"{path}: the number is too large")
    if isinstance(given, str) and (len(given) > MOST_TEXT or "\0" in given or not _is_unicode(given)):
        raise Malformed(f"{path}: the text is too long, or has NUL characters or half a surrogate pair")
    return given


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= one <= "\udfff" for one in text)
