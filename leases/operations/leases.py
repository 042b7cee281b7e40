"""Operations on leases: request, explain, list, release, hold, retry."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.db.models import Q
from django.db.models.expressions import RawSQL

from drydock.core.errors import Conflict, InvalidRequest, NotAllowed, NotFound
from drydock.core.units import duration, in_words
from drydock_client.values import Explanation, LeaseInfo, Verdict, WaitingInfo
from leases.engine.core.database import begins_with, patient, rows, run
from leases.engine.core.transitions import record_event
from leases.engine.lifecycle import lease_phases
from leases.engine.lifecycle import release as lease_release
from leases.engine.placement import budgets, claims, pending, quotas
from leases.engine.queue import opinions
from leases.engine.scheduling import allocate
from leases.engine.scheduling import request as lease_request
from leases.engine.scheduling.decision import Build, Decision, Reclaim, Refuse, UseDegraded, Wait
from leases.messaging import hints
from leases.models import Lease
from leases.operations import infos, lifetimes
from leases.operations.callers import Caller, lease_of, not_theirs, on_behalf, own_leases
from leases.reasons import Reason
from leases.states import UNFINISHED, LeaseState
from leases.validation import requests
from leases.validation.fields import LONGEST_NOTE
from leases.validation.input_checks import checked
from leases.validation.requests import LARGEST_GROUP, LeaseRequest

SAME, DIFFERENT = ("", "resource", "parent", "host", "whole"), ("", "resource", "parent")
NEAR = ("", "prefer", "require")


@checked
def request(who: Caller, given: Mapping[str, Any] | LeaseRequest, *, owner: Any = None, endless: bool = False) -> int:
    """Request one lease and return its id. Claims room at once unless the caller has a transaction open.

    A request without an end gets the shortest default duration that applies, unless `endless` is true. Raises
    InvalidRequest, NotAllowed, and Conflict if the idempotency key was used for a different request.
    """
    whose = on_behalf(who, owner)
    asked = requests.read(given)
    usable = lease_request.usable(asked)
    asked = lifetimes.bounded(who, whose, asked, endless=endless, quotas=usable.quotas)
    return lease_request.request(asked, whose.id, actor=who.actor, usable_by=usable).id


@checked
def request_patiently(who: Caller, given: Mapping[str, Any] | LeaseRequest, *, owner: Any = None) -> int:
    """Request one lease as `request` does, and retry while the database is not reachable.

    Gives a request without an idempotency key a new key, so that a retry finds the lease if only the reply was lost.
    Does not retry inside a caller's transaction. Raises what `request` raises.
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
    different: str = "", near: str = "", idempotency_key: str | None = None,
) -> list[int]:  # fmt: skip
    """Request several leases, granted all together or not at all. Return their ids in the order of the requests.

    All leases must have the same resource, parent or host (`same`), or different resources or parents (`different`).
    With `host`, every lease is on the same host or on a device in that host. With `whole`, resources that are missing,
    such as a DPU, are also built on devices of that host, and all leases are granted once they are built. `near`
    implies `host`: with `prefer`, the free devices nearest one another are chosen; with `require`, the leases wait for
    devices that share a place narrower than the host. A request with a `count` stands for that many leases. Raises what
    `request` raises.
    """
    rule = _rule(same, different, near)
    members = _members(given, keyed=idempotency_key is not None)
    if idempotency_key is not None and not 1 <= len(idempotency_key) <= 255:
        raise InvalidRequest("An idempotency key must have 1 to 255 characters.", field="idempotency_key")
    whose = on_behalf(who, owner)
    asked = [lifetimes.bounded(who, whose, requests.read(one)) for one in members]
    _, ids = lease_request.request_group(
        asked, whose.id, actor=who.actor, **rule, idempotency_key=idempotency_key
    )  # fmt: skip
    return ids


