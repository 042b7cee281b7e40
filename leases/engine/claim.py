"""Taking a share in a resource that was found and locked: the lease moves on, the share is inserted."""

from __future__ import annotations

import json
from typing import Any

from blueprints.amounts import CLASSES, Amounts
from leases.engine import limits
from leases.engine.question import Question
from leases.engine.search import Room
from leases.engine.transaction import rows, run
from leases.reasons import Reason
from leases.states import LeaseState

_ACQUIRE = """
    WITH moved AS (
        UPDATE leases_lease SET state = 'acquired', reason = %s, message = %s, actor = 'allocator', resource_id = %s,
            acquired_at = clock_timestamp(), due_at = NULL, parked = FALSE,
            heartbeat_at = CASE WHEN heartbeat_limit IS NOT NULL THEN clock_timestamp() END
        WHERE id = %s AND state = %s RETURNING id, resource_id)
    INSERT INTO leases_share (lease_id, resource_id, exclusive, slots, cpu_millicores, ram_mib, disk_mib, extra)"""
"""The lease moves, and what moved gets its share: lease and resource are locked already."""
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
        limited AND %s::interval IS NOT NULL AND coalesce(until > active_at + %s::interval, TRUE)"""


_UNRESERVE = """
    UPDATE leases_resource SET reserved_for_id = NULL WHERE id = ANY(ARRAY(
        SELECT id FROM leases_resource WHERE reserved_for_id = %s ORDER BY id FOR NO KEY UPDATE SKIP LOCKED))"""


def take(question: Question, room: Room) -> bool:
    """Move the lease on and insert its share; True when it is active at once. Same transaction as `find`."""
    lease_id = question.lease_id
    assert lease_id is not None
    moved = (*_standing(room), room.resource_id, lease_id, LeaseState.PENDING)
    if question.exclusive:
        taken = run(_WHOLE, moved, hot=True)
    else:
        taken = run(_SHARE, (*moved, *_amounts(question.amounts)), hot=True)
    if not taken:
        raise RuntimeError(f"lease {lease_id} was claimed for while not pending")
    return room.state == "active" and not room.activates and activate(lease_id)


def activate(lease_id: int) -> bool:
    """An acquired lease becomes active; False when it is no longer acquired. It ends when its limits say at the
    latest: only where one may be passed, they are read."""
    longest = limits.of_installation()
    span = None if longest is None else longest.span
    found = rows(_ACTIVATE, (Reason.READY, lease_id, LeaseState.ACQUIRED, span, span), hot=True)
    if found and any(found[0]):
        limits.shorten(lease_id)
    return bool(found)


def unreserve(lease_id: int) -> int:
    """Give up the resources that fill for this lease.

    Waits for no lock, since other resources may be locked already: what somebody else holds is left to the sweep
    (`queue_looks.idle_reservations`) or to the next look at the lease.
    """
    return run(_UNRESERVE, (lease_id,))


def _amounts(amounts: Amounts) -> tuple[Any, ...]:
    return (*(getattr(amounts, name) for name in CLASSES), json.dumps(dict(amounts.extra)))


def _standing(room: Room) -> tuple[str, str]:
    if room.state == "pending":
        return Reason.BUILDING, f"{room.name or 'its resource'} is being built."
    if room.activates:
        return Reason.ACTIVATING, f"It is being set up on {room.name or f'resource {room.resource_id}'}."
    return Reason.GRANTED, ""
