"""Adopt an orphan as a resource, or destroy the orphan.

An adopted machine serves no lease. It cannot be reached, because the key of its control account and the private half of
its host key were in the lost row. It might have been used by anyone since then, and a used machine may go to another
owner only after a re-image, which clouds do not offer as a call. The new resource therefore has no capacity. It is
quarantined, polled and counted in costs until an operator has the machine destroyed.
"""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import transaction

from blueprints import registry
from blueprints.amounts import Amounts
from blueprints.answers import Answer, Failed, Ready, Wait
from blueprints.contract import Plan
from blueprints.models import Blueprint
from blueprints.specs import BlueprintView, Owned, ResourceView, Spec
from drydock.core.errors import Conflict
from drydock.core.logging import hidden, redact
from leases.engine.core.installation import BLUEPRINT, Proven
from leases.engine.core.transitions import move_resource, record_event
from leases.engine.resources import provision
from leases.models import Resource, Stray
from leases.reasons import Reason
from leases.states import ResourceState

MACHINE = "machine"
WHY = (
    "Adopted without its keys, which were lost with its row. It cannot be leased. Inspect it with "
    "the provider's own tools, then retire it."
)


def adoptable(what: str) -> bool:
    """Return whether an object of this class can be adopted. Only machines can, not their disks or addresses."""
    return what in ("", MACHINE)


def adopt(stray: Stray, blueprint: Blueprint, owned: Owned, made: Proven) -> int:
    """Insert a resource for an orphaned machine, and delete the row of the orphan.

    Return the id of the resource. Raises Conflict for any object other than a machine.
    """
    if not adoptable(owned.what):
        raise Conflict(
            f"A {owned.what} is not a machine, and only machines can be adopted.", hint="Destroy it instead."
        )
    with transaction.atomic():
        provision.lock_blueprint(blueprint.pk)
        resource = Resource.objects.create(**_columns(stray, blueprint, owned, made))
        move_resource(
            resource.pk, ResourceState.ACTIVE, reason=Reason.ADOPTED, message=WHY, actor=stray.wanted_by or "orphans"
        )
        record_event(
            "orphan.adopted", f"{stray.key} belongs to resource {resource.pk} again.",
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


log = logging.getLogger(__name__)


def dispose(stray: Stray, blueprint: Blueprint, view: BlueprintView, owned: Owned) -> None:
    """Carry out the steps of an orphan's destroy plan until one step has to wait.

    The next search for orphans continues from the stored `position` and `memo`.
    """
    plan = registry.kind(blueprint.kind).destroy()
    if stray.position >= len(plan):
        # It was found again after its destruction: start over.
        stray.position, stray.memo = 0, {}
    if (stray.position, stray.memo) == (0, {}):
        record_event(
            "orphan.destroying",
            f"{stray.key} is being destroyed because it belongs to no resource.",
            actor="orphans",
            blueprint_id=blueprint.pk,
        )
    with hidden(view.credentials):
        while stray.position < len(plan) and _step(stray, plan, _spec(stray, view, blueprint, owned)):
            pass
    if stray.position >= len(plan):
        _keep(stray, "Destroyed. The next search confirms it.")
        record_event("orphan.destroyed", f"{stray.key} was destroyed.", actor="orphans", blueprint_id=blueprint.pk)


def _spec(stray: Stray, view: BlueprintView, blueprint: Blueprint, owned: Owned) -> Spec:
    resource = ResourceView(
        id=stray.resource_number, key=owned.key, name=owned.key, type=blueprint.resource_type, origin="built",
        blueprint=view, attributes={}, capacity=Amounts(), facts=dict(owned.facts),
    )  # fmt: skip
    deadline = settings.DRYDOCK.step_token_seconds / 2
    token = f"{owned.key}-orphan-{stray.position}"
    return Spec(phase="destroy", key=owned.key, token=token, resource=resource, tags=owned.tags, deadline=deadline)


def _step(stray: Stray, plan: Plan, spec: Spec) -> bool:
    """Call the next step of the destroy plan. Return True if the one after it may be called now."""
    step = plan[stray.position]
    try:
        answer: Answer = step.act(spec, dict(stray.memo))
    except Exception as error:
        log.exception("Step %s of destroying %s raised an exception.", step.name, stray.key)
        _keep(stray, f"{step.name} raised {type(error).__name__}: {error}")
        return False
    match answer:
        case Ready():
            stray.position, stray.memo = len(plan) if answer.ends_phase else stray.position + 1, {}
            _keep(stray, f"{step.name} is done.")
            return True
        case Wait():
            stray.memo = answer.memo
            _keep(stray, answer.sentence or f"{step.name} is running.")
        case Failed():
            stray.position, stray.memo = 0, {}
            _keep(stray, f"{step.name} failed: {answer.message}")
        case _:
            _keep(stray, f"{step.name} returned {type(answer).__name__}: {getattr(answer, 'message', '')}")
    return False


def _keep(stray: Stray, message: str) -> None:
    stray.message = redact(message).replace("\0", "")[:2000]
    stray.save(update_fields=["position", "memo", "message"])
