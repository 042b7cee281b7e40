"""Evict leases from a resource by taking their shares away."""

from __future__ import annotations

import datetime as dt

from django.conf import settings
from django.db.models.functions import Now

from leases.engine.core.database import rows, run, short
from leases.engine.core.runs import end_children, end_siblings
from leases.engine.core.transitions import Holders, lock_resource, move_lease, wake_relatives
from leases.engine.placement import quotas
from leases.engine.placement.pending import REQUESTED
from leases.engine.resources import cleanup
from leases.messaging import hints
from leases.reasons import Reason
from leases.states import LeaseState


def evict_all(
    resource_id: int, holders: Holders, *, reason: str, message: str, stays: bool = False, counts: bool = True
) -> None:
    """Evict all given leases from a resource. For the arguments, see `evict`."""
    for lease_id, state in holders:
        evict(lease_id, state, resource_id, reason=reason, message=message, stays=stays, counts=counts)


def evict(
    lease_id: int, state: str, resource_id: int, *, reason: str, message: str, stays: bool = False, counts: bool = True
) -> None:
    """Take away the share of a locked lease.

    An acquired lease returns to the queue, an active lease breaks, and a released lease ends.

    If `stays` is true, the resource continues to exist, and a deferred cleanup removes what the lease may have left. If
    `counts` is true, the return to the queue counts as one of the lease's attempts.
    """
    if stays:
        cleanup.incur(lease_id, state, resource_id)
    run("DELETE FROM leases_run WHERE lease_id = %s", (lease_id,))
    run("DELETE FROM leases_slotlock WHERE lease_id = %s", (lease_id,))
    run("DELETE FROM leases_share WHERE lease_id = %s", (lease_id,))
    hints.once_committed(quotas.unpark, lease_id)
    wake_relatives(resource_id)
    if state == LeaseState.ACQUIRED:
        end_children(for_lease=lease_id)
        bounce(lease_id, resource_id, reason=reason, message=message, counts=counts)
    elif state == LeaseState.ACTIVE:
        move_lease(lease_id, LeaseState.BROKEN, reason=reason, message=message, ended_at=Now())
        end_children(for_lease=lease_id)
        hints.once_committed(end_siblings, lease_id)
        ask_again(lease_id)
    elif state == LeaseState.RELEASED:
        move_lease(lease_id, LeaseState.DESTROYED, reason=Reason.RETURNED, message=message, ended_at=Now())


@short
def orphan(lease_id: int, *, message: str) -> bool:
    """Break an active lease that lost a dependency. If the lease has `serve_again`, request it again.

    The resource of the lease is not affected. Returns False if the lease is not active or is being released.
    """
    found = rows(
        "SELECT resource_id FROM leases_lease WHERE id = %s AND state = 'active' AND release_wanted = ''"
        " FOR NO KEY UPDATE",
        (lease_id,),
    )
    for (resource_id,) in found:
        lock_resource(resource_id)
        evict(lease_id, LeaseState.ACTIVE, resource_id, reason=Reason.LOST, message=message, stays=True)
        hints.after_commit("sweep")
    return bool(found)


_SAME = ", ".join(REQUESTED)
_AGAIN = f"""
    INSERT INTO leases_lease ({_SAME}, state, reason, message, actor, avoided_resources)
    SELECT {_SAME}, 'pending', 'requested', 'In place of lease ' || id, 'drydock', ARRAY[resource_id]
    FROM leases_lease WHERE id = %s AND serve_again AND release_wanted = '' AND (until IS NULL OR until > clock_timestamp())
    RETURNING id, type"""


def ask_again(lease_id: int) -> None:
    """If a lost lease has `serve_again`, request a new lease at its old place in the queue, and set `replaced_by`."""
    for new_id, resource_type in rows(_AGAIN, (lease_id,)):
        run("UPDATE leases_lease SET replaced_by_id = %s WHERE id = %s", (new_id, lease_id))
        run("INSERT INTO leases_watch (lease_id) SELECT id FROM leases_lease WHERE id = %s AND watched", (new_id,))
        hints.after_commit("serve", resource_type)


def bounce(lease_id: int, resource_id: int, *, reason: str, message: str, counts: bool = True) -> None:
    """Put a lease whose share was deleted back into the queue, or break it after too many attempts."""
    bounces, wanted = rows("SELECT bounces, release_wanted FROM leases_lease WHERE id = %s", (lease_id,))[0]
    if wanted:
        move_lease(lease_id, LeaseState.RELEASED, reason=wanted)
        move_lease(lease_id, LeaseState.DESTROYED, reason=Reason.RETURNED, ended_at=Now())
        return
    if counts and bounces >= settings.DRYDOCK.bounce_limit:
        text = f"Failed {bounces + 1} times. The last error: {message}"
        move_lease(lease_id, LeaseState.BROKEN, reason=reason, message=text, ended_at=Now())
        hints.once_committed(end_siblings, lease_id)
        return
    move_lease(
        lease_id, LeaseState.PENDING, reason=Reason.WAITING_RETRY, message=message, bounces=bounces + counts,
        resource=None, acquired_at=None, avoided_resources=_avoided(lease_id, resource_id),
        parked=True, due_at=Now() + dt.timedelta(seconds=min(2**bounces - 1, 60)),
    )  # fmt: skip
    hints.after_commit("sweep")


def _avoided(lease_id: int, resource_id: int) -> list[int]:
    before = rows("SELECT avoided_resources FROM leases_lease WHERE id = %s", (lease_id,))[0][0]
    return sorted({*before, resource_id})
