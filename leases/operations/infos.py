"""Convert rows to the frozen values that callers receive, such as LeaseInfo."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import BooleanField, Case, Count, ExpressionWrapper, F, Model, OuterRef, QuerySet, Subquery, When
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce

from blueprints import registry
from blueprints.amounts import CLASSES
from blueprints.contract import DeclaredAct
from blueprints.models import Blueprint
from drydock.core.errors import DrydockError
from drydock_client.values import (
    BlueprintInfo,
    CleaningInfo,
    EventInfo,
    FailureInfo,
    JobInfo,
    JobPart,
    LeaseInfo,
    MetricsInfo,
    Progress,
    ResourceInfo,
    UpdateInfo,
    Usage,
    Verdict,
    WaitingInfo,
    WorkloadInfo,
)
from leases.models import Event, Failure, Job, Lease, Resource, Run
from leases.models.job import KeptOutput, Watch
from leases.operations import installation
from leases.operations.callers import Caller
from leases.reasons import Reason
from leases.reports import cleaning, progress, status, updates, waiting_answer, waiting_facts
from leases.reports.waiting_answer import Asker
from leases.states import LeaseState
from leases.workloads import outcomes


def leases(found: QuerySet[Lease], who: Caller | None = None) -> list[LeaseInfo]:
    """Return leases as frozen values, in a fixed number of statements.

    `who` is the caller, by default the owner of each lease. A value contains only what this user may see.
    """
    there = with_workers(found.select_related("owner", "resource__blueprint", "group"))
    return _infos(list(there.defer("secrets", "resource__secrets")), who)


def lease(row: Lease, who: Caller | None = None) -> LeaseInfo:
    """Return a lease as a frozen value with only what the caller `who`, by default the owner, may see."""
    if row.state in ("acquired", "released"):
        row.unattended = Lease.objects.filter(installation.unattended(), pk=row.pk).exists()  # type: ignore[attr-defined]
    return _infos([row], who)[0]


def _infos(rows: list[Lease], who: Caller | None) -> list[LeaseInfo]:
    why, under_way, watched = waits(rows, who), progress.of(rows), watches_of(rows)
    return [
        lease_info(one, why=why.get(one.pk), under_way=under_way.get(one.pk), watch=watched.get(one.pk))
        for one in rows
    ]  # fmt: skip


def waits(found: Iterable[Lease], who: Caller | None = None) -> dict[int, WaitingInfo]:
    """Return a mapping from the id of each pending lease to the reason why the lease waits.

    `who` is the caller, by default the owner of each lease. The reason contains only what this user may see.
    """
    pending = [row for row in found if row.state == "pending"]
    if not pending:
        return {}
    facts = waiting_facts.read(pending)
    return {row.pk: waiting_answer.answer(row, facts, _asker(row, who)) for row in pending}


def with_waits(found: Iterable[Any], who: Caller) -> None:
    """Set the attribute `why` of each pending lease to the reason why the lease waits. `said` uses this attribute.

    The reason contains only what the caller `who` may see.
    """
    pending = [row for row in found if row.state == "pending"]
    why = waits(pending, who)
    for row in pending:
        row.why = why[row.pk]


def _asker(row: Lease, who: Caller | None) -> Asker:
    return Asker(id=row.owner_id) if who is None else Asker(id=who.id, operator=who.operator)


def with_workers(found: QuerySet[Lease]) -> QuerySet[Lease]:
    """Annotate each lease with `unattended`, whether it waits while no worker is alive. `said` uses this annotation."""
    return progress.with_failure(found).annotate(
        unattended=ExpressionWrapper(installation.unattended(), output_field=BooleanField())
    )


class Said(NamedTuple):
    """The reason for the state of a lease, and a message that explains it."""

    reason: str
    message: str


_NO_WORKER = "No worker is alive, so nothing is built, cleaned or ended. Before that:"


def said(row: Lease, why: WaitingInfo | None = None) -> Said:
    """Return the reason for the state of a lease, and the message that explains the reason.

    For a pending lease, they say why the lease waits. For any other lease, they come from the row of the lease. If no
    worker is alive, the message says so.
    """
    why = why or getattr(row, "why", None)
    if why is not None:
        return Said(why.reason, f"{why.message} {why.help}".rstrip())
    if not getattr(row, "unattended", False):
        return Said(row.reason, row.message)
    return Said(Reason.NO_WORKER, f"{_NO_WORKER} {row.message or row.reason.replace('_', ' ')}")


_DECIDED = ("acquired", "broken")
"""States in which the last decision is still of interest. An active lease already has its resource."""


def lease_info(
    row: Lease, *, why: WaitingInfo | None = None, under_way: Progress | None = None, watch: Watch | None = None
) -> LeaseInfo:
    """Return a lease as a frozen value. The owner, resource and blueprint of its row must be loaded."""
    resource, told = row.resource, said(row, why)
    stored = {name: getattr(row, column) for name, column in _stored(LeaseInfo, Lease)}
    return LeaseInfo(**stored | {
        "owner": "" if row.owner is None else row.owner.get_username(), "reason": told.reason, "message": told.message,
        "resource_name": "" if resource is None else resource.name,
        "blueprint": "" if resource is None else resource.blueprint.name, "ending": bool(row.release_wanted),
        "distance": distance(row),
        "place": None if why is None else why.place, "progress": under_way, "waiting": why,
        "verdicts": why.verdicts if why is not None else verdicts(row.verdicts) if row.state in _DECIDED else (),
        "interfaces": () if resource is None else interface_names(resource.blueprint.kind),
        "workload": workload(watch), "metrics": metrics(watch),
    })  # fmt: skip


def distance(row: Lease) -> str:
    """Return the distance between the devices of the lease's group, in words. The group of the row must be loaded."""
    return "" if row.group is None or row.state == "pending" else row.group.distance


