"""Insert the lease for a request, and claim room for the lease at once if there is any."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from blueprints.answers import NeededLease
from drydock.core.errors import Conflict, InvalidRequest
from leases.engine.core import workloads
from leases.engine.core.database import rows, short
from leases.engine.core.installation import notice
from leases.engine.placement import claims, pending
from leases.engine.placement.claims import belongs_to_older, finish_claim
from leases.engine.scheduling.place import Outcome, bound, place
from leases.messaging import hints
from leases.models import LeaseGroup
from leases.reasons import Reason
from leases.validation.requests import LeaseRequest, digest, read


@dataclass(frozen=True, kw_only=True)
class Cause:
    """The resource or lease whose run needs the requested lease; empty if an owner requested the lease."""

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
    """A lease that was inserted, or that had been requested with the same idempotency key."""

    id: int
    replayed: bool = False


@dataclass(frozen=True, kw_only=True)
class Usable:
    """The blueprints of a resource type, as ids by name, and facts that were read together with them."""

    ids: dict[str, int]
    restricted: bool
    """True if a blueprint does not serve everyone. Requests of different owners then differ in request class."""
    quotas: bool
    """True if the installation has at least one quota."""
    budgets: bool
    """True if the installation has at least one budget."""


_USABLE = """
    SELECT id, name, audience, EXISTS (SELECT FROM leases_quota), EXISTS (SELECT FROM leases_budget)
    FROM blueprints_blueprint
    WHERE resource_type = %s AND removed_at IS NULL"""


def usable(asked: LeaseRequest) -> Usable:
    """Return the blueprints that provide the requested resource type.

    Raises InvalidRequest if there are none, if the request names an unknown blueprint, or if a named blueprint cannot
    run the commands that the request needs.
    """
    found = rows(_USABLE, (asked.type,), hot=True)
    ids = {name: pk for pk, name, *_ in found}
    for field in ("allowed_blueprints", "excluded_blueprints"):
        if unknown := set(getattr(asked, field) or ()) - ids.keys():
            there = ", ".join(sorted(ids)) or "none"
            raise InvalidRequest(
                f"Blueprint {sorted(unknown)[0]!r} does not exist or does not provide resource type {asked.type!r}.",
                field=field,
                hint=f"Choose one of: {there}.",
            )
    if not found:
        raise InvalidRequest(
            f"No blueprint provides the resource type {asked.type!r} yet.",
            field="type",
            hint="An operator can add one: drydock blueprints add.",
        )
    if asked.watched:
        workloads.require_commands(asked)
    restricted = any(audience != "everyone" for _, _, audience, *_ in found)
    return Usable(ids=ids, restricted=restricted, quotas=found[0][3], budgets=found[0][4])


_RANK = "coalesce(%(rank)s, extract(epoch FROM clock_timestamp()) - %(priority)s * %(ageing)s)"
_BEATS = "CASE WHEN %(heartbeat_limit)s::interval IS NOT NULL THEN clock_timestamp() END"
_WRITTEN = {name: f"%({name})s" for name in pending.REQUESTED} | {
    "rank": _RANK, "state": "'pending'", "reason": "%(reason)s", "message": "'Requested.'", "actor": "%(actor)s",
    "group_id": "%(group_id)s", "for_resource_id": "%(for_resource_id)s", "for_lease_id": "%(for_lease_id)s",
    "need": "%(need)s", "need_phase": "%(need_phase)s",
    "give_up_at": "clock_timestamp() + %(wait_limit)s::interval", "heartbeat_at": _BEATS,
    "idempotency_key": "%(idempotency_key)s", "fingerprint": "%(fingerprint)s",
}  # fmt: skip
"""The SQL expression or parameter that is inserted into each column."""
_INSERT = f"""
    INSERT INTO leases_lease ({", ".join(_WRITTEN)}) VALUES ({", ".join(_WRITTEN.values())})
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
    """Insert a lease, or return the lease that was already requested with the same idempotency key.

    Returns the outcome, and the inserted lease as a pending lease, or None in its place if the lease already existed.
    """
    if asked.until is not None and (late := _too_late(asked, owner_id)):
        return late, None
    notice()
    if asked.name and owner_id is not None and cause is None:
        refuse_taken_name(asked.name, owner_id, asked.idempotency_key)
    values = _values(asked, owner_id, blueprints, actor, cause or Cause(), group)
    found = rows(_INSERT, values, hot=True)
    if found:
        waiter = pending.PendingLease(found[0], quotas=blueprints.quotas, budgets=blueprints.budgets)
        if asked.watched:
            workloads.write(waiter.id, asked.workload)
        return Requested(id=waiter.id), waiter
    return _replay(asked, owner_id, cause), None


