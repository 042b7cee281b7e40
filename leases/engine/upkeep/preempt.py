"""Preempt a build or activation that holds a resource which an older lease needs.

Otherwise two leases could wait for each other forever. The youngest build or activation that waits is preempted.
"""

from __future__ import annotations

from django.conf import settings

from leases.engine.core.database import each, rows, run, short
from leases.engine.core.runs import end_children, undo_activation
from leases.engine.core.transitions import lock_resource, record_event
from leases.engine.placement.constraints import held
from leases.engine.placement.pending import COLUMNS, PendingLease
from leases.engine.resources import retirement
from leases.reasons import Reason

_WAITING = f"""
    SELECT {COLUMNS} FROM leases_lease l WHERE l.state = 'pending' AND NOT l.parked AND l.need <> ''
        AND l.since < clock_timestamp() - %s * interval '1 s' ORDER BY l.rank, l.id LIMIT 50"""
_HOLDER = """
    SELECT h.for_resource_id FROM leases_lease h JOIN leases_resource o ON o.id = h.for_resource_id AND o.state = 'pending'
    JOIN leases_run n ON n.resource_id = o.id AND n.lease_id IS NULL AND n.waits_for = 'leases' AND n.due_at IS NULL
    {held}
    WHERE h.state IN ('acquired', 'active') AND h.rank > %s ORDER BY h.rank DESC, h.id DESC LIMIT 1"""

_UNFINISHED = """
    SELECT o.id FROM leases_lease o
    JOIN leases_run n ON n.lease_id = o.id AND n.phase = 'activate' AND n.waits_for = 'leases' AND n.due_at IS NULL
    JOIN leases_lease h ON h.id = o.id OR (h.for_lease_id = o.id AND h.state IN ('acquired', 'active'))
    {held}
    WHERE o.state = 'acquired' AND o.rank > %s ORDER BY o.rank DESC, o.id DESC LIMIT 1"""


def preempt() -> int:
    """Preempt builds and activations for older leases that have waited for a long time.

    For each of these leases, stop the youngest waiting build or activation that holds a resource which could serve
    the lease, and return the stopped lease to the queue. Returns the number of preemptions.
    """
    found = rows(_WAITING, (settings.DRYDOCK.head_reservation_seconds,))
    return each(_preempt, [(PendingLease(row),) for row in found])


def _preempt(waiter: PendingLease) -> bool:
    fit = held(waiter.placement)
    message = "The lease was itself waiting for other leases, so its share was released to an older lease."
    for (resource_id,) in rows(_HOLDER.format(held=fit.text), (*fit.params, waiter.rank)):
        return retirement.lose(resource_id, reason=Reason.RECLAIMED, message=message)
    for (lease_id,) in rows(_UNFINISHED.format(held=fit.text), (*fit.params, waiter.rank)):
        return _undo(lease_id, message)
    return False


@short
def _undo(lease_id: int, message: str) -> bool:
    """Stop an activation that waits for other leases, and release the leases that it holds.

    The share of the stopped lease is released once the resource is cleaned. Returns False if the activation no
    longer waits.
    """
    found = rows(
        "SELECT resource_id FROM leases_lease WHERE id = %s AND state = 'acquired' AND release_wanted = ''"
        " FOR NO KEY UPDATE",
        (lease_id,),
    )
    waits = (
        "DELETE FROM leases_run WHERE lease_id = %s AND waits_for = 'leases' AND due_at IS NULL AND phase = 'activate'"
    )
    if not found or not lock_resource(found[0][0]) or not run(waits, (lease_id,)):
        return False
    run("UPDATE leases_lease SET message = %s WHERE id = %s", (message, lease_id))
    record_event("lease.yields", message, lease_id=lease_id, resource_id=found[0][0])
    end_children(for_lease=lease_id)
    undo_activation(lease_id, found[0][0])
    return True
