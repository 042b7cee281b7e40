"""Rows into the frozen values that kinds are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from django.db.models import Q
from pydantic import ValidationError

from blueprints import registry
from blueprints.amounts import Amounts
from blueprints.contract import Controls
from blueprints.models import Blueprint, Credential
from blueprints.parts import Part, State
from blueprints.specs import Asked, BlueprintView, Control, LeaseView, ResourceView
from drydock.core.errors import DrydockError, NotSupported
from interfaces.contract import Interface
from leases.engine import installation, parentage, proof
from leases.engine.transaction import rows
from leases.models import Debt, Lease, Resource
from leases.requests import invalid


class BadConfig(DrydockError):
    """The stored config of a blueprint does not fit its kind."""

    code = "bad_config"


def config(kind_name: str, stored: Any) -> Any:
    """A stored config read into the kind's Config. Raises BadConfig or KindNotFound."""
    try:
        return registry.kind(kind_name).Config.model_validate(stored)
    except ValidationError as error:
        found = invalid(error, "config")
        raise BadConfig(found.message, field=found.field) from None


def blueprint_view(blueprint: Blueprint, *, secrets: bool = False) -> BlueprintView:
    """A blueprint; with the secrets of the credentials that its config names where they are needed."""
    read = config(blueprint.kind, blueprint.config)
    named = {value for name, value in read if name.endswith("credential") and value} if secrets else set()
    return BlueprintView(
        id=blueprint.pk,
        name=blueprint.name,
        kind=blueprint.kind,
        generation=blueprint.generation,
        config=read,
        credentials={c.name: c.secrets for c in Credential.objects.filter(name__in=named)} if named else {},
    )


def asked_view(lease: Lease, kind_name: str) -> Asked:
    """What a lease asks for, its requirements as the kind's Requirements where it knows them all."""
    return asked(
        kind_name,
        {
            "type": lease.type, "requirements": lease.requirements, "exclusive": lease.exclusive,
            "slots": lease.slots, "cpu_millicores": lease.cpu_millicores, "ram_mib": lease.ram_mib,
            "disk_mib": lease.disk_mib, "extra": lease.extra, "traits": lease.traits,
            "forbidden_traits": lease.forbidden_traits, "preferred_traits": lease.preferred_traits,
        },
    )  # fmt: skip


def asked(kind_name: str, stored: dict[str, Any]) -> Asked:
    """The same from what a run keeps of it. Raises ValidationError where the kind does not know a requirement."""
    return Asked(
        type=stored["type"],
        requirements=registry.kind(kind_name).Requirements.model_validate(stored["requirements"]),
        amounts=Amounts(**{name: stored[name] for name in ("slots", "cpu_millicores", "ram_mib", "disk_mib", "extra")}),
        exclusive=stored["exclusive"],
        traits=frozenset(stored["traits"]),
        forbidden_traits=frozenset(stored["forbidden_traits"]),
        preferred_traits=frozenset(stored["preferred_traits"]),
    )


def key(letter: str, pk: int) -> str:
    """The name outside of resource (`r`) or lease (`l`) `pk`: unique to this installation and safe in DNS."""
    here = installation.current()
    return _key(here.short, here.epoch_of(letter, pk), letter, pk)


def made_as(resource: Resource) -> proof.Proven:
    """In which epoch and for which number a resource was made. An adopted one was made for a row that is lost."""
    lost = resource.facts.get("adopted") if resource.origin == Resource.Origin.ADOPTED else None
    if lost:
        return proof.Proven(epoch=lost["epoch"], resource=lost["resource"])
    return proof.Proven(epoch=installation.current().epoch_of("r", resource.pk), resource=resource.pk)


def name_of(resource: Resource) -> str:
    """The name of a resource outside."""
    return key_of(installation.current(), made_as(resource))


def key_of(here: installation.Standing, made: proof.Proven) -> str:
    """The name under which a resource was made, whatever has become of its row."""
    return _key(here.short, made.epoch, "r", made.resource)


def _key(short: str, epoch: int, letter: str, pk: int) -> str:
    return f"dd-{short}-{epoch}-{letter}{pk}"


def tags(resource: Resource) -> dict[str, str]:
    """What marks a thing outside as ours, with the proof that it is."""
    made, blueprint = made_as(resource), resource.blueprint.name
    if resource.origin == Resource.Origin.ADOPTED:
        blueprint = resource.facts.get("adopted", {}).get("blueprint") or blueprint
    return {**proof.tags(installation.current().short, made.epoch, made.resource), proof.BLUEPRINT: blueprint}


