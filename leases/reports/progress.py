"""The progress of what is carried out for a lease or a resource: the step, its attempts, and what failed last."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings
from django.db.models import Case, FloatField, OuterRef, Q, QuerySet, Subquery, When
from django.db.models.expressions import RawSQL

from drydock.core.errors import DrydockError
from leases.client.values import Progress
from leases.engine.core import runs
from leases.models import Event, Lease, Run

_UNDER_WAY = ("acquired", "released")


_BUILDS = """
    (SELECT avg(extract(epoch FROM e.duration))::float8 FROM (SELECT o.id FROM leases_resource o
        WHERE o.blueprint_id = (SELECT r.blueprint_id FROM leases_resource r WHERE r.id = leases_run.resource_id)
        ORDER BY o.id DESC LIMIT 20) o
    JOIN leases_event e ON e.resource_id = o.id AND e.from_state = 'pending' AND e.to_state = 'active'
    WHERE leases_run.phase = 'build')"""


def runs_for(leases: Sequence[Lease]) -> list[Run]:
    """The runs of leases, and those of the resources that they are on, with how long such builds took lately."""
    ids, resources = [row.pk for row in leases], [row.resource_id for row in leases]
    found = Run.objects.filter(Q(lease__in=ids) | Q(resource__in=resources, lease=None)).order_by("id")
    return list(found.annotate(build_seconds=RawSQL(_BUILDS, (), FloatField())))  # noqa: S611 - no value of a caller


def with_failure(found: QuerySet[Lease]) -> QuerySet[Lease]:
    """Leases, each with what failed last where it is not tried for the first time."""
    failed = Event.objects.filter(lease=OuterRef("pk"), to_state="pending").exclude(from_state="").order_by("-id")
    return found.annotate(failed=Case(When(bounces__gt=0, then=Subquery(failed.values("message")[:1]))))


def of(found: Iterable[Lease], under_way: Sequence[Run] | None = None) -> dict[int, Progress]:
    """Lease -> its progress: of its own run, else of the run of the resource it waits for. Two statements at most.
    `under_way`: their runs, where they were read already."""
    leases = [row for row in found if row.state in _UNDER_WAY]
    if not leases:
        return {}
    known_runs = runs_for(leases) if under_way is None else under_way
    of_lease = {run.lease_id: run for run in known_runs if run.lease_id is not None}
    of_resource = {run.resource_id: run for run in known_runs if run.lease_id is None}
    chosen = {row.pk: of_lease.get(row.pk) or of_resource.get(row.resource_id or 0) for row in leases}
    bounced = [row.pk for row in leases if row.bounces and chosen[row.pk] and not hasattr(row, "failed")]
    found_again = with_failure(Lease.objects.filter(pk__in=bounced)) if bounced else ()
    failed: dict[int, Any] = {row.pk: getattr(row, "failed", "") for row in found_again}
    return {
        row.pk: _of_lease(run, row, getattr(row, "failed", None) or failed.get(row.pk) or "")
        for row in leases
        if (run := chosen[row.pk]) is not None
    }


def _of_lease(run: Run, row: Lease, failed: str) -> Progress:
    seconds: float | None = getattr(run, "build_seconds", None)
    known: dict[str, Any] = {"step": run.step or _step(run, row)}
    if not run.tries and row.bounces:
        known |= {"attempt": row.bounces + 1, "attempts": settings.DRYDOCK.bounce_limit + 1, "failure": failed}
    return _value(run, estimate=None if seconds is None else dt.timedelta(seconds=round(seconds, 1)), **known)


def _step(run: Run, row: Lease) -> str:
    """The name of the step that comes next, before it has answered for the first time."""
    try:
        plan = runs.plan_of(row.resource.blueprint.kind if row.resource is not None else "", run.phase)
    except DrydockError:
        return ""
    return plan[run.position].name if run.position < len(plan) else ""


def of_run(run: Run | None) -> Progress | None:
    """The progress of a run of a resource."""
    return None if run is None else _value(run)


def _value(run: Run, **known: Any) -> Progress:
    """A step that failed is tried again after a pause; its sentence then holds the provider's words."""
    again = run.tries > 0 and run.sentence.startswith(f"Try {run.tries + 1} follows: ")
    for_ever = run.phase in (Run.Phase.DESTROY, Run.Phase.DEACTIVATE)
    tried = {
        "step": run.step, "attempt": run.tries + 1, "attempts": 0 if for_ever else settings.DRYDOCK.step_retry_limit,
        "failure": run.sentence.partition(": ")[2] if again else "",
    }  # fmt: skip
    person = run.waits_for == "operator"
    return Progress(
        phase=run.phase, sentence=run.sentence, percent=run.percent, waits_for=run.waits_for, who=run.hold_who,
        uninterruptible=run.uninterruptible, task=run.sentence if person else "",
        since=run.step_since or run.started_at, **{**tried, **known},
    )  # fmt: skip
