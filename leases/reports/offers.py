"""Search the catalogue of offers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from blueprints.offers import Sought
from leases.engine.catalogue.offers import condition
from leases.engine.core.database import rows
from leases.engine.placement.constraints import PlacementRequest, Sql, allowed

_OF_OFFER = (
    "kind", "location", "zone", "country", "type", "market", "price", "price_source", "vcpus", "ram_mib", "arch",
    "gpu_maker", "gpu_model", "gpu_count", "gpu_memory_mib", "local_disk_gib", "network", "confidential", "family",
    "boot_seconds", "available",
)  # fmt: skip
_OF_TYPE = (
    "country", "vcpus", "ram_mib", "arch", "gpu_maker", "gpu_model", "gpu_count", "gpu_memory_mib", "local_disk_gib",
    "network", "confidential", "family",
)  # fmt: skip
_ORDERS: dict[str, tuple[str, ...]] = {
    "price": ("o.price",),
    "fastest": ("o.boot_seconds", "o.price"),
    "vcpus": ("-o.vcpus", "o.price"),
    "ram": ("-o.ram_mib", "o.price"),
}
"""The columns of each sort order. Unknown values come last, and equal values are sorted by id."""
_SEEN = """(SELECT max(n.seen_at) FROM blueprints_reading n WHERE n.credential_id = o.credential_id
    AND n.kind = o.kind AND n.what = 'inventory' AND n.place IN ('', o.location)) AS seen_at"""
_FROM = "FROM blueprints_listing o JOIN blueprints_credential c ON c.id = o.credential_id"


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search for offers. If `sought.account` is empty, it covers all accounts."""

    sought: Sought
    kind: str = ""
    max_boot: float | None = None
    gone: bool = False
    """True to include offers that were not available at the last poll."""
    owner_id: int | None = None
    """If given, only accounts of blueprints that this user may use are searched. None searches all accounts."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """The position from which a list continues: after these sort values (None if unknown) and this id."""

    by: tuple[float | None, ...] = ()
    id: int = 0


def offers(search: Search, *, sort: str, after: Place | None, limit: int) -> list[tuple[dict[str, Any], Place]]:
    """Return offers in the given order, each with the position from which the list continues after it."""
    keys = _ORDERS[sort]
    known = [f"coalesce({key}::float8, 'Infinity')" for key in keys]
    what = _wanted(search)
    if after is not None:
        what &= Sql(f"({', '.join(known)}, o.id) > ({', '.join(['%s::float8'] * len(keys))}, %s)", _last(after, sort))
    sql = f"""
        SELECT o.id, c.name, {", ".join(f"o.{name}" for name in _OF_OFFER)}, o.changed_at, {_SEEN},
            ARRAY[{", ".join(f"{key}::float8" for key in keys)}]
        {_FROM} WHERE {what.text} ORDER BY {", ".join(keys)}, o.id LIMIT %s"""
    names = ("id", "account", *_OF_OFFER, "changed_at", "seen_at")
    return [
        (dict(zip(names, row, strict=False)), Place(by=tuple(row[-1]), id=row[0]))
        for row in rows(sql, (*what.params, limit))
    ]


def orders() -> dict[str, int]:
    """Return the number of values by which each sort order sorts, by the name of the order."""
    return {name: len(keys) for name, keys in _ORDERS.items()}


def _last(after: Place, sort: str) -> tuple[Any, ...]:
    by = after.by or (None,) * len(_ORDERS[sort])
    return (*(float("inf") if one is None else one for one in by), after.id)


_GROUP = ("credential_id", "kind", "location", "type")
"""The columns that identify an instance type in a location. They are the first columns of an index."""


def types(search: Search, *, after: int, limit: int) -> list[dict[str, Any]]:
    """Return offers by instance type and location, with the prices in each zone and market.

    The result is ordered by the lowest id among the matching offers of each type. The query first selects one page
    of types, and then collects prices and details only for these.
    """
    what = _wanted(search)
    same = " AND ".join(f"o.{name} = {{0}}.{name}" for name in _GROUP)
    sql = f"""
        WITH page AS MATERIALIZED (
            SELECT f.* FROM (SELECT o.id, c.name, {", ".join(f"o.{name}" for name in _GROUP)} {_FROM}
                WHERE o.id > %s AND {what.text}) f
            WHERE NOT EXISTS (SELECT {_FROM} WHERE {same.format("f")} AND o.id < f.id AND {what.text})
            ORDER BY f.id LIMIT %s)
        SELECT page.id, page.name, page.kind, page.location, page.type, g.* FROM page CROSS JOIN LATERAL (
            SELECT {", ".join(f"max(o.{name})" for name in _OF_TYPE)}, min(o.boot_seconds), bool_or(o.available),
                json_agg(json_build_object('zone', o.zone, 'market', o.market, 'price', o.price, 'source',
                    o.price_source, 'available', o.available) ORDER BY o.market, o.zone)
            {_FROM} WHERE {same.format("page")} AND {what.text}) g
        ORDER BY page.id"""
    names = ("id", "account", "kind", "location", "type", *_OF_TYPE, "boot_seconds", "available", "prices")
    found = rows(sql, (after, *what.params, *what.params, limit, *what.params))
    return [dict(zip(names, row, strict=True)) for row in found]


def places(owner_id: int | None) -> list[dict[str, Any]]:
    """Return the places where accounts are polled, with a summary of the results.

    A place without a name stands for the whole account, until the places of the account are known.
    """
    what = _scope("n", owner_id)
    sql = f"""
        SELECT c.name, n.kind, coalesce(l.location, n.place), coalesce(nullif(n.country, ''), l.country, ''),
            coalesce(l.zones, '{{}}'), coalesce(l.offers, 0), n.seen_at, n.message
        FROM blueprints_reading n JOIN blueprints_credential c ON c.id = n.credential_id
        LEFT JOIN (SELECT o.credential_id, o.kind, o.location, max(o.country) AS country,
                array_agg(DISTINCT o.zone::text) FILTER (WHERE o.zone <> '') AS zones,
                count(*) FILTER (WHERE o.available) AS offers
            FROM blueprints_listing o GROUP BY 1, 2, 3) l
            ON l.credential_id = n.credential_id AND l.kind = n.kind AND n.place IN ('', l.location)
        WHERE n.what = 'inventory' AND {what.text} ORDER BY 1, 2, 3"""
    names = ("account", "kind", "name", "country", "zones", "offers", "seen_at", "message")
    return [dict(zip(names, row, strict=True)) for row in rows(sql, what.params)]


def _wanted(search: Search) -> Sql:
    """Return SQL that is true if the search includes listing `o` of credential `c`."""
    found = condition(search.sought) & _scope("o", search.owner_id)
    for text, value in (
        ("c.name = %s", search.sought.account),
        ("o.kind = %s", search.kind),
        ("o.boot_seconds <= %s", search.max_boot),
    ):
        if value:
            found &= Sql(text, (value,))
    return found if search.gone else found & Sql("o.available")


def _scope(row: str, owner_id: int | None) -> Sql:
    """Return SQL that is true for a row if the user may use a blueprint of its kind that names its account."""
    if owner_id is None:
        return Sql("TRUE")
    served = allowed(PlacementRequest(type="", owner_id=owner_id))
    return Sql(
        f"""({row}.credential_id, {row}.kind) IN (SELECT u.id, b.kind FROM blueprints_blueprint b
            CROSS JOIN LATERAL jsonb_each_text(
                CASE jsonb_typeof(b.config) WHEN 'object' THEN b.config ELSE '{{}}' END) e
            JOIN blueprints_credential u ON u.name = e.value
            WHERE right(e.key, 10) = 'credential' AND b.enabled AND b.removed_at IS NULL AND {served.text})""",
        served.params,
    )
