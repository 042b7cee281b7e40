"""Insert new resources with their capacities and parts, and update them from the results of builds and checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db import IntegrityError
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from blueprints import parts as part_specs
from blueprints import registry
from blueprints.amounts import CLASSES, Amounts
from blueprints.answers import Health, NeededLease, Ready
from blueprints.contract import Carried
from blueprints.models import Blueprint
from blueprints.specs import Asked, Draft, Identity
from leases.engine.catalogue import generations
from leases.engine.core import specs
from leases.engine.core.database import rows
from leases.engine.core.installation import notice
from leases.engine.core.runs import start
from leases.engine.core.transitions import record_event
from leases.engine.placement import budgets, claims
from leases.messaging import hints
from leases.models import Capacity, Part, Resource, ResourceCredential, ResourceIdentity, Run
from leases.reasons import Reason


def amend(resource_id: int, answer: Ready) -> None:
    """Store the facts about a resource that a step has reported.

    Call inside the transaction that applies the step's answer. If the resource now has less of a class than its leases
    use, the leases keep their shares, but nothing more can be claimed.
    """
    resource = Resource.objects.get(pk=resource_id)
    columns: dict[str, object] = {}
    if answer.attributes:
        merged = {**resource.attributes, **answer.attributes}
        columns["attributes"] = {name: value for name, value in merged.items() if value is not None}
    if answer.traits is not None:
        columns["traits"] = sorted(answer.traits)
    if answer.capacity is not None:
        columns |= {f"total_{name}": getattr(answer.capacity, name) for name in CLASSES}
        set_further(resource_id, answer.capacity)
    if answer.dies_at is not None:
        columns["dies_at"] = min(filter(None, (resource.dies_at, answer.dies_at)))
    if columns:
        Resource.objects.filter(pk=resource_id).update(**columns)
    if answer.health is not None:
        said = set_health(resource, answer.health)
        if any(getattr(resource, column) != value for column, value in said.items()):
            Resource.objects.filter(pk=resource_id).update(**said)
    _identify(resource, answer.identities)
    if answer.parts is not None and set_parts(resource_id, answer.parts, whole=not answer.parts):
        hints.after_commit("serve", resource.type)


def set_health(resource: Resource, said: Health) -> dict[str, Any]:
    """Return the columns that store a reported health for a locked resource.

    If the health changes, record an event for the resource and for each lease on it, and serve the pending leases that
    can now use the resource.
    """
    before, reason = resource.health, said.reason[:2000]
    if said.state != before:
        message = f"Health changed from {before} to {said.state}" + (f": {reason}" if reason else ".")
        details = {"from": before, "to": said.state}
        record_event("resource.health", message, resource_id=resource.pk, details=details)
        for (lease_id,) in rows(
            "SELECT lease_id FROM leases_share WHERE resource_id = %s ORDER BY lease_id", (resource.pk,)
        ):
            record_event("lease.health", f"{resource}: {message}", lease_id=lease_id, details=details)
        if before == "failed" or said.state == "ok":
            hints.after_commit("serve", resource.type)
    return {"health": said.state, "health_reason": reason}


def set_further(resource_id: int, capacity: Amounts) -> None:
    """Set the totals of the resource's additional classes of capacity."""
    for name, total in capacity.extra.items():
        Capacity.objects.update_or_create(resource_id=resource_id, name=name, defaults={"total": total})


def _identify(resource: Resource, identities: Sequence[Identity]) -> None:
    """Add identities to a resource. Quarantine it if another resource has one of them, since both are the same thing."""
    for one in identities:
        try:
            ResourceIdentity.objects.get_or_create(resource=resource, namespace=one.namespace, value=one.value)
        except IntegrityError:
            other = Resource.objects.select_related("blueprint").filter(identities__in=_rows_of(one)).first()
            there = (
                f"resource {other.pk} ({other}) of blueprint {other.blueprint.name}" if other else "another resource"
            )
            note = f"{one} also identifies {there}, so both are the same thing."
            if Resource.objects.filter(pk=resource.pk, quarantined=False).update(quarantined=True, note=note[:2000]):
                record_event("resource.quarantined", note, resource_id=resource.pk)


