"""Counts of what the installation did, read at the end of a run."""

from __future__ import annotations

from blueprints.fake.cloud import Cloud
from chaos.provider import PROVIDER
from leases.engine.core.database import rows

_COUNTS = {
    "leases asked for by clients": "SELECT count(*) FROM leases_lease WHERE need = ''",
    "leases asked for by steps": "SELECT count(*) FROM leases_lease WHERE need <> ''",
    "leases that were active": "SELECT count(*) FROM leases_lease WHERE active_at IS NOT NULL",
    "leases ended": "SELECT count(*) FROM leases_lease WHERE state = 'destroyed'",
    "leases broken": "SELECT count(*) FROM leases_lease WHERE state = 'broken'",
    "leases served again": "SELECT count(*) FROM leases_lease WHERE replaced_by_id IS NOT NULL",
    "leases back to waiting": "SELECT count(*) FROM leases_event WHERE kind = 'lease.pending' AND from_state <> ''",
    "groups": "SELECT count(*) FROM leases_leasegroup",
    "resources": "SELECT count(*) FROM leases_resource",
    "resources broken": "SELECT count(*) FROM leases_resource WHERE state = 'broken'",
    "events": "SELECT count(*) FROM leases_event",
    "shares taken": "SELECT count(*) FROM chaos.shares WHERE sign > 0",
}


def facts() -> dict[str, int]:
    """What happened, in numbers."""
    cloud = Cloud(PROVIDER)
    counted = {name: int(rows(sql)[0][0]) for name, sql in _COUNTS.items()}
    creates = [call.key for call in cloud.calls("create")]
    return counted | {
        "provider calls": cloud.count(),
        "instances created": len(set(creates)),
        "creates repeated": len(creates) - len(set(creates)),
    }
