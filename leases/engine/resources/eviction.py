"""Take shares away from the leases that hold a resource."""

from __future__ import annotations

import datetime as dt
from typing import TypeAlias

from django.conf import settings
from django.db.models.functions import Now

from leases import hints
from leases.engine.core.database import rows, run, short
from leases.engine.core.runs import end_children, end_waiting_siblings
from leases.engine.core.transitions import lock_resource, move_lease
from leases.engine.placement import quotas
from leases.engine.resources import cleanup
from leases.reasons import Reason
from leases.states import LeaseState

Holders: TypeAlias = list[tuple[int, str]]
"""Leases with a share, and their states."""


def lock_holders(resource_id: int) -> Holders:
    """Lock the leases that have a share of a resource: before the resource itself, as everywhere."""
    sql = """
        SELECT l.id, l.state FROM leases_lease l WHERE l.id IN (
            SELECT lease_id FROM leases_share WHERE resource_id = %s) ORDER BY l.id FOR NO KEY UPDATE"""
    return [(lease_id, state) for lease_id, state in rows(sql, (resource_id,))]


def are_all(resource_id: int, holders: Holders) -> bool:
    """True unless a share was taken or returned before the resource, too, was locked."""
    there = rows("SELECT lease_id FROM leases_share WHERE resource_id = %s", (resource_id,))
    return {lease_id for (lease_id,) in there} == {lease_id for lease_id, _ in holders}


def evict_all(
    resource_id: int, holders: Holders, *, reason: str, message: str, stays: bool = False, counts: bool = True
) -> None:
    """Evict every holder."""
    for lease_id, state in holders:
        evict(lease_id, state, resource_id, reason=reason, message=message, stays=stays, counts=counts)


def evict(
    lease_id: int, state: str, resource_id: int, *, reason: str, message: str, stays: bool = False, counts: bool = True
) -> None:
    """Take the share of a locked lease away: it waits again, is broken, or has ended anyway.

    `stays`: the resource is not destroyed, so what the lease may have left there is a debt. `counts`: whether a lease
    that waits again has used up one of its tries.
    """
    if stays:
        cleanup.incur(lease_id, state, resource_id)
    run("DELETE FROM leases_run WHERE lease_id = %s", (lease_id,))
    run("DELETE FROM leases_slotlock WHERE lease_id = %s", (lease_id,))
    run("DELETE FROM leases_share WHERE lease_id = %s", (lease_id,))
    hints.once_committed(quotas.unpark, lease_id)
    if state == LeaseState.ACQUIRED:
        end_children(for_lease=lease_id)
        bounce(lease_id, resource_id, reason=reason, message=message, counts=counts)
    elif state == LeaseState.ACTIVE:
        move_lease(lease_id, LeaseState.BROKEN, reason=reason, message=message, ended_at=Now())
        end_children(for_lease=lease_id)
        hints.once_committed(end_waiting_siblings, lease_id)
        ask_again(lease_id)
    elif state == LeaseState.RELEASED:
        move_lease(lease_id, LeaseState.DESTROYED, reason=Reason.RETURNED, message=message, ended_at=Now())


@short
def orphan(lease_id: int, *, message: str) -> bool:
    """A lease lost what it needs: it is broken, and asked for again where that is wished. Its resource goes on."""
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


_AGAIN = """
    INSERT INTO leases_lease (type, name, labels, owner_id, charged_group_id, state, reason, message, actor, requirements,
        traits, forbidden_traits, preferred_traits, slots, cpu_millicores, ram_mib, disk_mib, extra, exclusive,
        allowed_blueprints, excluded_blueprints, only_resources, public_keys, shape, priority, rank, root_id, ttl, until,
        ttl_defaulted, limited, heartbeat_limit, serve_again, choose, watched, avoided_resources)
    SELECT type, name, labels, owner_id, charged_group_id, 'pending', 'requested', 'In place of lease ' || id, 'drydock',
        requirements, traits, forbidden_traits, preferred_traits, slots, cpu_millicores, ram_mib, disk_mib, extra,
        exclusive, allowed_blueprints, excluded_blueprints, only_resources, public_keys, shape, priority, rank, root_id,
        ttl, until, ttl_defaulted, limited, heartbeat_limit, TRUE, choose, watched, ARRAY[resource_id]
    FROM leases_lease WHERE id = %s AND serve_again AND release_wanted = '' AND (until IS NULL OR until > clock_timestamp())
    RETURNING id, type"""


def ask_again(lease_id: int) -> None:
    """A lost lease that wants it is asked for again, in its old place of the queue; `replaced_by` says as what."""
    for new_id, resource_type in rows(_AGAIN, (lease_id,)):
        run("UPDATE leases_lease SET replaced_by_id = %s WHERE id = %s", (new_id, lease_id))
        run("INSERT INTO leases_watch (lease_id) SELECT id FROM leases_lease WHERE id = %s AND watched", (new_id,))
        hints.after_commit("serve", resource_type)


def bounce(lease_id: int, resource_id: int, *, reason: str, message: str, counts: bool = True) -> None:
    """Back to waiting, a bounded number of times; then broken. The share must be gone already."""
    bounces, wanted = rows("SELECT bounces, release_wanted FROM leases_lease WHERE id = %s", (lease_id,))[0]
    if wanted:
        move_lease(lease_id, LeaseState.RELEASED, reason=wanted)
        move_lease(lease_id, LeaseState.DESTROYED, reason=Reason.RETURNED, ended_at=Now())
        return
    if counts and bounces >= settings.DRYDOCK.bounce_limit:
        text = f"Failed {bounces + 1} times. The last error: {message}"
        move_lease(lease_id, LeaseState.BROKEN, reason=reason, message=text, ended_at=Now())
        hints.once_committed(end_waiting_siblings, lease_id)
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
