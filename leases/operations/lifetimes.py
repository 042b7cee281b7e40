"""Limits on the duration of leases, and the extension of leases before or after they become active."""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

from drydock.core.errors import Conflict, InvalidRequest
from drydock.core.units import duration, in_words, written
from leases.engine.core.database import rows, short
from leases.engine.core.transitions import record_event
from leases.engine.placement import budgets, limits
from leases.engine.placement.limits import Limit
from leases.messaging import hints
from leases.models import Lease
from leases.operations.callers import Caller, lease_of
from leases.validation.input_checks import checked
from leases.validation.requests import LeaseRequest, digest


def longest(who: Caller, lease: Lease) -> Limit | None:
    """Return how long a lease may last after it becomes active, or None if this caller may choose any duration."""
    return None if who.operator else limits.of_lease(lease)


def bounded(
    who: Caller, owner: Caller, asked: LeaseRequest, *, endless: bool = False, quotas: bool = True
) -> LeaseRequest:
    """Return the request after checking its duration. If it has no end, set the shortest default duration.

    If `endless` is true, no default duration is applied. Pass False for `quotas` if the installation has no quotas, so
    that none are read. Raises InvalidRequest if the request exceeds the caller's limit. The limits of blueprints that
    the request does not name are applied when the lease becomes active.
    """
    charged = limits.of_quotas(owner.id, asked.charged_group) if quotas else limits.Limits()
    maxima = () if who.operator else (limits.of_installation(), *charged.maxima, _of_named(asked))
    limit = limits.shortest(maxima)
    if limit is not None and asked.ttl is not None and asked.ttl > limit.span:
        raise _too_long(limit, "ttl")
    if limit is not None and asked.until is not None:
        refuse_later(asked.until, limit)
    usual = None
    if asked.endless and not endless:
        usual = limits.shortest((limits.default_of_installation(), *charged.defaults, limit))
    return asked.lasting(None if usual is None else usual.span, limited=not who.operator)


def _of_named(asked: LeaseRequest) -> Limit | None:
    return limits.of_blueprints(asked.allowed_blueprints) if asked.allowed_blueprints else None


def refuse_later(until: dt.datetime, limit: Limit, active_at: dt.datetime | None = None) -> None:
    """Raise InvalidRequest if `until` is later than the limit allows.

    The limit counts from `active_at` or, for a pending lease, from now.
    """
    latest = (active_at or rows("SELECT clock_timestamp()")[0][0]) + limit.span
    if until > latest:
        raise _too_long(limit, "until")


def _too_long(limit: Limit, field: str) -> InvalidRequest:
    return InvalidRequest(
        f"A lease can last at most {written(limit.span)}, because of {limit.source}.",
        field=field, hint="An operator can allow a longer duration.",
    )  # fmt: skip


def from_now(span: dt.timedelta | None) -> dt.datetime:
    """Return the time that is `span` from now by the database's clock."""
    found: dt.datetime = rows("SELECT clock_timestamp() + %s::interval", (span,))[0][0]
    return found


WAITING = ("pending", "acquired")


@checked
def extend(
    who: Caller, lease_id: int, *, ttl: str | float | dt.timedelta | None = None, until: dt.datetime | None = None
) -> dt.datetime | None:
    """Extend a lease to `until`, or to `ttl` from now, and return its new end. Never shortens a lease.

    For a lease that is not active yet, `ttl` counts from when the lease becomes active, and None is returned if the end
    is not known yet. Raises InvalidRequest, NotFound, and Conflict if the lease has ended, has no end, or its resource
    ends earlier.
    """
    if (ttl is None) == (until is None):
        raise InvalidRequest("Give either ttl or until.", field="ttl")
    if until is not None and until.tzinfo is None:
        raise InvalidRequest("until needs a time zone.", field="until")
    span = None if ttl is None else duration(ttl, field="ttl")
    lease = lease_of(who, lease_id, related=True)
    if (limit := longest(who, lease)) is not None:
        end = until or from_now(span)
        refuse_later(end, limit, lease.active_at)
    return _extend(lease_id, span, until, who)