def _rows_of(one: Identity) -> QuerySet[ResourceIdentity]:
    return ResourceIdentity.objects.filter(namespace=one.namespace, value=one.value)


def set_identities(resource_id: int, wanted: Iterable[Identity], *, before: Iterable[Identity] | None = None) -> None:
    """Add the `wanted` identities to a resource, and remove all other identities in `before`.

    `before` defaults to all identities of the resource. Raises IntegrityError if another resource has a wanted
    identity.
    """
    there = {
        Identity(namespace=row.namespace, value=row.value): row
        for row in ResourceIdentity.objects.filter(resource=resource_id)
    }
    for one in sorted(set(there if before is None else before) - set(wanted), key=str):
        if one in there:
            there[one].delete()
    for one in sorted(set(wanted) - set(there), key=str):
        ResourceIdentity.objects.create(resource_id=resource_id, namespace=one.namespace, value=one.value)


def set_parts(resource_id: int, parts: Sequence[part_specs.Part], *, whole: bool = False) -> bool:
    """Store the given parts of a resource and their states. Return whether a part became available again.

    Parts that are stored but not given are marked as missing instead of being deleted, because a lease may hold them.
    This concerns only the classes of the given parts or, if `whole` is true, all classes.
    """
    known = {(part.part_class, part.identity): part for part in Part.objects.filter(resource_id=resource_id)}
    for part in parts:
        _set_part(resource_id, known.pop((part.part_class, part.identity), None), part)
    classes = {part.part_class for part in parts}
    for gone in known.values():
        if (whole or gone.part_class in classes) and gone.state != "missing":
            _tell(gone, "missing")
            Part.objects.filter(pk=gone.pk).update(state="missing")
            classes.add(gone.part_class)
    return sum(_count(resource_id, name) for name in sorted(classes)) > 0


def _set_part(resource_id: int, known: Part | None, part: part_specs.Part) -> None:
    if known is None:
        Part.objects.create(
            resource_id=resource_id, part_class=part.part_class, identity=part.identity,
            attributes=part.attributes, state=part.state,
        )  # fmt: skip
        return
    if known.state != part.state:
        _tell(known, part.state)
    if (known.attributes, known.state) != (part.attributes, part.state):
        Part.objects.filter(pk=known.pk).update(attributes=part.attributes, state=part.state)


def _tell(part: Part, state: str) -> None:
    """Record the new state of a part as an event of the resource and of the lease that holds the part."""
    message = f"{part.part_class} {part.identity} changed from {part.state} to {state}."
    holder = rows("SELECT lease_id FROM leases_slotlock WHERE key = %s", (part_lock(part.resource_id, part),))
    record_event("resource.part", message, resource_id=part.resource_id, lease_id=holder[0][0] if holder else None)


def part_lock(resource_id: int, part: Part) -> str:
    """Return the key of the slot lock for a part."""
    return f"{part_scope(resource_id, part.part_class)}/{part.identity}"[:255]


def part_scope(resource_id: int, part_class: str) -> str:
    """Return the scope of the slot locks for parts of this class."""
    return f"{part_class} of resource {resource_id}"


def _count(resource_id: int, part_class: str) -> bool:
    """Set the capacity that is named like the part class to the number of healthy parts. Return whether it grew."""
    grown = rows(
        "UPDATE leases_capacity c SET total = w.n FROM leases_capacity o, (SELECT count(*) AS n FROM leases_part p"
        " WHERE p.resource_id = %s AND p.part_class = %s AND p.state = 'ok') w"
        " WHERE o.id = c.id AND c.resource_id = %s AND c.name = %s AND c.total <> w.n RETURNING w.n > o.total",
        (resource_id, part_class, resource_id, part_class),
    )
    return any(more for (more,) in grown)


def lock_blueprint(blueprint_id: int) -> Blueprint | None:
    """Lock and return the blueprint, or return None if the blueprint no longer exists.

    Builds with the blueprint, and changes of the blueprint's limits, wait for this lock.
    """
    return Blueprint.objects.select_for_update(no_key=True).filter(pk=blueprint_id).first()


