"""Maintenance, power and in-place updates of resources.

A resource whose power state differs from the requested one is switched on or off. A requested stop is not a failure.
"""

from __future__ import annotations

from typing import NamedTuple

from django.conf import settings

from blueprints import registry
from blueprints.answers import Maintenance
from blueprints.contract import Powers, Updates
from blueprints.models import Blueprint
from drydock.core.units import in_words
from leases.engine.catalogue import generations
from leases.engine.core.database import attempt, each, rows, run, short
from leases.engine.core.runs import MAINTAINS, start
from leases.engine.core.specs import granted_maintenance, granted_names
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
        WHERE b.id = %s AND r.state = 'active' AND r.generation < b.generation AND r.generation = ANY(%s) ORDER BY r.id FOR NO KEY UPDATE OF r))"""


def close_outdated(blueprint_id: int, kind: str) -> None:
    """Close outdated resources to leases until they are updated, if the kind updates within seconds.

    A resource that was set up for one config must not be leased under another, unless the update disturbs no lease.
    Call inside the transaction that changes the blueprint.
    """
    found = registry.kind(kind)
    if isinstance(found, Updates) and found.at_once:
        blueprint = Blueprint.objects.get(pk=blueprint_id)
        of = Resource.objects.filter(blueprint=blueprint, state="active", generation__lt=blueprint.generation)
        there = of.order_by().values_list("generation", flat=True).distinct()
        run(_CLOSE_OUTDATED, (blueprint_id, [one for one in there if generations.disruption(blueprint, one)]))


SELF = "self"
"""The relation of an act that waits until the leases on its own resource have ended."""


class NotToBeHad(Exception):
    """A step needs something that it can never get; the message says why."""


def ask(current: Run, wanted: Maintenance) -> None:
    """Put a related resource into maintenance for a run, so that the resource gets no new leases.

    The run keeps the maintenance that it was granted earlier in this phase. Raises NotToBeHad.
    """
    target = _related(current, wanted.relation)
    holders = holders_of(target, current, without_idle=vacates(current, wanted.action))
    if wanted.holders == "refuse" and holders:
        raise NotToBeHad(
            f"Resource {target} is leased, and the step that needs the maintenance must not wait for leases to end."
        )
    current.maintenance = {
        "resource": target, "relation": wanted.relation, "action": wanted.action, "times": wanted.times,
        "holders": wanted.holders, "granted": False, "earlier": granted_maintenance(current), "at": now(),
    }  # fmt: skip
    run("UPDATE leases_resource SET in_maintenance = TRUE WHERE id = %s", (target,))
    sentence = wanted.sentence or f"{wanted.action} for {current.resource.name}"
    record_event(
        "resource.maintenance", sentence, resource_id=target, details={"run": current.pk, "action": wanted.action}
    )
    waits = wanted.holders == "wait"
    tell_holders(holders, target, sentence, patience=settings.DRYDOCK.maintenance_patience_seconds if waits else None)
    hints.after_commit("sweep")


def has(current: Run, wanted: Maintenance) -> bool:
    """Return whether a run was granted this maintenance earlier in its phase."""
    return wanted.name in granted_names(current)


def now() -> float:
    """Return the time by the database's clock, in seconds."""
    return float(rows("SELECT extract(epoch FROM clock_timestamp())::float8")[0][0])


def tell_holders(holders: list[int], target: int, sentence: str, *, patience: float | None = None) -> None:
    """Record for each of these leases that the maintenance of a resource waits, and how long, for the lease to end."""
    limit = "" if patience is None else f", for at most {in_words(patience)}"
    for lease_id in holders:
        record_event(
            "lease.maintenance",
            f"Maintenance waits for this lease to end{limit}: {sentence.rstrip('.')}.",
            lease_id=lease_id,
            resource_id=target,
        )


def tell_of_update(holders: list[int], target: int, name: str, why: str) -> None:
    """Record for each of these leases that its resource is updated now, because an operator forces it."""
    for lease_id in holders:
        message = f"{name} is updated now, which interrupts this lease. {why}"[:2000]
        record_event("lease.maintenance", message, lease_id=lease_id, resource_id=target)


_NEEDED = """
    SELECT resource_id FROM leases_lease
    WHERE need = %s AND state = 'active' AND (for_resource_id = %s OR for_lease_id = %s)"""


def _related(current: Run, relation: str) -> int:
    """Return the id of the resource that a relation leads to. Raises NotToBeHad.

    A needed lease of that name goes first, so that a kind may call one of its leases `host`.
    """
    first, *further = relation.split(".")
    found = _needed(current, relation)
    if found is None:
        found = _needed(current, first)
        if found is None:
            found, further = current.resource_id, [first, *further]
        for word in further:
            found = None if found is None else _whole(found, word)
    if found is None:
        raise NotToBeHad(f"{current.resource.name} has no related resource {relation!r}.")
    return found


def _needed(current: Run, name: str) -> int | None:
    found = rows(_NEEDED, (name, current.resource_id, current.lease_id))
    return int(found[0][0]) if found else None


_ORDERS = {"parent": "n", "host": "n DESC"}


def _whole(resource_id: int, word: str) -> int | None:
    """Return the parent or, for `host`, the topmost of the resources that a resource is part of."""
    if word not in _ORDERS:
        return None
    found = rows(f"SELECT id FROM drydock_above(%s) ORDER BY {_ORDERS[word]} LIMIT 1", (resource_id,))
    return int(found[0][0]) if found else None


