"""Watched workloads: what is to be observed of a lease's jobs, and when."""

from __future__ import annotations

from django.conf import settings

from blueprints import registry
from drydock.core.errors import DrydockError, InvalidRequest
from leases import hints
from leases.engine.core.database import rows
from leases.engine.core.installation import current
from leases.models.job import Watch
from leases.requests import LeaseRequest
from leases.workload import Workload

COMMAND = "command"


def require_commands(asked: LeaseRequest) -> None:
    """Raises InvalidRequest when a blueprint that may serve the request gives leases that run no commands."""
    found = rows(
        "SELECT name, kind FROM blueprints_blueprint WHERE resource_type = %s AND removed_at IS NULL ORDER BY name",
        (asked.type,),
    )
    allowed, excluded = asked.allowed_blueprints, asked.excluded_blueprints
    mute = [
        (name, kind) for name, kind in found
        if (allowed is None or name in allowed) and name not in excluded and not _runs_commands(kind)
    ]  # fmt: skip
    if mute:
        name, kind = mute[0]
        raise InvalidRequest(
            f"Leases of the blueprint {name!r} (kind {kind}) run no commands, so nothing can begin or be measured there.",
            field="metrics" if asked.workload is None else "workload",
            hint=f"Ask for another type, or leave it out with excluded_blueprints: {', '.join(one for one, _ in mute)}.",
        )


def _runs_commands(kind: str) -> bool:
    """A kind that does not load serves nobody."""
    try:
        return COMMAND in registry.kind(kind).interfaces()
    except DrydockError:
        return True


def write(lease_id: int, workload: Workload | None) -> None:
    """With the lease's own row: what is to be watched of it."""
    if workload is None:
        Watch.objects.create(lease_id=lease_id)
    else:
        Watch.objects.create(lease_id=lease_id, workload=workload.to_json(), env=workload.env)
    hints.after_commit("watch", lease_id)


_HOLDS_BACK = """
    SELECT 1 FROM leases_watch w JOIN leases_lease l ON l.id = w.lease_id
    WHERE w.lease_id = %s AND w.began_at IS NOT NULL AND w.over_at IS NULL
        AND l.since > clock_timestamp() - %s * interval '1 s'"""


def holds_back(lease_id: int) -> bool:
    """Whether a lease that has ended is not to be cleaned yet: a worker still gathers what it leaves to be known. It
    is given as long as the settings say, and no longer."""
    if not rows(_HOLDS_BACK, (lease_id, settings.DRYDOCK.gather_seconds)):
        return False
    hints.after_commit("watch", lease_id)
    return True


_DUE = """
    UPDATE leases_watch SET due_at = clock_timestamp() + least(%s * interval '1 s',
        (clock_timestamp() - coalesce(began_at, clock_timestamp())) / 10)
    WHERE id IN (
        SELECT w.id FROM leases_watch w JOIN leases_lease l ON l.id = w.lease_id
        WHERE w.over_at IS NULL AND w.due_at <= statement_timestamp()
            AND l.state IN ('active', 'destroyed', 'broken')
        ORDER BY w.due_at LIMIT %s FOR NO KEY UPDATE OF w SKIP LOCKED)
    RETURNING lease_id"""


def due() -> int:
    """For the sweep: have those looked at that are due, often at first and then as the settings say; how many."""
    if current().problem:
        return 0
    found = rows(_DUE, (settings.DRYDOCK.metrics_interval_seconds, settings.DRYDOCK.sweep_batch))
    for (lease_id,) in found:
        hints.send("watch", lease_id)
    return len(found)