def _rule(same: str, different: str, near: str) -> dict[str, str]:
    """Return the rule of a group. Raises InvalidRequest."""
    for field, value, known in (("same", same, SAME), ("different", different, DIFFERENT), ("near", near, NEAR)):
        if value not in known:
            choices = ", ".join(known[1:])
            raise InvalidRequest(f"{value!r} is not valid here.", field=field, hint=f"Choose one of: {choices}.")
    if near and same not in ("", "host"):
        built = same == "whole"
        raise InvalidRequest(
            f"near cannot be combined with same={same}, because near chooses devices "
            + ("that exist, and same=whole may build some." if built else "in one host."), field="near",
            hint="Omit near, or set same to host." if built else "Omit same, or set it to host.",
        )  # fmt: skip
    return {"same": "host" if near else same, "different": different, "near": near}


def _members(given: Sequence[Mapping[str, Any] | LeaseRequest], *, keyed: bool) -> list[Any]:
    """Return the requests of a group, one for each lease. Raises InvalidRequest."""
    found = [one for each in given[: LARGEST_GROUP + 1] for one in requests.members(each, keyed=keyed)]
    if not 1 <= len(found) <= LARGEST_GROUP:
        raise InvalidRequest(f"A group of leases must have 1 to {LARGEST_GROUP} members.", field="leases")
    return found


@checked
def request_group_patiently(
    who: Caller, given: Sequence[Mapping[str, Any] | LeaseRequest], *, owner: Any = None, same: str = "",
    different: str = "", near: str = "", idempotency_key: str | None = None,
) -> list[int]:  # fmt: skip
    """Request several leases as `request_group` does, and retry as `request_patiently` does."""
    key = idempotency_key
    if key is None and not connection.in_atomic_block and len(given) <= LARGEST_GROUP:
        given = [one for each in given for one in requests.members(each)]
        key = uuid.uuid4().hex
    return patient(
        request_group, who, given, owner=owner, same=same, different=different, near=near, idempotency_key=key
    )


@checked
def explain(who: Caller, given: Mapping[str, Any] | LeaseRequest, *, owner: Any = None) -> Explanation:
    """Return what would happen to a request now, with the verdict on every candidate. Writes nothing.

    Inserts the request in a transaction that is rolled back, so that it passes the same checks as a real request.
    Raises InvalidRequest, NotAllowed.
    """
    whose = on_behalf(who, owner)
    asked = lifetimes.bounded(who, whose, requests.read(given))
    with lease_request.rehearse(asked, whose.id, actor=who.actor) as waiter:
        return _rehearsed(waiter)


@checked
def explain_group(
    who: Caller, given: Sequence[Mapping[str, Any] | LeaseRequest], *, owner: Any = None, same: str = "",
    different: str = "", near: str = "",
) -> Explanation:  # fmt: skip
    """Return what would happen to a group of leases now. Writes nothing.

    For a group in one host, the verdicts say which hosts can serve it, how far apart their devices would be, and what
    the others lack; the name of a host is then the candidate. If no host could ever serve it, the verdicts on the
    blueprints follow. Raises InvalidRequest, NotAllowed.
    """
    rule, members, whose = _rule(same, different, near), _members(given, keyed=False), on_behalf(who, owner)
    asked = [lifetimes.bounded(who, whose, requests.read(one)) for one in members]
    with lease_request.rehearse_group(asked, whose.id, actor=who.actor, **rule) as group_id:
        found = opinions.opinion(group_id)
    of_hosts = [Verdict(blueprint=one.host, answer=one.answer, sentence=one.sentence) for one in found.hosts]
    of_blueprints = infos.verdicts(v.to_json() for one in found.decisions for v in one.verdicts)
    verdicts = tuple(dict.fromkeys([*of_hosts, *of_blueprints]))
    refused = next((one for one in found.decisions if isinstance(one, Refuse)), None)
    if refused is not None:
        return Explanation(outcome="refuse", reason=Reason.REFUSED, message=refused.message, verdicts=verdicts)
    outcome, message = "granted" if found.granted else "wait", found.message
    if found.decisions and all(isinstance(one, Build) for one in found.decisions):
        builders = dict.fromkeys(v.blueprint for v in of_blueprints if v.answer == "build")
        outcome, message = "build", f"{message} {', '.join(builders)} would build what is missing."
    return Explanation(outcome=outcome, reason=found.reason, message=message, verdicts=verdicts)


