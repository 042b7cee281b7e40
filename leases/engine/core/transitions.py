"""Change the state of leases and resources by a guarded UPDATE. A database trigger records the event.

The triggers in `leases/migrations` reject any other change of state.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from drydock.core.errors import Conflict
from leases.engine.core.database import rows, run
from leases.messaging import hints
from leases.models import Event, Lease, Resource
from leases.signals import lease_changed
from leases.states import LEASE, RESOURCE, LeaseState, ResourceState


class StaleTransition(Conflict):
    """The state has changed, so this transition is no longer possible."""


def move_lease(
    lease_id: int, to: LeaseState, *, reason: str, message: str = "", actor: str = "", **columns: Any
) -> None:
    """Move a lease to state `to`. Raises StaleTransition if its present state does not allow the transition."""
    _move(Lease, lease_id, to, LEASE.before(to), reason=reason, message=message, actor=actor, **columns)
    announce(lease_id, to, reason)


def move_resource(
    resource_id: int, to: ResourceState, *, reason: str, message: str = "", actor: str = "", **columns: Any
) -> None:
    """Move a resource to state `to`. Raises StaleTransition if its present state does not allow the transition."""
    _move(Resource, resource_id, to, RESOURCE.before(to), reason=reason, message=message, actor=actor, **columns)


def _move(model: Any, pk: int, to: str, before: Any, **columns: Any) -> None:
    actor = columns.pop("actor") or "drydock"
    if not model.objects.filter(pk=pk, state__in=before).update(state=to, actor=actor[:150], **columns):
        raise StaleTransition(
            f"{model.__name__} {pk} cannot change to {to} now, because its state has changed meanwhile."
        )


_RIGHTFUL = sorted(str(state) for state in LEASE.before(LeaseState.RELEASED))
_RELEASE = """
    UPDATE leases_lease l SET state = 'released', message = %s, release_wanted = '',
        reason = coalesce(nullif(%s, ''), nullif(l.release_wanted, ''), 'released_by_owner'),
        actor = coalesce(nullif(%s, ''), nullif(l.release_actor, ''), 'drydock')
    FROM (SELECT id, state FROM leases_lease WHERE id = %s FOR NO KEY UPDATE) before
    WHERE l.id = before.id AND before.state = ANY(%s)
    RETURNING before.state, l.reason"""
_RETURN = """
    WITH moved AS (
        UPDATE leases_lease SET state = 'destroyed', reason = %s, message = '', actor = 'drydock',
            ended_at = clock_timestamp()
        WHERE id = %s AND state = %s RETURNING id),
    returned AS (DELETE FROM leases_share s USING moved m WHERE s.lease_id = m.id)
    SELECT 1 FROM moved"""


def release_lease(lease_id: int, *, reason: str, message: str, actor: str) -> str:
    """Lock and release a lease. Return the lease's former state, or an empty string if it was released before.

    An empty `reason` or `actor` is replaced by the value that was recorded with the request for release.
    """
    found = rows(_RELEASE, (message, reason, actor[:150], lease_id, _RIGHTFUL), hot=True)
    if not found:
        return ""
    before, why = found[0]
    announce(lease_id, LeaseState.RELEASED, why)
    return str(before)


def return_lease(lease_id: int, *, reason: str) -> None:
    """End a released lease and return its share in one statement. Raises StaleTransition in any other state."""
    if not rows(_RETURN, (reason, lease_id, LeaseState.RELEASED), hot=True):
        raise StaleTransition(f"Lease {lease_id} cannot end now, because it is not in state released.")
    announce(lease_id, LeaseState.DESTROYED, reason)


def announce(lease_id: int, state: str, reason: str) -> None:
    """Send Django's signal `lease_changed` to the receivers in this process after the commit."""
    if lease_changed.has_listeners():
        hints.once_committed(lease_changed.send_robust, Lease, lease_id=lease_id, state=str(state), reason=str(reason))


