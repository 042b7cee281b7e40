"""Rows into the frozen values that callers are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from django.db.models import BooleanField, Case, Count, ExpressionWrapper, OuterRef, QuerySet, Subquery, When
from django.db.models.functions import Coalesce

from blueprints import registry
from blueprints.amounts import CLASSES
from blueprints.models import Blueprint
from drydock.core.errors import DrydockError
from leases.client.values import (
    BlueprintInfo,
    EventInfo,
    FailureInfo,
    JobInfo,
    LeaseInfo,
    Progress,
    ResourceInfo,
    Usage,
    Verdict,
    WaitingInfo,
)
from leases.models import Event, Failure, Job, Lease, Resource, Run
from leases.models.job import Watch
from leases.operations import watches, workers
from leases.operations.callers import Caller
from leases.reasons import Reason
from leases.reports import progress, waiting_answer, waiting_facts
from leases.reports.waiting_answer import Asker


def leases(found: QuerySet[Lease], who: Caller | None = None) -> list[LeaseInfo]:
    """Leases as values, in a few statements however many they are. `who` asks; without, each lease's own owner."""
    return _infos(list(with_workers(found.select_related("owner", "resource__blueprint"))), who)


def lease(row: Lease, who: Caller | None = None) -> LeaseInfo:
    """One lease as a value. `who` asks; without, its own owner."""
    if row.state in ("acquired", "released"):
        row.unattended = Lease.objects.filter(workers.unattended(), pk=row.pk).exists()  # type: ignore[attr-defined]
    return _infos([row], who)[0]


def _infos(rows: list[Lease], who: Caller | None) -> list[LeaseInfo]:
    why, under_way, watched = waits(rows, who), progress.of(rows), watches.of(rows)
    return [
        lease_info(one, why=why.get(one.pk), under_way=under_way.get(one.pk), watch=watched.get(one.pk))
        for one in rows
    ]  # fmt: skip


def waits(found: Iterable[Lease], who: Caller | None = None) -> dict[int, WaitingInfo]:
    """Lease -> why it waits, of those that are pending. `who` asks; without, each lease's own owner."""
    pending = [row for row in found if row.state == "pending"]
    if not pending:
        return {}
    facts = waiting_facts.read(pending)
    return {row.pk: waiting_answer.answer(row, facts, _asker(row, who)) for row in pending}


def with_waits(found: Iterable[Any], who: Caller) -> None:
    """Keep with each pending lease why it waits, as `who` may know it; `said` tells."""
    pending = [row for row in found if row.state == "pending"]
    why = waits(pending, who)
    for row in pending:
        row.why = why[row.pk]


def _asker(row: Lease, who: Caller | None) -> Asker:
    return Asker(id=row.owner_id) if who is None else Asker(id=who.id, operator=who.operator)


def with_workers(found: QuerySet[Lease]) -> QuerySet[Lease]:
    """Leases, each with whether somebody works for it: `said` tells."""
    return progress.with_failure(found).annotate(
        unattended=ExpressionWrapper(workers.unattended(), output_field=BooleanField())
    )


class Said(NamedTuple):
    """Why a lease is in its state."""

    reason: str
    message: str


_NO_WORKER = "No worker was seen lately, so nothing is built, cleaned or ended. Before that:"


def said(row: Lease, why: WaitingInfo | None = None) -> Said:
    """The reason and sentence of a lease; why it waits, where that is known, and first of all that nobody works."""
    why = why or getattr(row, "why", None)
    if why is not None:
        return Said(why.reason, f"{why.message} {why.help}".rstrip())
    if not getattr(row, "unattended", False):
        return Said(row.reason, row.message)
    return Said(Reason.NO_WORKER, f"{_NO_WORKER} {row.message or row.reason.replace('_', ' ')}")


_DECIDED = ("acquired", "broken")
"""States in which what was decided last still tells something; an active lease has its resource."""