def _rehearsed(waiter: pending.PendingLease) -> Explanation:
    decision = allocate.opinion(waiter)
    found = _answer(waiter, decision)
    verdicts = infos.verdicts(v.to_json() for v in decision.verdicts)
    before = found.place - 1
    allowance = quotas.allowance({waiter.id: waiter.placement.amounts})
    if allowance.excess is not None:
        return _waits(found, before, verdicts)
    spending = budgets.look([waiter.id]).of(waiter.id, waiter.placement)
    waiter.placement = spending.bounding(allowance.bounding(waiter.placement))
    degraded = isinstance(decision, UseDegraded)
    room = claims.look(replace(waiter.placement, may_be_degraded=degraded), waiter.rank)
    if room is not None and not (room.queue and claims.belongs_to_older(room, waiter)):
        ready = "is active" if room.state == "active" else "is being built"
        message = f"Granted at once: {room.name or f'resource {room.resource_id}'} {ready} and has room."
        message += " It is degraded: nothing healthy has room, and nothing can be built now." if degraded else ""
        return Explanation(
            outcome="granted", message=message, resource=room.resource_id, waiting_before=before, verdicts=verdicts
        )
    return _decided(decision, found, before, verdicts)


def _answer(waiter: pending.PendingLease, decision: Decision) -> WaitingInfo:
    """Return why the rehearsed lease would wait, with the same message as a pending lease."""
    row = Lease.objects.get(pk=waiter.id)
    row.verdicts = [verdict.to_json() for verdict in decision.verdicts]
    return infos.waits([row])[row.pk]


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
        case UseDegraded():
            return _decided(decision.otherwise, found, before, verdicts)
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


OVER = ("destroyed", "broken")


def moved(lease_id: int, known: LeaseInfo | None) -> bool:
    """Return whether the state, reason or message of a lease has changed since `known` was read.

    Uses one cheap statement, for polling. For a pending lease, only the state is compared, because the reason for
    waiting is expensive to compute.
    """
    if known is None:
        return True
    found = rows("SELECT state, reason, message FROM leases_lease WHERE id = %s", (lease_id,))
    if not found or known.waiting is not None:
        return not found or found[0][0] != known.state
    return found[0] != (known.state, known.reason, known.message)


@checked
def get(who: Caller, lease_id: int) -> LeaseInfo:
    """Return a lease by its id. Raises NotFound."""
    return infos.lease(lease_of(who, lease_id, related=True), who)


@checked
def named(who: Caller, name: str) -> int:
    """Return the id of the lease with this name. Raises NotFound, Conflict.

    Looks first for a live lease of the caller, then, for operators, for a live lease of another owner (Conflict if
    several owners have one), and last for the caller's newest ended lease.
    """
    own = Lease.objects.filter(owner_id=who.id, name=name, need="").order_by("-id")
    first = own.filter(state__in=UNFINISHED).first()
    if first is None and who.operator:
        others = list(Lease.objects.filter(name=name, need="", state__in=UNFINISHED).order_by("id")[:2])
        if len(others) > 1:
            raise Conflict(
                f"Several owners have a lease named {name!r}.", field="lease",
                hint=f"Give the id of the lease. To list the ids: drydock leases --name {name}",
            )  # fmt: skip
        first = others[0] if others else None
    first = first or own.first()
    if first is None:
        raise NotFound(f"{name!r} is not a lease number or name.", field="lease", hint="`drydock leases` lists them.")
    return int(first.pk)


_SEARCHED = """
    SELECT id FROM leases_lease WHERE name <> '' AND lower(name) LIKE %s
    UNION SELECT id FROM leases_lease WHERE note <> '' AND to_tsvector('simple'::regconfig, COALESCE(note, ''))
        @@ plainto_tsquery('simple'::regconfig, %s)"""
