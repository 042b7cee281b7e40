"""How long a lease may last: a default where the request names no end, and a limit for all but operators."""

from __future__ import annotations

import datetime as dt

from drydock.core.errors import InvalidRequest
from drydock.core.units import written
from leases.engine.core.database import rows
from leases.engine.placement import limits
from leases.engine.placement.limits import Limit
from leases.models import Lease
from leases.operations.callers import Caller
from leases.requests import LeaseRequest


def longest(who: Caller, lease: Lease) -> Limit | None:
    """Return how long after it is active a lease may end when this caller says so; None: any time."""
    return None if who.operator else limits.of_lease(lease)


def bounded(
    who: Caller, owner: Caller, asked: LeaseRequest, *, endless: bool = False, quotas: bool = True
) -> LeaseRequest:
    """Return the request with the shortest default that applies where it names no end.

    `endless`: without a default. `quotas`: False where nobody has a quota, so that none is read. Raises InvalidRequest where it would last longer than the caller may have it; the
    limit of a blueprint that the request does not name shortens it when it becomes active.
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
    """Raises InvalidRequest for an end later than `limit` after the lease is active, or now where it is not yet."""
    latest = (active_at or rows("SELECT clock_timestamp()")[0][0]) + limit.span
    if until > latest:
        raise _too_long(limit, "until")


def _too_long(limit: Limit, field: str) -> InvalidRequest:
    return InvalidRequest(
        f"A lease may last at most {written(limit.span)}: that is {limit.source}.",
        field=field, hint="An operator can let it last longer.",
    )  # fmt: skip


def from_now(span: dt.timedelta | None) -> dt.datetime:
    """The time so long from now, by the database's clock."""
    found: dt.datetime = rows("SELECT clock_timestamp() + %s::interval", (span,))[0][0]
    return found
