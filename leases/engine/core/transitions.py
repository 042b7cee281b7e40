"""Change the state of leases and resources: a guarded UPDATE, whose event a trigger writes in the same statement.

The triggers of `leases/migrations` refuse every other way to change a state.
"""

from __future__ import annotations

from typing import Any

from drydock.core.errors import Conflict
from leases import hints
from leases.engine.core.database import rows, run
from leases.models import Event, Lease, Resource
from leases.signals import lease_changed
from leases.states import LEASE, RESOURCE, LeaseState, ResourceState


class StaleTransition(Conflict):
    """It is no longer in a state from which this can follow."""


def move_lease(
    lease_id: int, to: LeaseState, *, reason: str, message: str = "", actor: str = "", **columns: Any
) -> None:
    """Bring a lease to `to`. Raises StaleTransition when it is in no state from which `to` follows."""
    _move(Lease, lease_id, to, LEASE.before(to), reason=reason, message=message, actor=actor, **columns)
    announce(lease_id, to, reason)


def move_resource(
    resource_id: int, to: ResourceState, *, reason: str, message: str = "", actor: str = "", **columns: Any
) -> None:
    """Bring a resource to `to`. Raises StaleTransition when it is in no state from which `to` follows."""
    _move(Resource, resource_id, to, RESOURCE.before(to), reason=reason, message=message, actor=actor, **columns)


def _move(model: Any, pk: int, to: str, before: Any, **columns: Any) -> None:
    actor = columns.pop("actor") or "drydock"
    if not model.objects.filter(pk=pk, state__in=before).update(state=to, actor=actor[:150], **columns):
        raise StaleTransition(f"{model.__name__} {pk} cannot become {to} now.")


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
    """Lock a lease and end its right; the state it was in, or empty when its right had ended before.

    Where reason or actor are empty, those of the wish for its release count.
    """
    found = rows(_RELEASE, (message, reason, actor[:150], lease_id, _RIGHTFUL), hot=True)
    if not found:
        return ""
    before, why = found[0]
    announce(lease_id, LeaseState.RELEASED, why)
    return str(before)


def return_lease(lease_id: int, *, reason: str) -> None:
    """End a released lease and give its share back in the same statement. Raises StaleTransition."""
    if not rows(_RETURN, (reason, lease_id, LeaseState.RELEASED), hot=True):
        raise StaleTransition(f"Lease {lease_id} cannot become destroyed now.")
    announce(lease_id, LeaseState.DESTROYED, reason)


def announce(lease_id: int, state: str, reason: str) -> None:
    """Tell the applications of this process after commit."""
    if lease_changed.has_listeners():
        hints.once_committed(lease_changed.send_robust, Lease, lease_id=lease_id, state=str(state), reason=str(reason))


def explain(lease_id: int, reason: str, message: str, **columns: Any) -> None:
    """Say why a lease is still where it is; an event when the reason is a new one."""
    changed = run(
        "UPDATE leases_lease SET reason = %s, message = %s WHERE id = %s AND (reason, message) <> (%s, %s)",
        (reason, message, lease_id, reason, message),
    )
    if columns:
        Lease.objects.filter(pk=lease_id).update(**columns)
    if changed:
        record_event(f"lease.{reason}"[:32], message, lease_id=lease_id, reason=reason)


def record_event(kind: str, message: str = "", *, actor: str = "drydock", **about: Any) -> None:
    """Record something that is no transition: `lease_id`, `resource_id`, `blueprint_id`, `reason`, `details`."""
    Event.objects.create(kind=kind, message=message, actor=actor[:150], **about)


def lock_resource(resource_id: int) -> bool:
    """Lock a resource for this transaction; False when there is none."""
    return bool(rows("SELECT 1 FROM leases_resource WHERE id = %s FOR NO KEY UPDATE", (resource_id,)))


def take_out_of_service(resource: Resource, message: str) -> None:
    """Nobody else gets it: what we built is drained and so destroyed, anything else waits for an operator."""
    column = "drained" if resource.origin == Resource.Origin.BUILT else "quarantined"
    run(f"UPDATE leases_resource SET {column} = TRUE, note = %s WHERE id = %s", (message[:2000], resource.pk))
    record_event(f"resource.{column}", message, resource_id=resource.pk)
