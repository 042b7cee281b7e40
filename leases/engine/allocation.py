"""Acting on the decision for a lease that found no room: build, reclaim, wait or refuse."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

from django.conf import settings
from django.db.models.functions import Least, Now

from blueprints.models import Blueprint
from blueprints.specs import Draft
from leases import hints
from leases.engine import budgets, claim, leaving, quotas, retiring, search, snapshot, waiting
from leases.engine.children import end_waiting_siblings
from leases.engine.decision import Build, Decision, Reclaim, Refuse, Wait
from leases.engine.decision import decide as _decide
from leases.engine.grant import finish_claim
from leases.engine.installation import notice
from leases.engine.runs import start
from leases.engine.serving import Outcome
from leases.engine.transaction import Busy, bound_lock_waits, rows, short
from leases.engine.transitions import explain, move_lease
from leases.models import Capacity, Lease, Part, Resource
from leases.reasons import Reason
from leases.states import LeaseState


def decide(lease_id: int) -> Outcome:
    """Decide for one waiting lease and act on it."""
    found = rows(f"SELECT {waiting.COLUMNS} FROM leases_lease l WHERE id = %s AND state = 'pending'", (lease_id,))
    if not found:
        return Outcome.GONE
    waiter = waiting.Waiter(found[0])
    try:
        return act(waiter, opinion(waiter))
    except Busy:
        return Outcome.BUSY


def opinion(waiter: waiting.Waiter) -> Decision:
    """The decision as it stands now; nothing is changed."""
    spending = budgets.spending(waiter.id, waiter.question)
    question = waiter.question
    wanted = leaving.wanted(question)
    return _decide(
        snapshot.candidates(question, wanted, spending), held_idle=snapshot.idle_holders(question),
        held_leaving=leaving.holders(question), wanted=sum(wanted),
        choose=question.choose or settings.DRYDOCK.choose, spending=spending,
    )  # fmt: skip


def act(waiter: waiting.Waiter, decision: Decision) -> Outcome:
    """Carry the decision out."""
    verdicts = [verdict.to_json() for verdict in decision.verdicts]
    match decision:
        case Build():
            return build(waiter.id, decision.blueprint_id, decision.draft, verdicts)
        case Reclaim():
            for resource_id in decision.resource_ids:
                retiring.retire_idle(resource_id, reason=Reason.RECLAIMED, message="Removed for another lease.")
            return _wait(waiter.id, Reason.WAITING_RECLAIM, decision.message, verdicts, None)
        case Wait() if decision.personal and waiter.group_id is None:
            return _beyond(waiter.id, decision, verdicts)
        case Wait():
            return _wait(waiter.id, decision.reason, decision.message, verdicts, decision.retry_at)
        case Refuse():
            return _refuse(waiter.id, decision.message, verdicts)


@short
def _wait(lease_id: int, reason: Reason, message: str, verdicts: Any, retry_at: dt.datetime | None) -> Outcome:
    if waiting.lock(lease_id) is None:
        return Outcome.GONE
    latest = Now() + waiting.look_again()
    explain(lease_id, reason, message, verdicts=verdicts, due_at=Least(latest, retry_at) if retry_at else latest)
    return Outcome.NO_ROOM


@short
def _beyond(lease_id: int, decision: Wait, verdicts: Any) -> Outcome:
    """Its own budget is in the way. Where nothing else is, it stays out of the queue meanwhile."""
    if waiting.lock(lease_id) is None:
        return Outcome.GONE
    if decision.reason is Reason.WAITING_BUDGET and decision.only_personal:
        budgets.park([lease_id], decision.message, verdicts)
        return Outcome.PARKED
    latest = Now() + waiting.look_again()
    due = Least(latest, decision.retry_at) if decision.retry_at else latest
    explain(lease_id, decision.reason, decision.message, verdicts=verdicts, due_at=due)
    return Outcome.BEYOND


@short
def _refuse(lease_id: int, message: str, verdicts: Any) -> Outcome:
    if waiting.lock(lease_id) is None:
        return Outcome.GONE
    move_lease(
        lease_id, LeaseState.BROKEN, reason=Reason.REFUSED, message=message, actor="allocator",
        verdicts=verdicts, ended_at=Now(),
    )  # fmt: skip
    hints.once_committed(end_waiting_siblings, lease_id)
    return Outcome.GONE


@short
def build(lease_id: int, blueprint_id: int, draft: Draft, verdicts: Any) -> Outcome:
    """Write the resource row, the lease's share of it and the run that builds it, all or nothing."""
    bound_lock_waits()
    waiter = waiting.lock(lease_id)
    if waiter is None:
        return Outcome.GONE
    taken = draft.capacity if waiter.question.exclusive else waiter.question.amounts
    allowance = quotas.allowance({lease_id: taken})
    if allowance.excess is not None:
        quotas.park([lease_id], allowance.excess)
        return Outcome.PARKED
    spending = budgets.lock([lease_id]).of(lease_id, waiter.question)
    waiter.question = spending.bounding(allowance.bounding(waiter.question))
    blueprint = lock_blueprint(blueprint_id)
    if (room := search.find(waiter.question)) is not None:
        return _take(waiter, room)
    if blueprint is None or not may_build(blueprint, draft) or spending.against(draft):
        return Outcome.BUSY
    lease = Lease.objects.select_related("owner").get(pk=lease_id)
    room = insert(blueprint, draft, asked=_stored(lease), actor="allocator", message="For a waiting lease.")
    Lease.objects.filter(pk=lease_id).update(verdicts=verdicts)
    return _take(waiter, room)


