"""Periodic checks of runs and of resources without a run. Each check returns the number of items that it acted on."""

from __future__ import annotations

from functools import partial

from django.conf import settings

from leases.engine.actions import grants, needs
from leases.engine.core.database import each, rows, run, short, some
from leases.engine.core.runs import start
from leases.engine.resources import maintenance, retirement
from leases.messaging import hints
from leases.models import Run
from leases.reasons import Reason


def steps() -> int:
    """Ask workers to carry out every run that is due. Return the number of runs."""
    found = some(
        "SELECT id FROM leases_run WHERE due_at <= statement_timestamp()"
        " AND (token IS NULL OR token_until < statement_timestamp()) ORDER BY due_at"
    )
    for (run_id,) in found:
        hints.send("step", run_id)
    return len(found)


def needed() -> int:
    """Make runs due that wait for leases, if these leases are all active or can no longer become active.

    The step that waits is then called again.
    """
    found = 0
    waiting = Run.objects.filter(waits_for="leases", due_at=None).select_related("lease", "resource")
    for current in waiting.order_by("?")[: settings.DRYDOCK.sweep_batch]:
        try:
            ready = needs.satisfied(current)
        except needs.NotToBeHad:
            ready = True
        if ready and run(
            "UPDATE leases_run SET due_at = clock_timestamp() WHERE id = %s AND due_at IS NULL", (current.pk,)
        ):
            hints.send("step", current.pk)
            found += 1
    return found


_UNWANTED = """
    SELECT r.id FROM leases_run n JOIN leases_resource r ON r.id = n.resource_id
    JOIN leases_lease l ON l.id = (n.asked ->> 'lease')::bigint
    JOIN leases_leasegroup g ON g.id = l.group_id AND g.same = 'whole'
    WHERE n.phase = 'build' AND n.lease_id IS NULL AND NOT n.cancel_wanted AND r.state = 'pending' AND r.origin = 'built'
        AND r.part_of_id IS NOT NULL AND r.used_slots = 0 AND r.reserved_for_id IS NULL
        AND l.state IN ('released', 'destroyed', 'broken') AND NOT EXISTS (
            SELECT FROM leases_lease w WHERE w.type = r.type AND w.state = 'pending' AND NOT w.parked)"""


def unwanted() -> int:
    """Cancel builds on carriers for groups with `same: whole` that have ended, because each holds a device and maintains its host."""
    cancel = partial(
        retirement.retire_idle, reason=Reason.CANCELLED, message="No lease needs this resource any more.", unwanted=True
    )
    return each(cancel, some(_UNWANTED))


def in_maintenance() -> int:
    """Continue runs that wait for maintenance of a related resource."""
    found = some("SELECT id FROM leases_run WHERE waits_for = 'maintenance' AND due_at IS NULL")
    return each(_advance, found)


@short
def _advance(run_id: int) -> bool:
    current = (
        Run.objects.select_related("resource", "lease")
        .select_for_update(no_key=True, of=("self",))
        .filter(pk=run_id)
        .first()
    )
    if current is None or current.waits_for != "maintenance" or current.due_at is not None:
        return False
    return grants.advance(current)


def undisturbed() -> int:
    """End the maintenance of resources for which no run needs it any more."""
    return each(maintenance.lift, some("SELECT id FROM leases_resource WHERE in_maintenance"))


def stranded() -> int:
    """Restart the build or the destruction of resources that should have a run but have none."""
    found = some(
        "SELECT r.id, CASE r.state WHEN 'pending' THEN 'build' ELSE 'destroy' END FROM leases_resource r"
        " WHERE r.gone_at IS NULL AND r.state IN ('pending', 'released', 'broken')"
        " AND NOT EXISTS (SELECT FROM leases_run n WHERE n.resource_id = r.id AND n.lease_id IS NULL)"
    )
    return each(_restart, found)


@short
def _restart(resource_id: int, phase: str) -> bool:
    state = rows("SELECT state, gone_at FROM leases_resource WHERE id = %s FOR NO KEY UPDATE", (resource_id,))
    if not state or state[0][1] is not None or (state[0][0] == "pending") != (phase == "build"):
        return False
    return start(resource_id=resource_id, phase=phase) is not None
