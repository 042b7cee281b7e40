"""Records of actions on resources that Drydock repeats in the background and whose last attempt failed."""

from __future__ import annotations

from blueprints.answers import Failed
from leases.engine.core.database import rows, run
from leases.engine.core.runs import name_of
from leases.engine.core.transitions import record_event
from leases.models import Resource, Run

DESTROY = "destroy"
TELLING = 2
"""Number of failed attempts after which a destruction is reported. A single failure may be accidental."""
DEADLINE = "deadline"
"""The code of an action that the provider accepted but did not complete in time.

A destruction with this code is reported at once, because its step has already waited for the longest expected time.
"""
REPORTED = f"(f.act = '{DESTROY}' AND (f.attempts >= {TELLING} OR f.code = '{DEADLINE}'))"
"""SQL condition for the destructions that are reported."""
_POWER = {"off": "stop", "on": "start", "cycle": "power-cycle"}
_KEEP = """
    INSERT INTO leases_failure AS f (resource_id, lease_id, act, code, message)
    VALUES (%s, (SELECT lease_id FROM leases_share WHERE resource_id = %s AND exclusive), %s, %s, %s)
    ON CONFLICT (resource_id) DO UPDATE SET lease_id = excluded.lease_id, act = excluded.act, code = excluded.code,
        message = excluded.message, at = clock_timestamp(),
        attempts = CASE WHEN f.act = excluded.act THEN f.attempts + 1 ELSE 1 END,
        since = CASE WHEN f.act = excluded.act THEN f.since ELSE clock_timestamp() END
    RETURNING attempts, lease_id"""
_LAST_LEASE = """
    SELECT id FROM leases_lease WHERE resource_id = %s AND for_resource_id IS NULL
    ORDER BY acquired_at DESC NULLS LAST, id DESC LIMIT 1"""


def act_of(current: Run) -> str:
    """Return the user-facing name of the action of a run, such as `power-cycle`."""
    if current.phase == Run.Phase.POWER:
        return _POWER.get(str(current.wanted.get("power")), "power-cycle")
    return "change-type" if current.phase == Run.Phase.RETYPE else name_of(current.phase, current.wanted)


def record(current: Run, answer: Failed) -> int | None:
    """Record that an action on a resource failed. Return the lease that holds the whole resource, or None."""
    said = (act_of(current), answer.code[:128], answer.message[:2000].replace("\0", ""))
    was_reported = _is_reported(current.resource_id)
    ((attempts, lease_id),) = rows(_KEEP, (current.resource_id, current.resource_id, *said))
    if not was_reported and _is_reported(current.resource_id):
        _report(current.resource, answer, attempts)
    found: int | None = lease_id
    return found


def _is_reported(resource_id: int) -> bool:
    return bool(rows(f"SELECT 1 FROM leases_failure f WHERE f.resource_id = %s AND {REPORTED}", (resource_id,)))


def _report(resource: Resource, answer: Failed, attempts: int) -> None:
    """Record an event for a destruction that keeps failing. The event also belongs to the last lease, for its owner."""
    last = [pk for (pk,) in rows(_LAST_LEASE, (resource.pk,))]
    record_event(
        "resource.destroy_failed", sentence(resource, attempts, answer.message), resource_id=resource.pk,
        lease_id=last[0] if last else None,
        details={"code": answer.code, "attempts": attempts, "hourly": resource.price},
    )  # fmt: skip


def sentence(resource: Resource, attempts: int, message: str) -> str:
    """Return a sentence about a destruction that keeps failing, with the resource's hourly cost if it is known."""
    cost = "" if resource.price is None else f" It continues to cost ${resource.price:.4f} per hour."
    tried = f"in {attempts} attempts" if attempts > 1 else "yet"
    return f"{resource} could not be destroyed {tried}: {message}{cost}"


def forget(resource_id: int, *, act: str | None = None) -> None:
    """Delete the record of a failed action, or only of this one, because it has succeeded or the resource is gone."""
    run("DELETE FROM leases_failure WHERE resource_id = %s AND act = coalesce(%s, act)", (resource_id, act))


def retry_updates(blueprint_id: int) -> None:
    """Delete the records of failed updates of a blueprint's resources, so that they are updated at once."""
    sql = """
        DELETE FROM leases_failure f USING leases_resource r
        WHERE r.id = f.resource_id AND r.blueprint_id = %s AND f.act = 'update'"""
    run(sql, (blueprint_id,))
