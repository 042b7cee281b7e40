"""The progress of the run of a lease or resource: its step, its attempts, and its last failure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings
from django.db.models import Case, FloatField, OuterRef, Q, QuerySet, Subquery, When
from django.db.models.expressions import RawSQL

from drydock.core.errors import DrydockError
from drydock_client.values import Progress
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
    """Return the runs of leases and of their resources, with the average duration of recent builds."""
    ids, resources = [row.pk for row in leases], [row.resource_id for row in leases]
    found = Run.objects.filter(Q(lease__in=ids) | Q(resource__in=resources, lease=None)).order_by("id")
    return list(found.annotate(build_seconds=RawSQL(_BUILDS, (), FloatField())))  # noqa: S611 - no value of a caller


def with_failure(found: QuerySet[Lease]) -> QuerySet[Lease]:
    """Annotate each lease that is being retried with the message of its last failure."""
    failed = Event.objects.filter(lease=OuterRef("pk"), to_state="pending").exclude(from_state="").order_by("-id")
    return found.annotate(failed=Case(When(bounces__gt=0, then=Subquery(failed.values("message")[:1]))))


def of(found: Iterable[Lease], under_way: Sequence[Run] | None = None) -> dict[int, Progress]:
    """Return the progress of each lease by id, taken from its own run or else from the run of its resource.

    Uses at most two statements. Pass `under_way`, the runs of the leases, if they have already been read.
    """
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
    """Return the name of the next step if no step has answered yet, or an empty string if there is none."""
    try:
        plan = runs.plan_of(row.resource.blueprint.kind if row.resource is not None else "", run.phase, run.wanted)
    except DrydockError:
        return ""
    return plan[run.position].name if run.position < len(plan) else ""


def of_run(run: Run | None) -> Progress | None:
    """Return the progress of a resource's run, or None if there is no run."""
    return None if run is None else _value(run)


def _value(run: Run, **known: Any) -> Progress:
    """Return the progress of a run. While a failed step waits for its next attempt, the provider's message is shown."""
    again = run.tries > 0 and run.sentence.startswith(f"Attempt {run.tries + 1} follows: ")
    for_ever = run.phase in (Run.Phase.DESTROY, Run.Phase.DEACTIVATE)
    tried = {
        "step": run.step, "attempt": run.tries + 1, "attempts": 0 if for_ever else settings.DRYDOCK.step_retry_limit,
        "failure": run.sentence.partition(": ")[2] if again else "",
    }  # fmt: skip
    person = run.waits_for == "operator"
    return Progress(
        phase=run.phase, act=runs.name_of(run.phase, run.wanted) if run.phase == Run.Phase.ACT else "", sentence=run.sentence, percent=run.percent, waits_for=run.waits_for, who=run.hold_who,
        uninterruptible=run.uninterruptible, task=run.sentence if person else "",
        since=run.step_since or run.started_at, **{**tried, **known},
    )  # fmt: skip
