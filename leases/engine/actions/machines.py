"""Carry out actions on the machine of a lease: stop, start, reboot, resize, change the instance type, set tags.

A machine is not considered lost during such an action, or while it is switched off on request.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from blueprints.amounts import Amounts
from blueprints.answers import Failed
from drydock.core.errors import Conflict
from leases.engine.actions import grants, needs
from leases.engine.core.database import rows, run, short
from leases.engine.core.runs import name_of, start
from leases.engine.core.transitions import lock_resource, record_event
from leases.engine.placement import budgets
from leases.engine.placement.budget_check import UNKNOWN
from leases.engine.placement.pending import read_json
from leases.engine.resources import failures, maintenance, provision
from leases.messaging import hints
from leases.models import Resource, Run

PHASES = {"reboot": "reboot", "resize": "resize", "retype": "change-type", "tag": "tag"}
"""The user-facing name of the action for each phase."""


class Wish(NamedTuple):
    """A requested action on a machine, with the lease for which it was requested and the user who requested it."""

    resource_id: int
    phase: str
    wanted: dict[str, Any]
    message: str
    actor: str
    lease_id: int | None = None


class Now(NamedTuple):
    """The present state of a resource, and the current run on this resource, if any."""

    name: str
    state: str
    power: str
    power_wanted: str
    price: float | None
    in_maintenance: bool
    run_id: int | None
    phase: str | None
    wanted: Any


_NOW = """
    SELECT r.name, r.state, r.power, r.power_wanted, r.price, r.in_maintenance, n.id, n.phase, n.wanted
    FROM leases_resource r LEFT JOIN leases_run n ON n.resource_id = r.id AND n.lease_id IS NULL WHERE r.id = %s"""


@short
def ask(wish: Wish) -> bool:
    """Request an action on a machine, which a worker carries out. Return False if the same action is already running.

    Raises Conflict if the machine is not active, is off (for a reboot) or is busy with another action, or if a budget
    does not allow a more expensive instance type. A change of instance type charges the leases at the new price at
    once.
    """
    unaffordable = _unaffordable(wish)
    now = locked(wish.resource_id)
    wanted = {**wish.wanted, "lease": wish.lease_id}
    if now.phase == wish.phase and _same(read_json(now.wanted), wanted):
        return False
    refuse_busy(now)
    if wish.phase == "reboot" and "off" in (now.power, now.power_wanted):
        raise Conflict(f"{now.name} is off.", hint="Start it instead.")
    if unaffordable:
        said = f"{unaffordable[:1].upper()}{unaffordable[1:]}."
        raise Conflict(said, hint="Choose a cheaper type, or ask an operator to raise the budget.")
    drop_check(now)
    if _rise(wish, now.price) > 0:
        wanted["was_price"] = now.price
        price = wish.wanted["draft"]["price"]
        run("UPDATE leases_resource SET price = %s WHERE id = %s", (price, wish.resource_id))
    start(resource_id=wish.resource_id, phase=wish.phase, wanted=wanted)
    tell("asked", wish.phase, wish.message, resource_id=wish.resource_id, lease_id=wish.lease_id, actor=wish.actor)
    return True


def _unaffordable(wish: Wish) -> str:
    """Return why budgets do not allow a more expensive type, or an empty string if they do.

    Call before the machine is locked: claims lock budgets first.
    """
    was = rows("SELECT price FROM leases_resource WHERE id = %s", (wish.resource_id,))[0][0]
    rise = _rise(wish, was)
    return budgets.against_rise(wish.resource_id, rise) if rise > 0 else ""


def _rise(wish: Wish, was: float | None) -> float:
    """Return the amount by which the machine's price will rise, in US dollars an hour."""
    if wish.phase != "retype":
        return 0.0
    price = wish.wanted["draft"]["price"]
    return UNKNOWN if price is None else price - (was or 0.0)


def _same(there: Any, wanted: dict[str, Any]) -> bool:
    return {name: value for name, value in there.items() if name != "was_price"} == wanted


@short
def switch(wish: Wish) -> bool:
    """Switch a machine to the power state `wanted["power"]`, `on` or `off`, and keep it in that state.

    Returns False if the machine is already in that state or is being switched to it. Raises Conflict if the machine is
    not active or is busy with another action.
    """
    now = locked(wish.resource_id)
    wanted = wish.wanted["power"]
    if now.power_wanted == wanted and (now.phase == "power" or now.power == wanted):
        return False
    refuse_busy(now)
    drop_check(now)
    run("UPDATE leases_resource SET power_wanted = %s, power_at = NULL WHERE id = %s", (wanted, wish.resource_id))
    maintenance.begin_switch(wish.resource_id)
    hints.after_commit("sweep")
    record_event(
        "resource.power", wish.message, actor=wish.actor, resource_id=wish.resource_id, lease_id=wish.lease_id
    )  # fmt: skip
    return True


def locked(resource_id: int) -> Now:
    """Lock a resource, and return its state."""
    lock_resource(resource_id)
    return state_of(resource_id)


def state_of(resource_id: int) -> Now:
    """Return the state of a resource."""
    return Now(*rows(_NOW, (resource_id,))[0])


def refuse_busy(now: Now) -> None:
    """Raise Conflict if a resource is not active, or has a run other than a health check."""
    if now.state != "active":
        raise Conflict(f"{now.name} is {now.state}.")
    if now.phase not in (None, "check"):
        what = PHASES.get(str(now.phase)) or name_of(str(now.phase), read_json(now.wanted) or {})
        raise Conflict(f"{now.name} is busy with {what}.", hint="Try again when that is done.")
    if now.in_maintenance:
        raise Conflict(f"{now.name} is in maintenance.", hint="Try again when that is done.")
    if now.power_wanted and now.power != now.power_wanted:
        raise Conflict(f"{now.name} is about to be switched {now.power_wanted}.", hint="Try again after that.")


