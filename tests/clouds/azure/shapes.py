"""Whether JSON has the shape that the SDK's own TypedDicts give it.

The SDK's models take unknown names without a word; the real Azure does not. So the double looks: no unknown name, no
required one missing, no wrong type, no word that an enumeration does not have.
"""

from __future__ import annotations

import types as python
import typing
from enum import Enum
from functools import cache
from typing import Any

import typing_extensions
from azure.mgmt.compute import models as compute_models
from azure.mgmt.compute import types as compute
from azure.mgmt.network import models as network_models
from azure.mgmt.network import types as network

_NAMES = {
    compute.__name__: {**vars(compute_models), **vars(compute)},
    network.__name__: {**vars(network_models), **vars(network)},
}


def problems(given: Any, wanted: Any, at: str = "") -> list[str]:
    """What is wrong with it, each with where; empty: nothing."""
    if wanted is Any:
        return []
    if typing_extensions.is_typeddict(wanted):
        return _object(given, wanted, at)
    origin = typing.get_origin(wanted)
    if origin in (typing.Union, python.UnionType):
        return _one_of(given, typing.get_args(wanted), at)
    if origin is typing.Literal:
        return [] if given in typing.get_args(wanted) else [f"{at}: {given!r} is not one of {typing.get_args(wanted)}"]
    if origin is list:
        return _items(given, typing.get_args(wanted)[0], at)
    if origin is dict:
        return _values(given, typing.get_args(wanted)[1], at)
    if _is_enum(wanted):
        words = [member.value for member in wanted]
        return [] if given in words else [f"{at}: {given!r} is not one of {words}"]
    return [] if _is(given, wanted) else [f"{at}: {given!r} is not a {getattr(wanted, '__name__', wanted)}"]


def _object(given: Any, wanted: Any, at: str) -> list[str]:
    if not isinstance(given, dict):
        return [f"{at}: {given!r} is not an object"]
    hints, required = _hints(wanted)
    found = [f"{at}.{name}: not known in {wanted.__name__}" for name in given if name not in hints]
    found += [f"{at}.{name}: missing in {wanted.__name__}" for name in required if name not in given]
    for name, value in given.items():
        if name in hints:
            found += problems(value, hints[name], f"{at}.{name}")
    return found


def _one_of(given: Any, choices: tuple[Any, ...], at: str) -> list[str]:
    """The SDK writes an enumeration as str or its class; then only its own words count."""
    if any(one in (str, Any) for one in choices) and not any(_is_enum(one) for one in choices):
        return [] if isinstance(given, str) else [f"{at}: {given!r} is not a str"]
    closed = [one for one in choices if one is not str]
    tried = [problems(given, one, at) for one in closed]
    return min(tried, key=len)


def _items(given: Any, wanted: Any, at: str) -> list[str]:
    if not isinstance(given, list):
        return [f"{at}: {given!r} is not a list"]
    return [problem for number, one in enumerate(given) for problem in problems(one, wanted, f"{at}[{number}]")]


def _values(given: Any, wanted: Any, at: str) -> list[str]:
    if not isinstance(given, dict):
        return [f"{at}: {given!r} is not an object"]
    return [problem for name, one in given.items() for problem in problems(one, wanted, f"{at}.{name}")]


def _is(given: Any, wanted: Any) -> bool:
    if wanted is float:
        return isinstance(given, int | float) and not isinstance(given, bool)
    if wanted is int:
        return isinstance(given, int) and not isinstance(given, bool)
    return isinstance(given, wanted)


def _is_enum(wanted: Any) -> bool:
    """A closed one: the list of sizes stopped growing years ago."""
    return isinstance(wanted, type) and issubclass(wanted, Enum) and wanted.__name__ != "VirtualMachineSizeTypes"


@cache
def _hints(wanted: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """The types of a TypedDict's names, and which must be there: those marked Required. The SDK's derived ones are
    total by mistake, so `__required_keys__` says too much."""
    names = _NAMES[wanted.__module__]
    marked = typing_extensions.get_type_hints(wanted, globalns=names, include_extras=True)
    required = {
        name for name, hint in marked.items() if typing_extensions.get_origin(hint) is typing_extensions.Required
    }
    return typing_extensions.get_type_hints(wanted, globalns=names), frozenset(required)
