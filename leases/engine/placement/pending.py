"""Pending leases: their placement requests, the queue with a head for each request class, and groups."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.conf import settings

from blueprints.amounts import CLASSES, Amounts
from leases.engine.core.database import rows
from leases.engine.placement.constraints import PlacementRequest
from leases.models import Lease
from leases.validation.requests import LeaseRequest

_COLUMNS = frozenset(field.attname for field in Lease._meta.concrete_fields)
_DECIDED = (
    "owner_id", "charged_group_id", "only_resources", "shape", "rank", "root_id", "ttl_defaulted", "limited", "watched",
)  # fmt: skip
REQUESTED = (
    *(name for name in LeaseRequest.model_fields if name in _COLUMNS and name != "idempotency_key"),
    *_DECIDED,
)  # fmt: skip
"""The columns that a request determines. They are copied to the replacement of a lost lease.

Some of them are fields of `LeaseRequest` with the same names. The others are derived when the lease is requested.
"""
PLACEMENT = tuple(field.name for field in dataclasses.fields(PlacementRequest) if field.name in _COLUMNS)
"""The columns that have the same names as fields of `PlacementRequest`."""
FIELDS = (
    "id", "shape", "rank", "group_id", "need", "slots", "cpu_millicores", "ram_mib", "disk_mib", "extra",
    "avoided_resources", "ttl_defaulted", *PLACEMENT,
)  # fmt: skip
COLUMNS = ", ".join(f"l.{name}" for name in FIELDS)


def look_again() -> dt.timedelta:
    """Return the longest time after which a pending lease is tried again although nothing woke it."""
    return dt.timedelta(seconds=settings.DRYDOCK.look_again_seconds)


class PendingLease:
    """A pending lease: its request and its place in the queue."""

    __slots__ = ("budgets", "group_id", "id", "need", "placement", "quotas", "rank", "request_class")

    def __init__(self, row: tuple[Any, ...], *, quotas: bool = True, budgets: bool = True) -> None:
        """Read a row with the columns in `COLUMNS`. Pass False if the installation has no quotas or no budgets."""
        self.quotas, self.budgets = quotas, budgets
        field = dict(zip(FIELDS, row, strict=True))
        self.id: int = field["id"]
        self.request_class: str = field["shape"]
        self.rank: float = field["rank"]
        self.group_id: int | None = field["group_id"]
        self.need: str = field["need"]
        given: dict[str, Any] = {
            name: tuple(value) if type(value := field[name]) is list else value for name in PLACEMENT
        }
        given["requirements"] = read_json(given["requirements"])
        if field["ttl_defaulted"]:
            given["ttl"] = None
        self.placement = PlacementRequest(
            **given,
            amounts=Amounts(
                slots=field["slots"], cpu_millicores=field["cpu_millicores"], ram_mib=field["ram_mib"],
                disk_mib=field["disk_mib"], extra=read_json(field["extra"]),
            ),
            avoided=tuple(field["avoided_resources"]),
            lease_id=field["id"],
        )  # fmt: skip


def read_json(value: Any) -> Any:
    """Return the value of a JSON column, which the database driver may have parsed already."""
    return json.loads(value) if isinstance(value, str) else value


def lock(lease_id: int) -> PendingLease | None:
    """Lock and return a pending lease, or return None if the lease is no longer pending.

    Call inside a short transaction.
    """
    return _one(lease_id, "FOR NO KEY UPDATE")


def read(lease_id: int) -> PendingLease | None:
    """Return a pending lease without locking it, or None if the lease is no longer pending."""
    return _one(lease_id, "")


def _one(lease_id: int, locking: str) -> PendingLease | None:
    found = rows(
        f"""SELECT EXISTS (SELECT FROM leases_quota), EXISTS (SELECT FROM leases_budget), {COLUMNS} FROM leases_lease l
        WHERE l.id = %s AND l.state = 'pending' AND l.release_wanted = '' {locking}""",
        (lease_id,),
    )
    if not found:
        return None
    waiter = PendingLease(found[0][2:], quotas=found[0][0], budgets=found[0][1])
    if waiter.need:
        within, related = _within_reach([lease_id])
        waiter.placement = replace(waiter.placement, within=within, related=related)
    return waiter


_WITHIN = """
    WITH RECURSIVE root AS (SELECT coalesce(t.id, l.id) AS id, coalesce(t.group_id, l.group_id) AS group_id
        FROM leases_lease l LEFT JOIN leases_lease t ON t.id = l.root_id WHERE l.id = ANY(%s)),
    first AS (SELECT id FROM root UNION SELECT l.id FROM root JOIN leases_lease l ON l.group_id = root.group_id),
    related AS (SELECT id FROM first UNION SELECT l.id FROM first JOIN leases_lease l ON l.root_id = first.id),
    up AS (
        SELECT r.id, r.part_of_id FROM leases_resource r WHERE r.id IN (
            SELECT s.resource_id FROM related JOIN leases_share s ON s.lease_id = related.id
            UNION ALL SELECT v.id FROM related JOIN leases_resource v ON v.reserved_for_id = related.id
            UNION ALL SELECT l.for_resource_id FROM leases_lease l WHERE l.id = ANY(%s))
        UNION SELECT r.id, r.part_of_id FROM up JOIN leases_resource r ON r.id = up.part_of_id)
    SELECT (SELECT array_agg(id ORDER BY id) FROM up), (SELECT array_agg(id ORDER BY id) FROM first)"""


def _within_reach(lease_ids: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return `within` and `related` of a `PlacementRequest`, for leases of one group or for one that another needs."""
    ((within, related),) = rows(_WITHIN, (lease_ids, lease_ids))
    return tuple(within or ()), tuple(related or ())