def explain(lease_id: int, reason: str, message: str, **columns: Any) -> None:
    """Set the reason and message of a lease without changing its state. Record an event if one of them has changed."""
    changed = run(
        "UPDATE leases_lease SET reason = %s, message = %s WHERE id = %s AND (reason, message) <> (%s, %s)",
        (reason, message, lease_id, reason, message),
    )
    if columns:
        Lease.objects.filter(pk=lease_id).update(**columns)
    if changed:
        record_event(f"lease.{reason}"[:32], message, lease_id=lease_id, reason=reason)


def record_event(kind: str, message: str = "", *, actor: str = "drydock", **about: Any) -> None:
    """Record an event that is not a transition.

    `about` may contain `lease_id`, `resource_id`, `blueprint_id`, `reason` and `details`.
    """
    Event.objects.create(kind=kind, message=message, actor=actor[:150], **about)


def lock_resource(resource_id: int) -> bool:
    """Lock a resource for the rest of this transaction. Return False if the resource does not exist."""
    return bool(rows("SELECT 1 FROM leases_resource WHERE id = %s FOR NO KEY UPDATE", (resource_id,)))


_RELATED_TYPES = """
    WITH RECURSIVE waited AS (
        (SELECT type FROM leases_lease w WHERE w.state = 'pending' AND NOT w.parked ORDER BY type LIMIT 1)
        UNION ALL
        SELECT (SELECT type FROM leases_lease w WHERE w.state = 'pending' AND NOT w.parked AND w.type > f.type
            ORDER BY type LIMIT 1)
        FROM waited f WHERE f.type IS NOT NULL)
    SELECT f.type FROM waited f WHERE f.type IN (
        SELECT r.type FROM (SELECT id FROM drydock_above(%s) UNION ALL SELECT id FROM drydock_below(%s)) t
        JOIN leases_resource r ON r.id = t.id)"""
"""Finds the types that leases wait for first, by a loose index scan: usually there are none, and the tree is not read."""


def wake_relatives(resource_id: int) -> None:
    """After the commit, serve the pending leases that could now use resources above or below this one."""
    hints.once_committed(_wake_relatives, resource_id)


def _wake_relatives(resource_id: int) -> None:
    for (resource_type,) in rows(_RELATED_TYPES, (resource_id, resource_id), hot=True):
        hints.send("serve", resource_type)


Holders: TypeAlias = list[tuple[int, str]]
"""The id and the state of each lease that has a share of a resource."""


def lock_holders(resource_id: int) -> Holders:
    """Lock the leases that have a share of a resource, and return them.

    Call this before locking the resource: to prevent deadlocks, leases are always locked before their resource.
    """
    sql = """
        SELECT l.id, l.state FROM leases_lease l WHERE l.id IN (
            SELECT lease_id FROM leases_share WHERE resource_id = %s) ORDER BY l.id FOR NO KEY UPDATE"""
    return [(lease_id, state) for lease_id, state in rows(sql, (resource_id,))]


def are_all_holders(resource_id: int, holders: Holders) -> bool:
    """Return whether exactly the leases in `holders` have a share of the resource now.

    Call this with the resource locked.
    """
    there = rows("SELECT lease_id FROM leases_share WHERE resource_id = %s", (resource_id,))
    return {lease_id for (lease_id,) in there} == {lease_id for lease_id, _ in holders}


def take_out_of_service(resource: Resource, message: str) -> None:
    """Stop offering the resource to leases.

    A resource that Drydock built is drained and then destroyed. Any other resource is quarantined until an operator
    acts.
    """
    column = "drained" if resource.origin == Resource.Origin.BUILT else "quarantined"
    run(f"UPDATE leases_resource SET {column} = TRUE, note = %s WHERE id = %s", (message[:2000], resource.pk))
    record_event(f"resource.{column}", message, resource_id=resource.pk)