@short
def build_reserved(waiter: waiting.Waiter, blueprint_id: int, draft: Draft) -> bool:
    """Build a resource that only the group of this waiting lease may claim, with what the waiter says it needs."""
    reserved = "SELECT 1 FROM leases_resource WHERE reserved_for_id = %s AND state IN ('pending', 'active')"
    if waiting.lock(waiter.id) is None or rows(reserved, (waiter.id,)):
        return False
    blueprint = lock_blueprint(blueprint_id)
    if blueprint is None or not may_build(blueprint, draft):
        return False
    asked = _stored(Lease.objects.get(pk=waiter.id)) | dataclasses.asdict(waiter.question.amounts)
    message = "For a waiting group."
    insert(blueprint, draft, asked=asked, actor="allocator", message=message, reserved_for=waiter.id)
    return True


def _take(waiter: waiting.Waiter, room: search.Room) -> Outcome:
    claim.unreserve(waiter.id)
    finish_claim(waiter, room)
    return Outcome.GRANTED


def lock_blueprint(blueprint_id: int) -> Blueprint | None:
    """The blueprint, locked: whoever builds or raises its limit waits here."""
    return Blueprint.objects.select_for_update(no_key=True).filter(pk=blueprint_id).first()


_THERE = """
    SELECT (SELECT count(*) FROM (
            SELECT FROM leases_resource WHERE blueprint_id = %s AND gone_at IS NULL LIMIT %s) t),
        (SELECT count(*) FROM (
            SELECT FROM leases_resource WHERE blueprint_id = %s AND gone_at IS NULL AND state = 'pending' LIMIT %s) p)"""
"""Counted no further than the limits, which is all one needs to know."""


def may_build(blueprint: Blueprint, draft: Draft | None = None) -> bool:
    """Whether one more may be built now, within the blueprint's budget where it is known which. The blueprint must
    be locked."""
    most = blueprint.max_resources
    there, building = rows(_THERE, (blueprint.pk, most or 0, blueprint.pk, blueprint.max_builds))[0]
    in_limit = most is None or there < most
    allowed = blueprint.enabled and not blueprint.drained and in_limit and building < blueprint.max_builds
    return allowed and (draft is None or budgets.blueprint_affords(blueprint.pk, draft))


def insert(
    blueprint: Blueprint, draft: Draft, *, actor: str, message: str, asked: Any = None, origin: str = "built",
    reserved_for: int | None = None, registration: Any = None,
) -> search.Room:  # fmt: skip
    """Write the row of a drafted resource with its further capacities and parts, and begin its build."""
    notice()
    life = blueprint.max_lifetime
    resource = Resource.objects.create(
        blueprint=blueprint, type=blueprint.resource_type, name=draft.name, origin=origin,
        identity=draft.identity or None, generation=blueprint.generation, reason=Reason.BUILDING, message=message,
        actor=actor, attributes=draft.attributes, traits=sorted(draft.traits), facts=draft.facts, offer=draft.offer,
        zone=draft.zone, price=draft.price, total_slots=draft.capacity.slots,
        total_cpu_millicores=draft.capacity.cpu_millicores, total_ram_mib=draft.capacity.ram_mib,
        total_disk_mib=draft.capacity.disk_mib, reserved_for_id=reserved_for,
        dies_at=None if life is None else Now() + life, part_of=whole(blueprint, draft),
        registration=registration or {},
    )  # fmt: skip
    if not draft.name:
        Resource.objects.filter(pk=resource.pk).update(name=f"{blueprint.name}-{resource.pk}")
    Capacity.objects.bulk_create(
        Capacity(resource=resource, name=name, total=total) for name, total in draft.capacity.extra.items()
    )
    Part.objects.bulk_create(
        Part(resource=resource, part_class=p.part_class, identity=p.identity, attributes=p.attributes, state=p.state)
        for p in draft.parts
    )
    start(resource_id=resource.pk, phase="build", asked=asked)
    name = draft.name or f"{blueprint.name}-{resource.pk}"
    return search.Room(resource_id=resource.pk, state="pending", kind=blueprint.kind, name=name)


def whole(blueprint: Blueprint, draft: Draft) -> Resource | None:
    """What the draft is part of: of its own blueprint, else the only one of that identity there is."""
    if not draft.part_of:
        return None
    there = Resource.objects.filter(identity=draft.part_of, gone_at=None)
    own = there.filter(blueprint=blueprint).first()
    others = list(there[:2])
    return own or (others[0] if len(others) == 1 else None)


def _stored(lease: Lease) -> dict[str, Any]:
    """What a build keeps of the lease that caused it."""
    return {
        "lease": lease.pk, "root": lease.root_id or lease.pk, "rank": lease.rank, "priority": lease.priority,
        "owner": lease.owner_id, "type": lease.type, "requirements": lease.requirements, "exclusive": lease.exclusive,
        "slots": lease.slots, "cpu_millicores": lease.cpu_millicores, "ram_mib": lease.ram_mib,
        "disk_mib": lease.disk_mib, "extra": lease.extra, "traits": lease.traits,
        "forbidden_traits": lease.forbidden_traits, "preferred_traits": lease.preferred_traits,
    }  # fmt: skip