_FIRST = 50
_FEW = 32
"""If there are at most this many request classes, each head is looked up; otherwise the oldest leases are searched."""
_OLDEST = 200

_WAITS = "w.state = 'pending' AND NOT w.parked AND w.type = %(type)s"
_ALONE = f"{_WAITS} AND w.group_id IS NULL"
_SHAPES = f"""
    listed AS (
        (SELECT shape FROM leases_lease w WHERE {_ALONE} AND shape >= %(start)s ORDER BY shape LIMIT 1)
        UNION ALL
        SELECT (SELECT shape FROM leases_lease w WHERE {_ALONE} AND shape > s.shape ORDER BY shape LIMIT 1)
        FROM listed s WHERE s.shape IS NOT NULL),
    few AS MATERIALIZED (SELECT shape FROM listed WHERE shape IS NOT NULL LIMIT {{limit}})"""
"""A loose index scan, whose cost depends on the number of request classes and not on the number of leases."""
_AMOUNTS = ", ".join(CLASSES)


def _head(before: str = "TRUE", name: str = "l") -> str:
    """Return SQL for the first lease of a request class.

    Compares the class with a range: for a single class, the planner might walk through the whole queue by rank, in
    which a rare class comes late.
    """
    return f"""
    CROSS JOIN LATERAL (SELECT * FROM leases_lease w
        WHERE {_ALONE} AND w.shape >= s.shape AND w.shape <= s.shape AND {before}
        ORDER BY w.shape, w.rank, w.id LIMIT 1) {name}"""


def _heads(*, before: str = "TRUE", fits: str = "TRUE", beside: str = "") -> str:
    """Return SQL for the first pending lease of each request class that meets `before` and `fits`, as rows `head`.

    All leases of one class ask for the same, so the other leases of the class need not be compared with `fits`.
    `beside` is joined with the leases, so that `fits` can use its columns.
    """
    return f"""
    {_SHAPES.format(limit=_FEW + 1)},
    counted AS MATERIALIZED (SELECT count(*) <= {_FEW} AS by_shape FROM few),
    head AS (
        (SELECT h.id, h.rank FROM (SELECT shape FROM few WHERE (SELECT by_shape FROM counted)) s
            {_head(before, "h")} {beside} WHERE {fits})
        UNION ALL
        (SELECT DISTINCT ON (h.shape) h.id, h.rank FROM (
            SELECT id, shape, rank, {_AMOUNTS} FROM leases_lease w WHERE NOT (SELECT by_shape FROM counted)
            AND {_ALONE} AND {before} ORDER BY w.rank, w.id LIMIT {_OLDEST}) h {beside} WHERE {fits}
            ORDER BY h.shape, h.rank, h.id))"""


