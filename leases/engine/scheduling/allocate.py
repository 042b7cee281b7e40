"""Carry out the decision for a lease that found no room: build, reclaim, wait or refuse."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

from django.conf import settings
from django.db.models.functions import Least, Now

from blueprints.specs import Draft
from drydock.core.errors import Busy
from leases.engine.core.database import bound_lock_waits, rows, short
from leases.engine.core.runs import end_siblings
from leases.engine.core.transitions import explain, move_lease
from leases.engine.placement import budgets, claims, pending, quotas
from leases.engine.placement.budget_check import UNBOUNDED
from leases.engine.placement.claims import finish_claim
from leases.engine.resources import retirement
from leases.engine.resources.provision import insert, lock_blueprint, may_build
from leases.engine.scheduling import candidates
from leases.engine.scheduling.decision import Build, Decision, Reclaim, Refuse, UseDegraded, Wait
from leases.engine.scheduling.decision import decide as _decide
from leases.engine.scheduling.place import Outcome, bound, place
from leases.messaging import hints
from leases.models import Lease
from leases.reasons import Reason
from leases.states import LeaseState


def decide(lease_id: int) -> Outcome:
    """Decide what to do for one pending lease that found no room, and carry out the decision."""
    waiter = pending.read(lease_id)
    if waiter is None:
        return Outcome.GONE
    try:
        return act(waiter, opinion(waiter))
    except Busy:
        return Outcome.BUSY


def opinion(waiter: pending.PendingLease) -> Decision:
    """Return what would be decided now for a pending lease, without carrying it out."""
    spending = budgets.spending(waiter.id, waiter.placement) if waiter.budgets else UNBOUNDED
    placement = waiter.placement
    wanted = candidates.demand(placement)
    return _decide(
        candidates.candidates(placement, wanted, spending), held_idle=candidates.idle_holders(placement),
        held_leaving=candidates.holders_leaving(placement), wanted=sum(wanted),
        choose=placement.choose or settings.DRYDOCK.choose, spending=spending,
    )  # fmt: skip


def act(waiter: pending.PendingLease, decision: Decision) -> Outcome:
    """Carry out a decision."""
    verdicts = [verdict.to_json() for verdict in decision.verdicts]
    match decision:
        case Build():
            return build(waiter.id, decision.blueprint_id, decision.draft, verdicts)
        case UseDegraded():
            return _use_degraded(waiter, decision)
        case Reclaim():
            return _reclaim(waiter, decision, verdicts)
        case Wait() if decision.personal and waiter.group_id is None:
            return _beyond(waiter.id, decision, verdicts)
        case Wait():
            return _wait(waiter.id, decision.reason, decision.message, verdicts, decision.retry_at)
        case Refuse():
            return _refuse(waiter.id, decision.message, verdicts)


def _use_degraded(waiter: pending.PendingLease, decision: UseDegraded) -> Outcome:
    """Grant room on a degraded resource. The members of a group look for it together instead."""
    if waiter.group_id is None:
        outcome = place(waiter.id, wait=True, may_be_degraded=True)
        if outcome is not Outcome.NO_ROOM:
            return outcome
    return act(waiter, decision.otherwise)


def _reclaim(waiter: pending.PendingLease, decision: Reclaim, verdicts: Any) -> Outcome:
    """Retire idle resources to make room for a lease, unless the lease can be placed now.

    A resource that is idle now may have been in use when no room was found, and could serve this very lease. The
    members of a group look for room together instead.
    """
    if waiter.group_id is None and (outcome := place(waiter.id, wait=True)) is not Outcome.NO_ROOM:
        return outcome
    for resource_id in decision.resource_ids:
        retirement.retire_idle(resource_id, reason=Reason.RECLAIMED, message="Removed to make room for another lease.")
    return _wait(waiter.id, Reason.WAITING_RECLAIM, decision.message, verdicts, None)


@short
def _wait(lease_id: int, reason: Reason, message: str, verdicts: Any, retry_at: dt.datetime | None) -> Outcome:
    if pending.lock(lease_id) is None:
        return Outcome.GONE
    latest = Now() + pending.look_again()
    explain(lease_id, reason, message, verdicts=verdicts, due_at=Least(latest, retry_at) if retry_at else latest)
    return Outcome.NO_ROOM


@short
def _beyond(lease_id: int, decision: Wait, verdicts: Any) -> Outcome:
    """Let a lease wait if budgets of its owner or group stop it. Park it if nothing else stops it."""
    if pending.lock(lease_id) is None:
        return Outcome.GONE
    if decision.reason is Reason.WAITING_BUDGET and decision.only_personal:
        budgets.park([lease_id], decision.message, verdicts)
        return Outcome.PARKED
    latest = Now() + pending.look_again()
    due = Least(latest, decision.retry_at) if decision.retry_at else latest
    explain(lease_id, decision.reason, decision.message, verdicts=verdicts, due_at=due)
    return Outcome.BEYOND


@short
def _refuse(lease_id: int, message: str, verdicts: Any) -> Outcome:
    if pending.lock(lease_id) is None:
        return Outcome.GONE
    move_lease(
        lease_id, LeaseState.BROKEN, reason=Reason.REFUSED, message=message, actor="allocator",
        verdicts=verdicts, ended_at=Now(),
    )  # fmt: skip
    hints.once_committed(end_siblings, lease_id)
    return Outcome.GONE


@short
def build(lease_id: int, blueprint_id: int, draft: Draft, verdicts: Any) -> Outcome:
    """Insert a resource, the lease's share of it and the run that builds it, in one transaction."""
    bound_lock_waits()
    waiter = pending.lock(lease_id)
    if waiter is None:
        return Outcome.GONE
    taken = draft.capacity if waiter.placement.exclusive else waiter.placement.amounts
    excess, spending = bound(waiter, taken)
    if excess is not None:
        quotas.park([lease_id], excess)
        return Outcome.PARKED
    blueprint = lock_blueprint(blueprint_id)
    if (room := claims.find(waiter.placement)) is not None:
        return _take(waiter, room)
    if blueprint is None or not may_build(blueprint, draft) or spending.against(draft):
        return Outcome.BUSY
    lease = Lease.objects.select_related("owner").get(pk=lease_id)
    room = insert(blueprint, draft, asked=_stored(lease), actor="allocator", message="Built for a pending lease.")
    Lease.objects.filter(pk=lease_id).update(verdicts=verdicts)
    return _take(waiter, room)