def lease_info(
    row: Lease, *, why: WaitingInfo | None = None, under_way: Progress | None = None, watch: Watch | None = None
) -> LeaseInfo:
    """A row with its owner, resource and blueprint at hand."""
    resource, told = row.resource, said(row, why)
    return LeaseInfo(
        id=row.pk, type=row.type, name=row.name, owner="" if row.owner is None else row.owner.get_username(),
        state=row.state, reason=told.reason, message=told.message, since=row.since, created_at=row.created_at,
        active_at=row.active_at, ended_at=row.ended_at, until=row.until, ttl=row.ttl,
        heartbeat_limit=row.heartbeat_limit, held=row.held, hold_until=row.hold_until, priority=row.priority,
        slots=row.slots, cpu_millicores=row.cpu_millicores, ram_mib=row.ram_mib, disk_mib=row.disk_mib,
        extra=row.extra, exclusive=row.exclusive, requirements=row.requirements, labels=row.labels,
        group=row.group_id, resource=row.resource_id, resource_name="" if resource is None else resource.name,
        blueprint="" if resource is None else resource.blueprint.name, ending=bool(row.release_wanted),
        for_lease=row.for_lease_id, for_resource=row.for_resource_id, replaced_by=row.replaced_by_id,
        place=None if why is None else why.place, progress=under_way, facts=row.facts,
        verdicts=why.verdicts if why is not None else verdicts(row.verdicts) if row.state in _DECIDED else (),
        interfaces=() if resource is None else interface_names(resource.blueprint.kind),
        workload=watches.workload(watch), metrics=watches.metrics(watch), waiting=why,
    )  # fmt: skip


def verdicts(stored: Any) -> tuple[Verdict, ...]:
    """What candidates said, as it is kept with a lease."""
    return tuple(Verdict(**{name: one.get(name, "") for name in _VERDICT}) for one in stored or ())


_VERDICT = ("blueprint", "answer", "sentence", "offer")


def interface_names(kind: str) -> tuple[str, ...]:
    """The interfaces that leases on a kind have; none where the kind does not load."""
    try:
        return tuple(sorted(registry.kind(kind).interfaces()))
    except DrydockError:
        return ()


def resources(found: QuerySet[Resource]) -> list[ResourceInfo]:
    """Resources as values."""
    words = Event.objects.filter(resource=OuterRef("pk"), kind="resource.check_failed").order_by("-id")
    found = found.annotate(check_words=Case(When(check_failures__gt=0, then=Subquery(words.values("message")[:1]))))
    rows = list(found.select_related("blueprint", "failure").prefetch_related("capacities", "parts", "shares"))
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
        parts=tuple(_part(part) for part in row.parts.all()), progress=progress.of_run(run), price=row.price,
        failure=failure(getattr(row, "failure", None)), suspect_since=row.suspect_since, problems=problems(row),
    )  # fmt: skip


def _checks(failures: int) -> str:
    return "Its last check" if failures == 1 else f"Its last {failures} checks"


def problems(row: Resource) -> tuple[str, ...]:
    """Why a resource is out of service or outdated, and what its last check said."""
    of, checked = row.blueprint, getattr(row, "check_words", None) or ""
    said = {
        f"In quarantine: {row.note or 'no reason was given'}": row.quarantined,
        f"Drained: {row.note or 'no reason was given'}": row.drained and not row.quarantined,
        f"Its blueprint {of.name} is drained": of.drained,
        f"Outdated: built from generation {row.generation} of {of.name}, which is at {of.generation} since its kind or"
        " config changed": row.gone_at is None and row.generation < of.generation,
        f"{_checks(row.check_failures)} failed: {checked or row.message}".rstrip(": "): row.check_failures > 0,
    }
    return tuple(sentence.rstrip(".") + "." for sentence, holds in said.items() if holds and row.gone_at is None)


def failure(row: Failure | None) -> FailureInfo | None:
    """The act on a resource that failed last."""
    if row is None:
        return None
    return FailureInfo(
        act=row.act, code=row.code, message=row.message, attempts=row.attempts, since=row.since, at=row.at
    )


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
        "min_ready", "max_builds", "idle_timeout", "max_lifetime", "check_interval", "default_ttl", "max_ttl",
        "note", "there", "building",
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
