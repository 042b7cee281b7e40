"""Asking for leases, and finding out beforehand what would come of it."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection

from drydock.core.errors import InvalidRequest
from leases import requests
from leases.client.values import Explanation, Verdict, WaitingInfo
from leases.engine.core.database import patient
from leases.engine.placement import budgets, claims, pending, quotas
from leases.engine.scheduling import allocate
from leases.engine.scheduling import request as lease_request
from leases.engine.scheduling.decision import Build, Decision, Reclaim, Refuse, Wait
from leases.given import checked
from leases.models import Lease
from leases.operations import lasting, reading
from leases.operations.callers import Caller, on_behalf
from leases.reasons import Reason
from leases.requests import LeaseRequest

LARGEST_GROUP = 100
SHAREABLE = ("", "resource", "parent")


@checked
def request(who: Caller, given: Mapping[str, Any] | LeaseRequest, *, owner: Any = None, endless: bool = False) -> int:
    """Ask for one lease; its id. Claims at once unless the caller's transaction is open. One without an end is given
    the shortest default that applies, unless it may be `endless`.

    Raises InvalidRequest; Conflict when the idempotency key stands for another request; NotAllowed.
    """
    whose = on_behalf(who, owner)
    asked = requests.read(given)
    usable = lease_request.usable(asked)
    asked = lasting.bounded(who, whose, asked, endless=endless, quotas=usable.quotas)
    return lease_request.request(asked, whose.id, actor=who.actor, usable_by=usable).id


@checked
def request_patiently(who: Caller, given: Mapping[str, Any] | LeaseRequest, *, owner: Any = None) -> int:
    """`request`, repeated while the database does not answer.

    A request without an idempotency key is given one, so that a repetition finds the lease whose answer was lost.
    Inside the caller's transaction nothing is repeated. Raises as `request`.
    """
    asked = requests.read(given)
    if connection.in_atomic_block:
        return request(who, asked, owner=owner)
    if asked.idempotency_key is None:
        asked = asked.model_copy(update={"idempotency_key": uuid.uuid4().hex})
    return patient(request, who, asked, owner=owner)


@checked
def request_group(
    who: Caller, given: Sequence[Mapping[str, Any] | LeaseRequest], *, owner: Any = None, same: str = "",
    different: str = "", idempotency_key: str | None = None,
) -> list[int]:  # fmt: skip
    """Ask for several leases that are granted all together or not at all; their ids in the order asked.

    `same`, `different`: `resource` or `parent`, what they must share or must not. Raises as `request`.
    """
    for field, value in (("same", same), ("different", different)):
        if value not in SHAREABLE:
            raise InvalidRequest(f"{value!r} is neither 'resource' nor 'parent'.", field=field)
    if not 1 <= len(given) <= LARGEST_GROUP:
        raise InvalidRequest(f"A group has 1 to {LARGEST_GROUP} leases.", field="leases")
    if idempotency_key is not None and not 1 <= len(idempotency_key) <= 255:
        raise InvalidRequest("An idempotency key has 1 to 255 characters.", field="idempotency_key")
    whose = on_behalf(who, owner)
    asked = [lasting.bounded(who, whose, requests.read(one, keyed=idempotency_key is not None)) for one in given]
    _, ids = lease_request.request_group(
        asked, whose.id, actor=who.actor, same=same, different=different,
        idempotency_key=idempotency_key,
    )  # fmt: skip
    return ids


@checked
def request_group_patiently(
    who: Caller, given: Sequence[Mapping[str, Any] | LeaseRequest], *, owner: Any = None, same: str = "",
    different: str = "", idempotency_key: str | None = None,
) -> list[int]:  # fmt: skip
    """`request_group`, repeated as `request_patiently` does."""
    key = idempotency_key
    if key is None and not connection.in_atomic_block and len(given) <= LARGEST_GROUP:
        given, key = [requests.read(one) for one in given], uuid.uuid4().hex
    return patient(request_group, who, given, owner=owner, same=same, different=different, idempotency_key=key)


@checked
def explain(who: Caller, given: Mapping[str, Any] | LeaseRequest, *, owner: Any = None) -> Explanation:
    """What would come of a request now, with every candidate's verdict. Nothing is written.

    The request is rehearsed in a transaction that is rolled back, so that it passes through the very same
    questions. Raises InvalidRequest, NotAllowed.
    """
    whose = on_behalf(who, owner)
    asked = lasting.bounded(who, whose, requests.read(given))
    with lease_request.rehearse(asked, whose.id, actor=who.actor) as waiter:
        return _rehearsed(waiter)


def _rehearsed(waiter: pending.PendingLease) -> Explanation:
    decision = allocate.opinion(waiter)
    found = _answer(waiter, decision)
    verdicts = reading.verdicts(v.to_json() for v in decision.verdicts)
    before = found.place - 1
    allowance = quotas.allowance({waiter.id: waiter.placement.amounts})
    if allowance.excess is not None:
        return _waits(found, before, verdicts)
    spending = budgets.look([waiter.id]).of(waiter.id, waiter.placement)
    waiter.placement = spending.bounding(allowance.bounding(waiter.placement))
    room = claims.look(waiter.placement, waiter.rank)
    if room is not None and not (room.queue and claims.belongs_to_older(room, waiter)):
        ready = "is there" if room.state == "active" else "is being built"
        message = f"Granted at once: {room.name or f'resource {room.resource_id}'} {ready} and has room."
        return Explanation(
            outcome="granted", message=message, resource=room.resource_id, waiting_before=before, verdicts=verdicts
        )
    return _decided(decision, found, before, verdicts)


def _answer(waiter: pending.PendingLease, decision: Decision) -> WaitingInfo:
    """Why the rehearsed lease would wait, in the words in which it is told of one that does."""
    row = Lease.objects.get(pk=waiter.id)
    row.verdicts = [verdict.to_json() for verdict in decision.verdicts]
    return reading.waits([row])[row.pk]


def _waits(
    found: WaitingInfo, before: int, verdicts: tuple[Verdict, ...], retry_at: dt.datetime | None = None
) -> Explanation:  # fmt: skip
    return Explanation(
        outcome="wait", reason=found.reason, message=f"{found.message} {found.help}".rstrip(), retry_at=retry_at,
        waiting_before=before, verdicts=found.verdicts or verdicts,
    )  # fmt: skip


def _decided(decision: Decision, found: WaitingInfo, before: int, verdicts: tuple[Verdict, ...]) -> Explanation:
    match decision:
        case Build():
            name = next(v.blueprint for v in decision.verdicts if v.answer == "build")
            return Explanation(
                outcome="build", message=f"{name} would build one.", offer=decision.draft.offer,
                waiting_before=before, verdicts=verdicts,
            )  # fmt: skip
        case Reclaim():
            return Explanation(outcome="reclaim", message=decision.message, waiting_before=before, verdicts=verdicts)
        case Wait() if found.reason != Reason.REQUESTED:
            return _waits(found, before, verdicts, decision.retry_at)
        case Wait():
            return Explanation(
                outcome="wait", reason=decision.reason, message=decision.message, retry_at=decision.retry_at,
                waiting_before=before, verdicts=verdicts,
            )  # fmt: skip
        case Refuse():
            return Explanation(
                outcome="refuse", reason=Reason.REFUSED, message=decision.message, waiting_before=before,
                verdicts=verdicts,
            )  # fmt: skip
