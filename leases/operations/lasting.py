"""How long a lease may last: a default where the request names no end, and a limit for all but operators."""

from __future__ import annotations

import datetime as dt

from django.conf import settings

from drydock.core.errors import InvalidRequest
from drydock.core.units import in_words
from leases.engine.transaction import rows
from leases.operations.callers import Caller
from leases.requests import LeaseRequest


def default() -> dt.timedelta | None:
    """How long a lease lasts whose request names no end; None: until it is released."""
    return dt.timedelta(hours=settings.DRYDOCK.lease_hours) or None


def longest(who: Caller) -> dt.timedelta | None:
    """How long after it is active a lease of the caller's may end; None: any time."""
    return None if who.operator else dt.timedelta(hours=settings.DRYDOCK.lease_hours_limit) or None


def bounded(who: Caller, asked: LeaseRequest) -> LeaseRequest:
    """The request with the installation's default where it names no end. Raises InvalidRequest for one that would last
    longer than the caller may have it."""
    limit = longest(who)
    if limit is not None and asked.ttl is not None and asked.ttl > limit:
        raise _too_long(limit, "ttl")
    if limit is not None and asked.until is not None:
        refuse_later(asked.until, limit)
    if not asked.endless:
        return asked
    usual = default() if limit is None else min(filter(None, (default(), limit)))
    return asked if usual is None else asked.lasting(usual)


def refuse_later(until: dt.datetime, limit: dt.timedelta, active_at: dt.datetime | None = None) -> None:
    """Raises InvalidRequest for an end later than `limit` after the lease is active, or now where it is not yet."""
    latest = (active_at or rows("SELECT clock_timestamp()")[0][0]) + limit
    if until > latest:
        raise _too_long(limit, "until")


def _too_long(limit: dt.timedelta, field: str) -> InvalidRequest:
    return InvalidRequest(
        f"A lease lasts for at most {in_words(limit)} here.", field=field, hint="An operator can let it last longer."
    )


def from_now(span: dt.timedelta | None) -> dt.datetime:
    """The time so long from now, by the database's clock."""
    found: dt.datetime = rows("SELECT clock_timestamp() + %s::interval", (span,))[0][0]
    return found
