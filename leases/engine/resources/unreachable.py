"""Resources that do not answer, and machines that their provider no longer lists.

Each kind declares which failure codes mean that a resource does not answer (`Kind.unreachable`). All functions run
inside the transaction that applies the step's answer.
"""

from __future__ import annotations

import json

from django.conf import settings

from blueprints import registry
from blueprints.answers import Failed
from blueprints.specs import Owned
from leases.engine.core.database import rows, run, short
from leases.engine.core.transitions import explain, lock_holders, record_event, wake_relatives
from leases.messaging import hints
from leases.models import Debt, Lease, Resource, Run
from leases.reasons import Reason
from leases.signals import interruption_announced
from leases.states import SUSPECTED, VANISHED

UNREACHABLE = "unreachable"
"""The observed status of a resource that does not answer."""
RECHECK = 10.0
"""Maximum number of seconds between two checks of a resource that does not respond."""
_AT_ONCE = (Run.Phase.ACTIVATE, Run.Phase.CHECK, Run.Phase.UPDATE)
_ON_LEASE = (Run.Phase.ACTIVATE, Run.Phase.DEACTIVATE, Run.Phase.CLEAN)
_PHASES = (*_ON_LEASE, Run.Phase.CHECK, Run.Phase.UPDATE)


def told_by(current: Run, answer: Failed) -> bool:
    """Return whether a failure means that the resource itself did not respond."""
    kind = registry.kind(current.resource.blueprint.kind)
    return current.phase in _PHASES and answer.code in kind.unreachable


def ends_phase(current: Run, answer: Failed) -> bool:
    """Return whether a failure ends the phase at once, so that its step is not retried.

    The first check or update of a registered resource ends at any failure, and later starts again from its first step.
    Other phases end at once only if the resource did not respond: a lease is then moved to another resource, a check
    counts as failed, and a cleaning is repeated once the resource responds. The exception is the cleaning of a resource
    that Drydock built, unless its lease was lost. It is retried like other steps, because the resource is destroyed if
    it cannot be cleaned.
    """
    registered = current.resource.origin == Resource.Origin.REGISTERED
    if registered and current.phase in (Run.Phase.BUILD, Run.Phase.UPDATE):
        return True
    if not told_by(current, answer):
        return False
    cleans_ours = current.resource.origin == Resource.Origin.BUILT and not _cleans_lost(current)
    return current.phase in _AT_ONCE or not cleans_ours


def _cleans_lost(current: Run) -> bool:
    """Return whether a run is the cleanup after a lost lease."""
    lost = Debt.objects.filter(pk=current.debt_id or 0).exclude(phase=Debt.Phase.CLEAN)
    return current.debt_id is not None and lost.exists()


def notice(current: Run, answer: Failed) -> None:
    """Mark the resource as unreachable if a step that will be retried reports that the resource does not answer."""
    if told_by(current, answer):
        mark(current.resource_id, answer.message)


_MARK = """
    UPDATE leases_resource r SET suspect_since = coalesce(r.suspect_since, clock_timestamp()), observed = %s,
        observed_at = clock_timestamp(), message = %s,
        check_at = CASE WHEN r.suspect_since IS NULL THEN clock_timestamp()
            WHEN r.check_at > clock_timestamp() THEN r.check_at
            ELSE clock_timestamp() + least(b.check_interval, %s * interval '1 s') END
    FROM leases_resource before JOIN blueprints_blueprint b ON b.id = before.blueprint_id
    WHERE r.id = %s AND before.id = r.id AND r.state = 'active' RETURNING before.suspect_since IS NULL"""


def mark(resource_id: int, message: str) -> None:
    """Close the resource to new leases until a check finds that it answers. The first such check is due at once."""
    for (fresh,) in rows(_MARK, (UNREACHABLE, message[:2000], RECHECK, resource_id)):
        if fresh:
            record_event("resource.unreachable", message, resource_id=resource_id)
            hints.after_commit("sweep")


_FAILING = """
    UPDATE leases_resource r SET suspect_since = coalesce(r.suspect_since, clock_timestamp()), observed = 'failing',
        observed_at = clock_timestamp(), message = %s, check_failures = r.check_failures + 1
    FROM leases_resource before WHERE r.id = %s AND before.id = r.id RETURNING before.check_failures, before.message"""


def failing(resource_id: int, message: str) -> int:
    """Take a resource out of service after a failed first check or update. Return the number of earlier failures."""
    ((failures, before),) = rows(_FAILING, (message[:2000], resource_id))
    if not failures or before != message[:2000]:
        record_event("resource.check_failed", message, resource_id=resource_id, details={"failures": failures + 1})
        hints.after_commit("sweep")
    return int(failures)


def check_in(resource_id: int, seconds: float) -> None:
    """Schedule the next check of the resource in `seconds` seconds."""
    later = "UPDATE leases_resource SET check_at = clock_timestamp() + %s * interval '1 s' WHERE id = %s"
    run(later, (seconds, resource_id))


def clear(resource_id: int) -> None:
    """Put a resource that answers again back into service, and clear the suspicion on its leases.

    The leases that have a share of the resource must be locked.
    """
    found = rows(
        "UPDATE leases_resource r SET suspect_since = NULL, message = '' FROM leases_resource before"
        " WHERE r.id = %s AND before.id = r.id AND before.suspect_since IS NOT NULL RETURNING r.type",
        (resource_id,),
    )
    for (resource_type,) in found:
        record_event("resource.reachable", "The resource answers again.", resource_id=resource_id)
        hints.after_commit("serve", resource_type)
        wake_relatives(resource_id)
        for lease_id in _leases(resource_id, Reason.SUSPECTED):
            explain(lease_id, Reason.READY, "The resource answers again.")


