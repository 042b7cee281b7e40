"""Find a resource with room, and take a share of it.

This uses raw SQL: the search locks the resources that it finds with SKIP LOCKED, and the claim is a single statement.

The search has two passes. Pass 1 skips resources that other transactions have locked. Pass 2, a separate statement,
waits for these locks; only pass 2 may conclude that no resource has room.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from blueprints import registry
from blueprints.amounts import CLASSES, Amounts
from blueprints.contract import Activates
from drydock.core.errors import Busy
from leases.engine.core.database import bound_lock_waits, rows, run
from leases.engine.core.runs import hints_for_holder, start
from leases.engine.core.transitions import announce, wake_relatives
from leases.engine.placement import limits, pending
from leases.engine.placement.constraints import PlacementRequest, Sql, has_room, is_free
from leases.reasons import Reason
from leases.states import LeaseState

_WAITS = 5
_REFUSALS = 50
"""Up to this many resources are tried if their relatives turn out to prevent the lease."""
_NEAR = 4
"""Up to this many times the candidate limit is searched among resources that are not full, before all are searched."""
_ONE_SLOT = Amounts(slots=1)


@dataclass(frozen=True, kw_only=True)
class Room:
    """A locked resource that has room for a request."""

    resource_id: int
    state: str
    kind: str
    name: str
    queue: bool = False
    """True if an older lease of the same type is waiting."""
    free: tuple[int, ...] = ()
    """The free amount of each class in `CLASSES` before the claim."""
    related: bool = False
    """True if the resource is part of another one, or has parts that are resources."""

    @property
    def activates(self) -> bool:
        """Whether a lease on this resource must be activated by steps of the kind before the lease is active."""
        return isinstance(registry.kind(self.kind), Activates)


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """A resource that prevents a lease on a resource above or below it, because of its own leases or its condition."""

    name: str
    what: str
    """The condition of the relative, such as `held whole`, `leased` or `drained`."""
    above: bool
    lease: int | None = None
    owner: int | None = None
    """The owner of `lease`, which holds the relative."""

    @classmethod
    def of(cls, said: Any) -> Obstacle | None:
        """Convert the result of the database function `drydock_obstacle`. Return None if there is no obstacle."""
        found = pending.read_json(said)
        return None if found is None else cls(**{name: found[name] for name in cls.__dataclass_fields__})

    def sentence(self, *, lease: bool = False) -> str:
        """Return a clause that names the obstacle. If `lease` is true, include the id of the lease that holds it."""
        by = ""
        if self.lease is not None:
            by = f" by lease {self.lease}" if lease else " by another lease"
        where = "" if self.above else " below it"
        return f"{self.name}{where} is {self.what}{by}"


FREE = ", ".join(f"r.total_{name} - r.used_{name}" for name in CLASSES)


def find(placement: PlacementRequest) -> Room | None:
    """Lock one resource with room, or return None if no resource has room. Call inside a short transaction.

    Raises Busy if other transactions hold the locks for too long. If the database raises a lock timeout, treat it as
    Busy.
    """
    waits = turn = 0
    while turn <= _WAITS + _REFUSALS and waits <= _WAITS:
        if waits == 1:
            bound_lock_waits()
        first = _first(placement)
        if first is None:
            return None
        room = _lock(placement, first, None, "" if waits else "SKIP LOCKED")
        if room is not None:
            why = _relatives(placement, room, waits=waits > 0)
            if why == _PERMITTED:
                return room
            if why == _TAKEN:
                placement, turn = _without(placement, room), turn + 1
                continue
        elif _plain(placement) and not rows(f"SELECT cardinality({first.text}) > 0", first.params, hot=True)[0][0]:
            return None
        waits, turn = waits + 1, turn + 1
    raise Busy


def look(placement: PlacementRequest, rank: float | None = None) -> Room | None:
    """Lock one resource with room, skipping locked resources, or return None.

    If `rank` is given, the result also says whether a lease that is before this rank in the queue waits for the
    resource type.
    """
    for _ in range(_WAITS):
        first = _first(placement)
        room = None if first is None else _lock(placement, first, rank, "SKIP LOCKED")
        if room is None or _relatives(placement, room, waits=False) == _PERMITTED:
            return room
        placement = _without(placement, room)
    return None


_PERMITTED, _TAKEN = "", "taken"


def _relatives(placement: PlacementRequest, room: Room, *, waits: bool) -> str:
    """Return whether what a locked resource is part of, and what is part of it, permits the lease.

    The answer is empty if so, `taken` if not, and `busy` if others have locked one of these and `waits` is false. It is
    valid until the transaction ends, because the resources above are locked as well.
    """
    if not room.related:
        return _PERMITTED
    given = (
        room.resource_id,
        placement.lease_id,
        [*placement.holders, *placement.related],
        placement.exclusive,
        placement.amounts.slots,
    )
    sql = "SELECT drydock_tree_permits(%s, %s, %s::bigint[], %s, %s, %s)"
    return str(rows(sql, (*given, waits), hot=True)[0][0])


def _without(placement: PlacementRequest, room: Room) -> PlacementRequest:
    """Return the request restricted to other resources."""
    return replace(placement, not_resources=(*placement.not_resources, room.resource_id))


def _lock(placement: PlacementRequest, first: Sql, rank: float | None, locking: str) -> Room | None:
    """Lock the best of the given resources that still has room, or return None."""
    free, queue, preferred = is_free(placement), _queue(placement, rank), list(placement.preferred_traits)
    wished = "cardinality(ARRAY(SELECT unnest(r.traits) INTERSECT SELECT unnest(%s::varchar[]))) DESC, "
    score = wished if preferred else ""
    worse = "r.health <> 'ok', " if placement.may_be_degraded else ""
    sql = f"""
        SELECT r.id, r.state, b.kind, r.name, {queue.text}, r.part_of_id IS NOT NULL OR r.child_count > 0, {FREE}
        FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id
        WHERE r.id = ANY({first.text}) AND {free.text}
        ORDER BY r.id = ANY(%s), {worse}r.state, {score}b."order", r.total_slots - r.used_slots, r.id
        LIMIT 1 FOR NO KEY UPDATE OF r {locking}"""
    params = (*queue.params, *first.params, *free.params, list(placement.avoided), *([preferred] if preferred else []))
    locked = rows(sql, params, hot=True)
    if not locked:
        return None
    resource_id, state, kind, name, waiting, related, *amounts = locked[0]
    return Room(
        resource_id=resource_id, state=state, kind=kind, name=name, queue=bool(waiting), free=tuple(amounts),
        related=related,
    )  # fmt: skip


def _plain(placement: PlacementRequest) -> bool:
    """Return whether the request is for one slot on any resource, so that one fixed plan suits any fleet."""
    asks = any((placement.requirements, placement.traits, placement.forbidden_traits, placement.also))
    return placement.amounts == _ONE_SLOT and placement.allowed_blueprints is None and not asks


def _depends(placement: PlacementRequest) -> bool:
    """Return whether the best index depends on the request, because it names blueprints or asks for large amounts."""
    return any(map(_compares, (placement, *placement.also)))


def _compares(one: PlacementRequest) -> bool:
    return (
        one.amounts != _ONE_SLOT or one.allowed_blueprints is not None or any(map(_number, one.requirements.values()))
    )


def _number(value: object) -> bool:
    return isinstance(value, int | float)


def _first(placement: PlacementRequest) -> Sql | None:
    """Return SQL for the ids of the first resources with room, or None if no resource has room.

    For a plain request, the search is part of the statement that locks. For any other request, the search runs
    first as a statement of its own, with its own plan, so that all requests share one statement that locks.
    """
    ids = _ids(placement)
    if _plain(placement):
        return ids
    ((found,),) = rows(f"SELECT {ids.text}", ids.params, hot=not _depends(placement))
    return Sql("%s::bigint[]", (found,)) if found else None


def _ids(placement: PlacementRequest) -> Sql:
    """Return SQL for the ids of resources with room, preferably from among those that are not full.

    Otherwise the SQL searches by the most selective index. It orders by an expression, because the planner would
    walk through all ids if it expected more matches than there are.

    For a request for whole resources, those that have nothing in use in or below them are searched first. Otherwise,
    if nearly every host has a leased device, all hosts would be read. A request for named resources looks only at these.
    """
    room, limit = has_room(placement), settings.DRYDOCK.candidate_limit
    if placement.only_resources is not None:
        return Sql(f"ARRAY(SELECT r.id FROM leases_resource r WHERE {room.text} LIMIT {limit})", room.params)
    usable = "r.claimable" if placement.within else "r.claimable AND r.closed_by = '{}'"
    usable += "" if placement.may_be_degraded else " AND r.health = 'ok'"
    if placement.exclusive and not placement.within:
        usable += " AND r.busy_below = 0 AND r.idle_since IS NOT NULL"
    # A range, because for a single type the planner might walk through all ids, in which a rare type comes late.
    of_type = f"r.type >= %s AND r.type <= %s AND {usable} ORDER BY r.type, r.id"
    near = f"(SELECT * FROM leases_resource r WHERE {of_type} LIMIT {_NEAR * limit})"
    return Sql(
        f"""coalesce(
            nullif(ARRAY(SELECT r.id FROM {near} r WHERE {room.text} ORDER BY r.type, r.id LIMIT {limit}), '{{}}'),
            ARRAY(SELECT r.id FROM leases_resource r WHERE {room.text} ORDER BY r.id + 0 LIMIT {limit}))""",
        (placement.type, placement.type, *room.params, *room.params),
    )


def _queue(placement: PlacementRequest, rank: float | None) -> Sql:
    if rank is None:
        return Sql("FALSE")
    return Sql(
        "(SELECT w.id FROM leases_lease w WHERE w.state = 'pending' AND NOT w.parked AND w.group_id IS NULL"
        " AND w.type = %s AND w.rank < %s ORDER BY w.rank LIMIT 1) IS NOT NULL",
        (placement.type, rank),
    )


def fits(resource_id: int, requests: Sequence[PlacementRequest], free: Sequence[int]) -> list[int]:
    """Return the indexes of the requests that the resource could serve now.

    `free` has the free amount of each class. Requests for more than that are excluded without asking the database.
    """
    small = [n for n, placement in enumerate(requests) if _within(placement.amounts, free)]
    if not small:
        return []
    pieces = [has_room(requests[n]) for n in small]
    cases = ", ".join(f"CASE WHEN {p.text} THEN {n} END" for n, p in zip(small, pieces, strict=True))
    sql = f"""SELECT array_remove(ARRAY[{cases}]::int[], NULL) FROM leases_resource r WHERE r.id = %s"""
    found = rows(sql, (*(x for p in pieces for x in p.params), resource_id))
    return list(found[0][0]) if found else []


def _within(amounts: Amounts, free: Sequence[int]) -> bool:
    return all(getattr(amounts, name) <= there for name, there in zip(CLASSES, free, strict=True))


_ACQUIRE = """
    WITH moved AS (
        UPDATE leases_lease SET state = 'acquired', reason = %s, message = %s, actor = 'allocator', resource_id = %s,
            acquired_at = clock_timestamp(), due_at = NULL, parked = FALSE,
            heartbeat_at = CASE WHEN heartbeat_limit IS NOT NULL THEN clock_timestamp() END
        WHERE id = %s AND state = %s RETURNING id, resource_id)
    INSERT INTO leases_share (lease_id, resource_id, exclusive, slots, cpu_millicores, ram_mib, disk_mib, extra)"""
"""Changes the state of the lease and inserts its share. The lease and the resource must already be locked."""
_SHARE = _ACQUIRE + " SELECT id, resource_id, FALSE, %s, %s, %s, %s, %s::jsonb FROM moved"
_WHOLE = (
    _ACQUIRE
    + """
    SELECT m.id, r.id, TRUE, r.total_slots, r.total_cpu_millicores, r.total_ram_mib, r.total_disk_mib,
        coalesce((SELECT jsonb_object_agg(c.name, c.total) FROM leases_capacity c WHERE c.resource_id = r.id), '{}')
    FROM moved m JOIN leases_resource r ON r.id = m.resource_id"""
)
_ACTIVATE = """
    UPDATE leases_lease SET state = 'active', reason = %s, message = '', actor = 'allocator',
        active_at = clock_timestamp(), until = CASE WHEN until IS NOT NULL OR ttl IS NOT NULL THEN least(
            coalesce(until, clock_timestamp() + ttl),
            (SELECT r.dies_at FROM leases_resource r WHERE r.id = resource_id)) END,
        heartbeat_at = CASE WHEN heartbeat_limit IS NOT NULL THEN clock_timestamp() END
    WHERE id = %s AND state = %s
    RETURNING (limited OR ttl_defaulted) AND EXISTS (
            SELECT FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id
            WHERE r.id = resource_id AND (b.max_ttl IS NOT NULL OR b.default_ttl IS NOT NULL)),
        limited AND (EXISTS (SELECT FROM leases_quota q WHERE q.user_id = owner_id AND q.max_ttl IS NOT NULL)
            OR EXISTS (SELECT FROM leases_quota q WHERE q.group_id = charged_group_id AND q.max_ttl IS NOT NULL)),
        limited AND %s::float8 IS NOT NULL AND coalesce(until > active_at + %s::float8 * interval '1 hour', TRUE)"""


_UNRESERVE = """
    UPDATE leases_resource SET reserved_for_id = NULL WHERE id = ANY(ARRAY(
        SELECT id FROM leases_resource WHERE reserved_for_id = %s ORDER BY id FOR NO KEY UPDATE SKIP LOCKED))
    RETURNING id, child_count > 0"""


def take(placement: PlacementRequest, room: Room) -> bool:
    """Take a share of the locked resource in `room` for a lease. Return True if the lease is active at once."""
    lease_id = placement.lease_id
    assert lease_id is not None
    moved = (*_standing(room), room.resource_id, lease_id, LeaseState.PENDING)
    if placement.exclusive:
        taken = run(_WHOLE, moved, hot=True)
    else:
        taken = run(_SHARE, (*moved, *_amounts(placement.amounts)), hot=True)
    if not taken:
        raise RuntimeError(f"lease {lease_id} was not pending when it was claimed for")
    return room.state == "active" and not room.activates and activate(lease_id)


def activate(lease_id: int) -> bool:
    """Make an acquired lease active. Return False if the lease is no longer acquired.

    Applies the limits on the duration of the lease, which are read only if the lease might exceed them.
    """
    hours = settings.DRYDOCK.lease_hours_limit or None
    found = rows(_ACTIVATE, (Reason.READY, lease_id, LeaseState.ACQUIRED, hours, hours), hot=True)
    if found and any(found[0]):
        limits.shorten(lease_id)
    return bool(found)


def unreserve(lease_id: int) -> int:
    """Release the reservations for a lease. Return the number released.

    Never waits for a lock, because the caller may already hold locks on other resources. If another transaction has
    locked a reserved resource, the sweep (`lease_checks.idle_reservations`) or a later call releases the reservation.
    """
    found = rows(_UNRESERVE, (lease_id,))
    for resource_id, has_parts in found:
        if has_parts:
            wake_relatives(resource_id)
    return len(found)


def _amounts(amounts: Amounts) -> tuple[Any, ...]:
    return (*(getattr(amounts, name) for name in CLASSES), json.dumps(dict(amounts.extra)))


def _standing(room: Room) -> tuple[str, str]:
    if room.state == "pending":
        return Reason.BUILDING, f"{room.name or 'its resource'} is being built."
    if room.activates:
        return Reason.ACTIVATING, f"The lease is being set up on {room.name or f'resource {room.resource_id}'}."
    return Reason.GRANTED, ""


def belongs_to_older(room: Room, waiter: pending.PendingLease) -> bool:
    """Return whether a pending lease older than `waiter`, of any request class, could use the room."""
    older = pending.older(waiter.placement.type, waiter.rank, room.free)
    return bool(older) and bool(fits(room.resource_id, [head.placement for head in older], room.free))


def finish_claim(waiter: pending.PendingLease, room: Room) -> bool:
    """Take the share in `room`, and start the activation if the kind has one.

    Return True if the lease is active at once.
    """
    active = take(waiter.placement, room)
    announce(waiter.id, LeaseState.ACQUIRED, Reason.GRANTED)
    if active:
        announce(waiter.id, LeaseState.ACTIVE, Reason.READY)
        if waiter.need:
            hints_for_holder(waiter.id)
    elif room.state == "active":
        start(resource_id=room.resource_id, lease_id=waiter.id, phase="activate")
    return active
