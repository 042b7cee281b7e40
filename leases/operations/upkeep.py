"""What operators do when something is stuck or in the way."""

from __future__ import annotations

from django.db.models import Exists, OuterRef
from django.db.models.functions import Now

from blueprints.models import RememberedError
from drydock.core.errors import Busy, Conflict, InvalidRequest, NotFound
from leases import acts, hints, inline
from leases.engine.core.transitions import record_event
from leases.engine.resources import retirement
from leases.given import checked
from leases.models import Lease, Resource, Run
from leases.operations import workers
from leases.operations.callers import Caller, operator_only
from leases.reasons import Reason


@checked
def reclaim(who: Caller, *, type_: str = "", blueprint: str = "", limit: int = 100) -> list[int]:
    """Remove idle resources, first those that hold leases on others. Returns their ids."""
    operator_only(who, "reclaim resources")
    held = Lease.objects.filter(for_resource=OuterRef("pk"), state__in=("pending", "acquired", "active"))
    found = Resource.objects.filter(
        state="active", used_slots=0, origin=Resource.Origin.BUILT, quarantined=False, in_maintenance=False,
        reserved_for=None,
    )  # fmt: skip
    chosen = {"type": type_, "blueprint__name": blueprint}
    found = found.filter(**{column: value for column, value in chosen.items() if value})
    ids = (
        found.annotate(holds_others=Exists(held))
        .order_by("-holds_others", "idle_since")
        .values_list("id", flat=True)[:limit]
    )
    return [pk for pk in ids if _give_up(pk, who.actor)]


def _give_up(resource_id: int, actor: str) -> bool:
    return retirement.retire_idle(resource_id, reason=Reason.RECLAIMED, message="Reclaimed.", actor=actor)


def sweep_now(who: Caller, *, here: bool | None = None) -> int:
    """Look once over everything that may be due; how much was found, or done.

    `here`: carry it out in this process too; by itself so when no worker lives.
    """
    operator_only(who, "sweep")
    if here or (here is None and not workers.alive()):
        return inline.settle(tolerated=(Conflict, Busy))
    return acts.sweep()


@checked
def clear_errors(who: Caller, *, blueprint: str = "", error_id: int | None = None) -> int:
    """Forget remembered failures, so that their offers are tried again at once; how many there were."""
    operator_only(who, "clear remembered errors")
    found = RememberedError.objects.select_related("blueprint")
    chosen = {"blueprint__name": blueprint or None, "pk": error_id}
    gone = list(found.filter(**{column: value for column, value in chosen.items() if value is not None}))
    RememberedError.objects.filter(pk__in=[row.pk for row in gone]).delete()
    for row in gone:
        record_event("blueprint.error_cleared", row.message, actor=who.actor, blueprint_id=row.blueprint_id)
    for resource_type in sorted({row.blueprint.resource_type for row in gone}):
        hints.after_commit("serve", resource_type)
    return len(gone)


@checked
def resolve(who: Caller, *, lease_id: int | None = None, resource_id: int | None = None, message: str = "") -> None:
    """Say that a person has done what a held step waits for; the step goes on. Raises InvalidRequest, NotFound,
    Conflict."""
    operator_only(who, "resolve holds")
    if (lease_id is None) == (resource_id is None):
        raise InvalidRequest("Give either a lease or a resource.", field="lease")
    column, pk = ("lease_id", lease_id) if lease_id is not None else ("resource_id", resource_id)
    waits = Run.objects.filter(**{column: pk}, **({} if lease_id is not None else {"lease": None}))
    found = list(waits.filter(waits_for="operator").values_list("id", "sentence"))
    due = {"waits_for": "", "hold_who": "", "due_at": Now(), "step_since": None}
    if not found or not waits.filter(waits_for="operator").update(**due):
        error = Conflict if waits.exists() else NotFound
        raise error(f"Nothing waits for a person at {column.removesuffix('_id')} {pk}.")
    run_id, sentence = found[0]
    record_event("step.resolved", f"{message or 'Done'}: {sentence}", actor=who.actor, **{column: pk})
    hints.after_commit("step", run_id)