"""Uses UNION, because one condition with OR would read every lease instead of two indexes."""


@checked
def list_(
    who: Caller, *, owner: Any = None, states: Collection[str] = UNFINISHED, type_: str = "",
    resource: int | None = None, group: int | None = None, label: str = "", name: str = "",
    ids: Collection[int] | None = None, held: bool = False, limit: int = 200, before: int | None = None,
    search: str = "",
) -> list[LeaseInfo]:  # fmt: skip
    """Return leases that the caller may see, newest first. `label` is `key` or `key=value`.

    If `held` is true, leases that other leases and resources hold are included. For paging, `before` returns only
    leases with a lower id.
    """
    for state in states or ():
        if state not in tuple(LeaseState):
            raise InvalidRequest(
                f"State {state!r} does not exist.", field="state", hint=f"Choose one of: {', '.join(LeaseState)}."
            )
    found = own_leases(who)
    if owner is not None:
        found = found.filter(owner_id=on_behalf(who, owner).id)
    if not held:
        found = found.filter(for_resource=None, for_lease=None)
    key, equal, value = label.partition("=")
    labelled = Q() if not label else Q(labels__contains={key: value}) if equal else Q(labels__has_key=key)
    chosen = {
        "state__in": states or None, "type": type_ or None, "resource_id": resource, "group_id": group,
        "name": name or None, "id__in": ids, "id__lt": before,
    }  # fmt: skip
    if search:
        found = found.filter(pk__in=RawSQL(_SEARCHED, (begins_with(search.lower()), search)))  # noqa: S611
    found = found.filter(labelled, **{column: value for column, value in chosen.items() if value is not None})
    return infos.leases(found.order_by("-id")[: max(1, min(limit, 1000))], who)


@checked
def group(who: Caller, group_id: int) -> list[LeaseInfo]:
    """Return the leases of a group in the order in which they were requested. Raises NotFound."""
    found = list_(who, states=(), group=group_id, limit=LARGEST_GROUP)
    if not found:
        raise NotFound(f"Group {group_id} does not exist or is not yours.", field="group")
    return found[::-1]


@checked
def set_note(who: Caller, lease_id: int, *, note: str) -> LeaseInfo:
    """Set the note of a lease and return the lease, which may have ended. An empty note removes the old one.

    Raises NotFound, and InvalidRequest for a note that is too long.
    """
    if len(note) > LONGEST_NOTE:
        raise InvalidRequest(f"A note can have at most {LONGEST_NOTE} characters.", field="note")
    lease = lease_of(who, lease_id)
    with transaction.atomic():
        if Lease.objects.filter(pk=lease.pk).exclude(note=note).update(note=note):
            message = "The note was changed." if note else "The note was removed."
            record_event("lease.noted", message, actor=who.actor, lease_id=lease.pk)
    return get(who, lease_id)


@checked
def transfer(who: Caller, lease_id: int, *, to: str, message: str = "") -> None:
    """Transfer an active lease, with its files, to another user. The lease's processes end, and its keys are replaced.

    Owners can transfer leases to users of their own groups, and operators to anyone. The quota, the budgets and the
    authorizations of the other user must allow the lease. If one of these does not allow it, only operators are told
    which one. Raises NotFound, InvalidRequest, Conflict, NotAllowed, and NotSupported if the kind cannot transfer
    leases, or if the lease has rights on its host with which its former owner could keep access.
    """
    lease = lease_of(who, lease_id, related=True)
    receiver = _receiver(who, to)
    of, lease.owner = lease.owner_id, receiver
    limit = lifetimes.longest(who, lease)
    if limit is not None and lease.until is not None:
        lifetimes.refuse_later(lease.until, limit, lease.active_at)
    try:
        lease_phases.transfer(lease_id, of=of, to=receiver.pk, to_name=to, actor=who.actor, message=message)
    except (Conflict, NotAllowed) as error:
        if who.operator or error.field not in ("to", "name"):
            raise
        raise Conflict(
            f"{to} cannot take over lease {lease_id} because of a quota, a budget, a missing authorization "
            "or a lease of the same name.", field="to", hint=f"{to} or an operator can see which of these forbids it.",
        ) from None  # fmt: skip


