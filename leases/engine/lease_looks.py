"""What the sweep looks for among leases."""

from __future__ import annotations

from functools import partial

from django.db.models.functions import Now

from leases import hints
from leases.engine import claim, ending, eviction, lease_ends, retiring
from leases.engine.children import end_waiting_siblings
from leases.engine.isolation import each
from leases.engine.transaction import rows, short, some
from leases.engine.transitions import move_lease
from leases.reasons import Reason
from leases.states import LeaseState


def wishes() -> int:
    """Leases whose end somebody asked for inside a transaction of their own."""
    found = some(
        "SELECT id FROM leases_lease WHERE release_wanted <> '' AND state IN ('pending', 'acquired', 'active') ORDER BY id"
    )
    return each(ending.end, found)


def expired() -> int:
    """Leases whose time is over."""
    found = some(
        "SELECT id FROM leases_lease WHERE state IN ('pending', 'acquired', 'active') AND until <= statement_timestamp()"
    )
    return each(partial(ending.end, reason=Reason.EXPIRED, message="Its time is over."), found)


def impatient() -> int:
    """Leases that waited as long as they were to."""
    found = some("SELECT id FROM leases_lease WHERE state = 'pending' AND give_up_at <= statement_timestamp()")
    return each(_give_up, found)


@short
def _give_up(lease_id: int) -> None:
    last = rows("SELECT message FROM leases_lease WHERE id = %s AND state = 'pending' FOR NO KEY UPDATE", (lease_id,))
    if last:
        message = f"Nothing was found in the time it could wait. The last: {last[0][0]}"
        move_lease(lease_id, LeaseState.BROKEN, reason=Reason.GAVE_UP_WAITING, message=message, ended_at=Now())
        claim.unreserve(lease_id)
        hints.once_committed(end_waiting_siblings, lease_id)


def silent() -> int:
    """Leases whose heartbeat stopped."""
    found = some(
        "SELECT id FROM leases_lease WHERE state IN ('acquired', 'active') AND heartbeat_limit IS NOT NULL"
        " AND heartbeat_at + heartbeat_limit < statement_timestamp()"
    )
    return each(partial(ending.end, reason=Reason.HEARTBEAT_LOST, message="No heartbeat came in time."), found)


def left_in_groups() -> int:
    """Leases that wait for a whole group of which a member has ended: a process died before it marked them."""
    found = some(
        "SELECT l.id FROM leases_lease l WHERE l.state = 'pending' AND l.group_id IS NOT NULL AND l.release_wanted = ''"
        " AND EXISTS (SELECT FROM leases_lease o WHERE o.group_id = l.group_id"
        " AND o.state IN ('released', 'destroyed', 'broken'))"
    )
    return each(partial(ending.end, reason=Reason.GROUP_ENDED), found)


def half_ended() -> int:
    """Released leases with no run and no hold: their end goes on."""
    found = some(
        "SELECT l.id FROM leases_lease l WHERE l.state = 'released' AND NOT (l.held AND (l.hold_until IS NULL"
        " OR l.hold_until > clock_timestamp())) AND NOT EXISTS (SELECT FROM leases_run n WHERE n.lease_id = l.id)"
    )
    return each(ending.end, found)


def half_acquired() -> int:
    """Acquired leases on a resource that is there, without a run: their activation begins."""
    found = some(
        "SELECT l.id, r.id, b.kind FROM leases_lease l JOIN leases_resource r ON r.id = l.resource_id"
        " JOIN blueprints_blueprint b ON b.id = r.blueprint_id WHERE l.state = 'acquired' AND r.state = 'active'"
        " AND NOT EXISTS (SELECT FROM leases_run n WHERE n.lease_id = l.id)"
    )
    return each(_begin, found)


@short
def _begin(lease_id: int, resource_id: int, kind: str) -> bool:
    held = rows("SELECT 1 FROM leases_lease WHERE id = %s AND state = 'acquired' FOR NO KEY UPDATE", (lease_id,))
    there = rows("SELECT 1 FROM leases_resource WHERE id = %s AND state = 'active' FOR NO KEY UPDATE", (resource_id,))
    if held and there:
        lease_ends.begin_activation(lease_id, resource_id, kind)
    return bool(held and there)


def orphans() -> int:
    """Leases whose holder has ended."""
    found = some(
        "SELECT c.id FROM leases_lease c LEFT JOIN leases_lease p ON p.id = c.for_lease_id"
        " LEFT JOIN leases_resource r ON r.id = c.for_resource_id"
        " WHERE c.need <> '' AND c.state IN ('pending', 'acquired', 'active') AND c.release_wanted = ''"
        " AND (p.state IN ('destroyed', 'broken') OR r.gone_at IS NOT NULL)"
    )
    return each(partial(ending.end, reason=Reason.PARENT_ENDED), found)


def bereaved() -> int:
    """Resources and leases that live on a lease which is over: they are lost with it."""
    lost = some(
        "SELECT DISTINCT r.id, c.id, c.message FROM leases_resource r JOIN leases_lease c ON c.for_resource_id = r.id"
        " AND c.need <> '' AND c.need_phase = '' AND c.state IN ('released', 'destroyed', 'broken')"
        " WHERE r.state = 'active' AND NOT r.quarantined AND NOT EXISTS (SELECT FROM leases_lease n WHERE"
        " n.for_resource_id = r.id AND n.need = c.need AND n.state IN ('pending', 'acquired', 'active'))"
    )
    orphaned = some(
        "SELECT DISTINCT l.id, c.id, c.message FROM leases_lease l JOIN leases_lease c ON c.for_lease_id = l.id"
        " AND c.need <> '' AND c.need_phase = '' AND c.state IN ('destroyed', 'broken')"
        " WHERE l.state = 'active' AND l.release_wanted = '' AND NOT EXISTS (SELECT FROM leases_lease n WHERE"
        " n.for_lease_id = l.id AND n.need = c.need AND n.state IN ('pending', 'acquired', 'active'))"
    )
    return each(_lose, lost) + each(_end_orphaned, orphaned)


def _lose(resource_id: int, child: int, message: str) -> bool:
    return retiring.lose(resource_id, reason=Reason.LOST, message=_over(child, message))


def _end_orphaned(lease_id: int, child: int, message: str) -> bool:
    return eviction.orphan(lease_id, message=_over(child, message))


def _over(child: int, message: str) -> str:
    return f"Lease {child}, on which it stood, is over: {message}"