@cache
def _stored(value: type, model: type[Model]) -> tuple[tuple[str, str], ...]:
    """Return (field, column) for each field of a value class that is a column of the model. References are ids."""
    columns = {field.name: field.attname for field in model._meta.concrete_fields}
    return tuple((one.name, columns[one.name]) for one in dataclasses.fields(value) if one.name in columns)


def verdicts(stored: Any) -> tuple[Verdict, ...]:
    """Return the verdicts stored with a lease, one for each candidate."""
    return tuple(Verdict(**{name: one.get(name, "") for name in _VERDICT}) for one in stored or ())


_VERDICT = ("blueprint", "answer", "sentence", "offer")


def interface_names(kind: str) -> tuple[str, ...]:
    """Return the names of the interfaces that leases of this kind have, or none if the kind cannot be loaded."""
    try:
        return tuple(sorted(registry.kind(kind).interfaces()))
    except DrydockError:
        return ()


_HOLDING = (LeaseState.ACQUIRED, LeaseState.ACTIVE, LeaseState.RELEASED)


def resources(found: QuerySet[Resource]) -> list[ResourceInfo]:
    """Return resources as frozen values."""
    words = Event.objects.filter(resource=OuterRef("pk"), kind="resource.check_failed").order_by("-id")
    holders = Lease.objects.filter(resource=OuterRef("pk"), state__in=_HOLDING).order_by()
    found = found.annotate(
        check_words=Case(When(check_failures__gt=0, then=Subquery(words.values("message")[:1]))),
        lease_states=ArraySubquery(holders.values("state")),
    )
    rows = list(
        found.select_related("blueprint", "failure")
        .defer("secrets")
        .prefetch_related("capacities", "parts", "shares", "identities")
    )
    runs = {run.resource_id: run for run in Run.objects.filter(resource__in=[r.pk for r in rows], lease=None)}
    unclean, outdated = cleaning.of(rows), updates.of(rows, runs)
    return [resource_info(row, runs.get(row.pk), unclean.get(row.pk), outdated.get(row.pk)) for row in rows]


