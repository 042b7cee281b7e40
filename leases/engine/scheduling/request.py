"""Write the row of a request, and claim at once where there is room."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from drydock.core.errors import Conflict, InvalidRequest
from leases import hints
from leases.engine.core import workloads
from leases.engine.core.database import rows, short
from leases.engine.core.installation import notice
from leases.engine.placement import budgets as budget_checks
from leases.engine.placement import claims, pending
from leases.engine.placement import quotas as quota_checks
from leases.engine.placement.claims import belongs_to_older, finish_claim
from leases.engine.scheduling.place import Outcome, place
from leases.models import LeaseGroup
from leases.reasons import Reason
from leases.requests import LeaseRequest, digest


@dataclass(frozen=True, kw_only=True)
class Cause:
    """For whom a lease is asked when no owner asks: the run of a resource or lease that needs it."""

    for_resource: int | None = None
    for_lease: int | None = None
    need: str = ""
    need_phase: str = ""
    root: int | None = None
    rank: float | None = None
    priority: int = 0
    only_resources: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Requested:
    """A lease that was written, or found by its idempotency key."""

    id: int
    replayed: bool = False


@dataclass(frozen=True, kw_only=True)
class Usable:
    """The blueprints of a type, by name, and what else is read with them."""

    ids: dict[str, int]
    restricted: bool
    """True when one of them does not serve everyone: then owners of one request differ in what serves them."""
    quotas: bool
    """True when this installation has any quota."""
    budgets: bool
    """True when it has any budget."""


_USABLE = """
    SELECT id, name, audience, EXISTS (SELECT FROM leases_quota), EXISTS (SELECT FROM leases_budget)
    FROM blueprints_blueprint
    WHERE resource_type = %s AND removed_at IS NULL"""


def usable(asked: LeaseRequest) -> Usable:
    """The blueprints of the type, with those named in the request checked. Raises InvalidRequest."""
    found = rows(_USABLE, (asked.type,), hot=True)
    ids = {name: pk for pk, name, *_ in found}
    for field in ("allowed_blueprints", "excluded_blueprints"):
        if unknown := set(getattr(asked, field) or ()) - ids.keys():
            there = ", ".join(sorted(ids)) or "none"
            raise InvalidRequest(
                f"There is no blueprint {sorted(unknown)[0]!r} for {asked.type!r}.",
                field=field,
                hint=f"There are: {there}.",
            )
    if not found:
        raise InvalidRequest(
            f"No blueprint gives {asked.type!r} yet.",
            field="type",
            hint="An operator adds one: drydock blueprints add.",
        )
    if asked.watched:
        workloads.require_commands(asked)
    restricted = any(audience != "everyone" for _, _, audience, *_ in found)
    return Usable(ids=ids, restricted=restricted, quotas=found[0][3], budgets=found[0][4])


_COLUMNS = (
    "type, name, labels, owner_id, charged_group_id, group_id, state, reason, message, actor, requirements, traits,"
    " forbidden_traits, preferred_traits, slots, cpu_millicores, ram_mib, disk_mib, extra, exclusive,"
    " allowed_blueprints, excluded_blueprints, public_keys, shape, priority, rank, root_id, for_resource_id,"
    " for_lease_id, need, need_phase, ttl, until, give_up_at, heartbeat_limit, heartbeat_at, serve_again, choose,"
    " watched, idempotency_key, fingerprint, only_resources, ttl_defaulted, limited"
)
_INSERT = f"""
    INSERT INTO leases_lease ({_COLUMNS}) VALUES (
        %(type)s, %(name)s, %(labels)s, %(owner)s, %(charged)s, %(group)s, 'pending', %(reason)s, %(message)s, %(actor)s,
        %(requirements)s, %(traits)s, %(forbidden)s, %(preferred)s, %(slots)s, %(cpu)s, %(ram)s, %(disk)s, %(extra)s,
        %(exclusive)s, %(allowed)s, %(excluded)s, %(keys)s, %(shape)s, %(priority)s,
        coalesce(%(rank)s, extract(epoch FROM clock_timestamp()) - %(priority)s * %(ageing)s), %(root)s,
        %(for_resource)s, %(for_lease)s, %(need)s, %(need_phase)s, %(ttl)s, %(until)s,
        clock_timestamp() + %(wait_limit)s::interval, %(heartbeat)s,
        CASE WHEN %(heartbeat)s::interval IS NOT NULL THEN clock_timestamp() END, %(serve_again)s, %(choose)s,
        %(watched)s, %(key)s, %(fingerprint)s, %(only)s, %(ttl_defaulted)s, %(limited)s)
    ON CONFLICT DO NOTHING
    RETURNING {pending.COLUMNS.replace("l.", "")}"""


def insert(
    asked: LeaseRequest,
    owner_id: int | None,
    blueprints: Usable,
    actor: str,
    cause: Cause | None,
    group: int | None,
) -> tuple[Requested, pending.PendingLease | None]:
    if asked.until is not None and (late := _too_late(asked, owner_id)):
        return late, None
    notice()
    if asked.name and owner_id is not None and cause is None:
        _refuse_taken_name(asked, owner_id)
    values = _values(asked, owner_id, blueprints, actor, cause or Cause(), group)
    found = rows(_INSERT, values, hot=True)
    if found:
        waiter = pending.PendingLease(found[0])
        if asked.watched:
            workloads.write(waiter.id, asked.workload)
        return Requested(id=waiter.id), waiter
    return _replay(asked, owner_id, cause), None


_NAMED = """
    SELECT id, state FROM leases_lease
    WHERE owner_id = %s AND name = %s AND state IN ('pending', 'acquired', 'active') AND need = ''
        AND (idempotency_key IS NULL OR idempotency_key IS DISTINCT FROM %s)
    ORDER BY id LIMIT 1"""


def _refuse_taken_name(asked: LeaseRequest, owner_id: int) -> None:
    """Refuse a name that a live lease of the owner has. Leases that other leases need have names of ours.

    The lock is on this name alone and lasts until the transaction ends, so that of two requests at the same time one
    is refused. Raises Conflict.
    """
    rows("SELECT pg_advisory_xact_lock(hashtext('drydock lease ' || %s), hashtext(%s))", (str(owner_id), asked.name))
    for pk, state in rows(_NAMED, (owner_id, asked.name, asked.idempotency_key)):
        raise Conflict(
            f"Lease {pk} is named {asked.name!r} already, and is {state}.",
            field="name", hint="Choose another name, or release that lease first.",
        )  # fmt: skip


def _too_late(asked: LeaseRequest, owner_id: int | None) -> Requested | None:
    """Asked for until a time that has passed, by the database's clock: only a replay is answered."""
    sql = """
        SELECT %s <= clock_timestamp(), EXISTS (SELECT FROM leases_lease WHERE owner_id = %s AND idempotency_key = %s)"""
    ((past, known),) = rows(sql, (asked.until, owner_id, asked.idempotency_key))
    if not past:
        return None
    if not known:
        raise InvalidRequest("It is in the past.", field="until")
    return _replay(asked, owner_id, None)