def tell_leases(resource_id: int, message: str) -> None:
    """Set a message on the active leases of a resource: the resource does not answer.

    The leases must be locked.
    """
    for lease_id in _leases(resource_id, Reason.READY):
        explain(lease_id, Reason.SUSPECTED, f"The resource does not answer: {message}"[:2000])


def _leases(resource_id: int, reason: Reason) -> list[int]:
    """Return the ids of the active leases on the resource that have this reason."""
    sql = """
        SELECT l.id FROM leases_lease l JOIN leases_share s ON s.lease_id = l.id
        WHERE s.resource_id = %s AND l.state = 'active' AND l.reason = %s ORDER BY l.id"""
    return [lease_id for (lease_id,) in rows(sql, (resource_id, reason))]


def too_long(resource_id: int) -> bool:
    """Return whether the resource has not answered for so long that its leases are considered lost."""
    sql = "SELECT 1 FROM leases_resource WHERE id = %s AND suspect_since < clock_timestamp() - %s * interval '1 s'"
    return bool(rows(sql, (resource_id, settings.DRYDOCK.unreachable_limit_seconds)))


def since(resource_id: int) -> str:
    """Return the time at which the resource stopped answering, as text for a message."""
    ((at,),) = rows("SELECT date_trunc('second', suspect_since) FROM leases_resource WHERE id = %s", (resource_id,))
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


DOUBTED = (SUSPECTED, VANISHED)
_REASONS = (Reason.SUSPECTED, Reason.MACHINE_STOPPED)
_KEEP_SEEN = """
    UPDATE leases_resource SET facts = facts || jsonb_build_object('seen', %s::jsonb),
        power = coalesce(nullif(%s, ''), power)
    WHERE id = %s AND state = 'active' AND NOT EXISTS (
        SELECT FROM leases_run n WHERE n.resource_id = leases_resource.id AND n.lease_id IS NULL)"""


def keep_seen(resource_id: int, found: Owned) -> None:
    """Store the status of a machine that was read by its id. This status takes precedence over a status poll."""
    run(_KEEP_SEEN, (json.dumps({**found.facts, "state": found.state}), found.power, resource_id))


@short
def suspect(resource_id: int, message: str, *, observed: str = SUSPECTED, reason: Reason = Reason.SUSPECTED) -> None:
    """Record on a machine and its leases that the machine may be gone or off. Changes nothing else."""
    holders = lock_holders(resource_id)
    before = rows("SELECT state, observed FROM leases_resource WHERE id = %s FOR NO KEY UPDATE", (resource_id,))
    if not before or before[0][0] != "active":
        return
    run(
        "UPDATE leases_resource SET observed = %s, observed_at = clock_timestamp(), message = %s WHERE id = %s",
        (observed, message, resource_id),
    )
    if observed == SUSPECTED != before[0][1]:
        record_event("resource.suspected", message, actor="status", resource_id=resource_id, reason=reason)
    if observed == VANISHED != before[0][1]:
        record_event("resource.vanished", message, actor="status", resource_id=resource_id, reason=reason)
    for lease_id, state in holders:
        if state == "active":
            explain(lease_id, reason, message)


_CLEAR_SUSPICION = """
    UPDATE leases_resource r SET missed = 0, message = '', facts = r.facts - 'stopped', observed_at = clock_timestamp(),
        observed = coalesce(nullif(r.facts -> 'seen' ->> 'state', ''), 'ok'),
        power_wanted = CASE WHEN r.facts #>> '{stopped,restart}' = 'true' AND r.power_wanted = 'on' THEN ''
            ELSE r.power_wanted END
    FROM leases_resource before WHERE r.id = %s AND before.id = r.id AND r.state = 'active'
        AND (before.missed > 0 OR before.observed = ANY(%s) OR before.facts ? 'stopped')
    RETURNING before.observed = ANY(%s) OR before.facts ? 'stopped'"""


@short
def clear_suspicion(resource_id: int) -> None:
    """Clear the suspicion on a machine and its leases."""
    holders = lock_holders(resource_id)
    cleared = rows(_CLEAR_SUSPICION, (resource_id, list(DOUBTED), list(DOUBTED)))
    if not cleared or not cleared[0][0]:
        return
    message = "The machine exists and is healthy."
    record_event("resource.found", message, actor="status", resource_id=resource_id)
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
    """Announce to the leases on a machine, and by Django's signal, that the provider will reclaim the machine soon.

    The announcement is made only once, although a status poll and the machine itself may both report the interruption.
    """
    message = f"The provider will reclaim the machine soon: {why}"
    holders = lock_holders(resource_id)
    if not run(_ANNOUNCE, (resource_id,)):
        return
    record_event("resource.interruption", message, actor="status", resource_id=resource_id)
    for lease_id, state in holders:
        if state == "active":
            record_event("lease.interruption", message, actor="status", lease_id=lease_id, resource_id=resource_id)
            hints.once_committed(_send, lease_id, resource_id, message)


def _send(lease_id: int, resource_id: int, message: str) -> None:
    interruption_announced.send_robust(Lease, lease_id=lease_id, resource_id=resource_id, message=message)