_NAMED = """
    SELECT id, state FROM leases_lease
    WHERE owner_id = %s AND name = %s AND state IN ('pending', 'acquired', 'active') AND need = ''
        AND (idempotency_key IS NULL OR idempotency_key IS DISTINCT FROM %s)
    ORDER BY id LIMIT 1"""


def refuse_taken_name(name: str, owner_id: int, key: str | None = None) -> None:
    """Raise Conflict if the owner has another live lease of this name.

    A lease that was requested with the same idempotency key is not another one. Names of leases that runs need are not
    checked, because Drydock chooses them. The lock covers only this name and lasts until the transaction ends, so that
    one of two concurrent requests is refused.
    """
    if not name:
        return
    rows("SELECT pg_advisory_xact_lock(hashtext('drydock lease ' || %s), hashtext(%s))", (str(owner_id), name))
    for pk, state in rows(_NAMED, (owner_id, name, key)):
        raise Conflict(
            f"Lease {pk} already has the name {name!r} and is {state}.",
            field="name", hint="Choose another name, or release that lease first.",
        )  # fmt: skip


def _too_late(asked: LeaseRequest, owner_id: int | None) -> Requested | None:
    """Raise InvalidRequest if the requested end is in the past by the database's clock, unless this is a replay.

    Returns the existing lease if the request is a replay, or None if the end is in the future.
    """
    sql = """
        SELECT %s <= clock_timestamp(), EXISTS (SELECT FROM leases_lease WHERE owner_id = %s AND idempotency_key = %s)"""
    ((past, known),) = rows(sql, (asked.until, owner_id, asked.idempotency_key))
    if not past:
        return None
    if not known:
        raise InvalidRequest("The time is in the past.", field="until")
    return _replay(asked, owner_id, None)


def _values(
    asked: LeaseRequest, owner_id: int | None, blueprints: Usable, actor: str, cause: Cause, group: int | None
) -> dict[str, Any]:
    """Return the parameters of the INSERT by column."""
    ids = blueprints.ids
    said = {name: _stored(getattr(asked, name)) for name in pending.REQUESTED if name in LeaseRequest.model_fields}
    return said | {
        "owner_id": owner_id, "charged_group_id": _charged(asked, owner_id), "group_id": group,
        "reason": Reason.REQUESTED, "actor": actor,
        "allowed_blueprints": None if asked.allowed_blueprints is None else [ids[n] for n in asked.allowed_blueprints],
        "excluded_blueprints": [ids[n] for n in asked.excluded_blueprints],
        "shape": asked.request_class([owner_id if blueprints.restricted else None, cause.only_resources]),
        "priority": cause.priority or asked.priority, "rank": cause.rank, "root_id": cause.root,
        "ageing": settings.DRYDOCK.ageing_seconds, "for_resource_id": cause.for_resource,
        "for_lease_id": cause.for_lease, "need": cause.need, "need_phase": cause.need_phase, "ttl": asked.lasts,
        "wait_limit": asked.wait_limit, "watched": asked.watched, "idempotency_key": asked.idempotency_key,
        "fingerprint": asked.fingerprint if asked.idempotency_key else "",
        "only_resources": list(cause.only_resources) or None, "ttl_defaulted": asked.ttl_defaulted,
        "limited": asked.limited,
    }  # fmt: skip


def _stored(value: Any) -> Any:
    """Return a value of a request in the form that the database driver accepts."""
    return json.dumps(value) if isinstance(value, dict) else list(value) if isinstance(value, tuple) else value


def _charged(asked: LeaseRequest, owner_id: int | None) -> int | None:
    if asked.charged_group is None:
        return None
    from django.contrib.auth.models import Group

    found = Group.objects.filter(name=asked.charged_group, user=owner_id).values_list("id", flat=True).first()
    if found is None:
        raise InvalidRequest(f"The owner is not in group {asked.charged_group!r}.", field="charged_group")
    return found


def _replay(asked: LeaseRequest, owner_id: int | None, cause: Cause | None) -> Requested:
    """Return the existing lease with this idempotency key, or the one for this need, read in a new statement."""
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
            f"The idempotency key {asked.idempotency_key!r} was already used for a different request.",
            field="idempotency_key", hint="Use a new key for a new request.",
        )  # fmt: skip
    return Requested(id=found[0][0], replayed=True)


