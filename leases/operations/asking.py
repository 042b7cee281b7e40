"""Asking for leases, and finding out beforehand what would come of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from drydock.core.errors import InvalidRequest
from leases import requests
from leases.client.values import Explanation, Verdict
from leases.engine import allocation, budgets, grant, quotas, requesting, search, waiting
from leases.engine.decision import Build, Decision, Reclaim, Refuse, Wait
from leases.given import checked
from leases.operations.callers import Caller, on_behalf
from leases.reasons import Reason
from leases.requests import LeaseRequest

SHAREABLE = ("", "resource", "parent")


@checked
def request(who: Caller, given: Mapping[str, Any] | LeaseRequest, *, owner: Any = None) -> int:
    """Ask for one lease; its id. Claims at once unless the caller's transaction is open.

    Raises InvalidRequest; Conflict when the idempotency key stands for another request; NotAllowed.
    """
    asked = requests.read(given)
    return requesting.request(asked, on_behalf(who, owner).id, actor=who.actor).id


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
    if not 1 <= len(given) <= 100:
        raise InvalidRequest("A group has 1 to 100 leases.", field="leases")
    if idempotency_key is not None and not 1 <= len(idempotency_key) <= 255:
        raise InvalidRequest("An idempotency key has 1 to 255 characters.", field="idempotency_key")
    asked = [requests.read(one, keyed=idempotency_key is not None) for one in given]
    _, ids = requesting.request_group(
        asked, on_behalf(who, owner).id, actor=who.actor, same=same, different=different,
        idempotency_key=idempotency_key,
    )  # fmt: skip
    return ids


@checked
def explain(who: Caller, given: Mapping[str, Any] | LeaseRequest, *, owner: Any = None) -> Explanation:
    """What would come of a request now, with every candidate's verdict. Nothing is written.

    The request is rehearsed in a transaction that is rolled back, so that it passes through the very same
    questions. Raises InvalidRequest, NotAllowed.
    """
    asked = requests.read(given)
    with requesting.rehearse(asked, on_behalf(who, owner).id, actor=who.actor) as waiter:
        return _rehearsed(waiter)


def _rehearsed(waiter: waiting.Waiter) -> Explanation:
    before = waiting.place(waiter.id)
    decision = allocation.opinion(waiter)
    verdicts = tuple(Verdict(**v.to_json()) for v in decision.verdicts)
    allowance = quotas.allowance({waiter.id: waiter.question.amounts})
    if allowance.excess is not None:
        return Explanation(
            outcome="wait", reason=Reason.WAITING_QUOTA, message=allowance.excess.sentence, waiting_before=before,
            verdicts=verdicts,
        )  # fmt: skip
    spending = budgets.look([waiter.id]).of(waiter.id, waiter.question)
    waiter.question = spending.bounding(allowance.bounding(waiter.question))
    room = search.look(waiter.question, waiter.rank)
    if room is not None and not (room.queue and grant.belongs_to_older(room, waiter)):
        ready = "is there" if room.state == "active" else "is being built"
        message = f"Granted at once: {room.name or f'resource {room.resource_id}'} {ready} and has room."
        return Explanation(
            outcome="granted", message=message, resource=room.resource_id, waiting_before=before, verdicts=verdicts
        )
    return _decided(decision, before, verdicts)


def _decided(decision: Decision, before: int, verdicts: tuple[Verdict, ...]) -> Explanation:
    match decision:
        case Build():
            name = next(v.blueprint for v in decision.verdicts if v.answer == "build")
            return Explanation(
                outcome="build", message=f"{name} would build one.", offer=decision.draft.offer,
                waiting_before=before, verdicts=verdicts,
            )  # fmt: skip
        case Reclaim():
            return Explanation(outcome="reclaim", message=decision.message, waiting_before=before, verdicts=verdicts)
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
