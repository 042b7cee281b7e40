"""Letting a lease last longer than it was asked for, before or after it has become active."""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

from drydock.core.errors import Conflict, InvalidRequest
from drydock.core.units import duration, in_words
from leases import hints
from leases.engine.core.database import rows, short
from leases.engine.core.transitions import record_event
from leases.engine.placement import budgets
from leases.given import checked
from leases.models import Lease
from leases.operations import lasting
from leases.operations.callers import Caller, lease_of
from leases.requests import digest

WAITING = ("pending", "acquired")


@checked
def extend(
    who: Caller, lease_id: int, *, ttl: str | float | dt.timedelta | None = None, until: dt.datetime | None = None
) -> dt.datetime | None:
    """Let a lease last until `until`, or `ttl` from now; the new end. Never shortens.

    One that is not active yet asks for more: `ttl` then counts from active, as it did (None: its end is not known
    yet). Raises InvalidRequest, NotFound, and Conflict when it has ended, has no end, or its resource dies earlier.
    """
    if (ttl is None) == (until is None):
        raise InvalidRequest("Give either ttl or until.", field="ttl")
    if until is not None and until.tzinfo is None:
        raise InvalidRequest("until needs a time zone.", field="until")
    span = None if ttl is None else duration(ttl, field="ttl")
    lease = lease_of(who, lease_id, related=True)
    if (limit := lasting.longest(who, lease)) is not None:
        end = until or lasting.from_now(span)
        lasting.refuse_later(end, limit, lease.active_at)
    return _extend(lease_id, span, until, who)


class _Lasting(NamedTuple):
    """How long a locked lease lasts, and what may be changed about it."""

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
        raise Conflict(f"It cannot last longer: {against}.", field="ttl" if span is not None else "until")
    if lease.until is None and (lease.ttl is None or lease.state not in WAITING):
        raise Conflict(f"Lease {lease_id} has no end that could be moved.")
    if span is not None and lease.state in WAITING and lease.until is None:
        _ask_for_more(lease, span, who)
        return None
    return _move_end(lease, until or lease.now + (span or dt.timedelta()), who)


def _ask_for_more(lease: _Lasting, span: dt.timedelta, who: Caller) -> None:
    """A longer time from active."""
    assert lease.ttl is not None
    if span < lease.ttl:
        raise Conflict(f"It is asked for {in_words(lease.ttl)} already, which is longer.", field="ttl")
    _refuse_longer_than_resource(lease, lease.now + span)
    _write(lease, {"ttl": span}, f"It is asked for {in_words(span)} from active.", who)


def _move_end(lease: _Lasting, after: dt.datetime, who: Caller) -> dt.datetime:
    before = lease.until or lease.now + (lease.ttl or dt.timedelta())
    if after < before:
        raise Conflict(f"It already lasts until {_said(before)}, which is later.", field="until")
    _refuse_longer_than_resource(lease, after)
    _write(lease, {"until": after}, f"By {in_words(after - before)}, until {_said(after)}.", who)
    return after


def _refuse_longer_than_resource(lease: _Lasting, after: dt.datetime) -> None:
    if lease.dies_at is not None and after > lease.dies_at:
        raise Conflict(
            f"{lease.on} itself lasts until {_said(lease.dies_at)} and no lease on it can last longer.",
            field="until", hint="Ask for a new lease.",
        )  # fmt: skip


def _write(lease: _Lasting, changed: dict[str, Any], message: str, who: Caller) -> None:
    """What a waiting lease asks decides what could serve it: it waits on as one of another shape. Its end is no longer
    a default, and limits no longer apply where an operator has said how long it lasts."""
    shape = digest([lease.shape, changed])[:32] if lease.state == "pending" else lease.shape
    unlimited = {"limited": False} if who.operator else {}
    Lease.objects.filter(pk=lease.id).update(**changed, **unlimited, shape=shape, ttl_defaulted=False)
    record_event("lease.extended", message, actor=who.actor, lease_id=lease.id)
    if lease.state == "pending":
        hints.after_commit("serve", lease.type)


def _said(moment: dt.datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
