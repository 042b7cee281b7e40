"""Convert database rows to the frozen values that kinds work on, find dependencies, and redact secrets.

A lost lease may have left something on its resource: the host may answer again, or an account may not have been removed
yet. A resource that exists only inside its dependencies is gone once all these dependencies are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from typing import Any, cast

from django.conf import settings
from django.db.models import Q
from pydantic import ValidationError

from blueprints import registry
from blueprints.amounts import Amounts
from blueprints.answers import Answer, Json, Maintenance, Ready, Resolution
from blueprints.contract import Activates, Cleans, Controls, acts_of
from blueprints.models import Blueprint, Credential
from blueprints.parts import Part, State
from blueprints.specs import Asked, BlueprintView, Control, HostView, LeaseView, ResourceView, Spec, UnitHost, Whole
from drydock.core.errors import DrydockError, NotSupported
from drydock.core.logging import hidden, redact
from interfaces.contract import Interface
from interfaces.errors import LeaseEnded
from interfaces.transport import Transport
from leases import logins, slot_locks
from leases.engine.core import installation
from leases.engine.core.database import rows
from leases.models import Debt, FormerConfig, Lease, Resource, ResourceCredential, Run
from leases.validation.requests import invalid

_LAST = """
    SELECT DISTINCT ON (c.need) c.id, r.state = 'active', b.kind, EXISTS (
            SELECT FROM leases_share s WHERE s.lease_id = c.id AND s.resource_id = r.id)
        OR EXISTS (SELECT FROM leases_debt d
            WHERE d.lease_id = c.id AND d.resource_id = r.id AND d.phase = 'deactivate')
    FROM leases_lease c JOIN leases_resource r ON r.id = c.resource_id JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    WHERE c.for_resource_id = %s AND c.need <> '' AND c.need_phase = '' AND c.active_at IS NOT NULL
    ORDER BY c.need, c.id DESC"""


def last_dependencies(resource_id: int) -> tuple[list[int], list[int]]:
    """Return the ids of the latest leases that the resource needs for its whole life, as two lists.

    The first list contains the leases that may have left something on the resource that they were on, the second list
    all others.
    """
    left, gone = list[int](), list[int]()
    for lease_id, there, kind, kept in rows(_LAST, (resource_id,)):
        (left if there and (kept or not _undone(kind)) else gone).append(lease_id)
    return left, gone


def _undone(kind: str) -> bool:
    """Return whether the end of a lease of this kind removes everything that was built on the lease."""
    return isinstance(registry.kind(kind), Activates | Cleans)


def has_lost_all_dependencies(resource: Resource) -> bool:
    """Return whether the resource exists only inside its dependencies, and all these dependencies are gone."""
    if not _gone_with_needs(resource):
        return False
    left, gone = last_dependencies(resource.pk)
    return bool(gone) and not left


def has_lost_a_dependency(resource: Resource) -> bool:
    """Return whether the resource exists only inside its dependencies, and one of these dependencies is gone.

    Such a resource may never answer again.
    """
    return _gone_with_needs(resource) and bool(last_dependencies(resource.pk)[1])


def _gone_with_needs(resource: Resource) -> bool:
    return registry.kind(resource.blueprint.kind).gone_with_needs


def secrets_of(spec: Spec) -> list[Any]:
    """Return every secret that a step with this spec can access, including the secrets of the leases it depends on."""
    leases = [*spec.parents.values(), *([spec.lease] if spec.lease is not None else [])]
    return [*resource_secrets(spec.resource), *(found for lease in leases for found in _of_lease(lease))]


def _of_lease(lease: LeaseView) -> Iterator[Any]:
    yield lease.secrets
    yield from resource_secrets(lease.resource)
    for parent in lease.parents.values():
        yield from _of_lease(parent)


def resource_secrets(resource: ResourceView) -> Iterator[Any]:
    """Yield the secrets of a resource, of its account and of everything that the resource depends on."""
    yield resource.secrets
    yield resource.credential
    yield resource.blueprint.credentials
    for parent in resource.parents.values():
        yield from _of_lease(parent)


def redacted(answer: Answer) -> Answer:
    """Return the answer with NUL bytes and secrets removed from its texts.

    Secrets that the answer itself contains are removed too. NUL bytes are removed because PostgreSQL cannot store them
    in text.
    """
    said = {field.name: getattr(answer, field.name) for field in fields(answer)}
    with hidden(*(_own_secrets(answer) if isinstance(answer, Ready) else [])):
        clean = {name: redact(text.replace("\0", "")) for name, text in said.items() if type(text) is str}
    return replace(answer, **clean)  # type: ignore[arg-type]


def _own_secrets(answer: Ready) -> list[Json]:
    return [answer.secrets, answer.resource_secrets, answer.own_credential]


class BadConfig(DrydockError):
    """The stored config of a blueprint does not fit its kind."""

    code = "bad_config"


def config(kind_name: str, stored: Any) -> Any:
    """Parse a stored config into the kind's Config. Raises BadConfig or KindNotFound."""
    try:
        return registry.kind(kind_name).Config.model_validate(stored)
    except ValidationError as error:
        found = invalid(error, "config")
        raise BadConfig(found.message, field=found.field) from None