_THERE = """
    SELECT (SELECT count(*) FROM (
            SELECT FROM leases_resource WHERE blueprint_id = %s AND gone_at IS NULL LIMIT %s) t),
        (SELECT count(*) FROM (
            SELECT FROM leases_resource WHERE blueprint_id = %s AND gone_at IS NULL AND state = 'pending' LIMIT %s) p)"""
"""Counts resources only up to the limits, because more do not change the result."""


def may_build(blueprint: Blueprint, draft: Draft | None = None) -> bool:
    """Return whether the blueprint's limits allow one more resource now.

    If a draft is given, the blueprint's budget must allow the draft's price too. The blueprint must be locked.
    """
    most = blueprint.max_resources
    there, building = rows(_THERE, (blueprint.pk, most or 0, blueprint.pk, blueprint.max_builds))[0]
    in_limit = most is None or there < most
    allowed = blueprint.enabled and not blueprint.drained and in_limit and building < blueprint.max_builds
    return allowed and (draft is None or budgets.blueprint_affords(blueprint.pk, draft))


def insert(
    blueprint: Blueprint, draft: Draft, *, actor: str, message: str, asked: Any = None, origin: str = "built",
    reserved_for: int | None = None, registration: Any = None, carrier: int | None = None,
) -> claims.Room:  # fmt: skip
    """Insert a drafted resource with its additional capacities, parts and identities, and start its build.

    If `carrier` is given, the resource is part of the resource with that id.
    """
    notice()
    life = blueprint.max_lifetime
    resource = Resource.objects.create(
        blueprint=blueprint, type=blueprint.resource_type, name=draft.name, origin=origin,
        identity=draft.identity or None, generation=0 if draft.outdated else blueprint.generation,
        in_maintenance=bool(draft.outdated) and generations.closes(blueprint), reason=Reason.BUILDING, message=message,
        actor=actor, attributes=draft.attributes, traits=sorted(draft.traits), facts=draft.facts, offer=draft.offer,
        zone=draft.zone, locality=list(draft.locality), price=draft.price, total_slots=draft.capacity.slots,
        total_cpu_millicores=draft.capacity.cpu_millicores, total_ram_mib=draft.capacity.ram_mib,
        total_disk_mib=draft.capacity.disk_mib, reserved_for_id=reserved_for,
        dies_at=None if life is None else Now() + life, part_of_id=carrier or _id(whole(blueprint, draft)),
        registration=registration or {}, **_health(draft.health),
    )  # fmt: skip
    if not draft.name:
        Resource.objects.filter(pk=resource.pk).update(name=f"{blueprint.name}-{resource.pk}")
    Capacity.objects.bulk_create(
        Capacity(resource=resource, name=name, total=total) for name, total in draft.capacity.extra.items()
    )
    Part.objects.bulk_create(
        Part(resource=resource, part_class=p.part_class, identity=p.identity, attributes=p.attributes, state=p.state)
        for p in draft.parts
    )
    if draft.identities:
        set_identities(resource.pk, draft.identities)
    start(resource_id=resource.pk, phase="build", asked=asked)
    name = draft.name or f"{blueprint.name}-{resource.pk}"
    return claims.Room(resource_id=resource.pk, state="pending", kind=blueprint.kind, name=name)


def _id(resource: Resource | None) -> int | None:
    return None if resource is None else resource.pk


def _health(said: Health | None) -> dict[str, Any]:
    """Return the columns of a new resource about which a draft says this. A failed one is in quarantine at once."""
    if said is None:
        return {}
    columns = {"health": said.state, "health_reason": said.reason[:2000]}
    return columns | ({"quarantined": True, "note": failed_note(said)} if said.state == "failed" else {})


FAILED = "Failed:"
"""Beginning of the note of a quarantine that ends once a report says that the resource has not failed."""


def failed_note(said: Health) -> str:
    """Return the note for quarantining a resource whose health was reported as failed."""
    return f"{FAILED} {said.reason or 'its health is reported as failed'}"[:2000]