def resource_info(
    row: Resource, run: Run | None = None, unclean: CleaningInfo | None = None, update: UpdateInfo | None = None
) -> ResourceInfo:
    """Return a resource as a frozen value.

    The blueprint, capacities, parts, shares and identities of its row must be loaded.
    """
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
        health=row.health, health_reason=row.health_reason, credential_fields=tuple(row.credential_fields),
        no_reboots=row.no_reboots, cleaning=unclean, update=update,
        status=status.status(
            row, run, unclean, getattr(row, "lease_states", ()), rescued=bool(row.facts.get("rescue"))
        ),
        identities=tuple(sorted(map(str, row.identities.all()))), locality=tuple(row.locality),
    )  # fmt: skip


def _checks(failures: int) -> str:
    return "The last check" if failures == 1 else f"The last {failures} checks"


def problems(row: Resource) -> tuple[str, ...]:
    """Return why a resource is out of service or outdated, and why its last checks failed, as sentences."""
    of, checked = row.blueprint, getattr(row, "check_words", None) or ""
    said = {
        f"In quarantine: {row.note or 'no reason given'}": row.quarantined,
        f"Drained: {row.note or 'no reason was given'}": row.drained and not row.quarantined,
        f"The blueprint {of.name} is drained": of.drained,
        f"Maintenance must not reboot it: {row.no_reboots}": bool(row.no_reboots),
        f"{row.health.capitalize()}: {row.health_reason or 'no reason was given'}": row.health != "ok",
        f"Outdated: built from generation {row.generation} of {of.name}, which is at generation "
        f"{of.generation} since its kind or config changed": row.gone_at is None and row.generation < of.generation,
        f"{_checks(row.check_failures)} failed: {checked or row.message}".rstrip(": "): row.check_failures > 0,
    }
    return tuple(sentence.rstrip(".") + "." for sentence, holds in said.items() if holds and row.gone_at is None)


def failure(row: Failure | None) -> FailureInfo | None:
    """Return the last failed action on a resource as a frozen value, or None if no action failed."""
    if row is None:
        return None
    return FailureInfo(
        act=row.act, code=row.code, message=row.message, attempts=row.attempts, since=row.since, at=row.at
    )


def declared_act(act: DeclaredAct) -> dict[str, Any]:
    """Return those fields of `ActInfo` that follow from the declaration of an act."""
    same = ("name", "summary", "by", "holders", "power", "dangerous")
    return {name: getattr(act, name) for name in same} | {"arguments": act.Arguments.model_json_schema()}


def _part(part: Any) -> Mapping[str, Any]:
    return {"class": part.part_class, "identity": part.identity, "state": part.state, "attributes": part.attributes}


def blueprints(found: QuerySet[Blueprint], problems: Iterable[Mapping[str, Any]] = ()) -> list[BlueprintInfo]:
    """Return blueprints as frozen values. `problems` are those that a check has just found."""
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
        "min_ready", "max_builds", "idle_timeout", "max_lifetime", "check_interval", "discovery_interval",
        "default_ttl", "max_ttl", "note", "there", "building",
    )  # fmt: skip
    errors = tuple(
        {"id": e.pk, "scope": e.scope, "key": e.key, "message": e.message, "until": e.until} for e in row.errors.all()
    )
    known = {name: getattr(row, name) for name in same}
    return BlueprintInfo(**known, type=row.resource_type, errors=errors, problems=problems)


def event(row: Event) -> EventInfo:
    """Return one event as a frozen value."""
    return EventInfo(
        id=row.pk, at=row.at, kind=row.kind, message=row.message, reason=row.reason, actor=row.actor,
        lease=row.lease_id, resource=row.resource_id, blueprint=row.blueprint_id, from_state=row.from_state,
        to_state=row.to_state, duration=row.duration, details=row.details,
    )  # fmt: skip


