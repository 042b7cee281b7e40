"""Periodic checks of leases and of the queue. Each check returns the number of items that it acted on."""

from __future__ import annotations

from functools import partial

from django.conf import settings
from django.db.models.functions import Now

from leases.engine.core.database import each, leases_by_id, rows, run, short, some
from leases.engine.core.runs import end_siblings
from leases.engine.core.transitions import move_lease
from leases.engine.lifecycle import lease_phases, release
from leases.engine.placement import claims
from leases.engine.resources import eviction, retirement
from leases.engine.scheduling import place
from leases.messaging import hints
from leases.reasons import Reason
from leases.states import LeaseState


def wishes() -> int:
    """Release leases whose release was requested inside a caller's transaction."""
    found = some(
        "SELECT id FROM leases_lease WHERE release_wanted <> '' AND state IN ('pending', 'acquired', 'active') ORDER BY id"
    )
    return each(release.end, found)


def expired() -> int:
    """Release leases that have expired."""
    found = some(
        "SELECT id FROM leases_lease WHERE state IN ('pending', 'acquired', 'active') AND until <= statement_timestamp()"
    )
    return each(partial(release.end, reason=Reason.EXPIRED, message="The lease expired."), found)


def impatient() -> int:
    """End pending leases that have waited longer than their wait limit."""
    found = some("SELECT id FROM leases_lease WHERE state = 'pending' AND give_up_at <= statement_timestamp()")
    return each(_give_up, found)


@short
def _give_up(lease_id: int) -> None:
    last = rows("SELECT message FROM leases_lease WHERE id = %s AND state = 'pending' FOR NO KEY UPDATE", (lease_id,))
    if last:
        message = f"Timed out waiting for capacity. The last reason: {last[0][0]}"
        move_lease(lease_id, LeaseState.BROKEN, reason=Reason.GAVE_UP_WAITING, message=message, ended_at=Now())
        claims.unreserve(lease_id)
        hints.once_committed(end_siblings, lease_id)


def silent() -> int:
    """Release leases without a heartbeat within their heartbeat limit."""
    found = some(
        "SELECT id FROM leases_lease WHERE state IN ('acquired', 'active') AND heartbeat_limit IS NOT NULL"
        " AND heartbeat_at + heartbeat_limit < statement_timestamp()"
    )
    return each(partial(release.end, reason=Reason.HEARTBEAT_LOST, message="No heartbeat was received in time."), found)


def left_in_groups() -> int:
    """End leases whose group has lost a member, if a crash prevented marking these leases for release.

    These leases are the pending members of the group, and the leases that use the lost member.
    """
    found = some(
        "SELECT l.id FROM leases_lease l WHERE l.group_id IS NOT NULL AND l.release_wanted = ''"
        " AND (l.state = 'pending' OR (l.state IN ('acquired', 'active') AND l.facts ? 'stands_on'))"
        " AND EXISTS (SELECT FROM leases_lease o WHERE o.group_id = l.group_id"
        " AND (l.state = 'pending' OR o.id::text = l.facts ->> 'stands_on')"
        " AND o.state IN ('released', 'destroyed', 'broken'))"
    )
    return each(partial(release.end, reason=Reason.GROUP_ENDED), found)


def half_ended() -> int:
    """Start the next phase, such as cleaning, of leases in state `released` that have neither a run nor a hold."""
    found = some(
        "SELECT l.id FROM leases_lease l WHERE l.state = 'released' AND NOT (l.held AND (l.hold_until IS NULL"
        " OR l.hold_until > clock_timestamp())) AND NOT EXISTS (SELECT FROM leases_run n WHERE n.lease_id = l.id)"
    )
    return each(release.end, found)


def half_acquired() -> int:
    """Begin the activation of acquired leases that are on an active resource and have no run."""
    found = some(
        "SELECT l.id, r.id, b.kind FROM leases_lease l JOIN leases_resource r ON r.id = l.resource_id"
        " JOIN blueprints_blueprint b ON b.id = r.blueprint_id WHERE l.state = 'acquired' AND r.state = 'active'"
        " AND NOT EXISTS (SELECT FROM leases_run n WHERE n.lease_id = l.id)"
    )
    return each(_begin, found)


@short
def _begin(lease_id: int, resource_id: int, kind: str) -> bool:
    held = rows("SELECT 1 FROM leases_lease WHERE id = %s AND state = 'acquired' FOR NO KEY UPDATE", (lease_id,))
    there = rows("SELECT 1 FROM leases_resource WHERE id = %s AND state = 'active' FOR NO KEY UPDATE", (resource_id,))
    if held and there:
        lease_phases.begin_activation(lease_id, resource_id, kind)
    return bool(held and there)