def drop_check(now: Now) -> None:
    """Cancel the resource's health check if one is running. A check changes nothing, so its answer is not needed."""
    if now.run_id is None:
        return
    for current in Run.objects.filter(pk=now.run_id, phase=Run.Phase.CHECK):
        needs.end_phase(current)
        current.delete()


def tell(
    outcome: str, phase: str, message: str, *, resource_id: int, lease_id: int | None, actor: str = "drydock"
) -> None:
    """Record an event when an action on a machine is requested, done or failed.

    If the action was requested through a lease, the event is also listed with that lease.
    """
    details = {"act": PHASES[phase]}
    record_event(
        f"machine.{outcome}", message, actor=actor, resource_id=resource_id, lease_id=lease_id, details=details
    )  # fmt: skip


def rebooted(current: Run) -> None:
    """Record that the reboot is done."""
    _well(current, "on")
    _tell(current, "done", "The machine was rebooted.")


def resized(current: Run) -> None:
    """Record the larger disk of a machine. An exclusive lease's share grows with the disk."""
    disk_gib = current.wanted["disk_gib"]
    resource = Resource.objects.get(pk=current.resource_id)
    _become(resource, {"total_disk_mib": 1024 * disk_gib, "facts": {**resource.facts, "disk_gib": disk_gib}})
    _tell(current, "done", f"The disk was resized to {disk_gib} GiB.")
    hints.after_commit("serve", resource.type)


def retyped(current: Run) -> None:
    """Record the new instance type of the machine, with the size, price and attributes of the new offer."""
    draft, resource = current.wanted["draft"], Resource.objects.get(pk=current.resource_id)
    kept = {name: value for name, value in resource.attributes.items() if name not in draft["gone"]}
    _become(
        resource,
        {
            "attributes": {**kept, **draft["attributes"]}, "facts": {**resource.facts, **draft["facts"]},
            "offer": draft["offer"], "price": draft["price"], "total_cpu_millicores": draft["cpu_millicores"],
            "total_ram_mib": draft["ram_mib"],
        },
        extra=draft["extra"],
    )  # fmt: skip
    _well(current, current.wanted["power"])
    _tell(current, "done", f"The instance type was changed from {current.wanted['from']} to {current.wanted['type']}.")
    hints.after_commit("serve", resource.type)


def tagged(current: Run) -> None:
    """Record that the tags were set."""
    resource = Resource.objects.only("facts").get(pk=current.resource_id)
    tags = {**resource.facts.get("tags", {}), **current.wanted["tags"]}
    Resource.objects.filter(pk=current.resource_id).update(facts={**resource.facts, "tags": tags})
    _tell(current, "done", f"Tags were set: {', '.join(sorted(current.wanted['tags']))}.")


def failed(current: Run, answer: Failed) -> None:
    """Record that an action on a machine failed. The machine and its leases keep their former price and size.

    If the machine should be on but may now be off, it is switched on again.
    """
    if "was_price" in current.wanted:
        run("UPDATE leases_resource SET price = %s WHERE id = %s", (current.wanted["was_price"], current.resource_id))
    if current.phase == Run.Phase.RETYPE and current.wanted["power"] == "on":
        run(
            "UPDATE leases_resource SET power = '', power_wanted = 'on', power_at = clock_timestamp() WHERE id = %s",
            (current.resource_id,),
        )
        hints.after_commit("sweep")
    failures.record(current, answer)
    grants.fail_waiting(current, f"could not be rebooted: {answer.message}")
    _tell(current, "failed", answer.message)


def _become(resource: Resource, columns: dict[str, Any], extra: dict[str, int] | None = None) -> None:
    """Change the size of a machine. The share of an exclusive lease is replaced by one of the whole machine."""
    alone = rows(
        "DELETE FROM leases_share WHERE resource_id = %s AND exclusive RETURNING lease_id, slots, created_at",
        (resource.pk,),
    )
    Resource.objects.filter(pk=resource.pk).update(**columns)
    if extra is not None:
        there = {name: 0 for name in resource.capacities.values_list("name", flat=True)}
        provision.set_further(resource.pk, Amounts(extra={**there, **extra}))
    for lease_id, slots, since in alone:
        run(_WHOLE, (lease_id, slots, since, resource.pk))


_WHOLE = """
    INSERT INTO leases_share (lease_id, resource_id, exclusive, slots, cpu_millicores, ram_mib, disk_mib, extra,
        created_at)
    SELECT %s, r.id, TRUE, %s, r.total_cpu_millicores, r.total_ram_mib, r.total_disk_mib,
        coalesce((SELECT jsonb_object_agg(c.name, c.total) FROM leases_capacity c WHERE c.resource_id = r.id), '{}'),
        %s
    FROM leases_resource r WHERE r.id = %s"""


def _well(current: Run, power: str) -> None:
    """Record whether the machine is now on or off, and reset its health checks."""
    run(
        "UPDATE leases_resource r SET power = %s, power_at = NULL, check_failures = 0,"
        " check_at = clock_timestamp() + b.check_interval FROM blueprints_blueprint b"
        " WHERE r.id = %s AND b.id = r.blueprint_id",
        (power, current.resource_id),
    )


def _tell(current: Run, outcome: str, message: str) -> None:
    lease_id = current.wanted.get("lease")
    tell(outcome, current.phase, message, resource_id=current.resource_id, lease_id=lease_id)
