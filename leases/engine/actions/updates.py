"""Update resources while leases hold them: at once if that disturbs no lease, or because an operator forces it.

The run of a forced update is started at once, and its first step waits until it may begin (`grants.why_not_now`). From
then on no step of the leases on the resource is called until the update has ended. The resource serves no new lease
meanwhile. Afterwards its active leases are activated again (`lifecycle.resource_phases`).
"""

from __future__ import annotations

from drydock.core.errors import Busy, Conflict, NotSupported
from leases.engine.actions import machines
from leases.engine.actions.machines import Now
from leases.engine.catalogue import generations
from leases.engine.catalogue.generations import Change
from leases.engine.core.database import rows, run, short
from leases.engine.core.runs import MAINTAINS, start
from leases.engine.core.transitions import (
    Holders,
    are_all_holders,
    explain,
    lock_holders,
    lock_resource,
    record_event,
)
from leases.engine.placement.pending import read_json
from leases.engine.resources import maintenance, retirement
from leases.models import Run
from leases.reasons import Reason
from leases.states import LeaseState

_FREE = f"""
    SELECT 1 FROM leases_resource r WHERE r.id = %s AND r.state = 'active' AND NOT r.quarantined
        AND r.suspect_since IS NULL AND NOT EXISTS (SELECT FROM leases_debt d WHERE d.resource_id = r.id)
        AND NOT EXISTS (SELECT FROM leases_run n WHERE (n.resource_id = r.id AND n.lease_id IS NULL) OR {MAINTAINS})"""


@short
def begin_undisturbed(resource_id: int, *, bounded: bool) -> bool:
    """Start an update that disturbs no lease. The resource keeps its leases and may get new ones meanwhile.

    Returns False if the resource is up to date, if the update would disturb leases, if the resource is busy, or if it is
    `bounded` and the blueprint allows no more updates now.
    """
    if bounded and retirement.may_roll(resource_id) is False:
        return False
    lock_resource(resource_id)
    change = generations.pending(resource_id)
    if change is None or change.disruption or not rows(_FREE, (resource_id,)):
        return False
    return start(resource_id=resource_id, phase=Run.Phase.UPDATE, wanted=change.wanted) is not None


def force(resource_id: int, *, actor: str, reason: str) -> bool:
    """Update a resource now, although this disturbs its leases. Return False if such an update is already under way.

    The owners of its leases are notified. Raises Conflict if the update cannot begin, NotSupported if its kind cannot
    update leased resources, and Busy if its leases change meanwhile.
    """
    for _ in range(8):
        done = _force(resource_id, actor, reason)
        if done is not None:
            return done
    raise Busy


@short
def _force(resource_id: int, actor: str, reason: str) -> bool | None:
    """Attempt `force` once. Return None if the leases on the resource changed while they were locked."""
    holders = lock_holders(resource_id)
    now = machines.locked(resource_id)
    if not are_all_holders(resource_id, holders):
        return None
    if now.phase == Run.Phase.UPDATE and "forced" in (read_json(now.wanted) or {}):
        return False
    change = generations.pending(resource_id)
    if change is None:
        raise Conflict(f"{now.name} is up to date.")
    _refuse(resource_id, now, change, holders)
    machines.drop_check(now)
    if change.disruption:
        run("UPDATE leases_resource SET in_maintenance = TRUE WHERE id = %s", (resource_id,))
    start(resource_id=resource_id, phase=Run.Phase.UPDATE, wanted={**change.wanted, "forced": actor})
    record_event("resource.update_forced", reason, actor=actor, resource_id=resource_id)
    if change.disruption:
        _notify(resource_id, now.name, holders, f"{change.disruption} {reason}")
    return True


def _notify(resource_id: int, name: str, holders: Holders, why: str) -> None:
    """Notify the holders, and say on each active lease that it cannot be used now."""
    maintenance.tell_of_update([lease_id for lease_id, _ in holders], resource_id, name, why)
    for lease_id, state in holders:
        if state == LeaseState.ACTIVE:
            explain(lease_id, Reason.UPDATING, f"{name} is updated, and cannot be used meanwhile. {why}"[:2000])


_MAINTAINED = f"""
    SELECT 1 FROM leases_resource r WHERE r.id = %s AND (
        EXISTS (SELECT FROM leases_debt d WHERE d.resource_id = r.id)
        OR EXISTS (SELECT FROM leases_run n WHERE {MAINTAINS}))"""
_CHANGING_HANDS = "SELECT lease_id FROM leases_run WHERE resource_id = %s AND phase = 'hand_over' LIMIT 1"


def _refuse(resource_id: int, now: Now, change: Change, holders: Holders) -> None:
    """Raise Conflict or NotSupported if an update of a locked resource cannot be forced now."""
    machines.refuse_busy(now._replace(in_maintenance=bool(rows(_MAINTAINED, (resource_id,)))))
    if not change.disruption:
        return
    unforcible = generations.unforcible(resource_id)
    if unforcible and not generations.in_place(resource_id):
        raise NotSupported(f"{now.name} is replaced once its leases have ended. {change.disruption} {unforcible}")
    others = [one for one in maintenance.tree_holders(resource_id, None) if one.lease_id not in dict(holders)]
    if others:
        raise Conflict(
            f"Lease {others[0].lease_id} holds {others[0].resource}, and the update of {now.name} would disturb it.",
            hint="Try again when that lease has ended.",
        )
    if holders and unforcible:
        raise NotSupported(unforcible, hint="Drain it; it is updated or replaced when its last lease has ended.")
    for (lease_id,) in rows(_CHANGING_HANDS, (resource_id,)):
        raise Conflict(f"Lease {lease_id} is being transferred.", hint="Try again in a moment.")
