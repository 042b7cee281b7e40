"""If an agent stops reporting, keep new leases off the resources in its place until the agent reports again."""

from __future__ import annotations

from collections.abc import Iterable

from leases.engine.core.database import rows, run, short
from leases.messaging import hints

SILENT = "silent"
"""The observed status of a resource whose agent does not report."""

_FOUND = """
    SELECT f.resource_id FROM leases_finding f JOIN leases_sync s ON s.id = f.sync_id
    JOIN leases_agent a ON a.blueprint_id = s.blueprint_id AND a.place = s.place"""
_CLOSE = f"""
    WITH unheard AS ({_FOUND} WHERE a.silent_since IS NOT NULL AND NOT EXISTS (
        SELECT FROM leases_agent o WHERE o.blueprint_id = a.blueprint_id AND o.place = a.place
        AND o.silent_since IS NULL AND o.revoked_at IS NULL AND o.reported_at IS NOT NULL))
    UPDATE leases_resource SET suspect_since = clock_timestamp(), observed = '{SILENT}',
        observed_at = clock_timestamp(), message = 'The agent of its host does not report.', check_at = NULL
    WHERE suspect_since IS NULL AND id = ANY(ARRAY(
        SELECT r.id FROM leases_resource r JOIN unheard u ON u.resource_id = r.id
        WHERE r.state = 'active' AND r.suspect_since IS NULL ORDER BY r.id FOR NO KEY UPDATE OF r))"""
_OPEN = f"""
    UPDATE leases_resource r SET suspect_since = NULL, message = '', observed_at = clock_timestamp(),
        observed = CASE WHEN r.observed = '{SILENT}' THEN 'ok' ELSE r.observed END,
        check_at = clock_timestamp() + b.check_interval
    FROM blueprints_blueprint b WHERE b.id = r.blueprint_id AND r.id = ANY(ARRAY(
        SELECT r.id FROM leases_resource r JOIN ({_FOUND} WHERE a.id = %s) u ON u.resource_id = r.id
        WHERE r.suspect_since IS NOT NULL AND r.check_at IS NULL AND r.observed = ANY(%s)
        ORDER BY r.id FOR NO KEY UPDATE OF r))
    RETURNING r.id"""
_TYPES = """
    SELECT DISTINCT r.type FROM unnest(%s::bigint[]) AS given(id)
    CROSS JOIN LATERAL (SELECT given.id UNION ALL SELECT id FROM drydock_above(given.id)
        UNION ALL SELECT id FROM drydock_below(given.id)) t
    JOIN leases_resource r ON r.id = t.id
    WHERE EXISTS (SELECT FROM leases_lease w WHERE w.state = 'pending' AND NOT w.parked AND w.type = r.type)"""


@short
def close() -> int:
    """Keep new leases off the resources in the places of silent agents. Return the number of resources closed.

    Leases that already hold such a resource continue. A resource that is already suspected of not answering is not
    changed.
    """
    return run(_CLOSE)


@short
def reopen(agent_id: int) -> None:
    """Put the resources in an agent's place back into service, because the agent sends reports again."""
    ids = [number for (number,) in rows(_OPEN, (agent_id, [SILENT, "lost", "ok"]))]
    if ids:
        hints.once_committed(_serve, ids)


def _serve(ids: Iterable[int]) -> None:
    for (resource_type,) in rows(_TYPES, (list(ids),)):
        hints.send("serve", resource_type)
