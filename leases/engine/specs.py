"""What the next step of a run works on."""

from __future__ import annotations

from blueprints.specs import LeaseView, ResourceView, Spec
from leases.engine import views
from leases.models import Debt, Run


def spec(run: Run, *, deadline: float) -> Spec:
    """What the next step of a run works on."""
    resource = run.resource
    own = views.resource_view(resource, ending=run.phase == Run.Phase.DESTROY)
    lease = _lease_of(run, own)
    name = own.key if lease is None else lease.key
    return Spec(
        phase=run.phase,
        key=name,
        token=f"{name}-{run.pk}-{run.position}",
        resource=own,
        lease=lease,
        asked=None if run.asked is None else views.asked(resource.blueprint.kind, run.asked),
        tags=views.tags(resource),
        parents={**own.parents, **(lease.parents if lease is not None else {})},
        deadline=deadline,
        locks={**own.locks, **(lease.locks if lease is not None else {})},
        granted=_granted(run),
        wanted=run.wanted,
    )


def _lease_of(run: Run, own: ResourceView) -> LeaseView | None:
    if run.debt_id is not None:
        return views.owed_view(Debt.objects.select_related("lease__owner", "resource__blueprint").get(pk=run.debt_id))
    if run.lease is None:
        return None
    there = own if run.lease.resource_id == own.id and run.phase != Run.Phase.DESTROY else None
    return views.lease_view(run.lease, resource=there)


def _granted(run: Run) -> frozenset[str]:
    asked = run.maintenance or {}
    return frozenset({f"{asked['relation']}:{asked['action']}"} if asked.get("granted") else ())