def set_credential(resource_id: int, secrets: Mapping[str, Any]) -> None:
    """Replace the credential that is stored for one resource. If `secrets` is empty, remove that credential.

    If the first check of the resource has failed and waits for its next attempt, that attempt becomes due now.
    """
    names = sorted(secrets)
    if names:
        values = {"secrets": dict(secrets), "changed_at": Now()}
        ResourceCredential.objects.update_or_create(resource_id=resource_id, defaults=values)
    else:
        ResourceCredential.objects.filter(resource=resource_id).delete()
    Resource.objects.filter(pk=resource_id).update(credential_fields=names)
    waiting = Run.objects.filter(resource=resource_id, lease=None, phase="build", waits_for="", token=None)
    waiting.filter(due_at__isnull=False).update(due_at=Now(), progress=[])


def add_to_credential(resource_id: int, chosen: Mapping[str, Any]) -> None:
    """Add fields that a step has chosen to the own credential of a resource, which is locked."""
    row = ResourceCredential.objects.filter(resource=resource_id).first()
    secrets = {**(row.secrets if row is not None else {}), **chosen}
    values = {"secrets": secrets, "changed_at": Now()}
    ResourceCredential.objects.update_or_create(resource_id=resource_id, defaults=values)
    Resource.objects.filter(pk=resource_id).update(credential_fields=sorted(secrets))
    record_event("resource.credential", f"Drydock chose: {', '.join(sorted(chosen))}.", resource_id=resource_id)


def place_in_host(resource_id: int, name: str) -> None:
    """Make a resource part of the host with this name or serial number; of none, if none or several have it.

    A resource must not stay in the host that it was in before, because that would be rebooted for it.
    """
    hosts = Resource.objects.filter(type="host", gone_at=None).exclude(pk=resource_id)
    of_serial = Q(identities__namespace__startswith="serial", identities__value=name)
    found = list(hosts.filter(Q(name=name) | of_serial).distinct()[:2]) if name else []
    Resource.objects.filter(pk=resource_id).update(part_of=found[0].pk if len(found) == 1 else None)


def whole(blueprint: Blueprint, draft: Draft) -> Resource | None:
    """Return the resource that the draft names as its parent (`part_of`), or None.

    Prefers a resource of the same blueprint. A parent of another blueprint is found only if its identity is unique. If
    no parent is found, returns the host that the draft names.
    """
    host = None if draft.host is None else Resource.objects.filter(pk=draft.host, type="host", gone_at=None).first()
    if not draft.part_of:
        return host
    there = Resource.objects.filter(identity=draft.part_of, gone_at=None)
    own = there.filter(blueprint=blueprint).first()
    others = list(there[:2])
    return own or (others[0] if len(others) == 1 else host)


def carrier_lease(blueprint: Blueprint, asked: Asked | None) -> NeededLease | None:
    """Return the lease of the carrier that a build needs, or None if the blueprint builds on no carrier."""
    kind = registry.kind(blueprint.kind)
    if not isinstance(kind, Carried):
        return None
    return kind.carrier(specs.config(blueprint.kind, blueprint.config), asked)


def carrier_of(current: Run) -> int | None:
    """Return the id of the resource that a run's resource is built on; None if there is none, or not yet."""
    if not isinstance(registry.kind(current.resource.blueprint.kind), Carried):
        return None
    return current.resource.part_of_id


def join_carrier(current: Run) -> None:
    """Make the resource of a build part of its carrier, once it has the lease of that. Call inside a transaction.

    From then on whatever closes the carrier, or what that is part of, closes the resource too.
    """
    resource = current.resource
    if not isinstance(registry.kind(resource.blueprint.kind), Carried):
        return
    asked = specs.asked(resource.blueprint.kind, current.asked) if current.asked else None
    lease = carrier_lease(resource.blueprint, asked)
    if lease is None:
        return
    moved = rows(
        "UPDATE leases_resource r SET part_of_id = l.resource_id FROM leases_lease l WHERE r.id = %s"
        " AND l.for_resource_id = r.id AND l.need = %s AND l.state = 'active'"
        " AND r.part_of_id IS DISTINCT FROM l.resource_id RETURNING r.type",
        (resource.pk, lease.name),
    )
    for (resource_type,) in moved:
        hints.after_commit("serve", resource_type)
