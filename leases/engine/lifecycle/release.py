"""Release leases: end the owner's right, clean the resource, give back the share, and serve the next lease.

The lease keeps its share during the cleaning, unless its kind cleans apart from the lease (`resources/cleanup`).
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

from blueprints import registry
from blueprints.contract import Activates, Cleans, Kind
from drydock.core.errors import Busy
from leases.engine.actions import acts
from leases.engine.core import specs, workloads
from leases.engine.core.database import rows, run, short
from leases.engine.core.runs import end_children, end_siblings, start, stop, want_release
from leases.engine.core.transitions import (
    explain,
    lock_resource,
    record_event,
    release_lease,
    return_lease,
    take_out_of_service,
    wake_relatives,
)
from leases.engine.placement import claims, quotas
from leases.engine.placement.pending import parked_with
from leases.engine.resources import cleanup, retirement
from leases.engine.scheduling import place
from leases.messaging import hints
from leases.models import Lease, Resource
from leases.reasons import Reason
from leases.states import LeaseState, ResourceState


@dataclass(kw_only=True)
class ReleaseContext:
    """The facts that determine how a lease ends and what else its end affects, read with the lease locked."""

    id: int
    state: str
    type: str
    held: bool
    resource_id: int | None
    resource_state: str
    kind: str
    has_share: bool
    has_locks: bool
    has_children: bool
    in_group: bool
    has_run: bool
    parked_siblings: bool
    keep: bool
    """True if the resource may be kept after this lease."""
    watched: bool
    related: bool
    """True if the resource is part of another, or others are part of it."""
    has_act: bool
    """True if the lease has started an act of its kind that has not ended."""
    returned: bool = False
    """True after the share was given back in this transaction."""


_RIGHTFUL = ["pending", "acquired", "active"]
_LOCK = "SELECT 1 FROM leases_lease WHERE id = %s FOR NO KEY UPDATE"
_READ = f"""
    SELECT l.id, l.state, l.type,
        l.held AND (l.hold_until IS NULL OR l.hold_until > clock_timestamp()), l.resource_id, coalesce(r.state, ''),
        coalesce(b.kind, ''), EXISTS (SELECT FROM leases_share s WHERE s.lease_id = l.id),
        EXISTS (SELECT FROM leases_slotlock k WHERE k.lease_id = l.id),
        EXISTS (SELECT FROM leases_lease c WHERE c.for_lease_id = l.id AND c.state = ANY(%s)),
        l.group_id IS NOT NULL, EXISTS (SELECT FROM leases_run n WHERE n.lease_id = l.id),
        coalesce((SELECT id FROM ({parked_with("owner_id")} LIMIT 1) o),
            (SELECT id FROM ({parked_with("charged_group_id")} LIMIT 1) g)) IS NOT NULL,
        coalesce(r.origin <> 'built' OR (r.state = 'active' AND NOT r.drained AND NOT b.drained AND b.enabled
            AND r.generation >= b.generation AND (r.dies_at IS NULL OR r.dies_at > clock_timestamp())), FALSE),
        l.watched, coalesce(r.part_of_id IS NOT NULL OR r.child_count > 0, FALSE),
        EXISTS (SELECT FROM leases_run a WHERE a.phase = 'act' AND a.wanted ->> 'lease' = l.id::text)
    FROM leases_lease l LEFT JOIN leases_resource r ON r.id = l.resource_id
    LEFT JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    WHERE l.id = %s"""


def lock(lease_id: int) -> ReleaseContext | None:
    """Lock a lease and return the facts that determine how it ends, or None if the lease does not exist.

    Reads the facts in a new statement, because a statement that waited for a lock sees older versions of joined
    rows.
    """
    return read(lease_id) if rows(_LOCK, (lease_id,), hot=True) else None


def read(lease_id: int) -> ReleaseContext:
    """Return the facts that determine how a locked lease ends."""
    return ReleaseContext(
        **dict(zip(ReleaseContext.__dataclass_fields__, rows(_READ, (_RIGHTFUL, lease_id), hot=True)[0], strict=False))
    )


def follow_up(ending: ReleaseContext) -> None:
    """Act on the end of a lease after the commit.

    Ends the pending leases of the same group, puts leases that wait for the same owner's quota back into the queue,
    retires the resource if it is not kept, and grants free room to other leases.
    """
    if ending.in_group:
        end_siblings(ending.id)
    if ending.parked_siblings:
        quotas.unpark(ending.id)
    spare = ending.resource_id if ending.has_share and not ending.keep else None
    if spare is not None and ending.resource_state != ResourceState.PENDING:
        why, message = retirement.why_not_kept(spare)
        retirement.retire_idle(spare, reason=why, message=message)
    if ending.related and ending.has_share and ending.resource_id is not None:
        wake_relatives(ending.resource_id)
    place.hand_over(ending.type, ending.resource_id if ending.has_share and ending.keep else None)
    if spare is not None and ending.resource_state == ResourceState.PENDING:
        retirement.retire_idle(
            spare, reason=Reason.CANCELLED, message="No lease needs this resource any more.", unwanted=True
        )


def release(lease_id: int, *, reason: Reason = Reason.OWNER, actor: str, message: str = "") -> None:
    """Release a lease at once or, inside a caller's transaction, after the commit.

    Releasing a lease again has no effect.
    """
    if connection.in_atomic_block:
        want_release(lease_id, reason=reason, actor=actor)
        hints.after_commit("end", lease_id)
        return
    end(lease_id, reason=reason, actor=actor, message=message)


def end(lease_id: int, *, reason: str = "", actor: str = "", message: str = "") -> None:
    """Take all steps towards the end of a lease that are possible now. Callers repeat this until the lease has ended.

    Calls that find nothing to do have no effect.
    """
    try:
        ending = _end(lease_id, reason, actor, message)
    except Busy:
        hints.send("end", lease_id)
        return
    if ending is not None and ending.returned:
        follow_up(ending)
    elif ending is not None and ending.in_group:
        end_siblings(ending.id)


@short
def _end(lease_id: int, reason: str, actor: str, message: str) -> ReleaseContext | None:
    if before := release_lease(lease_id, reason=reason, message=message, actor=actor):
        ending = read(lease_id)
        wind_down(ending, before)
        return ending
    again = lock(lease_id)
    if again is not None and again.state == LeaseState.RELEASED and not again.has_run:
        wind_down(again, LeaseState.ACTIVE)
    return again


def wind_down(ending: ReleaseContext, before: str) -> None:
    """Start the next phase of a released lease, or give back its share if no phase is left.

    Makes no external calls.
    """
    if before == LeaseState.PENDING:
        claims.unreserve(ending.id)
        return give_back(ending)
    if ending.watched and before == LeaseState.ACTIVE and workloads.holds_back(ending.id):
        return None
    if ending.held:
        explain(ending.id, Reason.HELD, "Held for debugging. The lease is cleaned when the hold ends.")
        return None
    if ending.has_act and acts.cancel_of_lease(ending.id):
        return None
    kind = registry.kind(ending.kind)
    used = before == LeaseState.ACTIVE or ending.has_run
    if ending.has_run and not stop(lease_id=ending.id):
        return None
    if used and isinstance(kind, Activates) and ending.resource_id is not None:
        start(resource_id=ending.resource_id, lease_id=ending.id, phase="deactivate")
        return None
    if used and isinstance(kind, Cleans) and ending.resource_id is not None:
        resource = _cleaned_apart(ending.resource_id, kind)
        if resource is None:
            start(resource_id=ending.resource_id, lease_id=ending.id, phase="clean")
            return None
        clean_apart(ending.id, resource, kind)
    elif used:
        take_out_unless_reusable(ending.id, kind)
    return give_back(ending)


def _cleaned_apart(resource_id: int, kind: Cleans) -> Resource | None:
    """Return the locked resource if it is cleaned apart from its leases, or None."""
    if type(kind).cleans_apart is Cleans.cleans_apart:
        return None
    lock_resource(resource_id)
    resource = Resource.objects.select_related("blueprint").get(pk=resource_id)
    return resource if cleanup.is_apart(registry.kind(resource.blueprint.kind), resource.blueprint) else None


def clean_apart(lease_id: int, resource: Resource, kind: Kind) -> None:
    """Let the resource of a deactivated lease be cleaned after the lease has left it.

    A resource that Drydock built is not cleaned if no other owner may use it afterwards: it is destroyed instead. Call
    in the transaction in which the lease leaves the resource.
    """
    if resource.origin == Resource.Origin.BUILT and take_out_unless_reusable(lease_id, kind):
        return
    cleanup.clean_apart(lease_id, resource.pk)


def take_out_unless_reusable(lease_id: int, kind: Kind) -> bool:
    """Take the resource out of service if no other owner may use it after this lease. Return whether that was done.

    Call in the transaction that gives back the share, so that no claim comes in between.
    """
    asks_the_lease = type(kind).reusable_after is not Kind.reusable_after
    if kind.reusable and not asks_the_lease:
        return False
    lease = Lease.objects.select_related("owner", "resource__blueprint").get(pk=lease_id)
    assert lease.resource is not None
    if asks_the_lease and kind.reusable_after(specs.lease_view(lease)):
        return False
    take_out_of_service(lease.resource, cleanup.SPOILED)
    return True


def give_back(ending: ReleaseContext, *, reason: str = Reason.RETURNED) -> None:
    """Give back the share of a lease, and end the lease. The caller calls `follow_up` after the commit."""
    if ending.has_locks:
        run("DELETE FROM leases_slotlock WHERE lease_id = %s", (ending.id,))
    return_lease(ending.id, reason=reason)
    if ending.has_children:
        end_children(for_lease=ending.id)
    ending.returned = True


def finished(lease_id: int) -> None:
    """Give back the share of a cleaned lease.

    Call inside a transaction. This function has `follow_up` called after the commit.
    """
    ending = lock(lease_id)
    if ending is None:
        return
    if ending.state == LeaseState.RELEASED:
        give_back(ending)
        hints.once_committed(follow_up, ending)
    else:
        record_event("lease.cleaned", "The lease was cleaned in an unexpected state.", lease_id=lease_id)
