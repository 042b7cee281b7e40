"""The hardware of hosts as it was last reported: what is ready, what is not and why, and who holds it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import BigIntegerField, Case, Count, F, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, JSONObject

from blueprints import registry
from drydock.core.errors import Conflict, DrydockError, NotFound
from drydock_agent import Device, Hardware
from drydock_agent.pci import NOT_LEASED
from drydock_agent.scan import CAPTURED
from drydock_agent.wire import encoded
from drydock_client.values import DeviceInfo, HardwareInfo, HardwareScanInfo
from leases.agents import administration
from leases.engine.core.database import rows
from leases.engine.sync import discovery
from leases.models import Agent, Finding, Lease, Resource, Sync
from leases.operations.callers import Caller, operator_only
from leases.validation.input_checks import checked

HOLDING = ("acquired", "active", "released")
"""States of leases that hold their resources."""
_CLOSED = "Resource {} above it is leased as a whole, or out of service."
_CANDIDATES = ("lease_candidate", "part")


@checked
def hardware_reports(
    who: Caller, *, host: str = "", blueprint: str = "", limit: int = 500, after: int = 0
) -> list[HardwareInfo]:
    """Return the hardware of hosts without the devices. `after` returns only ids above it, for paging."""
    found = reports(who).filter(pk__gt=after)
    if blueprint:
        found = found.filter(blueprint__name=blueprint)
    if host:
        found = named(found, host)
    return Read(who, found.order_by("pk")[:limit]).infos()


@checked
def hardware_report(who: Caller, report_id: int) -> HardwareInfo:
    """Return the hardware of a host with its devices. Raises NotFound, also if the caller holds none of them."""
    return Read(who, _one(who, report_id)).full()


@checked
def scan_hardware(who: Caller, report_id: int) -> HardwareScanInfo:
    """Order the agent of a host to report, or let a worker read the host. Raises NotFound, NotAllowed and Conflict."""
    operator_only(who, "scan the hardware of hosts")
    sync = _one(who, report_id).first()
    if sync is None:
        raise _missing(report_id)
    if not sync.blueprint.enabled:
        raise Conflict(f"Blueprint {sync.blueprint.name} is disabled.", hint="Enable it first.")
    order = agent = None
    if sync.source == Sync.Source.SENT:
        agent = Agent.objects.filter(blueprint=sync.blueprint_id, place=sync.place, revoked_at=None).first()
        if agent is None:
            raise Conflict(
                f"No agent reports about {sync.place or sync.blueprint.name} any more.",
                hint=f"Let one join: drydock agents join {sync.blueprint.name}",
            )
        order = administration.order_agent(who, agent.pk).id
    else:
        discovery.soon(sync)
        sync.refresh_from_db(fields=["due_at"])
    return HardwareScanInfo(
        report=sync.pk, by="discovery" if agent is None else "agent", agent=agent.pk if agent else None, order=order,
        next_at=sync.due_at,
    )  # fmt: skip


def _missing(report_id: int) -> NotFound:
    return NotFound(f"Report {report_id} about hardware does not exist.", field="id")


def _one(who: Caller, report_id: int) -> QuerySet[Any]:
    return reports(who).filter(pk=report_id)


def reports(who: Caller) -> QuerySet[Any]:
    """Return the places about whose hardware the caller may know, without the reports' content.

    Each has the id and the name of its host, if its host is a resource, as `host_id` and `host_name`.
    """
    kinds = [name for name in registry.names() if _reports_hardware(name)]
    placed = [name for name in kinds if getattr(registry.kind(name), "places_are_resources", False)]
    number = Case(
        When(blueprint__kind__in=placed, place__regex=r"^[0-9]{1,18}$", then=Cast("place", BigIntegerField()))
    )
    there = Resource.objects.filter(pk=OuterRef("host_id"), gone_at=None)
    found = (
        Sync.objects.filter(blueprint__kind__in=kinds, blueprint__removed_at=None)
        .exclude(source=Sync.Source.DROPPED).exclude(place="", hardware=None)
        .annotate(host_id=number, host_name=Subquery(there.values("name")[:1]))
        .exclude(blueprint__kind__in=placed, host_name=None)
        .select_related("blueprint", "hardware").defer("hardware__content")
    )  # fmt: skip
    if who.operator:
        return found
    return found.filter(pk__in=Finding.objects.filter(resource__in=_held_by(who)).values("sync"))


def named(found: QuerySet[Any], host: str) -> QuerySet[Any]:
    """Return the reports about hosts with a name or id."""
    return found.filter(Q(place=host) | Q(host_name=host))


@cache
def _reports_hardware(name: str) -> bool:
    try:
        return bool(getattr(registry.kind(name), "reports_hardware", False))
    except DrydockError:
        return False


def _held_by(who: Caller) -> QuerySet[Any]:
    return Lease.objects.filter(owner_id=who.id, state__in=HOLDING).exclude(resource=None).values("resource")


class Read:
    """The reports of some places, with all that belongs to them, in a fixed number of statements."""

    def __init__(self, who: Caller, found: Iterable[Any], *, agents: Iterable[Agent] | None = None) -> None:
        self.who = who
        self.syncs = list(found)
        if agents is not None:
            self.agents = {(one.blueprint_id, one.place): one for one in agents}

    @cached_property
    def agents(self) -> Mapping[tuple[int, str], Agent]:
        """The agents, by blueprint and place."""
        found = Agent.objects.filter(
            revoked_at=None, blueprint__in={one.blueprint_id for one in self.syncs},
            place__in={one.place for one in self.syncs},
        ).defer("secrets")  # fmt: skip
        return {(one.blueprint_id, one.place): one for one in found}

    @cached_property
    def resources(self) -> Mapping[int, Mapping[str, Resource]]:
        """The resources that represent devices, by report and device. `holders`: ids and owners of their leases."""
        held = Q(leases__state__in=HOLDING)
        if not self.who.operator:
            held &= Q(leases__owner_id=self.who.id)
        holder = JSONObject(id="leases__pk", owner="leases__owner__username")
        found: Iterable[Any] = (
            Resource.objects.filter(finding__sync__in=self.syncs, gone_at=None)
            .annotate(of=KT("facts__device__id"), report=F("finding__sync"))
            .annotate(holders=ArrayAgg(holder, filter=held, order_by="leases__pk", default=Value([])))
            .defer("secrets", "facts")
        )  # fmt: skip
        by_report: dict[int, dict[str, Resource]] = {}
        for one in found:
            device = one.of or one.identity.partition("/")[2]
            if self.who.operator or one.holders:
                by_report.setdefault(one.report, {})[device] = one
        return by_report

    def contents(self, pks: Collection[int] | None = None) -> Mapping[int, Hardware]:
        """Return the hardware that was reported, by report, of all places or of some."""
        wanted = [one.pk for one in self.syncs] if pks is None else list(pks)
        found = Sync.objects.filter(pk__in=wanted, hardware__content__isnull=False)
        return {pk: unpacked(content) for pk, content in found.values_list("pk", "hardware__content") if content}

    def infos(self) -> list[HardwareInfo]:
        """Return the reports without the devices."""
        if self.who.operator:
            return [self.info(one) for one in self.syncs]
        counts = self._counts_of_owner()
        return [replace(self.info(one), counts=counts.get(one.pk, {})) for one in self.syncs]

    def _counts_of_owner(self) -> dict[int, dict[str, dict[str, int]]]:
        """Return the counts of the devices that the owner's leases hold, by report.

        The database counts what the reports say about each device. A report is unpacked only if an earlier version
        stored it, which did not keep the readiness of each device.
        """
        said = "draft__attributes__class", "draft__facts__device__readiness", "draft__attributes__health"
        held: Iterable[Any] = (
            Finding.objects.filter(sync__in=self.syncs, resource__gone_at=None, resource__missed=0)
            .filter(resource__leases__owner_id=self.who.id, resource__leases__state__in=HOLDING)
            .values_list("sync", *map(KT, said)).annotate(number=Count("resource", distinct=True))
        )  # fmt: skip
        counts: dict[int, dict[str, Counter[str]]] = {}
        unknown = set()
        for sync, device_class, readiness, health, number in held:
            unknown |= {sync} if readiness is None else set()
            of_class = counts.setdefault(sync, {}).setdefault(device_class or "", Counter())
            of_class[_counted_as(readiness or "", health or "")] += number
        told = {sync: {name: dict(one) for name, one in found.items()} for sync, found in counts.items()}
        known = self.contents(unknown) if unknown else {}
        return told | {one.pk: self._counts(one, known.get(one.pk)) for one in self.syncs if one.pk in unknown}

    def _counts(self, sync: Sync, hardware: Hardware | None) -> dict[str, dict[str, int]]:
        counts: dict[str, Counter[str]] = {}
        for one in self.devices(sync, hardware) if hardware else ():
            counts.setdefault(one.device_class, Counter())[_counted_as(one.readiness, one.health)] += 1
        return {name: dict(found) for name, found in counts.items()}

    def full(self) -> HardwareInfo:
        """Return the only report with its devices. Raises NotFound if there is none."""
        if not self.syncs:
            raise NotFound("This host does not exist, or no lease of yours holds a device in it.", field="id")
        (sync,) = self.syncs
        hardware = self.contents().get(sync.pk)
        found = self.info(sync)
        devices = tuple(self.devices(sync, hardware)) if hardware else ()
        if not self.who.operator:
            return replace(found, devices=devices, counts=self._counts(sync, hardware))
        if hardware is None:
            return found
        return replace(
            found, devices=devices, captured=CAPTURED in hardware.traits, facts=encoded(hardware.host),
            warnings=tuple(f"{one.subject}: {one.message}" for one in hardware.warnings),
        )  # fmt: skip

    def info(self, sync: Any) -> HardwareInfo:
        """Return a report without its devices."""
        hardware = getattr(sync, "hardware", None)
        agent = self.agents.get((sync.blueprint_id, sync.place))
        message, state = sync.message, "ok"
        if hardware is not None and hardware.size > discovery.MOST_HARDWARE:
            message = f"The report has {hardware.size:,} bytes, so only its counts are kept. {message}".strip()
        if agent is not None and (said := administration.problem(agent)):
            message = f"{said} {message}".strip()
        if agent is not None and agent.silent_since is not None:
            state = "silent"
        elif sync.seen_at is None and hardware is None and not message:
            state = "unread"
        elif message:
            state = "failing"
        operator = self.who.operator
        return HardwareInfo(
            id=sync.pk, blueprint=sync.blueprint.name, place=sync.place,
            name=sync.host_name or (agent.name if agent else "") or sync.place, host=sync.host_id, source=sync.source,
            agent=agent.pk if agent and operator else None, state=state, message=message if operator else "",
            reported_at=_reported_at(sync, agent),
            changed_at=hardware.changed_at if hardware else None, next_at=sync.due_at,
            counts=hardware.counts if hardware else {},
        )  # fmt: skip

    def devices(self, sync: Sync, hardware: Hardware) -> list[DeviceInfo]:
        """Return the devices of a report that the caller may see."""
        there = self.resources.get(sync.pk, {})
        return [device_info(one, there.get(one.id)) for one in hardware.devices if self.who.operator or one.id in there]


def _reported_at(sync: Sync, agent: Agent | None) -> Any:
    """Return when the last report came. A report of which something could not be stored counts as well."""
    if agent is not None and sync.source == Sync.Source.SENT:
        return agent.reported_at
    return max(filter(None, (sync.seen_at, sync.applied_at)), default=None)


def unpacked(content: bytes | memoryview) -> Hardware:
    """Return the hardware that `discovery` has kept."""
    return Hardware.from_json(json.loads(gzip.decompress(bytes(content))))


def device_info(device: Device, resource: Any) -> DeviceInfo:
    """Return a device as a value. `resource` represents it, with its leases as `holders`, or is None."""
    flags: Iterable[str] = ()
    if resource is not None:
        found = {
            "drained": resource.drained, "quarantined": resource.quarantined, "maintenance": resource.in_maintenance,
            "suspect": resource.suspect_since is not None, "closed": bool(resource.closed_by),
        }  # fmt: skip
        flags = (word for word, on in found.items() if on)
    return DeviceInfo(
        id=device.id, part_of=device.part_of, kind=device.kind, device_class=device.device_class, role=device.role,
        model=device.model, readiness=device.readiness.value if device.readiness else "",
        reason=_why(device, resource), driver=device.driver, numa_node=device.numa_node,
        iommu_group=device.iommu_group, link=str(device.link or ""), firmware=dict(device.firmware),
        memory_mib=device.memory_mib, health=device.health.value if device.health else "",
        resource=None if resource is None else resource.pk,
        resource_state="" if resource is None else ", ".join([resource.state, *flags]),
        leases=() if resource is None else tuple(one["id"] for one in resource.holders), facts=encoded(device),
    )  # fmt: skip


def _counted_as(readiness: str, health: str) -> str:
    return "failed" if readiness == "ready" and health == "failed" else readiness


_BY_CLASS = """
    WITH counted AS (
        -- A lease that requires a class without requesting its capacity uses a slot.
        SELECT c.resource_id, c.name, c.total,
            greatest(c.used, c.total * r.used_slots / nullif(r.total_slots, 0)) AS used
        FROM leases_capacity c JOIN leases_resource r ON r.id = c.resource_id),
    there AS (
        SELECT c.name, c.used, c.total - c.used AS rest, r.quarantined AND r.note LIKE 'Not ready:%%' AS unready,
            r.claimable AND r.suspect_since IS NULL AND r.closed_by = '{}' AND r.reserved_for_id IS NULL
                AND b.enabled AND NOT b.drained AS open
        FROM counted c JOIN leases_resource r ON r.id = c.resource_id
        JOIN blueprints_blueprint b ON b.id = r.blueprint_id
        JOIN leases_finding f ON f.resource_id = r.id JOIN leases_reportedhardware h ON h.sync_id = f.sync_id
        WHERE r.gone_at IS NULL),
    held AS (
        SELECT name, sum(used) AS used, coalesce(sum(rest) FILTER (WHERE open), 0) AS free,
            coalesce(sum(rest) FILTER (WHERE NOT open AND NOT unready), 0) AS closed
        FROM there GROUP BY 1),
    reported AS (
        SELECT c.key AS name, sum(s.value::bigint) FILTER (WHERE s.key <> 'ready') AS unready
        FROM leases_reportedhardware h JOIN leases_sync y ON y.id = h.sync_id
        JOIN blueprints_blueprint b ON b.id = y.blueprint_id
        CROSS JOIN LATERAL jsonb_each(h.counts) c CROSS JOIN LATERAL jsonb_each_text(c.value) s
        WHERE y.source <> 'dropped' AND b.removed_at IS NULL GROUP BY 1)
    SELECT name, coalesce(used, 0)::bigint, coalesce(free, 0)::bigint, coalesce(closed, 0)::bigint,
        coalesce(unready, 0)::bigint
    FROM held FULL JOIN reported USING (name) ORDER BY name"""


@dataclass(frozen=True, kw_only=True)
class ClassFigures:
    """The numbers of devices of a class in all hosts. Devices that are not ready are quarantined, or not resources."""

    name: str
    used: int
    free: int
    closed: int
    """Ready but closed to new leases: drained, quarantined, not answering, reserved, or below a host that is leased."""
    unready: int


def by_class() -> list[ClassFigures]:
    """Return the figures of every class of devices, in one statement."""
    names = ("name", "used", "free", "closed", "unready")
    return [ClassFigures(**dict(zip(names, row, strict=True))) for row in rows(_BY_CLASS)]


def _why(device: Device, resource: Any) -> str:
    """Return why a device cannot be leased, and what is wrong with it."""
    found = [NOT_LEASED.get(device.role) or device.reason, *device.problems]
    if resource is not None:
        found += [resource.note] if resource.quarantined or resource.drained else []
        found += [resource.message] if resource.suspect_since is not None else []
        found += [_CLOSED.format(resource.closed_by[0])] if resource.closed_by else []
    elif device.role in _CANDIDATES and device.readiness == "ready" and not device.problems:
        found.append("It is ready, but the blueprint does not lease it.")
    return " ".join(dict.fromkeys(one for one in found if one))
