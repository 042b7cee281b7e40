"""Provide what a step needs before it can continue: leases, slot locks, and maintenance of related resources."""

from __future__ import annotations

from blueprints.answers import Need, NeededLease, NeededLock
from leases.engine.actions import grants
from leases.engine.core.database import rows, run
from leases.engine.core.runs import end_children
from leases.engine.resources import maintenance, provision
from leases.engine.resources.maintenance import NotToBeHad as NotToBeHad
from leases.engine.scheduling.request import Cause, request, request_of
from leases.models import Part, Run, SlotLock


def provide(current: Run, need: Need) -> str:
    """Request what the step needs and does not have yet.

    Returns what the run waits for (`leases` or `maintenance`), or an empty string if nothing is missing. Call inside
    the transaction that applies the step's answer. Raises NotToBeHad if a need can never be met.
    """
    satisfied(current)
    for wanted in need.locks:
        _lock(current, wanted)
    if need.leases and current.resource.blueprint_id in _for_whom(current):
        raise NotToBeHad(f"Blueprint {current.resource.blueprint} depends on itself.")
    for lease in need.leases:
        _ask(current, lease)
    if failure := (current.maintenance or {}).get("failed"):
        raise NotToBeHad(failure)
    grants.take_answer(current)
    if need.maintenance is not None and not maintenance.has(current, need.maintenance):
        maintenance.ask(current, need.maintenance)
        return "maintenance"
    return "" if satisfied(current) else "leases"


_FOR_WHOM = """
    WITH RECURSIVE up AS (
        SELECT l.for_resource_id, l.for_lease_id, 1 AS depth FROM leases_lease l WHERE l.id = %s
        UNION ALL
        SELECT l.for_resource_id, l.for_lease_id, u.depth + 1 FROM up u JOIN leases_lease l ON l.id = coalesce(
            u.for_lease_id, (SELECT (n.asked ->> 'lease')::bigint FROM leases_run n
                WHERE n.resource_id = u.for_resource_id AND n.lease_id IS NULL)) WHERE u.depth < 20)
    SELECT r.blueprint_id FROM up u JOIN leases_resource r
        ON r.id = coalesce(u.for_resource_id, (SELECT l.resource_id FROM leases_lease l WHERE l.id = u.for_lease_id))"""


def _for_whom(current: Run) -> set[int]:
    """Return the ids of the blueprints whose resources need this run, directly or indirectly."""
    return {found for (found,) in rows(_FOR_WHOM, (current.lease_id or (current.asked or {}).get("lease"),))}


def _holder(current: Run) -> dict[str, int]:
    return {"lease_id": current.lease_id} if current.lease_id is not None else {"resource_id": current.resource_id}


def _lock(current: Run, wanted: NeededLock) -> None:
    ((column, pk),) = _holder(current).items()
    if rows(f"SELECT 1 FROM leases_slotlock WHERE {column} = %s AND name = %s", (pk, wanted.name)):
        return
    scope, candidates = _choice(current, wanted)
    for value in candidates:
        key = f"{scope}/{value}"[:255]
        sql = f"INSERT INTO leases_slotlock (key, name, value, {column}) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
        if run(sql, (key, wanted.name, value, pk)):
            return
    if len(candidates) == 1:
        raise NotToBeHad(f"{candidates[0]} is taken: {_holder_of(f'{scope}/{candidates[0]}'[:255])}.")
    raise NotToBeHad(f"All {len(candidates)} candidates for the slot lock {wanted.name} in {scope} are in use.")


def _holder_of(key: str) -> str:
    """Return who holds a slot lock, for people."""
    found = SlotLock.objects.filter(key=key).select_related("resource__blueprint").first()
    if found is None or found.resource is None:
        return f"the slot lock {key} is held" + (f" by lease {found.lease_id}" if found is not None else "")
    there = found.resource
    return f"the slot lock {key} is held by resource {there.pk} ({there}) of blueprint {there.blueprint.name}"


def _choice(current: Run, wanted: NeededLock) -> tuple[str, tuple[str, ...]]:
    """Return the scope of a slot lock, and the values to choose from. For parts, these are the healthy parts."""
    if not wanted.part_class:
        return wanted.scope, wanted.candidates
    well = Part.objects.filter(resource_id=current.resource_id, part_class=wanted.part_class, state="ok")
    found = tuple(well.order_by("id").values_list("identity", flat=True))
    chosen = tuple(one for one in wanted.candidates if one in found) if wanted.candidates else found
    return provision.part_scope(current.resource_id, wanted.part_class), chosen


def _ask(current: Run, wanted: NeededLease) -> None:
    asked = request_of(wanted, current.resource.name)
    request(asked, _owner(current), actor="drydock", cause=_cause(current, wanted))


def _owner(current: Run) -> int | None:
    """Return the owner of the lease that needs another lease, or None if a resource needs it.

    A lease that a resource needs belongs to the installation, because it outlives the resource's leases.
    """
    return current.lease.owner_id if current.lease is not None else None


def _cause(current: Run, wanted: NeededLease) -> Cause:
    root = current.asked or {}
    if current.lease is not None:
        root = {
            "root": current.lease.root_id or current.lease_id,
            "rank": current.lease.rank,
            "priority": current.lease.priority,
        }
    return Cause(
        for_resource=None if current.lease_id is not None else current.resource_id,
        for_lease=current.lease_id,
        need=wanted.name,
        need_phase="" if wanted.lifetime == "life" else current.phase,
        root=root.get("root"),
        rank=root.get("rank"),
        priority=root.get("priority", 0),
        only_resources=tuple(wanted.on_resources),
    )


_OPEN = """
    SELECT c.id, CASE WHEN c.release_wanted <> '' AND c.state IN ('pending', 'acquired', 'active') THEN 'ending'
        ELSE c.state END, c.message FROM leases_lease c
    WHERE c.need <> '' AND {column} = %s AND c.id IN (
        SELECT max(x.id) FROM leases_lease x WHERE x.need <> '' AND x.{column} = %s GROUP BY x.need)
        AND (c.state IN ('pending', 'acquired', 'active') OR c.created_at >= %s)"""


def children(current: Run) -> list[tuple[int, str, str]]:
    """Return the latest lease for each need of the run's lease or resource, as (id, state, message).

    An ended lease is included only if it was requested after this run began.
    """
    column = "for_lease_id" if current.lease_id is not None else "for_resource_id"
    pk = current.lease_id if current.lease_id is not None else current.resource_id
    return [(i, s, m) for i, s, m in rows(_OPEN.format(column=column), (pk, pk, current.started_at))]


def satisfied(current: Run) -> bool:
    """Return whether all leases that the run requested are active. Raises NotToBeHad if one of them is broken."""
    found = children(current)
    for lease_id, state, message in found:
        if state == "broken":
            raise NotToBeHad(f"Lease {lease_id}, which this step needs, cannot be granted: {message}")
    return all(state == "active" for _, state, _ in found if state in ("pending", "acquired", "active", "ending"))


def end_phase(current: Run) -> None:
    """Release the leases that a phase needed, whether the phase succeeded or failed.

    Ends the maintenance that the phase needed too, unless another run needs it.
    """
    if current.lease_id is not None:
        end_children(for_lease=current.lease_id, phase=current.phase)
    else:
        end_children(for_resource=current.resource_id, phase=current.phase)
    asked = current.maintenance or {}
    for target in sorted({one["resource"] for one in (asked, *asked.get("earlier", ())) if one}):
        maintenance.lift_unless_needed(target, but=current.pk)