class TreeHolder(NamedTuple):
    """A lease in the tree of a resource, with the name of the resource that the lease is on."""

    lease_id: int
    resource: str


_IN_TREE = """
    SELECT s.lease_id, s.resource_id FROM leases_share s
    WHERE s.resource_id = %(target)s OR s.resource_id IN (SELECT id FROM drydock_below(%(target)s))
    UNION SELECT a.whole_lease_id, a.id FROM leases_resource a WHERE a.id IN (SELECT id FROM drydock_above(%(target)s))"""
_TREE_HOLDERS = f"""
    SELECT DISTINCT ON (l.id) l.id, r.name FROM ({_IN_TREE}) h
    JOIN leases_lease l ON l.id = h.lease_id JOIN leases_resource r ON r.id = h.resource_id
    WHERE l.for_resource_id IS DISTINCT FROM %(target)s
        AND (%(lease)s::bigint IS NULL OR NOT drydock_related(l.id, %(lease)s))
    ORDER BY l.id, r.id"""


def tree_holders(resource_id: int, lease_id: int | None) -> list[TreeHolder]:
    """Return the leases on a resource and on all resources above and below it.

    Leaves out the lease `lease_id`, the other leases of the same group, and the leases that the resource itself needs.
    """
    return [TreeHolder(*found) for found in rows(_TREE_HOLDERS, {"target": resource_id, "lease": lease_id})]


GRANTED = "jsonb_array_elements(coalesce(n.maintenance -> 'earlier', '[]') || n.maintenance)"
"""SQL for the maintenance that run `n` asked for, now or earlier in its phase."""
_HOLDERS = f"""
    SELECT DISTINCT l.id FROM ({_IN_TREE}) h JOIN leases_lease l ON l.id = h.lease_id
    JOIN leases_resource r ON r.id = h.resource_id
    WHERE l.for_resource_id IS DISTINCT FROM %(own)s AND NOT (%(updates)s AND h.resource_id = %(own)s)
        AND (%(lease)s::bigint IS NULL OR NOT drydock_related(l.id, %(lease)s))
        AND NOT (l.state = 'acquired' AND r.state = 'pending')
        AND NOT EXISTS (SELECT FROM leases_run n WHERE n.waits_for = 'maintenance'
            AND (n.lease_id = l.id OR n.lease_id = l.for_lease_id
                OR (n.lease_id IS NULL AND n.resource_id = l.for_resource_id)
                OR (n.lease_id IS NULL AND n.resource_id = h.resource_id AND l.state = 'acquired'))
            AND (n.maintenance ->> 'resource')::bigint = %(target)s AND NOT (n.maintenance ->> 'granted')::boolean)
        AND NOT EXISTS (SELECT FROM leases_run n, {GRANTED} g
            WHERE (n.lease_id = l.for_lease_id OR (n.lease_id IS NULL AND n.resource_id = l.for_resource_id))
            AND g ->> 'action' = 'vacate' AND (g ->> 'resource')::bigint = %(target)s AND (g ->> 'granted')::boolean)
        AND NOT (%(without_idle)s AND l.for_resource_id IS NOT NULL
            AND NOT EXISTS (SELECT FROM leases_share u WHERE u.resource_id = l.for_resource_id)
            AND NOT EXISTS (SELECT FROM leases_run u WHERE u.resource_id = l.for_resource_id))
    ORDER BY l.id"""


def vacates(current: Run, action: str) -> bool:
    """Return whether a run that asks for an action vacates a resource with it, or has done so earlier in its phase."""
    return "vacate" in (action, *(one["action"] for one in granted_maintenance(current)))


def holders_of(target: int, current: Run, *, without_idle: bool) -> list[int]:
    """Return the ids of the leases on the target, and on resources above or below it, that maintenance would disturb.

    Leaves out leases that belong to the run itself, leases whose resource is not built yet, leases that themselves wait
    for maintenance of the target, and leases held for runs that wait for it or share it; with `without_idle`, also
    leases that only keep an idle resource. The leases on a resource that is updated do not count either: they stay.
    """
    given = {
        "target": target, "own": current.resource_id, "lease": current.lease_id, "without_idle": without_idle,
        "updates": current.phase == Run.Phase.UPDATE,
    }  # fmt: skip
    return [lease_id for (lease_id,) in rows(_HOLDERS, given)]


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
        f" SELECT FROM leases_run n WHERE n.id <> %s AND ({MAINTAINS}"
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
    return each(_switch, [row for row in rows(_SWITCH_DUE) if isinstance(attempt(registry.kind, row[1]), Powers)])


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

    Returns False if the resource is busy, and then switches the resource later.
    """
    lock_resource(resource_id)
    run("UPDATE leases_resource SET power_wanted = %s, power_at = NULL WHERE id = %s", (power, resource_id))
    hints.after_commit("sweep")
    return begin_switch(resource_id)


def is_wanted_off(resource_id: int) -> bool:
    """Return whether the resource need not answer, because it was switched off on request or by somebody else."""
    off = "SELECT 1 FROM leases_resource WHERE id = %s AND (power_wanted = 'off' OR facts ? 'stopped')"
    return bool(rows(off, (resource_id,)))