@short
def build_reserved(waiter: pending.PendingLease, blueprint_id: int, draft: Draft) -> bool:
    """Start to build a resource for this pending lease. Only leases of its group may claim the resource.

    Return whether the build was started.
    """
    reserved = "SELECT 1 FROM leases_resource WHERE reserved_for_id = %s AND state IN ('pending', 'active')"
    if pending.lock(waiter.id) is None or rows(reserved, (waiter.id,)):
        return False
    return insert_reserved(waiter, blueprint_id, draft) is not None


def insert_reserved(
    waiter: pending.PendingLease, blueprint_id: int, draft: Draft, *, carrier: int | None = None
) -> claims.Room | None:  # fmt: skip
    """Insert a resource that is reserved for this locked pending lease, and start its build.

    If `carrier` is given, the resource is part of the resource with that id. Returns None if the limits of the
    blueprint do not allow the build.
    """
    blueprint = lock_blueprint(blueprint_id)
    if blueprint is None or not may_build(blueprint, draft):
        return None
    asked = _stored(Lease.objects.get(pk=waiter.id)) | dataclasses.asdict(waiter.placement.amounts)
    return insert(
        blueprint, draft, asked=asked, actor="allocator", message="Built for a pending group.", reserved_for=waiter.id,
        carrier=carrier,
    )  # fmt: skip


def _take(waiter: pending.PendingLease, room: claims.Room) -> Outcome:
    claims.unreserve(waiter.id)
    finish_claim(waiter, room)
    return Outcome.GRANTED


def _stored(lease: Lease) -> dict[str, Any]:
    """Return the fields of a lease that are stored with the run of the build that the lease caused."""
    return {
        "lease": lease.pk, "root": lease.root_id or lease.pk, "rank": lease.rank, "priority": lease.priority,
        "owner": lease.owner_id, "type": lease.type, "requirements": lease.requirements, "exclusive": lease.exclusive,
        "slots": lease.slots, "cpu_millicores": lease.cpu_millicores, "ram_mib": lease.ram_mib,
        "disk_mib": lease.disk_mib, "extra": lease.extra, "traits": lease.traits,
        "forbidden_traits": lease.forbidden_traits, "preferred_traits": lease.preferred_traits,
    }  # fmt: skip
