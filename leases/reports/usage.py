"""The usage, the cost and the energy of leases within a time span."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leases.engine.core.database import rows

BY: dict[str, tuple[str, str]] = {
    "owner": ("u.owner_id", "u.owner"),
    "group": ("u.group_id", 'u."group"'),
    "lease": ("u.lease_id", "u.lease_name"),
    "blueprint": ("u.blueprint_id", "u.blueprint"),
    "resource": ("u.resource_id", "u.resource"),
    "kind": ("", "u.kind"),
    "place": ("", "u.place"),
    "type": ("", "coalesce(nullif(u.instance_type, ''), u.type)"),
    "market": ("", "u.market"),
}
"""The columns by which costs are summed: an id, if there is one, and a name. Names may change, ids do not."""
_FILTERS = {
    "owner_id": "u.owner_id", "owner": "u.owner", "group": 'u."group"', "lease": "u.lease_id",
    "blueprint": "u.blueprint", "kind": "u.kind", "place": "u.place", "market": "u.market", "type": BY["type"][1],
}  # fmt: skip
COLUMNS = (
    "id", "lease_id", "lease_name", "owner", "group", "blueprint", "kind", "resource_id", "resource", "type", "offer",
    "instance_type", "place", "market", "price", "part", "started_at", "ended_at", "ends_at",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Span:
    """A time span, and the values by which its records are filtered (see `_FILTERS`).

    `now` is the time up to which records without an end count.
    """

    since: dt.datetime
    until: dt.datetime
    now: dt.datetime
    only: Mapping[str, Any]


_SECONDS = "greatest(extract(epoch FROM least(coalesce(u.ended_at, %s), %s) - greatest(u.started_at, %s)), 0)"

_WHOLE = "greatest(extract(epoch FROM coalesce(u.ended_at, %s) - u.started_at), 0.000001)"


def _from(span: Span) -> tuple[str, tuple[Any, ...]]:
    """Return SQL and its parameters for the records of the span.

    Each has its `seconds` within the span, and those of its `whole` time.
    """
    chosen = [name for name, value in span.only.items() if value not in (None, "")]
    where = "".join(f" AND {_FILTERS[name]} = %s" for name in chosen)
    sql = f"""
        FROM (SELECT u.*, {_SECONDS}::float8 AS seconds, {_WHOLE}::float8 AS whole FROM leases_usage u
            WHERE u.started_at < %s AND (u.ended_at IS NULL OR u.ended_at > %s){where}) u"""
    bounds = (span.until, span.until, span.since, span.now, span.until, span.since)
    return sql, (*bounds, *(span.only[name] for name in chosen))


_ENERGY = "u.energy_wh * u.seconds / u.whole"
"""The energy within the span, in watt-hours: as large a part of the record's as the span has of its time."""
_SUMS = f"""count(DISTINCT u.lease_id), coalesce(sum(u.seconds), 0), coalesce(sum(u.seconds / 3600 * u.part * u.price), 0),
    coalesce(sum(u.part * u.price) FILTER (WHERE u.ended_at IS NULL), 0), sum({_ENERGY})"""
"""The number of leases, the seconds, the cost in US dollars, the current cost per hour, and the energy (None: unknown)."""


def groups(span: Span, by: str, limit: int) -> list[tuple[Any, ...]]:
    """Return (id or None, name, *sums) of each group, starting with the most expensive."""
    number, name = BY[by]
    key = number or name
    named = f"(array_agg({name} ORDER BY u.id DESC))[1]" if number else name
    sql, params = _from(span)
    return rows(
        f"SELECT {number or 'NULL::bigint'}, {named}, {_SUMS} {sql} GROUP BY {key} ORDER BY 5 DESC, 1, 2 LIMIT %s",
        (*params, limit),
    )


def total(span: Span) -> tuple[Any, ...]:
    """Return the sums of all records of the span."""
    sql, params = _from(span)
    return rows(f"SELECT {_SUMS} {sql}", params)[0]


def records(span: Span, *, after: int, limit: int) -> list[dict[str, Any]]:
    """Return the records of the span by id, starting after id `after`, with `seconds`, `cost` and energy in the span."""
    sql, params = _from(span)
    names = ", ".join(f'u."{name}"' for name in COLUMNS)
    found = rows(
        f"SELECT {names}, u.seconds, u.seconds / 3600 * u.part * u.price, {_ENERGY} {sql} WHERE u.id > %s ORDER BY u.id LIMIT %s",
        (*params, after, limit),
    )
    return [dict(zip((*COLUMNS, "seconds", "cost", "energy_wh"), row, strict=True)) for row in found]


def now() -> dt.datetime:
    """Return the current time by the database's clock."""
    moment: dt.datetime = rows("SELECT clock_timestamp()")[0][0]
    return moment