def blueprint_view(blueprint: Blueprint, *, secrets: bool = False) -> BlueprintView:
    """Return a blueprint as a frozen value, with the secrets of its credentials if `secrets` is true."""
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
    """Return the request of a lease as a frozen value.

    Raises ValidationError if the kind does not accept one of the requirements.
    """
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
    """Return the lease request stored with a run. Raises ValidationError if the kind does not accept a requirement."""
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
    """Return the external name of the resource or lease with the id `pk`; `letter` is `r` or `l`.

    The name is a valid DNS label, and no other installation uses it.
    """
    here = installation.current()
    return _key(here.short, here.epoch_of(letter, pk), letter, pk)


def made_as(resource: Resource) -> installation.Proven:
    """Return the epoch and the resource id under which the provider object of a resource was created.

    For an adopted resource, these are the epoch and the id of the lost resource.
    """
    lost = resource.facts.get("adopted") if resource.origin == Resource.Origin.ADOPTED else None
    if lost:
        return installation.Proven(epoch=lost["epoch"], resource=lost["resource"])
    return installation.Proven(epoch=installation.current().epoch_of("r", resource.pk), resource=resource.pk)


def name_of(resource: Resource) -> str:
    """Return the external name of a resource."""
    return key_of(installation.current(), made_as(resource))


def key_of(here: installation.Standing, made: installation.Proven) -> str:
    """Return the external name of the resource created as `made`, even if that resource no longer has a row."""
    return _key(here.short, made.epoch, "r", made.resource)


def _key(short: str, epoch: int, letter: str, pk: int) -> str:
    return f"dd-{short}-{epoch}-{letter}{pk}"


def tags(resource: Resource) -> dict[str, str]:
    """Return the tags that mark a provider object as ours, including the proof of ownership."""
    made, blueprint = made_as(resource), resource.blueprint.name
    if resource.origin == Resource.Origin.ADOPTED:
        blueprint = resource.facts.get("adopted", {}).get("blueprint") or blueprint
    return {
        **installation.tags(installation.current().short, made.epoch, made.resource),
        installation.BLUEPRINT: blueprint,
    }


def resource_view(resource: Resource, *, parents: bool = True, ending: bool = False) -> ResourceView:
    """Return a resource as a frozen value, including its secrets.

    If `parents` is true, include the active leases that the resource holds on other resources. If `ending` is also
    true, include ended leases that may have left something behind, in their last state.
    """
    return replace(
        _plain(resource, blueprint_view(resource.blueprint, secrets=True)),
        parts=tuple(
            Part(part_class=p.part_class, identity=p.identity, attributes=p.attributes, state=cast(State, p.state))
            for p in resource.parts.order_by("id")
        ),
        parents=held_by(for_resource=resource.pk, ending=ending) if parents else {},
        locks=locks(resource_id=resource.pk),
        part_of=wholes(resource.pk) if resource.part_of_id is not None else (),
        lease_facts=lambda: _facts_of_leases(resource.pk),
        holders=lambda: _keys_of_leases(resource.pk),
        fresh=lambda: _is_fresh(resource),
        host=lambda: host_of(resource.pk),
    )