_WAITERS = f"""
    SELECT {COLUMNS} FROM (SELECT h.id FROM head h ORDER BY h.rank, h.id LIMIT %(limit)s) h
    JOIN leases_lease l ON l.id = h.id"""


def _within(free: str) -> str:
    """Return SQL that is true for leases that ask for at most `free` of every class."""
    return " AND ".join(f"h.{name} <= ({free})[{n}]" for n, name in enumerate(CLASSES, 1))


_ALL = f"WITH RECURSIVE {_heads()} {_WAITERS} ORDER BY l.rank, l.id"
_OLDER = f"""
    WITH RECURSIVE {_heads(before="w.rank < %(before)s", fits=_within("%(free)s::bigint[]"))} {_WAITERS}
    ORDER BY l.rank, l.id"""
_DUE = f"""
    WITH RECURSIVE {_SHAPES.format(limit=2 * _FEW)}
    SELECT {COLUMNS} FROM few s {_head()} WHERE l.due_at IS NULL OR l.due_at <= statement_timestamp()
    ORDER BY l.due_at NULLS FIRST, l.rank, l.id LIMIT %(limit)s"""
_RECLAIMING = f"""
    WITH RECURSIVE {_SHAPES.format(limit=_FEW)}
    SELECT count(*) FROM few s {_head()} WHERE l.reason = 'waiting_reclaim' AND l.id <> %(other)s"""
_LOOK = f"""
    WITH RECURSIVE g AS MATERIALIZED (SELECT
        (SELECT w.id FROM leases_lease w WHERE {_WAITS} ORDER BY w.rank LIMIT 1) IS NOT NULL AS there,
        (SELECT ARRAY[{", ".join(f"r.total_{name} - r.used_{name}" for name in CLASSES)}]::bigint[]
            FROM leases_resource r WHERE r.id = %(resource)s) AS free),
    {_heads(fits=f"(g.free IS NULL OR {_within('g.free')})", beside="CROSS JOIN g")}
    SELECT g.there, g.free, l.* FROM g LEFT JOIN ({_WAITERS}) l ON TRUE ORDER BY l.rank, l.id"""
"""Looks up the first lease of the queue, instead of using EXISTS, to find out whether any lease waits.

If many leases wait, the planner would expect EXISTS to find one soon, and scan the ended leases as well.
"""


def parked_with(column: str) -> str:
    """Return SQL for (id, rank) of parked leases whose `column` equals that of lease `l`, in queue order.

    Includes only leases that are parked because of a quota or budget. Compares with a range for the same reason as
    `_head`.
    """
    return f"""
        SELECT p.id, p.rank FROM leases_lease p WHERE p.parked AND p.state = 'pending'
        AND p.reason IN ('waiting_quota', 'waiting_budget') AND p.{column} >= l.{column} AND p.{column} <= l.{column}
        ORDER BY p.{column}, p.rank, p.id"""


def heads(resource_type: str, *, limit: int = _FIRST) -> list[PendingLease]:
    """Return the first pending lease of every request class, in the order of the queue."""
    return [PendingLease(row) for row in rows(_ALL, {"type": resource_type, "limit": limit, "start": ""}, hot=True)]


def older(resource_type: str, rank: float, free: Sequence[int]) -> list[PendingLease]:
    """Return the heads of the queue whose rank is below `rank` and that request at most `free` of every class."""
    given = {"type": resource_type, "before": rank, "free": list(free), "limit": _FIRST, "start": ""}
    return [PendingLease(row) for row in rows(_OLDER, given, hot=True)]


def _due_heads(resource_type: str, start: str) -> list[PendingLease]:
    """Return the heads that are due in the request classes from `start` on, starting with the one due longest."""
    return [PendingLease(row) for row in rows(_DUE, {"type": resource_type, "limit": _FIRST, "start": start})]


