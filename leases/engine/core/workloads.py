"""Workloads and metrics of leases: store what to run and measure, and decide when to check each lease."""

from __future__ import annotations

from django.conf import settings

from blueprints import registry
from drydock.core.errors import DrydockError, InvalidRequest
from leases.engine.core.database import rows
from leases.engine.core.installation import current
from leases.messaging import hints
from leases.models.job import Watch
from leases.validation.requests import LeaseRequest
from leases.workloads.workload import Workload

COMMAND = "command"


def require_commands(asked: LeaseRequest) -> None:
    """Raise InvalidRequest if a blueprint that may serve the request provides leases on which no commands can run."""
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
            f"Leases of blueprint {name!r} (kind {kind}) cannot run commands, so workloads and metrics are not supported"
            " there.",
            field="metrics" if asked.workload is None else "workload",
            hint="Request another resource type, or exclude these blueprints with excluded_blueprints: "
            f"{', '.join((one for one, _ in mute))}.",
        )


def _runs_commands(kind: str) -> bool:
    """Return whether leases of this kind can run commands.

    A kind that cannot be loaded counts as one that can, because it serves no lease.
    """
    try:
        return COMMAND in registry.kind(kind).interfaces()
    except DrydockError:
        return True


def write(lease_id: int, workload: Workload | None) -> None:
    """Store the workload of a lease and whether to measure its usage, in the transaction that inserts the lease."""
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
    """Return whether the cleaning of an ended lease must wait until its last output and metrics are collected.

    Cleaning waits for at most the setting `gather_seconds`.
    """
    if not rows(_HOLDS_BACK, (lease_id, settings.DRYDOCK.gather_seconds)):
        return False
    hints.after_commit("watch", lease_id)
    return True


_DUE = """
    UPDATE leases_watch SET due_at = clock_timestamp() + least(%s * interval '1 s',
        (clock_timestamp() - coalesce(began_at, clock_timestamp())) / 10)
    WHERE id = ANY(ARRAY(
        SELECT w.id FROM leases_watch w JOIN leases_lease l ON l.id = w.lease_id
        WHERE w.over_at IS NULL AND w.due_at <= statement_timestamp()
            AND l.state IN ('active', 'destroyed', 'broken')
        ORDER BY w.due_at LIMIT %s FOR NO KEY UPDATE OF w SKIP LOCKED))
    RETURNING lease_id"""


def due() -> int:
    """Ask workers to check every lease whose workload or metrics are due for a check. Return the number of leases.

    A lease is checked often at first, and later at the configured interval.
    """
    if current().problem:
        return 0
    found = rows(_DUE, (settings.DRYDOCK.metrics_interval_seconds, settings.DRYDOCK.sweep_batch))
    for (lease_id,) in found:
        hints.send("watch", lease_id)
    return len(found)