def _receiver(who: Caller, to: str) -> Any:
    """Return the user to whom the caller may transfer a lease. Raises InvalidRequest."""
    model = get_user_model()
    found = model.objects.filter(**{model.USERNAME_FIELD: to}, is_active=True).first()
    if who.operator:
        if found is None:
            raise InvalidRequest(f"User {to!r} does not exist or is disabled.", field="to")
        return found
    if found is None or not Group.objects.filter(user=who.id).filter(user=found.pk).exists():
        raise InvalidRequest(
            f"You can transfer a lease only to members of your groups, and {to!r} is not one.",
            field="to",
            hint="An operator can transfer the lease to anyone.",
        )
    return found


_STANDING = """
    SELECT state, owner_id IS NOT DISTINCT FROM %s, need, for_lease_id, for_resource_id
    FROM leases_lease WHERE id = %s"""


@checked
def release(who: Caller, lease_id: int, *, message: str = "") -> None:
    """Release a lease, or cancel a pending one. Releasing it again has no effect.

    Inside a caller's transaction, the release is carried out after the commit. Raises NotFound, and Conflict for a
    lease that another lease or a resource holds, unless the caller is an operator.
    """
    found = rows(_STANDING, (who.id, lease_id), hot=True)
    if not found or not (found[0][1] or who.operator):
        raise not_theirs(lease_id)
    state, own, need, for_lease, for_resource = found[0]
    if need and not who.operator:
        holder = f"lease {for_lease}" if for_lease else f"resource {for_resource}"
        raise Conflict(f"Lease {lease_id} belongs to {holder} and ends with it.", hint=f"Release {holder} instead.")
    if state in OVER:
        return
    reason = Reason.CANCELLED if state in ("pending", "acquired") else Reason.OWNER if own else Reason.OPERATOR
    lease_release.release(lease_id, reason=reason, actor=who.actor, message=message)


_BEAT = """
    UPDATE leases_lease SET heartbeat_at = clock_timestamp() WHERE id = %s AND state IN ('acquired', 'active')
        AND heartbeat_limit IS NOT NULL AND release_wanted = '' AND (until IS NULL OR until > clock_timestamp())
        AND heartbeat_at + heartbeat_limit > clock_timestamp()"""


@checked
def heartbeat(who: Caller, lease_id: int) -> None:
    """Record a heartbeat of a lease. Raises NotFound, and Conflict if the lease has ended or has no heartbeat limit."""
    lease = lease_of(who, lease_id)
    if run(_BEAT, (lease_id,)):
        return
    if lease.heartbeat_limit is None:
        raise Conflict(
            f"Lease {lease_id} has no heartbeat limit, so it expects no heartbeats.",
            hint="Request the lease with heartbeat_limit.",
        )
    if lease.state in ("acquired", "active"):
        raise Conflict(f"The heartbeat came too late: lease {lease_id} has been ended.")
    what = "is pending" if lease.state == "pending" else "has ended"
    raise Conflict(f"Lease {lease_id} {what} and accepts no heartbeats.")


LONGEST_HOLD = dt.timedelta(days=7)


