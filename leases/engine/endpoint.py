"""What the end of a lease touches, read while the lease is locked."""

from __future__ import annotations

from dataclasses import dataclass

from leases.engine.transaction import rows
from leases.engine.waiting import parked_with


@dataclass(kw_only=True)
class Ending:
    """What the end of a lease touches, read with the lease locked."""

    id: int
    state: str
    type: str
    held: bool
    resource_id: int | None
    resource_state: str
    kind: str
    has_share: bool
    has_locks: bool
    has_children: bool
    in_group: bool
    has_run: bool
    parked_siblings: bool
    keep: bool
    """The resource may stay after this lease."""
    watched: bool
    returned: bool = False
    """Set when the share was given back in this transaction."""


_RIGHTFUL = ["pending", "acquired", "active"]
_LOCK = "SELECT 1 FROM leases_lease WHERE id = %s FOR NO KEY UPDATE"
_READ = f"""
    SELECT l.id, l.state, l.type,
        l.held AND (l.hold_until IS NULL OR l.hold_until > clock_timestamp()), l.resource_id, coalesce(r.state, ''),
        coalesce(b.kind, ''), EXISTS (SELECT FROM leases_share s WHERE s.lease_id = l.id),
        EXISTS (SELECT FROM leases_slotlock k WHERE k.lease_id = l.id),
        EXISTS (SELECT FROM leases_lease c WHERE c.for_lease_id = l.id AND c.state = ANY(%s)),
        l.group_id IS NOT NULL, EXISTS (SELECT FROM leases_run n WHERE n.lease_id = l.id),
        coalesce((SELECT id FROM ({parked_with("owner_id")} LIMIT 1) o),
            (SELECT id FROM ({parked_with("charged_group_id")} LIMIT 1) g)) IS NOT NULL,
        coalesce(r.origin <> 'built' OR (r.state = 'active' AND NOT r.drained AND NOT b.drained AND b.enabled
            AND r.generation >= b.generation AND (r.dies_at IS NULL OR r.dies_at > clock_timestamp())), FALSE),
        l.watched
    FROM leases_lease l LEFT JOIN leases_resource r ON r.id = l.resource_id
    LEFT JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    WHERE l.id = %s"""


def lock(lease_id: int) -> Ending | None:
    """Lock a lease, then read what its end touches: in a new statement, since a statement that waited for a lock
    sees what it joins as it was before."""
    return read(lease_id) if rows(_LOCK, (lease_id,), hot=True) else None


def read(lease_id: int) -> Ending:
    """What the end of a locked lease touches."""
    return Ending(
        **dict(zip(Ending.__dataclass_fields__, rows(_READ, (_RIGHTFUL, lease_id), hot=True)[0], strict=False))
    )