def orphans() -> int:
    """Release leases whose holder, another lease or a resource, has ended."""
    found = some(
        "SELECT c.id FROM leases_lease c LEFT JOIN leases_lease p ON p.id = c.for_lease_id"
        " LEFT JOIN leases_resource r ON r.id = c.for_resource_id"
        " WHERE c.need <> '' AND c.state IN ('pending', 'acquired', 'active') AND c.release_wanted = ''"
        " AND (p.state IN ('destroyed', 'broken') OR r.gone_at IS NOT NULL)"
    )
    return each(partial(release.end, reason=Reason.PARENT_ENDED), found)


def bereaved() -> int:
    """Evict leases, and retire resources, that depend on an ended lease."""
    lost = some(
        "SELECT DISTINCT r.id, c.id, c.message FROM leases_resource r JOIN leases_lease c ON c.for_resource_id = r.id"
        " AND c.need <> '' AND c.need_phase = '' AND c.state IN ('released', 'destroyed', 'broken')"
        " WHERE r.state = 'active' AND NOT r.quarantined AND NOT EXISTS (SELECT FROM leases_lease n WHERE"
        " n.for_resource_id = r.id AND n.need = c.need AND n.state IN ('pending', 'acquired', 'active'))"
    )
    orphaned = some(
        "SELECT DISTINCT l.id, c.id, c.message FROM leases_lease l JOIN leases_lease c ON c.for_lease_id = l.id"
        " AND c.need <> '' AND c.need_phase = '' AND c.state IN ('destroyed', 'broken')"
        " WHERE l.state = 'active' AND l.release_wanted = '' AND NOT EXISTS (SELECT FROM leases_lease n WHERE"
        " n.for_lease_id = l.id AND n.need = c.need AND n.state IN ('pending', 'acquired', 'active'))"
    )
    return each(_lose, lost) + each(_end_orphaned, orphaned)


def _lose(resource_id: int, child: int, message: str) -> bool:
    return retirement.lose(resource_id, reason=Reason.LOST, message=_over(child, message))


def _end_orphaned(lease_id: int, child: int, message: str) -> bool:
    return eviction.orphan(lease_id, message=_over(child, message))


def _over(child: int, message: str) -> str:
    return f"Lease {child}, on which it depends, has ended: {message}"


def idle_reservations() -> int:
    """Clear reservations whose lease no longer waits or whose resource is out of service.

    If a resource and a part of it are reserved for different leases, also clears the reservation of the part, because
    the two leases would wait for each other.
    """
    return run(
        "UPDATE leases_resource SET reserved_for_id = NULL WHERE id = ANY(ARRAY("
        "SELECT r.id FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id"
        " WHERE r.reserved_for_id IS NOT NULL AND (r.state NOT IN ('pending', 'active')"
        " OR r.drained OR r.quarantined OR r.dies_at <= clock_timestamp() OR b.drained OR NOT b.enabled"
        " OR EXISTS (SELECT FROM leases_resource a WHERE a.id = ANY(r.closed_by) AND a.reserved_for_id IS NOT NULL"
        " AND NOT drydock_related(a.reserved_for_id, r.reserved_for_id))"
        " OR NOT EXISTS (SELECT FROM leases_lease l WHERE l.id = r.reserved_for_id AND l.state = 'pending' AND NOT l.parked))"
        " ORDER BY r.id FOR NO KEY UPDATE OF r SKIP LOCKED))"
    )


def stale_trees() -> int:
    """Update `closed_by` of all resources below a resource with `tree_stale`.

    A trigger sets `tree_stale` if it had to skip some of these rows because they were locked.
    """
    return run(
        "UPDATE leases_resource SET tree_stale = FALSE WHERE id = ANY(ARRAY("
        "SELECT id FROM leases_resource WHERE tree_stale ORDER BY id FOR NO KEY UPDATE SKIP LOCKED))"
    )


_DUE = """
    parked AND state = 'pending' AND id IN (SELECT id FROM leases_lease WHERE parked AND state = 'pending'
    AND (due_at IS NULL OR due_at <= statement_timestamp()) ORDER BY rank, id LIMIT %s)"""


def parked() -> int:
    """Put parked leases that are due back into the queue."""
    found = rows(
        f"UPDATE leases_lease SET parked = FALSE WHERE {leases_by_id(_DUE)} RETURNING type",
        (settings.DRYDOCK.sweep_batch,),
    )
    return len(found)


def waiting() -> int:
    """Serve the resource types that leases wait for, and reserve resources for leases that have waited long."""
    found = rows("SELECT DISTINCT type FROM leases_lease WHERE state = 'pending'")
    for (resource_type,) in found:
        each(place.reserve, [(lease_id,) for lease_id in place.overdue_heads(resource_type)])
        hints.send("serve", resource_type)
    return len(found)
