"""How what is done to a machine on purpose ends: reboot, resize, another type, tags. Inside the transaction that applies
the answer, with the resource and, where what they hold changes, all holders locked. Nobody's share is taken away."""

from __future__ import annotations

from typing import Any

from blueprints.amounts import Amounts
from blueprints.answers import Failed
from leases import hints
from leases.engine import failures, inventory, machines
from leases.engine.transaction import rows, run
from leases.models import Resource, Run


def rebooted(current: Run) -> None:
    """It works again."""
    _well(current, "on")
    _tell(current, "done", "It was rebooted.")


def resized(current: Run) -> None:
    """Its disk is larger, and with it what is held alone."""
    disk_gib = current.wanted["disk_gib"]
    resource = Resource.objects.get(pk=current.resource_id)
    _become(resource, {"total_disk_mib": 1024 * disk_gib, "facts": {**resource.facts, "disk_gib": disk_gib}})
    _tell(current, "done", f"Its disk has {disk_gib} GiB.")
    hints.after_commit("serve", resource.type)


def retyped(current: Run) -> None:
    """It is another type: its size, price and attributes are those of its new offer."""
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
    _tell(current, "done", f"It was a {current.wanted['from']} and is a {current.wanted['type']}.")
    hints.after_commit("serve", resource.type)


def tagged(current: Run) -> None:
    """The tags are set."""
    resource = Resource.objects.only("facts").get(pk=current.resource_id)
    tags = {**resource.facts.get("tags", {}), **current.wanted["tags"]}
    Resource.objects.filter(pk=current.resource_id).update(facts={**resource.facts, "tags": tags})
    _tell(current, "done", f"Tags were set: {', '.join(sorted(current.wanted['tags']))}.")


def failed(current: Run, answer: Failed) -> None:
    """It stays what it was, at its price, and its leases stay. What may be off now and should not be is switched on
    again."""
    if "was_price" in current.wanted:
        run("UPDATE leases_resource SET price = %s WHERE id = %s", (current.wanted["was_price"], current.resource_id))
    if current.phase == Run.Phase.RETYPE and current.wanted["power"] == "on":
        run(
            "UPDATE leases_resource SET power = '', power_wanted = 'on', power_at = clock_timestamp() WHERE id = %s",
            (current.resource_id,),
        )
        hints.after_commit("sweep")
    failures.record(current, answer)
    _tell(current, "failed", answer.message)


def _become(resource: Resource, columns: dict[str, Any], extra: dict[str, int] | None = None) -> None:
    """Change what it is. Whoever holds it alone holds all that it is then: a share is inserted anew, never changed."""
    alone = rows(
        "DELETE FROM leases_share WHERE resource_id = %s AND exclusive RETURNING lease_id, slots, created_at",
        (resource.pk,),
    )
    Resource.objects.filter(pk=resource.pk).update(**columns)
    if extra is not None:
        there = {name: 0 for name in resource.capacities.values_list("name", flat=True)}
        inventory.set_further(resource.pk, Amounts(extra={**there, **extra}))
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
    """It is as it is wanted: its health counts anew from now."""
    run(
        "UPDATE leases_resource r SET power = %s, power_at = NULL, check_failures = 0,"
        " check_at = clock_timestamp() + b.check_interval FROM blueprints_blueprint b"
        " WHERE r.id = %s AND b.id = r.blueprint_id",
        (power, current.resource_id),
    )


def _tell(current: Run, outcome: str, message: str) -> None:
    lease_id = current.wanted.get("lease")
    machines.tell(outcome, current.phase, message, resource_id=current.resource_id, lease_id=lease_id)
