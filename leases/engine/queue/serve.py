"""Serve the queue: first the heads of all request classes in order, then the leases behind them."""

from __future__ import annotations

import heapq

from django.conf import settings

from leases.engine.core.database import attempt
from leases.engine.placement import pending
from leases.engine.queue import groups
from leases.engine.scheduling import allocate
from leases.engine.scheduling.place import Outcome, place
from leases.messaging import hints


def serve(resource_type: str) -> int:
    """Grant room to pending leases in order, and decide what to do for leases that find no room.

    Returns the number of leases granted.
    """
    queue = [(head.rank, head.id, head.request_class) for head in pending.in_turn(resource_type)]
    queue += [(rank, group_id, "") for rank, group_id in pending.groups(resource_type)]
    heapq.heapify(queue)
    served = 0
    while queue and served < settings.DRYDOCK.serve_limit:
        rank, key, request_class = heapq.heappop(queue)
        outcome = attempt(_advance if request_class else groups.advance, key)
        served += outcome is Outcome.GRANTED
        following = (
            pending.next_of_class(resource_type, request_class, (rank, key))
            if request_class and outcome in _ONWARD
            else None
        )
        if following is not None:
            heapq.heappush(queue, (*following, request_class))
    if queue and served >= settings.DRYDOCK.serve_limit:
        hints.send("serve", resource_type)
    return served


_ONWARD = (Outcome.GRANTED, Outcome.GONE, Outcome.PARKED, Outcome.BEYOND)
"""Outcomes after which the next lease of the same request class is tried, because it may still be served."""


def _advance(lease_id: int) -> Outcome:
    outcome = place(lease_id, wait=True)
    return allocate.decide(lease_id) if outcome is Outcome.NO_ROOM else outcome
