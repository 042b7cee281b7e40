"""What leases have cost: owners see their own, operators all."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any, cast, get_args

from pydantic import ValidationError

from drydock.core.errors import InvalidRequest
from leases import given
from leases.client.values import UsageInfo, UsageReport, UsageSum
from leases.operations.callers import Caller
from leases.reports import usage
from leases.reports.usage import Span
from leases.requests import invalid
from leases.spent import By, UsageFilter

MOST = 1000
"""In one answer."""
_LATELY = dt.timedelta(days=30)
Wanted = Mapping[str, Any] | UsageFilter


def report(who: Caller, wanted: Wanted = UsageFilter(), *, by: str = "owner") -> UsageReport:  # noqa: B008
    """What was spent in a span of time, summed by owner, group, lease, blueprint, kind, resource, place, type or
    market. Raises InvalidRequest with the field."""
    if by not in get_args(By):
        raise InvalidRequest(f"There is no {by!r}.", field="by", hint=f"There are: {', '.join(get_args(By))}.")
    span = _span(who, _read(wanted))
    found = tuple(_sum(*row) for row in usage.groups(span, by, MOST))
    total = _sum(None, "", *usage.total(span))
    return UsageReport(since=span.since, until=span.until, by=by, groups=found, total=total)


def records(who: Caller, wanted: Wanted = UsageFilter(), *, after: int = 0, limit: int = 200) -> list[UsageInfo]:  # noqa: B008
    """The records that the report is made of, by number from the one after `after`. Raises InvalidRequest."""
    if not 1 <= limit <= MOST:
        raise InvalidRequest(f"It is from 1 to {MOST}.", field="limit")
    given.look("after", after)
    return [UsageInfo(**row) for row in usage.records(_span(who, _read(wanted)), after=after, limit=limit)]


def all_records(who: Caller, wanted: Wanted = UsageFilter()) -> Iterator[UsageInfo]:  # noqa: B008
    """All of them, read in parts."""
    span = _span(who, _read(wanted))
    after = 0
    while found := usage.records(span, after=after, limit=MOST):
        yield from (UsageInfo(**row) for row in found)
        after = found[-1]["id"]


def _read(wanted: Wanted) -> UsageFilter:
    if isinstance(wanted, UsageFilter):
        return wanted
    if not isinstance(wanted, Mapping):
        raise InvalidRequest("What is looked for is a mapping of names to values.")
    try:
        return UsageFilter.model_validate(dict(wanted))
    except ValidationError as error:
        raise invalid(error) from None


def _span(who: Caller, asked: UsageFilter) -> Span:
    """Up to now at the latest: what is open costs no more yet."""
    now = usage.now()
    until = min(asked.until or now, now)
    since = asked.since or until - _LATELY
    if since >= (asked.until or max(now, since + _LATELY)):
        raise InvalidRequest("It begins before it ends.", field="since")
    only = asked.model_dump(include=_ONLY) | {"owner_id": None if who.operator else who.id}
    return Span(since=since, until=max(until, since), only=only)


_ONLY = set(UsageFilter.model_fields) - {"since", "until"}


def _sum(pk: int | None, name: str, leases: int, seconds: float, cost: float, hourly: float) -> UsageSum:
    return UsageSum(id=pk, name=name, leases=leases, seconds=float(seconds), cost=float(cost), hourly=float(hourly))


def fields() -> tuple[By, ...]:
    """By what it can be summed."""
    return cast("tuple[By, ...]", get_args(By))