def reclaiming(resource_type: str, other_than: int | None) -> int:
    """Return how many heads of the queue, other than the lease `other_than`, wait until a resource is reclaimed.

    Examines the first request classes only.
    """
    given = {"type": resource_type, "start": "", "other": other_than}
    return int(rows(_RECLAIMING, given)[0][0])


def look(resource_type: str, resource_id: int | None, limit: int) -> tuple[list[PendingLease], bool, list[int]]:
    """Return the first heads of the queue, whether any lease or group waits, and the free amounts of the resource.

    If a resource is given, returns only heads that request at most its free amounts. Uses one statement.
    """
    found = rows(_LOOK, {"type": resource_type, "limit": limit, "start": "", "resource": resource_id}, hot=True)
    return [PendingLease(row[2:]) for row in found if row[2] is not None], found[0][0], found[0][1] or []


def in_turn(resource_type: str) -> list[PendingLease]:
    """Return the heads to try now, in the order of the queue.

    These are the first heads of the queue, and the due heads of the request classes that follow a randomly chosen
    class. If there are many classes, the due heads of the first classes are included too.
    """
    first = heads(resource_type)
    anywhere = _due_heads(resource_type, secrets.token_hex(16))
    if len(first) > _FEW:
        anywhere += _due_heads(resource_type, "")
    found = {head.id: head for head in (*first, *anywhere)}
    return sorted(found.values(), key=lambda head: (head.rank, head.id))


def next_of_class(resource_type: str, request_class: str, after: tuple[float, int]) -> tuple[float, int] | None:
    """Return (rank, id) of the lease of this request class that follows `after` in the queue, or None."""
    found = rows(
        "SELECT rank, id FROM leases_lease WHERE state = 'pending' AND NOT parked AND group_id IS NULL AND type = %s"
        " AND shape <= %s AND (shape, rank, id) > (%s, %s, %s) ORDER BY shape, rank, id LIMIT 1",
        (resource_type, request_class, request_class, *after),
    )
    return found[0] if found else None


def groups(resource_type: str, limit: int = 5) -> list[tuple[float, int]]:
    """Return (rank, id) of groups that wait for this resource type: the first groups, and others that are due."""
    found = rows(
        "WITH g AS (SELECT min(rank) AS rank, group_id, min(due_at) AS due FROM leases_lease"
        " WHERE state = 'pending' AND group_id IS NOT NULL AND NOT parked AND group_id IN (SELECT group_id"
        " FROM leases_lease WHERE state = 'pending' AND group_id IS NOT NULL AND type = %s) GROUP BY group_id)"
        " (SELECT rank, group_id FROM g ORDER BY 1, 2 LIMIT %s) UNION (SELECT rank, group_id FROM g"
        " WHERE due IS NULL OR due <= statement_timestamp() ORDER BY due NULLS FIRST, rank LIMIT %s) ORDER BY 1, 2",
        (resource_type, limit, limit),
    )
    return [(rank, group_id) for rank, group_id in found]


def members_of(group_id: int) -> list[PendingLease]:
    """Lock the pending members of a group in the order of their ids, and return them.

    Returns an empty list if any member has ended or is about to end, because then all members end.
    """
    found = rows(
        f"SELECT {COLUMNS} FROM leases_lease l WHERE l.group_id = %s AND l.state = 'pending' AND l.release_wanted = ''"
        " ORDER BY l.id FOR NO KEY UPDATE",
        (group_id,),
    )
    ending = (
        "SELECT 1 FROM leases_lease WHERE group_id = %s AND (state IN ('released', 'destroyed', 'broken')"
        " OR (state = 'pending' AND release_wanted <> '')) LIMIT 1"
    )
    if rows(ending, (group_id,)):
        return []
    waiters = [PendingLease(row) for row in found]
    ids = tuple(waiter.id for waiter in waiters)
    within, _ = _within_reach(list(ids)) if ids else ((), ())
    for waiter in waiters:
        waiter.placement = replace(waiter.placement, group=ids, within=within)
    return waiters
