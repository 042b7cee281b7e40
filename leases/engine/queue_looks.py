"""What the sweep looks for among those that wait."""

from __future__ import annotations

from django.conf import settings

from leases import hints
from leases.engine import serving
from leases.engine.isolation import each
from leases.engine.transaction import leases_by_id, rows, run


def idle_reservations() -> int:
    """Give up reservations for leases that no longer wait in the queue, and of resources that serve nobody."""
    return run(
        "UPDATE leases_resource SET reserved_for_id = NULL WHERE id = ANY(ARRAY("
        "SELECT r.id FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id"
        " WHERE r.reserved_for_id IS NOT NULL AND (r.state NOT IN ('pending', 'active')"
        " OR r.drained OR r.quarantined OR r.dies_at <= clock_timestamp() OR b.drained OR NOT b.enabled"
        " OR NOT EXISTS (SELECT FROM leases_lease l WHERE l.id = r.reserved_for_id AND l.state = 'pending' AND NOT l.parked))"
        " ORDER BY r.id FOR NO KEY UPDATE OF r SKIP LOCKED))"
    )


_DUE = """
    parked AND state = 'pending' AND id IN (SELECT id FROM leases_lease WHERE parked AND state = 'pending'
    AND (due_at IS NULL OR due_at <= statement_timestamp()) ORDER BY rank, id LIMIT %s)"""


def parked() -> int:
    """Waiters that were put out of the queue for a while, and whose time has come."""
    found = rows(
        f"UPDATE leases_lease SET parked = FALSE WHERE {leases_by_id(_DUE)} RETURNING type",
        (settings.DRYDOCK.sweep_batch,),
    )
    return len(found)


def waiting() -> int:
    """The types for which somebody waits: served, and something reserved for who has waited long."""
    found = rows("SELECT DISTINCT type FROM leases_lease WHERE state = 'pending'")
    for (resource_type,) in found:
        each(serving.reserve, [(lease_id,) for lease_id in serving.overdue_heads(resource_type)])
        hints.send("serve", resource_type)
    return len(found)