def _values(
    asked: LeaseRequest, owner_id: int | None, blueprints: Usable, actor: str, cause: Cause, group: int | None
) -> dict[str, Any]:
    """The parameters of the INSERT."""
    ids = blueprints.ids
    return {
        "type": asked.type, "name": asked.name, "labels": json.dumps(asked.labels), "owner": owner_id,
        "charged": _charged(asked, owner_id), "group": group, "reason": Reason.REQUESTED,
        "message": "Asked for.", "actor": actor, "requirements": json.dumps(asked.requirements),
        "traits": list(asked.traits), "forbidden": list(asked.forbidden_traits),
        "preferred": list(asked.preferred_traits), "slots": asked.slots, "cpu": asked.cpu_millicores,
        "ram": asked.ram_mib, "disk": asked.disk_mib, "extra": json.dumps(asked.extra), "exclusive": asked.exclusive,
        "allowed": None if asked.allowed_blueprints is None else [ids[n] for n in asked.allowed_blueprints],
        "excluded": [ids[n] for n in asked.excluded_blueprints], "keys": list(asked.public_keys),
        "shape": asked.shape([owner_id if blueprints.restricted else None, cause.only_resources]), "priority": cause.priority or asked.priority,
        "rank": cause.rank, "ageing": settings.DRYDOCK.ageing_seconds, "root": cause.root,
        "for_resource": cause.for_resource, "for_lease": cause.for_lease, "need": cause.need,
        "need_phase": cause.need_phase, "ttl": asked.lasts, "until": asked.until, "wait_limit": asked.wait_limit,
        "heartbeat": asked.heartbeat_limit, "serve_again": asked.serve_again, "choose": asked.choose, "watched": asked.watched, "key": asked.idempotency_key,
        "fingerprint": asked.fingerprint if asked.idempotency_key else "",
        "only": list(cause.only_resources) or None, "ttl_defaulted": asked.ttl_defaulted, "limited": asked.limited,
    }  # fmt: skip


def _charged(asked: LeaseRequest, owner_id: int | None) -> int | None:
    if asked.charged_group is None:
        return None
    from django.contrib.auth.models import Group

    found = Group.objects.filter(name=asked.charged_group, user=owner_id).values_list("id", flat=True).first()
    if found is None:
        raise InvalidRequest(f"The owner is in no group {asked.charged_group!r}.", field="charged_group")
    return found


def _replay(asked: LeaseRequest, owner_id: int | None, cause: Cause | None) -> Requested:
    """The lease that the idempotency key (or the need) stands for, read in a new statement."""
    if cause is not None and cause.need:
        found = rows(
            "SELECT id, '' FROM leases_lease WHERE for_resource_id IS NOT DISTINCT FROM %s AND for_lease_id"
            " IS NOT DISTINCT FROM %s AND need = %s AND state IN ('pending', 'acquired', 'active')",
            (cause.for_resource, cause.for_lease, cause.need),
        )
        return Requested(id=found[0][0], replayed=True)
    found = rows(
        "SELECT id, fingerprint FROM leases_lease WHERE owner_id = %s AND idempotency_key = %s",
        (owner_id, asked.idempotency_key),
    )
    if not found or found[0][1] != asked.fingerprint:
        raise Conflict(
            f"The idempotency key {asked.idempotency_key!r} stands for another request.",
            field="idempotency_key", hint="Use a new key for a new request.",
        )  # fmt: skip
    return Requested(id=found[0][0], replayed=True)