def resource_view(resource: Resource, *, parents: bool = True, ending: bool = False) -> ResourceView:
    """A resource with its secrets and, unless told otherwise, the leases that it holds on others.

    `ending`: also those that are over, as they last were, as long as something is left of them.
    """
    return ResourceView(
        id=resource.pk,
        key=name_of(resource),
        name=resource.name,
        type=resource.type,
        origin=resource.origin,
        blueprint=blueprint_view(resource.blueprint, secrets=True),
        attributes=resource.attributes,
        capacity=Amounts(
            slots=resource.total_slots, cpu_millicores=resource.total_cpu_millicores, ram_mib=resource.total_ram_mib,
            disk_mib=resource.total_disk_mib, extra={c.name: c.total for c in resource.capacities.all()},
        ),
        traits=frozenset(resource.traits),
        parts=tuple(
            Part(part_class=p.part_class, identity=p.identity, attributes=p.attributes, state=cast(State, p.state))
            for p in resource.parts.order_by("id")
        ),
        identity=resource.identity or "",
        facts=resource.facts,
        secrets=resource.secrets or {},
        registration=resource.registration,
        offer=resource.offer,
        power=resource.power,
        power_wanted=resource.power_wanted,
        dies_at=resource.dies_at,
        parents=held_by(for_resource=resource.pk, ending=ending) if parents else {},
        locks=locks(resource_id=resource.pk),
    )  # fmt: skip


def lease_view(
    lease: Lease, *, still_mine: Callable[[], None] | None = None, ending: bool = False,
    resource: ResourceView | None = None,
) -> LeaseView:  # fmt: skip
    """A lease on its resource, able to open interfaces. `resource`: where it was read already."""
    assert lease.resource is not None
    check, there = still_mine or (lambda: None), lease.resource
    return LeaseView(
        id=lease.pk,
        key=key("l", lease.pk),
        owner=lease.owner.get_username() if lease.owner is not None else "",
        asked=asked_view(lease, lease.resource.blueprint.kind),
        resource=resource or resource_view(lease.resource, ending=ending),
        facts=lease.facts,
        secrets=lease.secrets or {},
        public_keys=tuple(lease.public_keys),
        parents=held_by(for_lease=lease.pk),
        locks=locks(lease_id=lease.pk),
        until=lease.until,
        others=lambda: _asked_beside(lease.pk, there),
        opener=lambda view, name: opened(view, name, check),
        controlled=control_of,
    )


def _asked_beside(lease_id: int, resource: Resource) -> tuple[Asked, ...]:
    found = Lease.objects.filter(resource=resource, state__in=("acquired", "active")).exclude(pk=lease_id)
    return tuple(asked_view(lease, resource.blueprint.kind) for lease in found)


def opened(view: LeaseView, name: str, still_mine: Callable[[], None]) -> Interface:
    """The interface `name` on a lease. Raises NotSupported when its kind has none of that name."""
    openers = registry.kind(view.resource.blueprint.kind).interfaces()
    if name not in openers:
        there = ", ".join(sorted(openers)) or "none"
        raise NotSupported(
            f"A lease on {view.resource.blueprint.kind!r} has no interface {name!r}.", hint=f"It has: {there}."
        )
    return openers[name](view, still_mine)


def control_of(view: LeaseView) -> Control | None:
    """The way to the host under a lease past the lease's own account, where its kind has one."""
    kind = registry.kind(view.resource.blueprint.kind)
    return kind.control(view) if isinstance(kind, Controls) else None


_HOLDS = "SELECT 1 FROM leases_lease WHERE {whose}_id = %s AND state = %s AND need <> '' LIMIT 1"
"""Most hold nothing, and this costs far less than reading what is held."""


def held_by(
    *, for_resource: int | None = None, for_lease: int | None = None, ending: bool = False
) -> dict[str, LeaseView]:
    """The active leases that a resource or a lease holds, by the name under which it asked for them."""
    whose = {"for_resource": for_resource} if for_resource is not None else {"for_lease": for_lease}
    wanted = Q(**whose, state="active")
    if ending and for_resource is not None:
        wanted |= Q(pk__in=parentage.last(for_resource)[0])
    elif not rows(_HOLDS.format(whose=next(iter(whose))), (next(iter(whose.values())), "active"), hot=True):
        return {}
    found = Lease.objects.filter(wanted).exclude(need="").select_related("owner", "resource__blueprint")
    return {lease.need: lease_view(lease, ending=ending) for lease in found.order_by("pk")}


def owed_view(debt: Debt) -> LeaseView:
    """A lease as it was on the resource that it lost."""
    lease = debt.lease
    lease.resource, lease.facts, lease.secrets = debt.resource, debt.facts, debt.secrets
    held = Lease.objects.filter(pk__in=debt.holds.values()).select_related("owner", "resource__blueprint")
    parents = {name: lease_view(one) for name, pk in debt.holds.items() for one in held if one.pk == pk}
    return replace(lease_view(lease), locks=debt.locks, parents=parents)


def locks(**holder: int) -> dict[str, str]:
    """The slot locks of a holder by the name under which it asked for them."""
    ((column, pk),) = holder.items()
    return dict(rows(f"SELECT name, value FROM leases_slotlock WHERE {column} = %s AND name <> ''", (pk,), hot=True))
