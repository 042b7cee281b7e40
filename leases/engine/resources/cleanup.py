"""Deferred cleanup of resources that could not be cleaned when their leases ended.

A resource with a deferred cleanup is in maintenance, with a message that gives the reason, and remains in maintenance
even if its quarantine is lifted. Runs of the resource (deactivate, then clean) do the cleanup, and are repeated until
the resource answers. Deferred cleanups end when the resource is destroyed or handed back.
"""

from __future__ import annotations

import datetime as dt

from django.conf import settings
from django.db.models import F
from django.db.models.functions import Now

from blueprints import registry
from blueprints.answers import Failed
from blueprints.contract import Activates, Cleans, Kind
from leases.engine.core import specs
from leases.engine.core.database import each, rows, run, short
from leases.engine.core.runs import start
from leases.engine.core.transitions import lock_resource, record_event, take_out_of_service
from leases.engine.resources import maintenance
from leases.messaging import hints
from leases.models import Debt, Lease, Resource, Run
from leases.reasons import Reason
from leases.states import LeaseState

SPOILED = (
    "The lease had rights that cleaning cannot undo. The resource must be re-imaged or destroyed "
    "before it is leased again."
)


def incur(lease_id: int, state: str, resource_id: int) -> None:
    """Store a deferred cleanup of this resource for a lease that ended, if the lease may have used the resource.

    The lease and the resource must be locked.
    """
    used = state in (LeaseState.ACTIVE, LeaseState.RELEASED) or Run.objects.filter(lease=lease_id).exists()
    resource = Resource.objects.select_related("blueprint").get(pk=resource_id)
    if not used or not _leaves(registry.kind(resource.blueprint.kind)):
        return
    lease = Lease.objects.get(pk=lease_id)
    held = Lease.objects.filter(for_lease=lease_id, state="active").exclude(need="").values_list("need", "pk")
    kept = {"facts": lease.facts, "secrets": lease.secrets, "locks": specs.locks(lease_id=lease_id)}
    Debt.objects.update_or_create(resource=resource, lease=lease, defaults={**kept, "holds": dict(held)})
    record_event("resource.owes", "The resource is cleaned up after this lease before it is leased again.",
         resource_id=resource_id, lease_id=lease_id)  # fmt: skip
    run("UPDATE leases_resource SET in_maintenance = TRUE WHERE id = %s", (resource_id,))
    _explain(resource_id)
    hints.after_commit("sweep")


def _leaves(kind: Kind) -> bool:
    asks_the_lease = type(kind).reusable_after is not Kind.reusable_after
    return isinstance(kind, Activates | Cleans) or asks_the_lease or not kind.reusable


def _explain(resource_id: int) -> None:
    found = rows("SELECT message FROM leases_debt WHERE resource_id = %s ORDER BY id", (resource_id,))
    said = next((message for (message,) in found if message), "")
    leases = "a lost lease" if len(found) == 1 else f"{len(found)} lost leases"
    message = f"The resource is cleaned up after {leases} before it is leased again." + (
        f" The last attempt failed: {said}" if said else ""
    )
    run("UPDATE leases_resource SET reason = %s, message = %s WHERE id = %s", (Reason.CLEANING, message, resource_id))


PATIENCE = dt.timedelta(hours=1)
"""Maximum time that a cleanup waits for the destruction of resources that were built on the lost lease.

Their destruction may need the lease's account, which the cleanup removes.
"""
_DUE = """
    SELECT DISTINCT ON (d.resource_id) d.id, d.resource_id FROM leases_debt d
    JOIN leases_resource r ON r.id = d.resource_id AND r.state = 'active' JOIN leases_lease l ON l.id = d.lease_id
    WHERE d.due_at <= clock_timestamp() AND r.suspect_since IS NULL AND NOT (l.held AND l.state IN ('broken', 'destroyed')
            AND (l.hold_until IS NULL OR l.hold_until > clock_timestamp()))
        AND NOT EXISTS (SELECT FROM leases_run n WHERE n.resource_id = r.id AND n.lease_id IS NULL)
        AND (d.created_at < clock_timestamp() - %s::interval OR NOT EXISTS (
            SELECT FROM leases_resource o WHERE o.id = l.for_resource_id AND o.gone_at IS NULL AND o.state <> 'active'))
    ORDER BY d.resource_id, d.tries, d.id LIMIT 200"""


def due() -> int:
    """Start one due cleanup on every resource that is not busy. Return the number of cleanups started."""
    return each(_pay, rows(_DUE, (PATIENCE,)))


@short
def _pay(debt_id: int, resource_id: int) -> bool:
    lock_resource(resource_id)
    owed = rows(
        "SELECT 1 FROM leases_debt d JOIN leases_resource r ON r.id = d.resource_id AND r.state = 'active'"
        " WHERE d.id = %s",
        (debt_id,),
    )
    return bool(owed) and start(resource_id=resource_id, phase="deactivate", wanted={"debt": debt_id}) is not None


def try_now(resource_id: int) -> bool:
    """Make the deferred cleanups of a resource due now, because the resource seems to answer again.

    Return True if any cleanup was scheduled for later.
    """
    sooner = "UPDATE leases_debt SET due_at = clock_timestamp() WHERE resource_id = %s AND due_at > clock_timestamp()"
    waited = run(sooner, (resource_id,))
    if waited:
        hints.after_commit("sweep")
    return bool(waited)


def deactivated(current: Run) -> None:
    """Start the cleaning after the lost lease's account on the host and its processes were removed."""
    start(resource_id=current.resource_id, phase="clean", wanted=current.wanted)


def paid(current: Run) -> None:
    """Finish a deferred cleanup. Take the resource out of service if cleaning cannot undo what the lease did.

    Call in the last transaction of the run.
    """
    debt = _of(current)
    kind = registry.kind(debt.resource.blueprint.kind)
    if not kind.reusable_after(specs.owed_view(debt)):
        take_out_of_service(debt.resource, SPOILED)
    record_event(
        "resource.cleaned",
        "The resource was cleaned up after the lost lease.",
        resource_id=debt.resource_id,
        lease_id=debt.lease_id,
    )
    _settle(debt)


def unpaid(current: Run, answer: Failed) -> None:
    """Act on a failed cleanup: replace a resource that Drydock built, or else schedule another attempt."""
    debt = _of(current)
    message = f"Could not be cleaned: {answer.message}"
    record_event("resource.cleaning_failed", message, resource_id=debt.resource_id, lease_id=debt.lease_id)
    if debt.resource.origin == Resource.Origin.BUILT:
        take_out_of_service(debt.resource, message)
        _settle(debt)
        return
    wait = settings.DRYDOCK.step_backoff_seconds * 2 ** min(debt.tries, 20)
    later = Now() + dt.timedelta(seconds=min(wait, settings.DRYDOCK.step_backoff_limit_seconds))
    Debt.objects.filter(pk=debt.pk).update(tries=F("tries") + 1, message=answer.message[:2000], due_at=later)
    _explain(debt.resource_id)


def _of(current: Run) -> Debt:
    assert current.debt_id is not None
    return Debt.objects.select_related("lease__owner", "resource__blueprint").get(pk=current.debt_id)


def _settle(debt: Debt) -> None:
    debt.delete()
    if Debt.objects.filter(resource=debt.resource_id).exists():
        _explain(debt.resource_id)
        hints.after_commit("sweep")
        return
    run("UPDATE leases_resource SET reason = %s, message = '' WHERE id = %s", (Reason.READY, debt.resource_id))
    maintenance.lift_unless_needed(debt.resource_id)
