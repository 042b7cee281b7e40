"""Serving the queue: the heads of all shapes in order, then what each of them can have."""

from __future__ import annotations

import heapq
from enum import Enum

from django.conf import settings

from leases import hints
from leases.engine import budgets, claim, quotas, search, waiting
from leases.engine.grant import belongs_to_older, finish_claim
from leases.engine.isolation import attempt
from leases.engine.transaction import Busy, bound_lock_waits, rows, run, short


class Outcome(Enum):
    """What came of looking for room for one waiter."""

    GRANTED = "it has its share"
    NO_ROOM = "nothing has room"
    BEHIND = "an older waiter has the right to what has room"
    PARKED = "its owner holds too much already"
    BEYOND = "its owner may not spend enough for what another could have"
    BUSY = "locks were held; look again"
    GONE = "it no longer waits"


def serve(resource_type: str) -> int:
    """Give what has room to the waiters in order, and decide for those that find none. The number served."""
    from leases.engine import groups

    queue = [(head.rank, head.id, head.shape) for head in waiting.in_turn(resource_type)]
    queue += [(rank, group_id, "") for rank, group_id in groups.waiting(resource_type)]
    heapq.heapify(queue)
    served = 0
    while queue and served < settings.DRYDOCK.serve_limit:
        rank, key, shape = heapq.heappop(queue)
        outcome = attempt(_advance if shape else groups.advance, key)
        served += outcome is Outcome.GRANTED
        following = waiting.next_of_shape(resource_type, shape, (rank, key)) if shape and outcome in _ONWARD else None
        if following is not None:
            heapq.heappush(queue, (*following, shape))
    if queue and served >= settings.DRYDOCK.serve_limit:
        hints.send("serve", resource_type)
    return served


_ONWARD = (Outcome.GRANTED, Outcome.GONE, Outcome.PARKED, Outcome.BEYOND)
"""After these the next waiter of the same shape is looked at; what one cannot have, its like cannot either."""


def _advance(lease_id: int) -> Outcome:
    from leases.engine import allocation

    outcome = place(lease_id, wait=True)
    return allocation.decide(lease_id) if outcome is Outcome.NO_ROOM else outcome


def place(lease_id: int, *, wait: bool = False) -> Outcome:
    """Look for room for one waiter. `wait`: it is the head of its shape and whoever is before it was served."""
    try:
        return _place(lease_id, wait)
    except Busy:
        return Outcome.BUSY


@short
def _place(lease_id: int, head: bool) -> Outcome:
    bound_lock_waits()
    waiter = waiting.lock(lease_id)
    if waiter is None or waiter.group_id is not None:
        return Outcome.GONE
    allowance = quotas.allowance({lease_id: waiter.question.amounts})
    if allowance.excess is not None:
        quotas.park([lease_id], allowance.excess)
        return Outcome.PARKED
    waiter.question = allowance.bounding(waiter.question)
    waiter.question = budgets.lock([lease_id]).of(lease_id, waiter.question).bounding(waiter.question)
    room = search.find(waiter.question)
    if room is None:
        return Outcome.NO_ROOM
    if not head and belongs_to_older(room, waiter):
        return Outcome.BEHIND
    claim.unreserve(lease_id)
    finish_claim(waiter, room)
    return Outcome.GRANTED


RESERVE = """
    UPDATE leases_resource SET reserved_for_id = %s WHERE id = (
        SELECT r.id FROM leases_resource r
        WHERE {suits} AND r.reserved_for_id IS NULL AND r.state IN ('pending', 'active') AND NOT r.drained
            AND NOT r.quarantined AND NOT r.in_maintenance AND r.suspect_since IS NULL
        ORDER BY r.total_slots - r.used_slots DESC, r.id LIMIT 1 FOR NO KEY UPDATE OF r SKIP LOCKED)"""


@short
def reserve(lease_id: int) -> bool:
    """Let one resource fill for a head of the queue that has waited long, and for nobody else."""
    from leases.engine.question import suits

    waiter = waiting.lock(lease_id)
    if waiter is None or rows("SELECT 1 FROM leases_resource WHERE reserved_for_id = %s", (lease_id,)):
        return False
    allowed = suits(budgets.spending(lease_id, waiter.question).bounding(waiter.question))
    return bool(run(RESERVE.format(suits=allowed.text), (lease_id, *allowed.params)))


def overdue_heads(resource_type: str) -> list[int]:
    """Heads of the queue that have waited so long that a resource is reserved for them."""
    found = [head.id for head in waiting.heads(resource_type)]
    return [
        lease_id
        for (lease_id,) in rows(
            "SELECT id FROM leases_lease WHERE id = ANY(%s) AND since < statement_timestamp() - %s * interval '1 s'",
            (found, settings.DRYDOCK.head_reservation_seconds),
        )
    ]


def hand_over(resource_type: str, resource_id: int | None = None) -> None:
    """Room was made: give it to the heads of the queue here and now; deciding and building is for the workers.

    `resource_id`: where; heads that could not use it are not looked at here.
    """
    waiters, anybody, free = waiting.look(resource_type, resource_id, limit=8)
    if waiters and resource_id is not None:
        waiters = [waiters[n] for n in search.fits(resource_id, [head.question for head in waiters], free)]
    for head in waiters:
        while place(head.id, wait=True) is Outcome.GRANTED:
            following = waiting.next_of_shape(resource_type, head.shape, (head.rank, head.id))
            if following is None:
                break
            head.rank, head.id = following
    if anybody:
        hints.send("serve", resource_type)
