"""Find room for one pending lease, reserve a resource for it, and grant freed room to the heads of the queue."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from django.conf import settings

from blueprints.amounts import Amounts
from drydock.core.errors import Busy
from leases.engine.core.database import bound_lock_waits, rows, run, short
from leases.engine.placement import budgets, claims, pending, quotas
from leases.engine.placement.budget_check import UNBOUNDED, BudgetCheck
from leases.engine.placement.claims import belongs_to_older, finish_claim
from leases.engine.placement.constraints import suits
from leases.messaging import hints


class Outcome(Enum):
    """The outcome of an attempt to place one pending lease."""

    GRANTED = "it has its share"
    NO_ROOM = "no resource has room"
    BEHIND = "an older pending lease has precedence"
    PARKED = "it exceeds a quota of its owner"
    BEYOND = "it exceeds a budget of its owner"
    BUSY = "locks were held; try again"
    GONE = "it is no longer pending"


def place(lease_id: int, *, wait: bool = False, may_be_degraded: bool = False) -> Outcome:
    """Claim room for one pending lease.

    Set `wait` only for a head of the queue, after the heads before it have been served. Set `may_be_degraded` only if
    nothing healthy has room and nothing can be built.
    """
    try:
        return _place(lease_id, wait, may_be_degraded)
    except Busy:
        return Outcome.BUSY


@short
def _place(lease_id: int, head: bool, may_be_degraded: bool) -> Outcome:
    bound_lock_waits()
    waiter = pending.lock(lease_id)
    if waiter is None or waiter.group_id is not None:
        return Outcome.GONE
    excess, _ = bound(waiter)
    if excess is not None:
        quotas.park([lease_id], excess)
        return Outcome.PARKED
    room = claims.find(replace(waiter.placement, may_be_degraded=may_be_degraded))
    if room is None:
        return Outcome.NO_ROOM
    if not head and belongs_to_older(room, waiter):
        return Outcome.BEHIND
    claims.unreserve(lease_id)
    finish_claim(waiter, room)
    return Outcome.GRANTED


def bound(waiter: pending.PendingLease, taken: Amounts | None = None) -> tuple[quotas.Excess | None, BudgetCheck]:
    """Lock the quotas and budgets that a lease is charged to, and restrict the lease's request to what they allow.

    Returns the first quota that the lease would exceed, or None, and a check of the lease's budgets. `taken` is the
    capacity that the lease would take, if that differs from the requested amounts.
    """
    spending = UNBOUNDED
    if waiter.quotas:
        allowance = quotas.allowance({waiter.id: taken or waiter.placement.amounts})
        if allowance.excess is not None:
            return allowance.excess, spending
        waiter.placement = allowance.bounding(waiter.placement)
    if waiter.budgets:
        spending = budgets.lock([waiter.id]).of(waiter.id, waiter.placement)
        waiter.placement = spending.bounding(waiter.placement)
    return None, spending


RESERVE = """
    UPDATE leases_resource SET reserved_for_id = %s WHERE id = (
        SELECT r.id FROM leases_resource r
        WHERE {suits} AND r.reserved_for_id IS NULL AND r.state IN ('pending', 'active') AND NOT r.drained
            AND NOT r.quarantined AND NOT r.in_maintenance AND r.suspect_since IS NULL
            AND NOT (r.child_count > 0 AND EXISTS (SELECT FROM drydock_below(r.id) b
                JOIN leases_resource d ON d.id = b.id WHERE d.reserved_for_id IS NOT NULL))
            AND NOT (r.closed_by <> '{{}}' AND EXISTS (SELECT FROM leases_resource a
                WHERE a.id = ANY(r.closed_by) AND a.reserved_for_id IS NOT NULL))
        ORDER BY r.health <> 'ok', r.closed_by <> '{{}}', r.total_slots - r.used_slots DESC, r.busy_below, r.id
        LIMIT 1 FOR NO KEY UPDATE OF r SKIP LOCKED)"""
"""SQL that reserves a resource, but none above or below a reserved resource: the leases would block each other."""


@short
def reserve(lease_id: int) -> bool:
    """Reserve a resource for a lease that has waited at the head of its queue for a long time.

    Other leases cannot claim a reserved resource. Returns whether a resource was reserved.
    """
    waiter = pending.lock(lease_id)
    if waiter is None or rows("SELECT 1 FROM leases_resource WHERE reserved_for_id = %s", (lease_id,)):
        return False
    spending = budgets.spending(lease_id, waiter.placement) if waiter.budgets else UNBOUNDED
    allowed = suits(spending.bounding(waiter.placement))
    return bool(run(RESERVE.format(suits=allowed.text), (lease_id, *allowed.params)))


def overdue_heads(resource_type: str) -> list[int]:
    """Return the heads of the queue that have waited long enough to have a resource reserved for them."""
    found = [head.id for head in pending.heads(resource_type)]
    return [
        lease_id
        for (lease_id,) in rows(
            "SELECT id FROM leases_lease WHERE id = ANY(%s) AND since < statement_timestamp() - %s * interval '1 s'",
            (found, settings.DRYDOCK.head_reservation_seconds),
        )
    ]


def hand_over(resource_type: str, resource_id: int | None = None) -> None:
    """Grant freed room to the heads of the queue at once. For leases that find no room, workers decide and build.

    If `resource_id` is given, only heads that could use that resource are considered.
    """
    waiters, anybody, free = pending.look(resource_type, resource_id, limit=8)
    if waiters and resource_id is not None:
        waiters = [waiters[n] for n in claims.fits(resource_id, [head.placement for head in waiters], free)]
    for head in waiters:
        while place(head.id, wait=True) is Outcome.GRANTED:
            following = pending.next_of_class(resource_type, head.request_class, (head.rank, head.id))
            if following is None:
                break
            head.rank, head.id = following
    if anybody:
        hints.send("serve", resource_type)
