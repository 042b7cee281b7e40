"""Discover resources: register those that a kind finds, and mark known ones as lost after two misses in a row."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from typing import Any

from django.conf import settings

from blueprints import registry
from blueprints.amounts import CLASSES
from blueprints.contract import Discovers
from blueprints.models import Blueprint
from blueprints.specs import Draft
from drydock.core.errors import DrydockError
from drydock.core.logging import about, hidden, redact
from leases.engine.core import specs
from leases.engine.core.database import refuse_inside_transaction, run, short
from leases.engine.core.token_lease import TokenLease
from leases.engine.core.transitions import record_event
from leases.engine.resources import provision, retirement
from leases.messaging import hints
from leases.models import Resource
from leases.reasons import Reason

log = logging.getLogger(__name__)

_NOT_SEEN = "Not seen"
LOST_AFTER = 2
"""Number of consecutive discoveries that must miss a resource before the resource is considered lost."""


_TURNS = TokenLease(table="leases_sync", capability=Discovers, hint="discover", which="b.enabled")


def due() -> int:
    """Ask workers to run discovery for every blueprint for which it is due. Return the number of blueprints."""
    return _TURNS.ask()


def discover(blueprint_id: int) -> bool:
    """Run discovery for one blueprint, if it is due and no other process is running it.

    Returns False if it was not run.
    """
    refuse_inside_transaction("discover")
    token = _TURNS.take(blueprint_id)
    if token is None:
        return False
    blueprint = Blueprint.objects.get(pk=blueprint_id)
    found, problem = _look(blueprint)
    if found is not None:
        problem = _apply(blueprint, found, token)
    every, number = settings.DRYDOCK.discovery_interval_seconds, None if found is None else len(found)
    _TURNS.done(blueprint_id, token, after=every, problem=problem, found=number)
    return True


def _look(blueprint: Blueprint) -> tuple[Sequence[Draft] | None, str]:
    """Return the drafts of the resources that the kind finds, or None and the reason why discovery failed.

    If the provider cannot be reached, no resource counts as missed.
    """
    kind = registry.kind(blueprint.kind)
    assert isinstance(kind, Discovers)
    try:
        view = specs.blueprint_view(blueprint, secrets=True)
    except DrydockError as error:
        return None, str(error)[:2000]
    with about(blueprint=blueprint.name), hidden(view.credentials):
        try:
            return kind.discover(view), ""
        except Exception as error:
            log.warning("Discovery of %s failed: %s", blueprint.name, error)
            return None, redact(f"{type(error).__name__}: {error}")[:2000]


def _apply(blueprint: Blueprint, found: Sequence[Draft], token: uuid.UUID) -> str:
    """Store the found resources one by one while the token is valid. Return the problems, or an empty string."""
    known = dict(
        Resource.objects.filter(blueprint=blueprint, gone_at=None).exclude(identity=None).values_list("identity", "pk")
    )
    problems: list[str] = []
    for draft in _wholes_first(found):
        if not _TURNS.keep(blueprint.pk, token):
            return ""
        problems += _take_up(blueprint, known.get(draft.identity), draft)
    if not _TURNS.keep(blueprint.pk, token):
        return ""
    seen = {draft.identity for draft in found}
    for resource in Resource.objects.filter(blueprint=blueprint, gone_at=None, origin=Resource.Origin.DISCOVERED):
        if resource.identity not in seen:
            _miss(resource)
    if not problems:
        return ""
    return redact(f"{len(problems)} of {len(found)} resources could not be registered: {'; '.join(problems)}")[:2000]


def _take_up(blueprint: Blueprint, resource_id: int | None, draft: Draft) -> list[str]:
    """Store one found resource. Return a list with the problem if it could not be stored.

    A bad draft does not affect the others.
    """
    try:
        if resource_id is None:
            _meet(blueprint.pk, draft)
        else:
            _see(resource_id, draft)
    except Exception as error:
        log.warning("Discovery of %s could not register %.100s: %s", blueprint.name, draft.identity, error)
        return [f"{draft.identity:.100}: {type(error).__name__}: {error}"]
    return []


def _wholes_first(found: Sequence[Draft]) -> list[Draft]:
    """Sort drafts so that every part follows the resource to which it belongs."""
    identities = {draft.identity for draft in found}
    return sorted((d for d in found if d.identity), key=lambda d: bool(d.part_of and d.part_of in identities))


@short
def _meet(blueprint_id: int, draft: Draft) -> None:
    """Register a resource that was not found before."""
    blueprint = provision.lock_blueprint(blueprint_id)
    if (
        blueprint is not None
        and not Resource.objects.filter(blueprint=blueprint, identity=draft.identity, gone_at=None).exists()
    ):
        provision.insert(blueprint, draft, actor="discovery", message="Discovered.", origin=Resource.Origin.DISCOVERED)


@short
def _see(resource_id: int, draft: Draft) -> None:
    """Store the changes of a known resource, and reset its missed count."""
    resource = Resource.objects.select_for_update(no_key=True).get(pk=resource_id)
    wanted = _wanted(resource, draft)
    changed = {name: value for name, value in wanted.items() if getattr(resource, name) != value}
    back = resource.missed >= LOST_AFTER
    if back:
        changed |= {"observed": "ok"} | (
            {"quarantined": False, "note": ""} if resource.note.startswith(_NOT_SEEN) else {}
        )
        record_event("resource.found", "The resource was found again.", resource_id=resource_id)
    if changed or resource.missed:
        Resource.objects.filter(pk=resource_id).update(missed=0, **changed)
    provision.set_further(resource_id, draft.capacity)
    if provision.set_parts(resource_id, draft.parts, whole=bool(draft.parts)) or changed:
        hints.after_commit("serve", resource.type)


def _wanted(resource: Resource, draft: Draft) -> dict[str, Any]:
    """Return the column values that result from the draft.

    Empty values in the draft leave a column unchanged. So does the draft's name if an operator named the resource.
    """
    totals = {f"total_{name}": getattr(draft.capacity, name) for name in CLASSES}
    said: dict[str, Any] = {"zone": draft.zone, "part_of_id": _part_of(resource, draft)}
    if resource.origin == Resource.Origin.DISCOVERED:
        said["name"] = draft.name
    return {
        "attributes": {**resource.attributes, **draft.attributes}, "facts": {**resource.facts, **draft.facts},
        "traits": sorted(draft.traits), **totals, **{name: value for name, value in said.items() if value},
    }  # fmt: skip


def _part_of(resource: Resource, draft: Draft) -> int | None:
    whole = provision.whole(resource.blueprint, draft)
    return whole.pk if whole is not None and whole.pk != resource.pk else None


def _miss(resource: Resource) -> None:
    """Count that a discovery missed a resource. After `LOST_AFTER` misses, mark it as lost and quarantine it."""
    missed = resource.missed + 1
    run("UPDATE leases_resource SET missed = %s WHERE id = %s", (missed, resource.pk))
    if missed < LOST_AFTER:
        return
    message = f"{_NOT_SEEN} by {missed} discoveries in a row."
    if missed == LOST_AFTER:
        run(
            "UPDATE leases_resource SET observed = 'lost', note = CASE WHEN quarantined THEN note ELSE %s END,"
            " quarantined = TRUE WHERE id = %s",
            (message, resource.pk),
        )
        record_event("resource.lost", message, resource_id=resource.pk)
    retirement.retire_idle(resource.pk, reason=Reason.LOST, message=message)
