"""Adopting an orphan: a machine whose row was lost has a row again.

Nobody is ever served on it. The key of its control account and the private half of its host key were in the row that is
lost, so there is no way into it, and what has been done on it since is not known; a machine that somebody has used goes
to another owner only after a re-image, which clouds have no call for. So the row has no room, stands in quarantine, is
watched and counts its cost, until an operator has it destroyed.
"""

from __future__ import annotations

from django.db import transaction

from blueprints.models import Blueprint
from blueprints.specs import Owned
from drydock.core.errors import Conflict
from leases.engine import allocation
from leases.engine.proof import BLUEPRINT, Proven
from leases.engine.transitions import move_resource, note
from leases.models import Resource, Stray
from leases.reasons import Reason
from leases.states import ResourceState

MACHINE = "machine"
WHY = (
    "Adopted: its row was lost, and with it the only key to it. It serves nobody; look at it with the provider's own"
    " tools, then retire it."
)


def adoptable(what: str) -> bool:
    """Whether a thing is a resource by itself, and not what was left of one."""
    return what in ("", MACHINE)


def adopt(stray: Stray, blueprint: Blueprint, owned: Owned, made: Proven) -> int:
    """Give a machine a row, and forget the orphan; the resource's id. Raises Conflict for what is no machine."""
    if not adoptable(owned.what):
        raise Conflict(f"A {owned.what} is not a machine, and only machines are adopted.", hint="Have it destroyed.")
    with transaction.atomic():
        allocation.lock_blueprint(blueprint.pk)
        resource = Resource.objects.create(**_columns(stray, blueprint, owned, made))
        move_resource(
            resource.pk, ResourceState.ACTIVE, reason=Reason.ADOPTED, message=WHY, actor=stray.wanted_by or "orphans"
        )
        note(
            "orphan.adopted", f"{stray.key} has a row again: resource {resource.pk}.",
            actor=stray.wanted_by or "orphans", resource_id=resource.pk, blueprint_id=blueprint.pk,
        )  # fmt: skip
        Stray.objects.filter(pk=stray.pk).delete()
    return int(resource.pk)


def _columns(stray: Stray, blueprint: Blueprint, owned: Owned, made: Proven) -> dict[str, object]:
    facts = dict(owned.facts)
    lost = {"epoch": made.epoch, "resource": made.resource, "blueprint": owned.tags.get(BLUEPRINT, "")}
    where = {"region": "location", "zone": "zone", "instance_type": "type", "market": "market"}
    return {
        "blueprint": blueprint, "type": blueprint.resource_type, "name": stray.key, "identity": owned.key,
        "origin": Resource.Origin.ADOPTED, "generation": blueprint.generation, "reason": Reason.ADOPTED,
        "message": WHY, "actor": stray.wanted_by or "orphans", "quarantined": True, "note": WHY, "total_slots": 0,
        "attributes": {ours: facts[theirs] for ours, theirs in where.items() if facts.get(theirs)},
        "facts": {**facts, "seen": {**facts, "state": owned.state}, "adopted": lost},
        "zone": str(facts.get("zone") or ""), "price": stray.price, "observed": owned.state[:32],
        "power": owned.power,
    }  # fmt: skip