def request(
    asked: LeaseRequest, owner_id: int | None, *, actor: str, cause: Cause | None = None, usable_by: Usable | None = None
) -> Requested:  # fmt: skip
    """Write the lease row and, unless a caller's transaction is open, claim at once.

    `usable_by`: what `usable` answered, where the caller has asked already. Raises InvalidRequest, or Conflict when the idempotency key was used for another request.
    """
    blueprints = usable_by or usable(asked)
    if connection.in_atomic_block:
        done, _ = insert(asked, owner_id, blueprints, actor, cause, None)
        if not done.replayed:
            hints.after_commit("serve", asked.type)
        return done
    done, waits = _insert_and_claim(asked, owner_id, blueprints, actor, cause)
    if waits and not serve_now(done.id):
        hints.send("serve", asked.type)
    return done


def serve_now(lease_id: int) -> bool:
    """Look again, in a new transaction, after the request was committed: whoever made room meanwhile could not
    have seen it. True when the lease needs nobody else to look at it."""
    return place(lease_id) in (Outcome.GRANTED, Outcome.GONE)


@short
def _insert_and_claim(
    asked: LeaseRequest, owner_id: int | None, blueprints: Usable, actor: str, cause: Cause | None
) -> tuple[Requested, bool]:
    done, waiter = insert(asked, owner_id, blueprints, actor, cause, None)
    if done.replayed or waiter is None:
        return done, False
    return done, not _claim_now(waiter, blueprints)


def _claim_now(waiter: pending.PendingLease, blueprints: Usable) -> bool:
    """Take room at once, unless somebody who waits since before could use it. Waits for no lock."""
    if not blueprints.restricted:
        waiter.placement = replace(waiter.placement, owner_id=None)
    if blueprints.quotas:
        allowance = quota_checks.allowance({waiter.id: waiter.placement.amounts})
        if allowance.excess is not None:
            return False
        waiter.placement = allowance.bounding(waiter.placement)
    if blueprints.budgets:
        waiter.placement = budget_checks.lock([waiter.id]).of(waiter.id, waiter.placement).bounding(waiter.placement)
    room = claims.look(waiter.placement, waiter.rank)
    if room is None or (room.queue and belongs_to_older(room, waiter)):
        return False
    finish_claim(waiter, room)
    return True


class _NothingWritten(Exception):
    """Ends a rehearsal."""


@contextmanager
def rehearse(asked: LeaseRequest, owner_id: int | None, *, actor: str) -> Iterator[pending.PendingLease]:
    """The request as a waiter in a transaction that is rolled back at the end of the block. Raises as `request`."""
    given = asked.model_copy(update={"idempotency_key": None})
    with suppress(_NothingWritten), transaction.atomic():
        _, waiter = insert(given, owner_id, usable(given), actor, None, None)
        assert waiter is not None, "without an idempotency key nothing is replayed"
        yield waiter
        raise _NothingWritten


def request_group(
    asked: list[LeaseRequest], owner_id: int, *, actor: str, same: str = "", different: str = "",
    idempotency_key: str | None = None,
) -> tuple[int, list[int]]:  # fmt: skip
    """Write a group of leases; they are granted together or not at all. The group's id and its leases' ids."""
    blueprints = [usable(one) for one in asked]
    fingerprint = digest([same, different, [one.fingerprint for one in asked]]) if idempotency_key else ""
    with transaction.atomic():
        group, fresh = _group(owner_id, same, different, idempotency_key, fingerprint)
        if fresh:
            for one, usable_by in zip(asked, blueprints, strict=True):
                insert(one, owner_id, usable_by, actor, None, group.pk)
        for resource_type in sorted({one.type for one in asked}):
            hints.after_commit("serve", resource_type)
    return group.pk, list(group.leases.order_by("id").values_list("id", flat=True))


def _group(owner_id: int, same: str, different: str, key: str | None, fingerprint: str) -> tuple[LeaseGroup, bool]:
    if key is None:
        return LeaseGroup.objects.create(owner_id=owner_id, same=same, different=different), True
    LeaseGroup.objects.bulk_create(
        [LeaseGroup(owner_id=owner_id, same=same, different=different, idempotency_key=key, fingerprint=fingerprint)],
        ignore_conflicts=True,
    )
    group = LeaseGroup.objects.select_for_update(no_key=True).get(owner_id=owner_id, idempotency_key=key)
    if group.fingerprint != fingerprint:
        raise Conflict(f"The idempotency key {key!r} stands for another group.", field="idempotency_key")
    return group, not group.leases.exists()
