"""Deferred cleanup: what resources must undergo after a lease has ended, before they are leased again.

It is deferred if the resource could not be cleaned when the lease ended or was lost, or if the kind cleans apart from the
lease (`Cleans.cleans_apart`). A resource with a deferred cleanup is in maintenance, with a message that gives the reason,
and remains in maintenance even if its quarantine is lifted. Runs of the resource (deactivate, then clean) do the cleanup,
and are repeated until it succeeds. After a lease that was deactivated, they only clean. Deferred cleanups end when the
resource is destroyed or handed back.
"""

from __future__ import annotations

import datetime as dt

from django.conf import settings
from django.db.models import F
from django.db.models.functions import Now

from blueprints import registry
from blueprints.answers import Failed, Ready
from blueprints.contract import Activates, Cleans, Kind
from blueprints.models import Blueprint
from leases.engine.core import specs
from leases.engine.core.database import each, rows, run, short
from leases.engine.core.runs import plan_of, start
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


def is_apart(kind: Kind, blueprint: Blueprint) -> bool:
    """Return whether resources of this blueprint are cleaned apart from their leases."""
    if not isinstance(kind, Cleans) or type(kind).cleans_apart is Cleans.cleans_apart:
        return False
    return kind.cleans_apart(specs.config(blueprint.kind, blueprint.config))


def lacks_cleaning(kind: Kind, blueprint: Blueprint) -> bool:
    """Return whether the kind cleans resources, but not those of this blueprint (`Kind.lacking`)."""
    if type(kind).lacking is Kind.lacking:
        return False
    return Cleans in kind.lacking(specs.config(blueprint.kind, blueprint.config))


def incur(lease_id: int, state: str, resource_id: int) -> None:
    """Store a deferred cleanup of this resource for a lease that ended, if the lease may have used the resource.

    The lease and the resource must be locked.
    """
    used = state in (LeaseState.ACTIVE, LeaseState.RELEASED) or Run.objects.filter(lease=lease_id).exists()
    resource = Resource.objects.select_related("blueprint").get(pk=resource_id)
    kind = registry.kind(resource.blueprint.kind)
    if not used or not _leaves(kind):
        return
    held = Lease.objects.filter(for_lease=lease_id, state="active").exclude(need="").values_list("need", "pk")
    _store(lease_id, resource_id, apart=is_apart(kind, resource.blueprint), holds=dict(held))
    hints.after_commit("sweep")


def clean_apart(lease_id: int, resource_id: int) -> None:
    """Begin to clean a resource apart from a lease that was deactivated and ends in this transaction.

    If the resource has another run, the cleaning begins after it. The lease and the resource must be locked, and the
    lease must still hold its slot locks.
    """
    debt = _store(lease_id, resource_id, apart=True, phase=Debt.Phase.CLEAN)
    if not _begin(debt):
        hints.after_commit("sweep")


def _store(lease_id: int, resource_id: int, **columns: object) -> Debt:
    """Store a deferred cleanup with what the lease has now, and close the resource to new leases."""
    lease = Lease.objects.get(pk=lease_id)
    kept = {"facts": lease.facts, "secrets": lease.secrets, "locks": specs.locks(lease_id=lease_id), **columns}
    debt, _ = Debt.objects.update_or_create(resource_id=resource_id, lease=lease, defaults=kept)
    record_event("resource.owes", "The resource is cleaned up after this lease before it is leased again.",
         resource_id=resource_id, lease_id=lease_id)  # fmt: skip
    run("UPDATE leases_resource SET in_maintenance = TRUE WHERE id = %s", (resource_id,))
    _explain(resource_id)
    return debt


def _leaves(kind: Kind) -> bool:
    asks_the_lease = type(kind).reusable_after is not Kind.reusable_after
    return isinstance(kind, Activates | Cleans) or asks_the_lease or not kind.reusable


def _explain(resource_id: int) -> None:
    found = rows("SELECT message, apart FROM leases_debt WHERE resource_id = %s ORDER BY id", (resource_id,))
    said = next((message for message, _ in found if message), "")
    lost = "" if any(apart for _, apart in found) else "lost "
    leases = f"a {lost}lease" if len(found) == 1 else f"{len(found)} {lost}leases"
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
        AND (d.phase = 'clean' OR d.created_at < clock_timestamp() - %s::interval OR NOT EXISTS (
            SELECT FROM leases_resource o WHERE o.id = l.for_resource_id AND o.gone_at IS NULL AND o.state <> 'active'))
    ORDER BY d.resource_id, d.tries, d.id LIMIT 200"""


def due() -> int:
    """Start one due cleanup on every resource that is not busy. Return the number of cleanups started."""
    return each(_pay, rows(_DUE, (PATIENCE,)))


@short
def _pay(debt_id: int, resource_id: int) -> bool:
    lock_resource(resource_id)
    owed = Debt.objects.filter(pk=debt_id, resource__state="active").defer("secrets", "facts").first()
    return owed is not None and _begin(owed)


def _begin(debt: Debt) -> bool:
    """Start the run of a deferred cleanup. Return False if the resource has another run."""
    if start(resource_id=debt.resource_id, phase=debt.phase, wanted={"debt": debt.pk}) is None:
        return False
    attempt = f" (attempt {debt.tries + 1})" if debt.tries else ""
    record_event(
        "resource.cleaning", f"The cleaning after lease {debt.lease_id} has begun{attempt}.",
        resource_id=debt.resource_id, lease_id=debt.lease_id,
    )  # fmt: skip
    return True


def try_now(resource_id: int) -> bool:
    """Make the deferred cleanups of a resource due now, because the resource seems to answer again.

    Return True if any cleanup was scheduled for later.
    """
    sooner = "UPDATE leases_debt SET due_at = clock_timestamp() WHERE resource_id = %s AND due_at > clock_timestamp()"
    waited = run(sooner, (resource_id,))
    if waited:
        hints.after_commit("sweep")
    return bool(waited)


def learned(debt_id: int, answer: Ready) -> None:
    """Store the facts and secrets that a step found out with the view of the lease, for the steps after it."""
    if answer.facts or answer.secrets:
        debt = Debt.objects.only("facts", "secrets").get(pk=debt_id)
        debt.facts = {**debt.facts, **answer.facts}
        debt.secrets = {**(debt.secrets or {}), **answer.secrets}
        debt.save(update_fields=["facts", "secrets"])


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
        f"The resource was cleaned up after {'the lease' if debt.apart else 'the lost lease'}.",
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
    said = f"{_step(current)}: {answer.message}"
    Debt.objects.filter(pk=debt.pk).update(tries=F("tries") + 1, message=said[:2000], due_at=later)
    _explain(debt.resource_id)


def _step(current: Run) -> str:
    """Return the step at which a run ended, as `phase.step`."""
    plan = plan_of(current.resource.blueprint.kind, current.phase, current.wanted)
    return f"{current.phase}.{plan[current.position].name}" if current.position < len(plan) else current.phase


def _of(current: Run) -> Debt:
    assert current.debt_id is not None
    return Debt.objects.select_related("lease__owner", "resource__blueprint").get(pk=current.debt_id)


def _settle(debt: Debt) -> None:
    debt.delete()
    if Debt.objects.filter(resource=debt.resource_id).exists():
        _explain(debt.resource_id)
        hints.after_commit("sweep")
        return
    run(
        "UPDATE leases_resource SET reason = %s, message = '',"
        " idle_since = CASE WHEN idle_since IS NOT NULL THEN clock_timestamp() END WHERE id = %s",
        (Reason.READY, debt.resource_id),
    )
    maintenance.lift_unless_needed(debt.resource_id)