@checked
def hold(
    who: Caller, lease_id: int, *, ttl: str | float | dt.timedelta | None = None, reason: str = ""
) -> dt.datetime | None:
    """Keep the resource of a lease unchanged after the lease ends, for debugging.

    The hold lasts for `ttl` from now. An owner may hold a resource for up to seven days (one day by default), an
    operator without limit. Returns the end of the hold, or None if the hold has no end. Raises NotFound,
    InvalidRequest, and Conflict if the resource was already cleaned.
    """
    lease_of(who, lease_id)
    span = duration(ttl, field="ttl") if ttl is not None else None if who.operator else dt.timedelta(days=1)
    if span is not None and span > LONGEST_HOLD and not who.operator:
        raise InvalidRequest(f"An owner can hold a lease for at most {in_words(LONGEST_HOLD)}.", field="ttl")
    held = rows(
        "UPDATE leases_lease l SET held = TRUE, hold_until = clock_timestamp() + %s::interval WHERE id = %s AND"
        " (state IN ('pending', 'acquired', 'active') OR (state = 'released' AND held"
        " AND NOT EXISTS (SELECT FROM leases_run n WHERE n.lease_id = l.id))) RETURNING hold_until",
        (span, lease_id),
    )
    if not held:
        raise Conflict(f"Lease {lease_id} has ended and cannot be held, because its resource was or is being cleaned.")
    for_how_long = "without end" if span is None else f"for {in_words(span)}"
    record_event(
        "lease.held", f"Held {for_how_long}. {reason}".strip(), actor=who.actor, lease_id=lease_id, reason=Reason.HELD
    )
    return held[0][0]  # type: ignore[no-any-return]


@checked
def unhold(who: Caller, lease_id: int) -> None:
    """End the hold on a lease. If the lease has already ended, its resource is cleaned now. Raises NotFound."""
    lease = lease_of(who, lease_id)
    if not lease.held:
        return
    (state,) = rows(
        "UPDATE leases_lease SET held = FALSE, hold_until = NULL WHERE id = %s RETURNING state", (lease_id,)
    )[0]
    record_event("lease.unheld", "The hold has ended.", actor=who.actor, lease_id=lease_id)
    if state == LeaseState.RELEASED:
        # Not in other states: the hint would end a lease that its owner still has.
        hints.after_commit("end", lease_id)


@checked
def retry(who: Caller, lease_id: int) -> None:
    """Try again now to place a pending lease, or to complete the step for which a lease waits.

    Raises NotFound, and Conflict if the lease has ended.
    """
    lease = lease_of(who, lease_id)
    if lease.state in OVER:
        raise Conflict(f"Lease {lease_id} has ended.")
    run("UPDATE leases_lease SET parked = FALSE, due_at = NULL WHERE id = %s AND state = 'pending'", (lease_id,))
    woken = rows(
        "UPDATE leases_run SET due_at = clock_timestamp(), progress = '[]' WHERE due_at > clock_timestamp()"
        " AND (lease_id = %s OR (lease_id IS NULL AND resource_id = %s)) RETURNING id",
        (lease_id, lease.resource_id),
    )
    record_event("lease.retry", "A new attempt was requested.", actor=who.actor, lease_id=lease_id)
    for (run_id,) in woken:
        hints.after_commit("step", run_id)
    hints.after_commit("serve", lease.type)


@checked
def private_key(who: Caller, lease_id: int) -> str:
    """Return the private half of a lease's generated key pair, only to its owner. Records an event.

    Raises NotFound if the lease has no generated key pair, or if an operator does not own the lease. Raises NotAllowed
    if the caller's token was created by somebody other than the owner, because that person may be using it.
    """
    if who.maker:
        raise NotAllowed(
            f"This token was created by {who.maker}, and only {who.name} can read the private key.",
            hint="Use a token that the owner created.",
        )
    lease = Lease.objects.filter(pk=lease_id, owner_id=who.id).first()
    if lease is None:
        raise NotFound(f"Lease {lease_id} does not exist or is not yours.", field="lease")
    if lease.state != "active":
        raise Conflict(f"Lease {lease_id} is not active.")
    key = (lease.secrets or {}).get("private_key")
    if not key:
        raise NotFound(
            f"Lease {lease_id} has no generated key pair.",
            hint="Either the kind does not generate keys, or you provided your own public key.",
        )
    record_event(
        "lease.key_shown", "The generated private key was shown to the owner.", actor=who.actor, lease_id=lease_id
    )
    return str(key)
