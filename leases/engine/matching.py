"""What a kind declares of its attributes, as SQL; and the indexes that answer it.

Each condition stands beside one that says nothing more but that an index answers: containment for what is equal,
listed or contained, an index of its own for every attribute that is compared as a number.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from blueprints import registry
from blueprints.matching import Match
from leases.engine.transaction import rows, run


@dataclass(frozen=True)
class Sql:
    """A piece of SQL with its parameters."""

    text: str
    params: tuple[Any, ...] = ()

    def __and__(self, other: Sql) -> Sql:
        return Sql(f"{self.text} AND {other.text}", self.params + other.params)


def matches(match: Match, value: Any) -> Sql:
    """True for a resource `r` whose attribute meets the requirement; the SQL twin of `blueprints.matching.misses`."""
    has = f"r.attributes -> '{_attribute(match.attribute)}'"
    return _OPERATORS[match.operator](has, match.attribute, value)


def _equal(has: str, name: str, value: Any) -> Sql:
    params = (json.dumps({name: value}), json.dumps(value))
    return Sql(f"r.attributes @> %s::jsonb AND {has} = %s::jsonb", params)


def _compared(operator: str) -> Callable[[str, str, Any], Sql]:
    path = f'strict $ ? (@.type() == "number" && @ {operator} $v)'

    def compare(has: str, name: str, value: Any) -> Sql:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return Sql("FALSE")
        known = Sql(f"r.attributes ? '{name}' AND {has} {operator} %s::jsonb", (json.dumps(value),))
        return known & Sql(f"jsonb_path_exists({has}, %s, %s::jsonb, TRUE)", (path, json.dumps({"v": value})))

    return compare


def _one_of(has: str, name: str, value: Any) -> Sql:
    listed = [one for one in value if one is not None] if isinstance(value, list) else []
    if not listed:
        return Sql("FALSE")
    by_index = " OR ".join("r.attributes @> %s::jsonb" for _ in listed)
    params = (*(json.dumps({name: one}) for one in listed), [json.dumps(one) for one in listed])
    return Sql(f"({by_index}) AND {has} = ANY(%s::jsonb[])", params)


def _contains(has: str, name: str, value: Any) -> Sql:
    return _contains_all(has, name, [value])


def _contains_all(has: str, name: str, value: Any) -> Sql:
    if not isinstance(value, list):
        return Sql("FALSE")
    found = Sql("TRUE")
    by_index = Sql("r.attributes @> %s::jsonb", (json.dumps({name: value}),))
    for one in value:
        found &= Sql(f"EXISTS (SELECT FROM jsonb_array_elements({has}) x WHERE x = %s::jsonb)", (json.dumps(one),))
    is_list = f"CASE WHEN jsonb_typeof({has}) = 'array' THEN {found.text} ELSE FALSE END"
    return by_index & Sql(is_list, found.params)


_OPERATORS: dict[str, Callable[[str, str, Any], Sql]] = {
    "=": _equal,
    ">=": _compared(">="),
    "<=": _compared("<="),
    "in": _one_of,
    "contains": _contains,
    "contains_all": _contains_all,
}


@lru_cache(maxsize=1024)
def _attribute(name: str) -> str:
    if not name.isidentifier():
        raise ValueError(f"{name!r} is not an attribute name")
    return name


def index_numbers() -> None:
    """After migrating: an index for every attribute that an installed kind compares as a number."""
    if rows("SELECT 1 WHERE to_regclass('leases_resource') IS NULL"):
        return
    for name in sorted(_numbers()):
        index, value = f"resource_number_{_attribute(name)}", f"(attributes -> '{name}')"
        run(
            f"CREATE INDEX IF NOT EXISTS {index} ON leases_resource (type, {value})"
            f" WHERE claimable AND attributes ? '{name}'"
        )
        # The planner takes no statistics from a partial index; without any it would read the whole table.
        run(f"CREATE STATISTICS IF NOT EXISTS {index}_known ON {value} FROM leases_resource")


def _numbers() -> set[str]:
    kinds = [registry.kind(name) for kind in registry.resource_types() for name in registry.kinds_of_type(kind)]
    return {match.attribute for kind in kinds for match in kind.matches if match.operator in (">=", "<=")}