class _Lasting(NamedTuple):
    """The duration of a locked lease, and the facts that determine how the duration may be changed."""

    id: int
    type: str
    state: str
    shape: str
    ttl: dt.timedelta | None
    until: dt.datetime | None
    ends: bool
    dies_at: dt.datetime | None
    on: str
    now: dt.datetime


_READ = """
    SELECT l.id, l.type, l.state, l.shape, l.ttl, l.until, l.release_wanted <> '' OR l.until <= clock_timestamp(),
        r.dies_at, r.name, clock_timestamp()
    FROM leases_lease l LEFT JOIN leases_resource r ON r.id = l.resource_id WHERE l.id = %s FOR NO KEY UPDATE OF l"""


@short
def _extend(lease_id: int, span: dt.timedelta | None, until: dt.datetime | None, who: Caller) -> dt.datetime | None:
    lease = _Lasting(*rows(_READ, (lease_id,))[0])
    if until is not None and until <= lease.now:
        raise InvalidRequest(f"{_said(until)} is in the past.", field="until")
    if lease.state not in (*WAITING, "active") or lease.ends:
        raise Conflict(f"Lease {lease_id} has ended and cannot be extended.")
    if against := budgets.overspent(lease_id):
        raise Conflict(f"The lease cannot be extended: {against}.", field="ttl" if span is not None else "until")
    if lease.until is None and (lease.ttl is None or lease.state not in WAITING):
        raise Conflict(f"Lease {lease_id} has no end, so it cannot be extended.")
    if span is not None and lease.state in WAITING and lease.until is None:
        _ask_for_more(lease, span, who)
        return None
    return _move_end(lease, until or lease.now + (span or dt.timedelta()), who)


def _ask_for_more(lease: _Lasting, span: dt.timedelta, who: Caller) -> None:
    """Request a longer duration for a lease that is not active yet.

    Raises Conflict if its duration is already longer.
    """
    assert lease.ttl is not None
    if span < lease.ttl:
        raise Conflict(f"The lease was already requested for {in_words(lease.ttl)}, which is longer.", field="ttl")
    _refuse_longer_than_resource(lease, lease.now + span)
    _write(lease, {"ttl": span}, f"The lease will last {in_words(span)} from when it becomes active.", who)


def _move_end(lease: _Lasting, after: dt.datetime, who: Caller) -> dt.datetime:
    before = lease.until or lease.now + (lease.ttl or dt.timedelta())
    if after < before:
        raise Conflict(f"The lease already lasts until {_said(before)}, which is later.", field="until")
    _refuse_longer_than_resource(lease, after)
    _write(lease, {"until": after}, f"Extended by {in_words(after - before)}, until {_said(after)}.", who)
    return after


def _refuse_longer_than_resource(lease: _Lasting, after: dt.datetime) -> None:
    if lease.dies_at is not None and after > lease.dies_at:
        raise Conflict(
            f"{lease.on} exists only until {_said(lease.dies_at)}, and no lease on it can last longer.",
            field="until", hint="Request a new lease.",
        )  # fmt: skip


def _write(lease: _Lasting, changed: dict[str, Any], message: str, who: Caller) -> None:
    """Write the new end of a lease. A pending lease moves to the request class of its changed request.

    The lease no longer has a default end. If an operator set the end, limits no longer apply to the lease.
    """
    shape = digest([lease.shape, changed])[:32] if lease.state == "pending" else lease.shape
    unlimited = {"limited": False} if who.operator else {}
    Lease.objects.filter(pk=lease.id).update(**changed, **unlimited, shape=shape, ttl_defaulted=False)
    record_event("lease.extended", message, actor=who.actor, lease_id=lease.id)
    if lease.state == "pending":
        hints.after_commit("serve", lease.type)


def _said(moment: dt.datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