def idle_views(blueprint: Blueprint, resources: Iterable[Resource]) -> list[ResourceView]:
    """Return idle resources of a blueprint without their parts, parents, slot locks and wholes."""
    view = blueprint_view(blueprint, secrets=True)
    return [_plain(resource, view) for resource in resources]


def _plain(resource: Resource, blueprint: BlueprintView) -> ResourceView:
    """Return the fields of a resource that are in its own row, with its amounts and its own credential."""
    return ResourceView(
        id=resource.pk,
        key=name_of(resource),
        name=resource.name,
        type=resource.type,
        origin=resource.origin,
        blueprint=blueprint,
        attributes=resource.attributes,
        capacity=Amounts(
            slots=resource.total_slots, cpu_millicores=resource.total_cpu_millicores, ram_mib=resource.total_ram_mib,
            disk_mib=resource.total_disk_mib, extra={c.name: c.total for c in resource.capacities.all()},
        ),
        traits=frozenset(resource.traits),
        identity=resource.identity or "",
        facts=resource.facts,
        secrets=resource.secrets or {},
        credential=_own_credential(resource),
        registration=resource.registration,
        offer=resource.offer,
        power=resource.power,
        power_wanted=resource.power_wanted,
        dies_at=resource.dies_at,
        locality=tuple(resource.locality),
        media_url=_media_url(resource.pk),
        logins=logins.RECORD,
    )  # fmt: skip


def _media_url(pk: int) -> str:
    base = settings.DRYDOCK.boot_url.rstrip("/")
    return f"{base}/boot/{pk}" if base else ""


def _own_credential(resource: Resource) -> dict[str, str]:
    """Return the secrets of a resource's own credential. Most resources have none, which costs no statement."""
    if not resource.credential_fields:
        return {}
    found = ResourceCredential.objects.filter(resource=resource).first()
    return {} if found is None else found.secrets


def _facts_of_leases(resource_id: int) -> tuple[Json, ...]:
    active = Lease.objects.filter(resource=resource_id, state="active")
    return tuple(active.order_by("pk").values_list("facts", flat=True))


def _keys_of_leases(resource_id: int) -> tuple[str, ...]:
    holding = Lease.objects.filter(resource=resource_id, state__in=("acquired", "active", "released"))
    return tuple(key("l", pk) for pk in holding.order_by("pk").values_list("pk", flat=True))


def _is_fresh(resource: Resource) -> bool:
    here = installation.current()
    # Before a database was restored, leases that it does not know may have had its resources.
    known = here.epoch == here.epoch_of("r", resource.pk) and resource.total_slots == 1
    if not known or resource.origin != Resource.Origin.BUILT or resource.state != "active":
        return False
    leases = Lease.objects.filter(resource=resource.pk).values_list("acquired_at", "active_at")[:2]
    # A lease that acquired it later may follow one that has gone to another resource since.
    return [at is not None and at <= resource.since and active is None for at, active in leases] == [True]


_WHOLES = """
    SELECT r.id, r.name, r.type, b.kind, coalesce(r.identity, ''), r.state, r.power
    FROM drydock_above(%s) a JOIN leases_resource r ON r.id = a.id JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    ORDER BY a.n"""


def wholes(resource_id: int) -> tuple[Whole, ...]:
    """Return the resources above a resource, from its parent to the topmost one."""
    return tuple(
        Whole(id=pk, name=name, type=type_, kind=kind, identity=identity, state=state, power=power)
        for pk, name, type_, kind, identity, state, power in rows(_WHOLES, (resource_id,))
    )


def host_view(host: Resource) -> HostView:
    """Return a host as a frozen value for kinds whose resources are parts of hosts."""
    return HostView(
        id=host.pk, name=host.name, blueprint=host.blueprint.name, attributes=host.attributes,
        traits=frozenset(host.traits), connect=lambda: _reach(host),
    )  # fmt: skip


def host_of(resource_id: int) -> HostView | None:
    """Return the host that a resource is part of, directly or not, or None."""
    above = [found for (found,) in rows("SELECT id FROM drydock_above(%s)", (resource_id,))]
    hosts = Resource.objects.filter(pk__in=above, type="host", gone_at=None).select_related("blueprint")
    return next((host_view(host) for host in hosts.order_by("pk")), None)


