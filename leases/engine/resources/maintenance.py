"""Maintenance, power and in-place updates of resources.

A resource whose power state differs from the requested one is switched on or off. A requested stop is not a failure.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from django.db.models.functions import Now

from blueprints import registry
from blueprints.answers import Maintenance
from blueprints.contract import Powers, Updates
from leases.engine.core.database import attempt, each, rows, run, short
from leases.engine.core.runs import start
from leases.engine.core.transitions import lock_resource, record_event, wake_relatives
from leases.messaging import hints
from leases.models import Resource, Run


def kinds_that_update(*, at_once: bool = False) -> list[str]:
    """Return the names of kinds that update in place; if `at_once` is true, only kinds that do so within seconds."""
    names = [kind for (kind,) in rows("SELECT DISTINCT kind FROM blueprints_blueprint")]
    kinds = {name: attempt(registry.kind, name) for name in names}
    return [name for name, kind in kinds.items() if isinstance(kind, Updates) and (kind.at_once or not at_once)]


_CLOSE_OUTDATED = """
    UPDATE leases_resource SET in_maintenance = TRUE WHERE id = ANY(ARRAY(
        SELECT r.id FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id
        WHERE b.id = %s AND r.state = 'active' AND r.generation < b.generation ORDER BY r.id FOR NO KEY UPDATE OF r))"""


def close_outdated(blueprint_id: int, kind: str) -> None:
    """Close outdated resources to leases until they are updated, if the kind updates within seconds.

    A resource that was set up for one config must not be leased under another. Call inside the transaction that changes
    the blueprint.
    """
    found = registry.kind(kind)
    if isinstance(found, Updates) and found.at_once:
        run(_CLOSE_OUTDATED, (blueprint_id,))


SELF = "self"
"""The relation of an act that waits until the leases on its own resource have ended."""


class NotToBeHad(Exception):
    """A step needs something that it can never get; the message says why."""


def ask(current: Run, wanted: Maintenance) -> None:
    """Put a related resource into maintenance for a run, so that it gets no new leases.

    Raises NotToBeHad if the resource cannot be power-cycled, or is leased although the run must not wait for leases.
    """
    target = _related(current, wanted.relation)
    if wanted.action == "power_cycle" and not isinstance(_kind_of(target), Powers):
        raise NotToBeHad(f"Resource {target} cannot be power-cycled.")
    holders = _holders_but(target, current)
    if wanted.holders == "refuse" and holders:
        raise NotToBeHad(f"Resource {target} is leased, and this maintenance must not wait for leases to end.")
    current.maintenance = {
        "resource": target, "relation": wanted.relation, "action": wanted.action, "holders": wanted.holders,
        "granted": False,
    }  # fmt: skip
    run("UPDATE leases_resource SET in_maintenance = TRUE WHERE id = %s", (target,))
    sentence = wanted.sentence or f"{wanted.action} for {current.resource.name}"
    record_event(
        "resource.maintenance", sentence, resource_id=target, details={"run": current.pk, "action": wanted.action}
    )
    tell_holders(holders, target, sentence)
    hints.after_commit("sweep")


def _kind_of(resource_id: int) -> object:
    return registry.kind(Resource.objects.select_related("blueprint").get(pk=resource_id).blueprint.kind)


def tell_holders(holders: list[int], target: int, sentence: str) -> None:
    """Record an event for each of these leases: the maintenance of resource `target` waits until the lease ends."""
    for lease_id in holders:
        record_event(
            "lease.maintenance",
            f"Maintenance waits for this lease to end: {sentence}.",
            lease_id=lease_id,
            resource_id=target,
        )


def _related(current: Run, relation: str) -> int:
    if relation == "parent":
        found = rows("SELECT part_of_id FROM leases_resource WHERE id = %s", (current.resource_id,))
    else:
        found = rows(
            "SELECT resource_id FROM leases_lease WHERE need = %s AND state = 'active'"
            " AND (for_resource_id = %s OR for_lease_id = %s)",
            (relation, current.resource_id, current.lease_id),
        )
    if not found or found[0][0] is None:
        raise NotToBeHad(f"The resource has no related resource {relation!r}.")
    return int(found[0][0])


class TreeHolder(NamedTuple):
    """A lease in the tree of a resource, with the name of the resource that the lease is on."""

    lease_id: int
    resource: str


_TREE_HOLDERS = """
    SELECT DISTINCT ON (l.id) l.id, r.name FROM (
        SELECT s.lease_id, s.resource_id FROM leases_share s
        WHERE s.resource_id = %s OR s.resource_id IN (SELECT id FROM drydock_below(%s))
        UNION SELECT a.whole_lease_id, a.id FROM leases_resource a WHERE a.id IN (SELECT id FROM drydock_above(%s))
    ) h JOIN leases_lease l ON l.id = h.lease_id JOIN leases_resource r ON r.id = h.resource_id
    WHERE l.for_resource_id IS DISTINCT FROM %s AND (%s::bigint IS NULL OR NOT drydock_related(l.id, %s))
    ORDER BY l.id, r.id"""


def tree_holders(resource_id: int, lease_id: int | None) -> list[TreeHolder]:
    """Return the leases on a resource and on all resources above and below it.

    Leaves out `lease_id` with the other leases of its group, and the leases that the resource itself needs.
    """
    params = (resource_id, resource_id, resource_id, resource_id, lease_id, lease_id)
    return [TreeHolder(*found) for found in rows(_TREE_HOLDERS, params)]


def _holders_but(target: int, current: Run) -> list[int]:
    """Return the leases with a share of the target that the run asking for maintenance does not hold itself.

    Leaves out leases held for runs that wait for maintenance of the same target, since they do not use it
    meanwhile.
    """
    found = rows(
        "SELECT l.id FROM leases_share s JOIN leases_lease l ON l.id = s.lease_id WHERE s.resource_id = %s"
        " AND l.for_resource_id IS DISTINCT FROM %s AND (%s::bigint IS NULL OR l.for_lease_id IS DISTINCT FROM %s)"
        " AND NOT EXISTS (SELECT FROM leases_run n WHERE n.waits_for = 'maintenance' AND (n.lease_id = l.for_lease_id"
        " OR (n.lease_id IS NULL AND n.resource_id = l.for_resource_id)) AND (n.maintenance ->> 'resource')::bigint"
        " = s.resource_id AND NOT (n.maintenance ->> 'granted')::boolean) ORDER BY l.id",
        (target, current.resource_id, current.lease_id, current.lease_id),
    )
    return [lease_id for (lease_id,) in found]


def advance(current: Run) -> bool:
    """Advance the maintenance that a run waits for. Return True once the run may do the maintenance.

    Call inside a transaction, with the run locked.
    """
    asked: dict[str, Any] = dict(current.maintenance or {})
    target = asked["resource"]
    if asked["relation"] == SELF:
        return _begin_act(current)
    free = asked["holders"] == "tell" or bool(asked.get("cycle")) or not _holders_but(target, current)
    if asked["action"] == "power_cycle":
        granted = free and _power_cycled(target, asked)
    else:
        granted = free and not _others_alone(target, current.pk)
    if granted:
        Run.objects.filter(pk=current.pk).update(
            maintenance={**asked, "granted": True}, due_at=rows("SELECT clock_timestamp()")[0][0]
        )
        hints.after_commit("step", current.pk)
    elif asked != current.maintenance:
        Run.objects.filter(pk=current.pk).update(maintenance=asked)
    return granted


def _begin_act(current: Run) -> bool:
    """Let an act begin once no other lease holds its resource and no other run has been granted its maintenance."""
    resource_id = current.resource_id
    if _others_alone(resource_id, current.pk) or tree_holders(resource_id, current.wanted.get("lease")):
        return False
    # The run itself keeps the resource in maintenance from now on, and may ask for maintenance of another one.
    Run.objects.filter(pk=current.pk).update(maintenance=None, waits_for="", sentence="", due_at=Now())
    hints.after_commit("step", current.pk)
    return True


def _others_alone(target: int, but: int) -> bool:
    """Return whether another run has already been granted maintenance of the target.

    Locks the resource, so that two runs are never granted it together.
    """
    rows("SELECT 1 FROM leases_resource WHERE id = %s FOR NO KEY UPDATE", (target,))
    return bool(
        rows(
            "SELECT 1 FROM leases_run WHERE id <> %s AND ((maintenance ->> 'resource')::bigint = %s"
            " AND (maintenance ->> 'granted')::boolean OR (resource_id = %s AND phase = 'act'"
            " AND waits_for <> 'maintenance')) LIMIT 1",
            (but, target, target),
        )
    )


def _power_cycled(target: int, asked: dict[str, Any]) -> bool:
    """Do one power cycle for all runs that asked before it began. Return True once the run that does it has ended."""
    going = rows("SELECT id FROM leases_run WHERE resource_id = %s AND lease_id IS NULL", (target,))
    if asked.get("cycle"):
        return not any(run_id == asked["cycle"] for (run_id,) in going)
    found = rows(
        "SELECT id FROM leases_run WHERE resource_id = %s AND lease_id IS NULL AND phase = 'power' AND NOT in_call"
        " AND position = 0",
        (target,),
    )
    begun = (
        found[0][0] if found else None if going else start(resource_id=target, phase="power", wanted={"power": "cycle"})
    )
    if begun:
        asked |= {"cycle": begun}
        _join(target, begun)
    return False


def _join(target: int, cycle: int) -> None:
    """Let all runs that asked for a power cycle before this one begins share it."""
    run(
        "UPDATE leases_run SET maintenance = maintenance || jsonb_build_object('cycle', %s::bigint)"
        " WHERE waits_for = 'maintenance' AND (maintenance ->> 'resource')::bigint = %s"
        " AND maintenance ->> 'action' = 'power_cycle' AND NOT maintenance ? 'cycle'",
        (cycle, target),
    )


@short
def lift(resource_id: int) -> bool:
    """End the maintenance of a resource unless a run, cleanup or update still needs it. Return whether it was ended."""
    return lift_unless_needed(resource_id)


def lift_unless_needed(resource_id: int, *, but: int = 0) -> bool:
    """End the maintenance of a resource as `lift` does, in the caller's transaction. Return whether it was ended.

    Ignores the run with the id `but`, which is about to end and no longer needs the maintenance.
    """
    lock_resource(resource_id)
    lifted = rows(
        "UPDATE leases_resource r SET in_maintenance = FALSE WHERE r.id = %s AND r.in_maintenance"
        " AND NOT EXISTS (SELECT FROM leases_debt d WHERE d.resource_id = r.id) AND NOT EXISTS ("
        " SELECT FROM blueprints_blueprint b WHERE b.id = r.blueprint_id AND r.generation < b.generation"
        " AND r.state = 'active' AND b.kind = ANY(%s)) AND NOT EXISTS ("
        " SELECT FROM leases_run n WHERE n.id <> %s AND ((n.maintenance ->> 'resource')::bigint = r.id"
        " OR (n.resource_id = r.id AND n.phase IN ('update', 'act')))) RETURNING r.type",
        (resource_id, kinds_that_update(at_once=True), but),
    )
    for (resource_type,) in lifted:
        hints.after_commit("serve", resource_type)
        wake_relatives(resource_id)
    return bool(lifted)


_SWITCH_DUE = """
    SELECT r.id, b.kind FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    WHERE r.state = 'active' AND r.power_wanted <> '' AND r.power <> r.power_wanted
        AND (r.power_at IS NULL OR r.power_at <= clock_timestamp())
        AND NOT EXISTS (SELECT FROM leases_run n WHERE n.resource_id = r.id AND n.lease_id IS NULL) LIMIT 200"""


def check_power() -> int:
    """Start to switch the resources whose power state differs from the requested one, unless they are busy."""
    return each(_switch, [row for row in rows(_SWITCH_DUE) if isinstance(registry.kind(row[1]), Powers)])


@short
def _switch(resource_id: int, kind: str) -> bool:
    lock_resource(resource_id)
    return begin_switch(resource_id)


def begin_switch(resource_id: int) -> bool:
    """Begin to switch a locked resource. Return False if no power state is requested or the resource is busy."""
    for (wanted,) in rows(
        "SELECT power_wanted FROM leases_resource WHERE id = %s AND state = 'active'", (resource_id,)
    ):
        return start(resource_id=resource_id, phase="power", wanted={"power": wanted}) is not None
    return False


@short
def want_power(resource_id: int, power: str) -> bool:
    """Request that a resource be switched `on` or `off` and kept in that state.

    Returns False if the resource is busy. It is then switched when it is no longer busy.
    """
    lock_resource(resource_id)
    run("UPDATE leases_resource SET power_wanted = %s, power_at = NULL WHERE id = %s", (power, resource_id))
    hints.after_commit("sweep")
    return begin_switch(resource_id)


def is_wanted_off(resource_id: int) -> bool:
    """Return whether the resource need not answer, because it was switched off on request or by somebody else."""
    off = "SELECT 1 FROM leases_resource WHERE id = %s AND (power_wanted = 'off' OR facts ? 'stopped')"
    return bool(rows(off, (resource_id,)))
