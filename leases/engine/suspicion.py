"""What is written of a machine that may be gone, or is off though nobody here switched it off: its leases go on, and
say so."""

from __future__ import annotations

import json

from blueprints.specs import Owned
from leases import hints
from leases.engine import eviction
from leases.engine.transaction import rows, run, short
from leases.engine.transitions import explain, note
from leases.models import Lease
from leases.reasons import Reason
from leases.signals import interruption_announced
from leases.states import SUSPECTED, VANISHED

DOUBTED = (SUSPECTED, VANISHED)
_REASONS = (Reason.SUSPECTED, Reason.MACHINE_STOPPED)
_KEEP = """
    UPDATE leases_resource SET facts = facts || jsonb_build_object('seen', %s::jsonb),
        power = coalesce(nullif(%s, ''), power)
    WHERE id = %s AND state = 'active' AND NOT EXISTS (
        SELECT FROM leases_run n WHERE n.resource_id = leases_resource.id AND n.lease_id IS NULL)"""


def keep_seen(resource_id: int, found: Owned) -> None:
    """Keep what its own read tells, over what a listing told."""
    run(_KEEP, (json.dumps({**found.facts, "state": found.state}), found.power, resource_id))


@short
def suspect(resource_id: int, message: str, *, observed: str = SUSPECTED, reason: Reason = Reason.SUSPECTED) -> None:
    """Say of a machine and its leases that it may be gone, or is off, and why. Nothing else changes."""
    holders = eviction.lock_holders(resource_id)
    before = rows("SELECT state, observed FROM leases_resource WHERE id = %s FOR NO KEY UPDATE", (resource_id,))
    if not before or before[0][0] != "active":
        return
    run(
        "UPDATE leases_resource SET observed = %s, observed_at = clock_timestamp(), message = %s WHERE id = %s",
        (observed, message, resource_id),
    )
    if observed == SUSPECTED != before[0][1]:
        note("resource.suspected", message, actor="status", resource_id=resource_id, reason=reason)
    if observed == VANISHED != before[0][1]:
        note("resource.vanished", message, actor="status", resource_id=resource_id, reason=reason)
    for lease_id, state in holders:
        if state == "active":
            explain(lease_id, reason, message)


_CLEAR = """
    UPDATE leases_resource r SET missed = 0, message = '', facts = r.facts - 'stopped', observed_at = clock_timestamp(),
        observed = coalesce(nullif(r.facts -> 'seen' ->> 'state', ''), 'ok'),
        power_wanted = CASE WHEN r.facts #>> '{stopped,restart}' = 'true' AND r.power_wanted = 'on' THEN ''
            ELSE r.power_wanted END
    FROM leases_resource before WHERE r.id = %s AND before.id = r.id AND r.state = 'active'
        AND (before.missed > 0 OR before.observed = ANY(%s) OR before.facts ? 'stopped')
    RETURNING before.observed = ANY(%s) OR before.facts ? 'stopped'"""


@short
def clear(resource_id: int) -> None:
    """It is well: neither it nor its leases are doubted any more."""
    holders = eviction.lock_holders(resource_id)
    cleared = rows(_CLEAR, (resource_id, list(DOUBTED), list(DOUBTED)))
    if not cleared or not cleared[0][0]:
        return
    message = "It is there and well."
    note("resource.found", message, actor="status", resource_id=resource_id)
    for lease_id, state in holders:
        if state == "active" and _says_so(lease_id):
            explain(lease_id, Reason.READY, message)


def _says_so(lease_id: int) -> bool:
    said = "SELECT 1 FROM leases_lease WHERE id = %s AND reason = ANY(%s)"
    return bool(rows(said, (lease_id, [str(reason) for reason in _REASONS])))


_ANNOUNCE = """
    UPDATE leases_resource SET facts = facts || '{"announced": true}'
    WHERE id = %s AND state = 'active' AND NOT facts ? 'announced'"""


@short
def announce(resource_id: int, why: str) -> None:
    """Tell of a machine and its leases that its provider takes it back soon; the applications of this process too.

    Once: a listing and the guest may both tell of it.
    """
    message = f"Its provider takes it back soon: {why}"
    holders = eviction.lock_holders(resource_id)
    if not run(_ANNOUNCE, (resource_id,)):
        return
    note("resource.interruption", message, actor="status", resource_id=resource_id)
    for lease_id, state in holders:
        if state == "active":
            note("lease.interruption", message, actor="status", lease_id=lease_id, resource_id=resource_id)
            hints.once_committed(_send, lease_id, resource_id, message)


def _send(lease_id: int, resource_id: int, message: str) -> None:
    interruption_announced.send_robust(Lease, lease_id=lease_id, resource_id=resource_id, message=message)