def request(
    asked: LeaseRequest, owner_id: int | None, *, actor: str, cause: Cause | None = None, usable_by: Usable | None = None
) -> Requested:  # fmt: skip
    """Insert the lease for a request and, unless a caller's transaction is open, claim room for the lease at once.

    Pass `usable_by`, the result of `usable`, if `usable` was already called. Raises InvalidRequest, or Conflict if the
    idempotency key was used for a different request.
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


def request_of(wanted: NeededLease, holder: str) -> LeaseRequest:
    """Return the request for a lease that the resource named `holder`, or a lease on it, needs."""
    return read(
        {
            "type": wanted.type, "requirements": dict(wanted.requirements), "exclusive": wanted.exclusive,
            "slots": wanted.amounts.slots, "cpu_millicores": wanted.amounts.cpu_millicores,
            "ram_mib": wanted.amounts.ram_mib, "disk_mib": wanted.amounts.disk_mib,
            "extra": dict(wanted.amounts.extra), "name": f"{wanted.name} of {holder}"[:255],
        }
    )  # fmt: skip


def serve_now(lease_id: int) -> bool:
    """Try once more to claim room for a lease, in a new transaction after its request was committed.

    A lease that released room before the commit could not see this request. Returns True if no worker is needed.
    """
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
    """Claim room at once and return True, unless an older pending lease could use the room. Does not wait for locks."""
    if not blueprints.restricted:
        waiter.placement = replace(waiter.placement, owner_id=None)
    excess, _ = bound(waiter)
    if excess is not None:
        return False
    room = claims.look(waiter.placement, waiter.rank)
    if room is None or (room.queue and belongs_to_older(room, waiter)):
        return False
    finish_claim(waiter, room)
    return True


class _NothingWritten(Exception):
    """Raised to roll back the transaction of a rehearsal."""


@contextmanager
def rehearse(asked: LeaseRequest, owner_id: int | None, *, actor: str) -> Iterator[pending.PendingLease]:
    """Yield the request as a pending lease, inside a transaction that is always rolled back at the end.

    Raises the same exceptions as `request`.
    """
    given = asked.model_copy(update={"idempotency_key": None})
    with suppress(_NothingWritten), transaction.atomic():
        _, waiter = insert(given, owner_id, usable(given), actor, None, None)
        assert waiter is not None, "without an idempotency key nothing is replayed"
        yield waiter
        raise _NothingWritten


@contextmanager
def rehearse_group(
    asked: list[LeaseRequest], owner_id: int, *, actor: str, same: str = "", different: str = "", near: str = ""
) -> Iterator[int]:  # fmt: skip
    """Yield the id of the group, inside a transaction that is always rolled back at the end.

    Raises the same exceptions as `request_group`.
    """
    with suppress(_NothingWritten), transaction.atomic():
        group, _ = _group(LeaseGroup(owner_id=owner_id, same=same, different=different, near=near), None, "")
        for one in asked:
            insert(one.model_copy(update={"idempotency_key": None}), owner_id, usable(one), actor, None, group.pk)
        yield group.pk
        raise _NothingWritten


def request_group(
    asked: list[LeaseRequest], owner_id: int, *, actor: str, same: str = "", different: str = "", near: str = "",
    idempotency_key: str | None = None,
) -> tuple[int, list[int]]:  # fmt: skip
    """Insert a group of leases that are granted together or not at all.

    Return the id of the group and the ids of its leases.
    """
    blueprints = [usable(one) for one in asked]
    # Fingerprints of groups without `near` are those that earlier versions stored.
    rule = [same, different, near] if near else [same, different]
    fingerprint = digest([*rule, [one.fingerprint for one in asked]]) if idempotency_key else ""
    with transaction.atomic():
        group, fresh = _group(
            LeaseGroup(owner_id=owner_id, same=same, different=different, near=near), idempotency_key, fingerprint
        )
        if fresh:
            for one, usable_by in zip(asked, blueprints, strict=True):
                insert(one, owner_id, usable_by, actor, None, group.pk)
        for resource_type in sorted({one.type for one in asked}):
            hints.after_commit("serve", resource_type)
    return group.pk, list(group.leases.order_by("id").values_list("id", flat=True))


def _group(group: LeaseGroup, key: str | None, fingerprint: str) -> tuple[LeaseGroup, bool]:
    """Store a group, and return it and True; or return the group that was stored under the key before, and False."""
    if key is None:
        group.save(force_insert=True)
        return group, True
    group.idempotency_key, group.fingerprint = key, fingerprint
    LeaseGroup.objects.bulk_create([group], ignore_conflicts=True)
    group = LeaseGroup.objects.select_for_update(no_key=True).get(owner_id=group.owner_id, idempotency_key=key)
    if group.fingerprint != fingerprint:
        raise Conflict(f"The idempotency key {key!r} was already used for a different group.", field="idempotency_key")
    return group, not group.leases.exists()
