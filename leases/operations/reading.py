"""Rows into the frozen values that callers are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from django.db.models import BooleanField, Count, ExpressionWrapper, F, OuterRef, Q, QuerySet, Subquery, Window
from django.db.models.functions import Coalesce, RowNumber

from blueprints import registry
from blueprints.amounts import CLASSES
from blueprints.models import Blueprint
from drydock.core.errors import DrydockError
from leases.client.values import BlueprintInfo, EventInfo, JobInfo, LeaseInfo, Progress, ResourceInfo, Usage, Verdict
from leases.engine import waiting
from leases.models import Event, Job, Lease, Resource, Run
from leases.models.job import Watch
from leases.operations import watches, workers
from leases.reasons import Reason


def leases(found: QuerySet[Lease]) -> list[LeaseInfo]:
    """Leases as values, in a few statements however many they are."""
    rows = list(with_workers(found.select_related("owner", "resource__blueprint")))
    places = _places({lease.type for lease in rows if lease.state == "pending"})
    runs, watched = _runs_of_leases(rows), watches.of(rows)
    return [lease_info(one, place=places.get(one.pk), run=runs.get(one.pk), watch=watched.get(one.pk)) for one in rows]


def lease(row: Lease) -> LeaseInfo:
    """One lease as a value."""
    place = waiting.place(row.pk) + 1 if row.state == "pending" else None
    if row.state in ("pending", "acquired", "released"):
        row.unattended = Lease.objects.filter(workers.unattended(), pk=row.pk).exists()  # type: ignore[attr-defined]
    return lease_info(row, place=place, run=_runs_of_leases([row]).get(row.pk), watch=watches.of([row]).get(row.pk))


def with_workers(found: QuerySet[Lease]) -> QuerySet[Lease]:
    """Leases, each with whether somebody works for it: `said` tells."""
    return found.annotate(unattended=ExpressionWrapper(workers.unattended(), output_field=BooleanField()))


class Said(NamedTuple):
    """Why a lease is in its state."""

    reason: str
    message: str


_NO_WORKER = "No worker was seen lately, so nothing is built, cleaned or ended. Before that:"


def said(row: Lease) -> Said:
    """The reason and sentence of a lease; of one for which nobody works that comes first."""
    if not getattr(row, "unattended", False):
        return Said(row.reason, row.message)
    return Said(Reason.NO_WORKER, f"{_NO_WORKER} {row.message or row.reason.replace('_', ' ')}")


def _places(types: set[str]) -> dict[int, int]:
    """Waiting lease -> its place among those that wait for the same type, the first is 1."""
    if not types:
        return {}
    order = Window(RowNumber(), partition_by=[F("type")], order_by=[F("rank"), F("id")])
    found = Lease.objects.filter(state="pending", type__in=types).annotate(place=order)
    return {pk: place for pk, place in found.order_by().values_list("id", "place")}


def _runs_of_leases(rows: Iterable[Lease]) -> dict[int, Run]:
    """Lease -> what is carried out for it: its own run, else that of the resource it waits for."""
    open_ones = [row for row in rows if row.state in ("acquired", "released")]
    if not open_ones:
        return {}
    ids, resources = [r.pk for r in open_ones], [r.resource_id for r in open_ones]
    runs = Run.objects.filter(Q(lease__in=ids) | Q(resource__in=resources, lease=None))
    of_lease = {run.lease_id: run for run in runs if run.lease_id is not None}
    of_resource = {run.resource_id: run for run in runs if run.lease_id is None}
    found = {row.pk: of_lease.get(row.pk) or of_resource.get(row.resource_id or 0) for row in open_ones}
    return {pk: run for pk, run in found.items() if run is not None}


def lease_info(
    row: Lease, *, place: int | None = None, run: Run | None = None, watch: Watch | None = None
) -> LeaseInfo:
    """A row with its owner, resource and blueprint at hand."""
    resource = row.resource
    return LeaseInfo(
        id=row.pk, type=row.type, name=row.name, owner="" if row.owner is None else row.owner.get_username(),
        state=row.state, reason=said(row).reason, message=said(row).message, since=row.since, created_at=row.created_at,
        active_at=row.active_at, ended_at=row.ended_at, until=row.until, ttl=row.ttl,
        heartbeat_limit=row.heartbeat_limit, held=row.held, hold_until=row.hold_until, priority=row.priority,
        slots=row.slots, cpu_millicores=row.cpu_millicores, ram_mib=row.ram_mib, disk_mib=row.disk_mib,
        extra=row.extra, exclusive=row.exclusive, requirements=row.requirements, labels=row.labels,
        group=row.group_id, resource=row.resource_id, resource_name="" if resource is None else resource.name,
        blueprint="" if resource is None else resource.blueprint.name, ending=bool(row.release_wanted),
        for_lease=row.for_lease_id, for_resource=row.for_resource_id, replaced_by=row.replaced_by_id, place=place,
        progress=progress(run), verdicts=verdicts(row.verdicts), facts=row.facts,
        interfaces=() if resource is None else interface_names(resource.blueprint.kind),
        workload=watches.workload(watch), metrics=watches.metrics(watch),
    )  # fmt: skip


def verdicts(stored: Any) -> tuple[Verdict, ...]:
    """What candidates said, as it is kept with a lease."""
    return tuple(Verdict(**one) for one in stored or ())


def progress(run: Run | None) -> Progress | None:
    """What a run is at."""
    if run is None:
        return None
    return Progress(
        phase=run.phase, step=run.step, sentence=run.sentence, percent=run.percent, waits_for=run.waits_for,
        who=run.hold_who, uninterruptible=run.uninterruptible,
    )  # fmt: skip


def interface_names(kind: str) -> tuple[str, ...]:
    """The interfaces that leases on a kind have; none where the kind does not load."""
    try:
        return tuple(sorted(registry.kind(kind).interfaces()))
    except DrydockError:
        return ()


def resources(found: QuerySet[Resource]) -> list[ResourceInfo]:
    """Resources as values."""
    rows = list(found.select_related("blueprint").prefetch_related("capacities", "parts", "shares"))
    runs = {run.resource_id: run for run in Run.objects.filter(resource__in=[r.pk for r in rows], lease=None)}
    return [resource_info(row, runs.get(row.pk)) for row in rows]


def resource_info(row: Resource, run: Run | None = None) -> ResourceInfo:
    """A row with its blueprint, capacities, parts and shares at hand."""
    usage = {n: Usage(total=getattr(row, f"total_{n}"), used=getattr(row, f"used_{n}")) for n in CLASSES}
    usage |= {c.name: Usage(total=c.total, used=c.used) for c in row.capacities.all()}
    return ResourceInfo(
        id=row.pk, name=row.name, type=row.type, blueprint=row.blueprint.name, kind=row.blueprint.kind,
        origin=row.origin, identity=row.identity or "", part_of=row.part_of_id, state=row.state, reason=row.reason,
        message=row.message, since=row.since, created_at=row.created_at, dies_at=row.dies_at, gone_at=row.gone_at,
        idle_since=row.idle_since, drained=row.drained, quarantined=row.quarantined,
        in_maintenance=row.in_maintenance, outdated=row.generation < row.blueprint.generation, note=row.note,
        observed=row.observed, power=row.power, attributes=row.attributes, traits=tuple(row.traits), capacity=usage,
        facts=row.facts, reserved_for=row.reserved_for_id, leases=tuple(sorted(s.lease_id for s in row.shares.all())),
        parts=tuple(_part(part) for part in row.parts.all()), progress=progress(run),
    )  # fmt: skip


def _part(part: Any) -> Mapping[str, Any]:
    return {"class": part.part_class, "identity": part.identity, "state": part.state, "attributes": part.attributes}


def blueprints(found: QuerySet[Blueprint], problems: Iterable[Mapping[str, Any]] = ()) -> list[BlueprintInfo]:
    """Blueprints as values."""
    there = Resource.objects.filter(blueprint=OuterRef("pk"), gone_at=None).order_by().values("blueprint")
    counts = {
        "there": Coalesce(Subquery(there.annotate(n=Count("pk")).values("n")), 0),
        "building": Coalesce(Subquery(there.filter(state="pending").annotate(n=Count("pk")).values("n")), 0),
    }
    rows = found.annotate(**counts).prefetch_related("errors")
    return [_blueprint(row, tuple(problems)) for row in rows]


def _blueprint(row: Any, problems: tuple[Mapping[str, Any], ...]) -> BlueprintInfo:
    same = (
        "id", "name", "kind", "config", "order", "enabled", "drained", "audience", "generation", "max_resources",
        "min_ready", "max_builds", "idle_timeout", "max_lifetime", "check_interval", "note", "there", "building",
    )  # fmt: skip
    errors = tuple(
        {"id": e.pk, "scope": e.scope, "key": e.key, "message": e.message, "until": e.until} for e in row.errors.all()
    )
    known = {name: getattr(row, name) for name in same}
    return BlueprintInfo(**known, type=row.resource_type, errors=errors, problems=problems)


def event(row: Event) -> EventInfo:
    """One event as a value."""
    return EventInfo(
        id=row.pk, at=row.at, kind=row.kind, message=row.message, reason=row.reason, actor=row.actor,
        lease=row.lease_id, resource=row.resource_id, blueprint=row.blueprint_id, from_state=row.from_state,
        to_state=row.to_state, duration=row.duration, details=row.details,
    )  # fmt: skip


def job(row: Job) -> JobInfo:
    """One job as a value."""
    return JobInfo(
        id=row.pk, lease=row.lease_id, command=row.command, state=row.state, exit_code=row.exit_code,
        message=row.message, ends_lease=row.ends_lease, apart=row.apart, cancelling=row.cancel_wanted,
        created_at=row.created_at, started_at=row.started_at, ended_at=row.ended_at,
    )  # fmt: skip