def job(row: Job) -> JobInfo:
    """Return one job as a frozen value."""
    return JobInfo(
        id=row.pk, lease=row.lease_id, command=row.command, state=row.state, exit_code=row.exit_code,
        message=row.message, ends_lease=row.ends_lease, apart=row.apart, cancelling=row.cancel_wanted,
        created_at=row.created_at, started_at=row.started_at, ended_at=row.ended_at,
    )  # fmt: skip


def watches_of(rows: Iterable[Lease]) -> dict[int, Watch]:
    """Return a mapping from lease id to the workload and metrics of the lease. Uses at most one statement."""
    ids = [row.pk for row in rows if row.watched]
    if not ids:
        return {}
    found = Watch.objects.filter(lease__in=ids).select_related("job").defer("sample", "env", "job__env", "job__stdin")
    return {
        one.lease_id: one
        for one in found.annotate(
            said=F("job__kept_output__size"),
            left_out=F("job__kept_output__left_out"),
            scope=KT("sample__scope"),
            peak=KT("sample__peak"),
        )
    }


def workload(watch: Watch | None) -> WorkloadInfo | None:
    """Return the workload of a lease as a frozen value, or None if the lease has none."""
    if watch is None or watch.workload is None:
        return None
    asked, job = watch.workload, watch.job
    exit_code = None if job is None else job.exit_code
    said, left_out = getattr(watch, "said", None), getattr(watch, "left_out", None)
    return WorkloadInfo(
        state="over" if watch.over_at is not None else "running" if job is not None else "waiting",
        outcome=watch.outcome, message=watch.message, exit_code=exit_code,
        signal=outcomes.signal_of(exit_code) if watch.outcome == outcomes.Outcome.SIGNAL else 0,
        job=watch.job_id, command=asked["command"], image=asked["image"], cwd=asked["cwd"],
        archive=asked.get("archive", ""), ports=asked.get("ports", ()), unit=asked.get("unit") is not None,
        variables=asked["variables"], started_at=None if job is None else job.started_at,
        ended_at=None if job is None else job.ended_at, output_size=said,
        output_kept=None if said is None or left_out is None else said - left_out,
    )  # fmt: skip


def metrics(watch: Watch | None) -> MetricsInfo | None:
    """Return the measured usage of a lease as a frozen value, or None if its usage is not measured."""
    if watch is None:
        return None
    return MetricsInfo(
        scope=getattr(watch, "scope", None) or "", cpu_core_seconds=watch.cpu_seconds,
        memory_mib_seconds=watch.memory_mib_seconds, network_in_bytes=watch.network_in,
        network_out_bytes=watch.network_out, wall_seconds=watch.wall_seconds, sampled_at=watch.sampled_at,
        complete=watch.complete, memory_peak_mib=_mib(getattr(watch, "peak", None)),
    )  # fmt: skip


def _mib(said: str | None) -> int | None:
    """Return a number of bytes, as the database gives a number in JSON, in MiB rounded up."""
    return -(-int(said) // (1 << 20)) if said else None


def kept_output(job_id: int, offset: int, limit: int) -> JobPart | None:
    """Return a part of the stored output of a workload, or None if no output is stored.

    Offsets are positions in the whole output, as on the host.
    """
    row = KeptOutput.objects.filter(job=job_id).first()
    if row is None:
        return None
    return output_part(base64.b64decode(row.head), base64.b64decode(row.tail), row.size, offset, limit)


def output_part(head: bytes, tail: bytes, size: int, offset: int, limit: int) -> JobPart:
    """Return at most `limit` bytes of an output of `size` bytes, starting at `offset`.

    Only the beginning `head` and the end `tail` of the output were kept. A placeholder stands for the bytes between
    them.
    """
    resumes = size - len(tail)
    missing = resumes - len(head)
    if offset < len(head):
        content = head[offset : offset + limit]
        following = offset + len(content)
    elif offset < resumes:
        content, following = f"\n[... {missing} bytes were not kept ...]\n".encode()[:limit], resumes
    else:
        content = tail[offset - resumes : offset - resumes + limit]
        following = offset + len(content)
    return JobPart(content=content, next_offset=following, over=following >= size, truncated=missing > 0)