def _reach(host: Resource) -> Transport | None:
    kind = registry.kind(host.blueprint.kind)
    return kind.reach(resource_view(host, parents=False)) if isinstance(kind, Controls) else None


def lease_view(
    lease: Lease, *, still_mine: Callable[[], None] | None = None, ending: bool = False,
    resource: ResourceView | None = None,
) -> LeaseView:  # fmt: skip
    """Return a lease on its resource as a frozen value that can open interfaces.

    Pass `resource` if the resource has already been read.
    """
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
        slot_locks=slot_locks.DatabaseSlotLocks(lease.pk),
        until=lease.until,
        active=lease.state != "acquired",
        members=lambda: _group_of(lease),
        others=lambda: _asked_beside(lease.pk, there),
        opener=lambda view, name: opened(view, name, check),
        controlled=control_of,
    )


def _group_of(lease: Lease) -> tuple[LeaseView, ...]:
    if lease.group_id is None:
        return ()
    held = Lease.objects.filter(group_id=lease.group_id, state__in=("acquired", "active")).exclude(pk=lease.pk)
    return tuple(lease_view(one) for one in held.select_related("owner", "resource__blueprint").order_by("pk"))


def _asked_beside(lease_id: int, resource: Resource) -> tuple[Asked, ...]:
    found = Lease.objects.filter(resource=resource, state__in=("acquired", "active")).exclude(pk=lease_id)
    return tuple(asked_view(lease, resource.blueprint.kind) for lease in found)


def opened(view: LeaseView, name: str, still_mine: Callable[[], None]) -> Interface:
    """Open the interface `name` of a lease. Raises NotSupported if the kind of its resource has no such interface."""
    openers = registry.kind(view.resource.blueprint.kind).interfaces()
    if name not in openers:
        there = ", ".join(sorted(openers)) or "none"
        raise NotSupported(
            f"A lease on {view.resource.blueprint.kind!r} does not provide the interface {name!r}.",
            hint=f"Choose one of: {there}.",
        )
    return openers[name](view, still_mine)


def control_of(view: LeaseView) -> Control | None:
    """Return a control connection to the lease's host, or None.

    The connection does not use the lease's account on the host.
    """
    kind = registry.kind(view.resource.blueprint.kind)
    return kind.control(view) if isinstance(kind, Controls) else None


def unit_host_of(view: LeaseView) -> tuple[LeaseView, UnitHost] | None:
    """Return the host on which a workload of the lease can run as a unit, after the lease of the account there.

    A lease on a device uses the account of the lease on the device's host. Returns None if no unit can run.
    """
    kind = registry.kind(view.resource.blueprint.kind)
    if isinstance(kind, Controls) and (found := kind.unit_host(view)):
        return view, found
    below = view.parents.get("host") or next(
        (one for one in view.members() if one.id == view.facts.get("stands_on")), None
    )
    return None if below is None else unit_host_of(below)


_HOLDS = "SELECT 1 FROM leases_lease WHERE {whose}_id = %s AND state = %s AND need <> '' LIMIT 1"
"""A check that costs far less than reading the leases, and most holders hold no leases."""


def held_by(
    *, for_resource: int | None = None, for_lease: int | None = None, ending: bool = False
) -> dict[str, LeaseView]:
    """Return a mapping from name to lease for the leases that a resource or lease holds.

    The names are those under which steps requested the leases.

    Includes only active leases and, if `ending` is true, ended leases that may have left something behind.
    """
    whose = {"for_resource": for_resource} if for_resource is not None else {"for_lease": for_lease}
    wanted = Q(**whose, state="active")
    if ending and for_resource is not None:
        wanted |= Q(pk__in=last_dependencies(for_resource)[0])
    elif not rows(_HOLDS.format(whose=next(iter(whose))), (next(iter(whose.values())), "active"), hot=True):
        return {}
    found = Lease.objects.filter(wanted).exclude(need="").select_related("owner", "resource__blueprint")
    return {lease.need: lease_view(lease, ending=ending) for lease in found.order_by("pk")}


