"""Resources that do not answer: nobody is given them, and each is checked again soon, until it answers.

A kind says which codes of failures mean that (`Kind.unreachable`). Every function here runs inside the transaction that
applies the answer of a step.
"""

from __future__ import annotations

from django.conf import settings

from blueprints import registry
from blueprints.answers import Failed
from leases import hints
from leases.engine.transaction import rows, run
from leases.engine.transitions import explain, note
from leases.models import Resource, Run
from leases.reasons import Reason

UNREACHABLE = "unreachable"
"""What is observed of such a resource."""
RECHECK = 10.0
"""Most seconds between two checks of a resource that does not answer."""
_AT_ONCE = (Run.Phase.ACTIVATE, Run.Phase.CHECK, Run.Phase.UPDATE)
_ON_LEASE = (Run.Phase.ACTIVATE, Run.Phase.DEACTIVATE, Run.Phase.CLEAN)
_PHASES = (*_ON_LEASE, Run.Phase.CHECK, Run.Phase.UPDATE)


def told_by(current: Run, answer: Failed) -> bool:
    """True when the answer says that the resource itself does not answer."""
    kind = registry.kind(current.resource.blueprint.kind)
    return current.phase in _PHASES and answer.code in kind.unreachable


def ends_phase(current: Run, answer: Failed) -> bool:
    """Return whether the step is not tried again in place.

    A lease goes elsewhere, a check has its answer, cleaning waits until the resource answers, and a registered
    resource is checked from the beginning. A resource that we built is destroyed when it cannot be cleaned, so its
    cleaning is tried as often as other steps.
    """
    registered = current.resource.origin == Resource.Origin.REGISTERED
    if registered and current.phase in (Run.Phase.BUILD, Run.Phase.UPDATE):
        return True
    if not told_by(current, answer):
        return False
    cleans_ours = current.resource.origin == Resource.Origin.BUILT and current.debt_id is None
    return current.phase in _AT_ONCE or not cleans_ours


def notice(current: Run, answer: Failed) -> None:
    """Mark the resource when a step that is tried again found that it does not answer."""
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
    """Give the resource to nobody until a check finds that it answers; the first of these checks is due at once."""
    for (fresh,) in rows(_MARK, (UNREACHABLE, message[:2000], RECHECK, resource_id)):
        if fresh:
            note("resource.unreachable", message, resource_id=resource_id)
            hints.after_commit("sweep")


_FAILING = """
    UPDATE leases_resource r SET suspect_since = coalesce(r.suspect_since, clock_timestamp()), observed = 'failing',
        observed_at = clock_timestamp(), message = %s, check_failures = r.check_failures + 1
    FROM leases_resource before WHERE r.id = %s AND before.id = r.id RETURNING before.check_failures, before.message"""


def failing(resource_id: int, message: str) -> int:
    """Give a resource to nobody whose first check, or update, has failed. Returns how often it has before."""
    ((failures, before),) = rows(_FAILING, (message[:2000], resource_id))
    if not failures or before != message[:2000]:
        note("resource.check_failed", message, resource_id=resource_id, details={"failures": failures + 1})
        hints.after_commit("sweep")
    return int(failures)


def check_in(resource_id: int, seconds: float) -> None:
    """When the resource is looked at again."""
    later = "UPDATE leases_resource SET check_at = clock_timestamp() + %s * interval '1 s' WHERE id = %s"
    run(later, (seconds, resource_id))


def clear(resource_id: int) -> None:
    """It answers: it serves again, and its leases no longer say that it may be gone. Holders are locked."""
    found = rows(
        "UPDATE leases_resource r SET suspect_since = NULL, message = '' FROM leases_resource before"
        " WHERE r.id = %s AND before.id = r.id AND before.suspect_since IS NOT NULL RETURNING r.type",
        (resource_id,),
    )
    for (resource_type,) in found:
        note("resource.reachable", "It answers again.", resource_id=resource_id)
        hints.after_commit("serve", resource_type)
        for lease_id in _leases(resource_id, Reason.SUSPECTED):
            explain(lease_id, Reason.READY, "Its resource answers again.")


def tell_leases(resource_id: int, message: str) -> None:
    """Say of the active leases that their resource does not answer. Holders are locked."""
    for lease_id in _leases(resource_id, Reason.READY):
        explain(lease_id, Reason.SUSPECTED, f"Its resource does not answer: {message}"[:2000])


def _leases(resource_id: int, reason: Reason) -> list[int]:
    """Active leases there whose reason is this one."""
    sql = """
        SELECT l.id FROM leases_lease l JOIN leases_share s ON s.lease_id = l.id
        WHERE s.resource_id = %s AND l.state = 'active' AND l.reason = %s ORDER BY l.id"""
    return [lease_id for (lease_id,) in rows(sql, (resource_id, reason))]


def too_long(resource_id: int) -> bool:
    """True when it has not answered for so long that its leases are lost."""
    sql = "SELECT 1 FROM leases_resource WHERE id = %s AND suspect_since < clock_timestamp() - %s * interval '1 s'"
    return bool(rows(sql, (resource_id, settings.DRYDOCK.unreachable_limit_seconds)))


def since(resource_id: int) -> str:
    """Since when, for a sentence."""
    ((at,),) = rows("SELECT date_trunc('second', suspect_since) FROM leases_resource WHERE id = %s", (resource_id,))
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
