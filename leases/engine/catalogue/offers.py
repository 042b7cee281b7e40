"""The catalogue: store a provider's offers, find the offers that meet a placement request, and look up prices."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from blueprints.models import Blueprint, Reading
from blueprints.offers import Offer, Sought, type_in
from leases.engine.catalogue.poll_schedule import keeps
from leases.engine.core.database import rows, run, short
from leases.engine.placement.constraints import Sql

_KEY = ("location", "zone", "type", "market")
_SAID = (
    "price", "price_source", "vcpus", "ram_mib", "arch", "gpu_maker", "gpu_model", "gpu_count", "gpu_memory_mib",
    "local_disk_gib", "network", "confidential", "family", "country", "available",
)  # fmt: skip
_TYPES = {
    "price": "float8", "vcpus": "int", "ram_mib": "bigint", "gpu_count": "int", "gpu_memory_mib": "bigint",
    "local_disk_gib": "bigint", "confidential": "varchar[]", "available": "boolean", "boot_seconds": "float8",
}  # fmt: skip
_COLUMNS = (*_KEY, *_SAID, "boot_seconds")
_TYPED = ", ".join(f"{name} {_TYPES.get(name, 'text')}" for name in _COLUMNS)
_GIVEN = f"jsonb_to_recordset(%s::jsonb) AS g({_TYPED})"
_SAME = "(" + ", ".join(f"o.{name}" for name in _SAID) + ")"
_NEW = "(" + ", ".join(f"excluded.{name}" for name in _SAID) + ")"
_WRITE = f"""
    INSERT INTO blueprints_listing AS o (credential_id, kind, {", ".join(_COLUMNS)})
    SELECT %s, %s, {", ".join(f"g.{name}" for name in _COLUMNS)} FROM {_GIVEN}
    ON CONFLICT (credential_id, kind, location, zone, type, market) DO UPDATE SET
        {", ".join(f"{name} = excluded.{name}" for name in _SAID)}, changed_at = clock_timestamp()
    WHERE {_SAME} IS DISTINCT FROM {_NEW}"""
"""Writes only offers that have changed, because few of many thousand offers change between two polls."""
_MISSED = f"""
    UPDATE blueprints_listing o SET available = FALSE, changed_at = clock_timestamp()
    WHERE o.credential_id = %s AND o.kind = %s AND (%s = '' OR o.location = %s) AND o.available
        AND NOT EXISTS (SELECT FROM {_GIVEN}
            WHERE {" AND ".join(f"g.{name} = o.{name}" for name in _KEY)})"""
_PLACE = """CASE WHEN o.zone = '' THEN o.location WHEN starts_with(o.zone, o.location) THEN o.zone
    ELSE o.location || '-' || o.zone END"""
_NAME = f"({_PLACE}) || '/' || o.type || '/' || o.market"
"""The SQL equivalent of `blueprints.offers.Offer.name`."""
_NOT_COUNTED = """NOT EXISTS (SELECT FROM unnest(%s::text[]) AS q(key) WHERE split_part(q.key, '/', 1) IN ('', o.location)
    AND split_part(q.key, '/', 2) IN ('', o.family) AND split_part(q.key, '/', 3) IN ('', o.market))"""
"""The SQL equivalent of `blueprints.offers.counts`."""
_FOUND = ", ".join(f"o.{name}" for name in _COLUMNS)
_ORDER = {"fastest": "o.boot_seconds NULLS LAST, o.price NULLS LAST, o.id"}
_BY_PRICE = "o.price NULLS LAST, o.id"


@short
def write(reading: Reading, token: uuid.UUID, offers: Sequence[Offer]) -> int | None:
    """Store the offers that a poll read from one place.

    Return the number of rows that changed, or None if another process has taken over the poll.
    """
    if not keeps(reading.pk, token):
        return None
    given = json.dumps([_row(offer, reading.country) for offer in {_key(offer): offer for offer in offers}.values()])
    account = (reading.credential_id, reading.kind)
    changed = run(_WRITE, (*account, given))
    return changed + run(_MISSED, (*account, reading.place, reading.place, given))


def _key(offer: Offer) -> tuple[str, ...]:
    return tuple(getattr(offer, name) for name in _KEY)


def _row(offer: Offer, country: str) -> dict[str, Any]:
    return {**asdict(offer), "country": offer.country or country}


def was_read(account: str, kind: str) -> bool:
    """Return whether the offers of this account have been polled at least once."""
    sql = """
        SELECT 1 FROM blueprints_reading n JOIN blueprints_credential c ON c.id = n.credential_id
        WHERE c.name = %s AND n.kind = %s AND n.what = 'inventory' AND n.seen_at IS NOT NULL LIMIT 1"""
    return bool(rows(sql, (account, kind)))


def trouble(account: str, kind: str) -> str:
    """Return why the last poll of the account failed, or an empty string if it succeeded."""
    sql = """
        SELECT n.message FROM blueprints_reading n JOIN blueprints_credential c ON c.id = n.credential_id
        WHERE c.name = %s AND n.kind = %s AND n.what IN ('places', 'inventory') AND n.message <> '' LIMIT 1"""
    found = rows(sql, (account, kind))
    return str(found[0][0]) if found else ""


def find(
    kind: str, sought: Sought, *, choose: str = "", but: Sequence[str] = (), not_in: Sequence[str] = (),
    not_counted: Sequence[str] = (), room: Sql | None = None, limit: int = 50,
) -> list[Offer]:  # fmt: skip
    """Return the offers that meet a query, cheapest first or, if `choose` is `fastest`, first those that boot soonest.

    Excludes the offers whose names are in `but`, the zones in `not_in`, and offers that count against a provider quota
    in `not_counted`. `room` is a further SQL condition on an offer, the row `o`.
    """
    what = condition(sought) if room is None else condition(sought) & room
    sql = f"""
        SELECT {_FOUND} FROM blueprints_listing o JOIN blueprints_credential c ON c.id = o.credential_id
        WHERE c.name = %s AND o.kind = %s AND o.available AND {what.text}
            AND {_NAME} <> ALL(%s) AND {_PLACE} <> ALL(%s) AND {_NOT_COUNTED}
        ORDER BY {_ORDER.get(choose, _BY_PRICE)} LIMIT %s"""
    params = (sought.account, kind, *what.params, list(but), list(not_in), list(not_counted), limit)
    return [_offer(row) for row in rows(sql, params)]


def _offer(row: tuple[Any, ...]) -> Offer:
    said = dict(zip(_COLUMNS, row, strict=True))
    return Offer(**said | {"confidential": tuple(said["confidential"])})


def condition(sought: Sought) -> Sql:
    """Return an SQL condition that is true if the offer in row `o` meets the query."""
    found = Sql("TRUE")
    for text, value in _CONDITIONS:
        if (asked := value(sought)) not in (None, "", 0, []):
            found &= Sql(text, (asked,))
    return found


def _patterns(sought: Sought) -> list[str]:
    """Return the LIKE patterns for the requested type names."""
    escaped = (name.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_") for name in sought.types)
    return [name.replace("*", "%") for name in escaped]


_CONDITIONS: tuple[tuple[str, Any], ...] = (
    ("o.location = ANY(%s)", lambda s: list(s.locations)),
    ("o.zone = ANY(%s)", lambda s: list(s.zones)),
    ("o.country = ANY(%s)", lambda s: list(s.countries)),
    ("o.type LIKE ANY(%s)", _patterns),
    ("o.type = ANY(%s)", lambda s: list(s.names)),
    ("o.market = ANY(%s)", lambda s: list(s.markets)),
    ("o.arch = %s", lambda s: s.arch),
    ("o.vcpus * 1000 >= %s", lambda s: s.amounts.cpu_millicores),
    ("o.ram_mib >= %s", lambda s: s.amounts.ram_mib),
    ("o.gpu_maker = %s", lambda s: s.gpu_maker),
    ("o.gpu_model = %s", lambda s: s.gpu_model),
    ("o.gpu_count >= %s", lambda s: s.gpu_count),
    ("o.gpu_memory_mib >= %s", lambda s: s.gpu_memory_mib),
    # The first condition is redundant. It is written as in the partial index, so that the index is used.
    ("o.confidential <> '{}'::varchar(16)[] AND o.confidential @> %s::varchar[]", lambda s: list(s.confidential)),
    ("o.price <= %s", lambda s: s.max_price),
)  # fmt: skip


_SEEN = f"""
    UPDATE blueprints_listing o SET boot_seconds = coalesce(0.7 * o.boot_seconds + 0.3 * seen.took, seen.took)
    FROM (SELECT r.offer, b.kind, b.config ->> 'credential' AS account,
            extract(epoch FROM clock_timestamp() - r.created_at)::float8 AS took
        FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id
        WHERE r.id = %s AND r.offer <> '') seen
    WHERE o.kind = seen.kind AND {_NAME} = seen.offer
        AND o.credential_id = (SELECT c.id FROM blueprints_credential c WHERE c.name = seen.account)"""


def named(account: str, kind: str, offers: Sequence[str]) -> dict[str, Offer]:
    """Return a mapping from each of these names to its offer, including offers that are not available now."""
    sql = f"""
        SELECT {_FOUND} FROM blueprints_listing o JOIN blueprints_credential c ON c.id = o.credential_id
        WHERE c.name = %s AND o.kind = %s AND o.type = ANY(%s) AND {_NAME} = ANY(%s)"""
    types = {type_in(name) for name in offers}
    found = [_offer(row) for row in rows(sql, (account, kind, sorted(types), list(offers)))]
    return {offer.name: offer for offer in found}


def booted(resource_id: int) -> None:
    """Update the boot time of a resource's offer with the time that the resource took to become usable.

    Recent boot times have more weight than older ones.
    """
    run(_SEEN, (resource_id,))


_PRICE = """
    SELECT min(o.price) FROM blueprints_listing o JOIN blueprints_credential c ON c.id = o.credential_id
    WHERE c.name = %s AND o.kind = %s AND o.location = %s AND o.zone IN (%s, '') AND o.type = %s AND o.market = %s"""


def price_of(blueprint: Blueprint, facts: Mapping[str, Any]) -> float | None:
    """Return the hourly price of a machine, or None if its instance type is not offered in its zone and market.

    Reads `location`, `zone`, `type` and `market` from `facts`.
    """
    account = blueprint.config.get("credential", "") if isinstance(blueprint.config, dict) else ""
    where = [str(facts.get(name) or "") for name in ("location", "zone", "type")]
    found = rows(_PRICE, (account, blueprint.kind, *where, facts.get("market") or "on_demand"))
    return None if found[0][0] is None else float(found[0][0])