def owed_view(debt: Debt) -> LeaseView:
    """Return the lease after which a deferred cleanup is done, as it was when it ended or was lost.

    The interfaces of a lease that was deactivated refuse to work.
    """
    lease = debt.lease
    lease.resource, lease.facts, lease.secrets = debt.resource, debt.facts, debt.secrets
    check = _ended if debt.phase == Debt.Phase.CLEAN else None
    held = Lease.objects.filter(pk__in=debt.holds.values()).select_related("owner", "resource__blueprint")
    parents = {name: lease_view(one) for name, pk in debt.holds.items() for one in held if one.pk == pk}
    return replace(lease_view(lease, still_mine=check), locks=debt.locks, parents=parents)


def _ended() -> None:
    raise LeaseEnded


def locks(**holder: int) -> dict[str, str]:
    """Return a mapping from name to locked value for the slot locks that a lease or resource holds.

    The names are those under which steps requested the slot locks.
    """
    ((column, pk),) = holder.items()
    return dict(rows(f"SELECT name, value FROM leases_slotlock WHERE {column} = %s AND name <> ''", (pk,), hot=True))


def restore_generation(run: Run) -> None:
    """Give the blueprint of a run in memory the kind and config of the generation to which an update brings its resource.

    An update ends as it began if the blueprint is changed meanwhile. The next one brings the resource to the new config,
    which may disturb leases although this one does not.
    """
    blueprint = run.resource.blueprint
    generation = run.wanted.get("generation", blueprint.generation)
    if run.phase != Run.Phase.UPDATE or generation >= blueprint.generation:
        return
    former = FormerConfig.objects.filter(blueprint=blueprint, generation=generation).first()
    if former is not None:
        blueprint.kind, blueprint.config, blueprint.generation = former.kind, former.config, generation


def spec(run: Run, *, deadline: float) -> Spec:
    """Return the input of the next step of a run."""
    resource = run.resource
    own = resource_view(resource, ending=run.phase == Run.Phase.DESTROY)
    lease = _lease_of(run, own)
    name = own.key if lease is None else lease.key
    # The answer is then about a machine that was switched by hand, not about a Hold of the step.
    switching = run.maintenance or {}
    by_hand = bool(switching.get("by_hand")) and not switching["granted"]
    return Spec(
        phase=run.phase,
        key=name,
        token=f"{name}-{run.pk}-{run.position}",
        resource=own,
        lease=lease,
        asked=None if run.asked is None else asked(resource.blueprint.kind, run.asked),
        tags=tags(resource),
        parents={**own.parents, **(lease.parents if lease is not None else {})},
        deadline=deadline,
        locks={**own.locks, **(lease.locks if lease is not None else {})},
        granted=granted_names(run),
        wanted=run.wanted,
        resolution=None if run.resolution is None or by_hand else Resolution(**run.resolution),
        progress=run.progress or None,
        **_act(run),
    )


def _act(run: Run) -> dict[str, Any]:
    """Return the name of the act that a run carries out, with its arguments as the kind parses them."""
    if run.phase != Run.Phase.ACT:
        return {}
    declared = acts_of(registry.kind(run.resource.blueprint.kind))[run.wanted["act"]]
    return {"act": declared.name, "arguments": declared.Arguments.model_validate(run.wanted["arguments"])}


def _lease_of(run: Run, own: ResourceView) -> LeaseView | None:
    if run.debt_id is not None:
        return owed_view(Debt.objects.select_related("lease__owner", "resource__blueprint").get(pk=run.debt_id))
    if run.lease is None:
        return None
    there = own if run.lease.resource_id == own.id and run.phase != Run.Phase.DESTROY else None
    return lease_view(run.lease, resource=there)


_NAMED = ("relation", "action", "times")
"""The fields of a maintenance that its name is made of."""


def granted_names(run: Run) -> frozenset[str]:
    """Return the names of the maintenance that a run was granted in this phase, as `Maintenance.name` has them."""
    found = granted_maintenance(run)
    return frozenset(Maintenance(**{key: one[key] for key in _NAMED if one.get(key)}).name for one in found)


def granted_maintenance(run: Run) -> list[dict[str, Any]]:
    """Return the maintenance that a run was granted in this phase.

    Each item has the keys `resource`, `relation`, `action`, `times` and `granted`.
    """
    asked = run.maintenance or {}
    kept = {name: asked.get(name) for name in ("resource", "granted", *_NAMED)}
    return [*asked.get("earlier", ()), *([kept] if asked.get("granted") else [])]
