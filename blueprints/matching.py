"""Requirements of leases, compared with attributes of resources, as data: attribute, operator and requirement.

A kind declares which attributes are compared. This module compares single values, and the engine compares rows in SQL;
a property test checks that both agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Operator: TypeAlias = Literal["=", ">=", "<=", "in", "contains", "contains_all"]


@dataclass(frozen=True)
class Match:
    """The relation between an `attribute` of the resource and a `requirement` of the lease, given by `operator`.

    `=`: equal. `>=`, `<=`: compare numbers. `in`: the attribute is in the required list. `contains`: the attribute, a
    list, contains the required value. `contains_all`: the attribute contains all values of the required list. A
    requirement that is None is ignored; a missing attribute never matches. Values are JSON types, so a tuple is not a
    list.
    """

    attribute: str
    operator: Operator
    requirement: str

    def __post_init__(self) -> None:
        if self.operator not in _OPERATORS:
            raise ValueError(
                f"{self.operator!r} is not an operator. Write Match(attribute, operator, requirement) with one "
                f"of the operators {', '.join(_OPERATORS)}."
            )


def _numbers(a: Any, b: Any) -> bool:
    return all(isinstance(n, int | float) and not isinstance(n, bool) for n in (a, b))


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda has, asked: _same(has, asked),
    ">=": lambda has, asked: _numbers(has, asked) and has >= asked,
    "<=": lambda has, asked: _numbers(has, asked) and has <= asked,
    "in": lambda has, asked: isinstance(asked, list) and any(_same(has, one) for one in asked),
    "contains": lambda has, asked: isinstance(has, list) and any(_same(one, asked) for one in has),
    "contains_all": lambda has, asked: (
        isinstance(has, list) and isinstance(asked, list) and all(any(_same(x, y) for x in has) for y in asked)
    ),
}


def _same(a: Any, b: Any) -> bool:
    """Compare as JSON does: true does not equal 1, at any depth."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[name], b[name]) for name in a)
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def misses(matches: tuple[Match, ...], attributes: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each requirement in `asked` that the `attributes` do not meet.

    The list is empty if all requirements are met.
    """
    return [
        f"{m.requirement} {m.operator} {_shown(asked[m.requirement])} is required, but the value is "
        f"{_shown(attributes.get(m.attribute))}"
        for m in matches
        if asked.get(m.requirement) is not None and not _meets(m, attributes, asked[m.requirement])
    ]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:196]} ..."


def _meets(match: Match, attributes: Mapping[str, Any], asked: Any) -> bool:
    has = attributes.get(match.attribute)
    return has is not None and _OPERATORS[match.operator](has, asked)
