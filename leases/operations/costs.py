"""The costs of leases, and the budgets that limit hourly costs."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping
from typing import Any, cast, get_args

from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import Q
from pydantic import ValidationError

from blueprints.models import Blueprint
from drydock.core.errors import InvalidRequest, NotFound
from drydock_client.values import BudgetInfo, UsageInfo, UsageReport, UsageSum
from leases import owners
from leases.engine.core.database import leases_by_id, rows
from leases.engine.core.transitions import record_event
from leases.engine.placement import budgets as engine
from leases.engine.placement.budget_check import dollars
from leases.engine.placement.constraints import TINY
from leases.messaging import hints
from leases.models import Budget
from leases.operations.callers import Caller, operator_only
from leases.reasons import Reason
from leases.reports import usage
from leases.reports.usage import Span
from leases.validation import input_checks
from leases.validation.input_checks import checked
from leases.validation.requests import invalid
from leases.validation.usage_query import By, UsageFilter

HIGHEST_BUDGET = 1e9
"""The highest budget that can be set, in US dollars per hour."""


def _holder(user: Any, group: str, blueprint: str) -> dict[str, Any]:
    if sum(map(bool, (user, group, blueprint))) != 1:
        raise InvalidRequest("Name either a user, a group or a blueprint.", field="user")
    found: dict[str, Any] = {"user": None, "group": None, "blueprint": None}
    if user:
        return found | {"user": owners.find_owner(user)}
    if group:
        return found | {"group": _named(Group.objects.filter(name=group).first(), "group", group)}
    return found | {"blueprint": _named(Blueprint.objects.filter(name=blueprint).first(), "blueprint", blueprint)}


def _named(found: Any, what: str, name: str) -> Any:
    if found is None:
        raise NotFound(f"{what} {name!r} does not exist.", field=what)
    return found


def list_budgets(who: Caller) -> list[BudgetInfo]:
    """Return the budgets that limit the caller. An operator gets all budgets."""
    return [one for _, one in _listed(who)]


def short_budgets(who: Caller) -> list[tuple[BudgetInfo, dt.datetime | None]]:
    """Return the exhausted budgets and the budgets that leases wait for, each with the time when it became short."""
    found = {pk: one for pk, one in _listed(who) if one.left <= TINY or one.waiting}
    began = engine.short_since(list(found)) if found else {}
    return [(one, began.get(pk)) for pk, one in found.items()]


def _listed(who: Caller) -> list[tuple[int, BudgetInfo]]:
    found = Budget.objects.select_related("user", "group", "blueprint").order_by("id")
    if not who.operator:
        found = found.filter(Q(user_id=who.id) | Q(group__user=who.id)).distinct()
    known = list(found)
    now = engine.standing([row.pk for row in known]) if known else {}
    return [(row.pk, _budget_info(row, *now.get(row.pk, (0.0, 0)))) for row in known]


def budget_info(row: Budget) -> BudgetInfo:
    """Return a budget as a frozen value, with the amount that is currently spent."""
    return _budget_info(row, *engine.standing([row.pk])[row.pk])


def _budget_info(row: Budget, used: float, waiting: int) -> BudgetInfo:
    return BudgetInfo(
        user="" if row.user is None else row.user.get_username(), group="" if row.group is None else row.group.name,
        blueprint="" if row.blueprint is None else row.blueprint.name, max_hourly=row.max_hourly, used=used,
        left=max(row.max_hourly - used, 0.0), waiting=waiting,
    )  # fmt: skip


@checked
def set_budget(who: Caller, *, max_hourly: float, user: Any = None, group: str = "", blueprint: str = "") -> BudgetInfo:
    """Set the hourly budget of a user, a group or a blueprint, in US dollars.

    Leases that waited for the budget are tried again. Raises InvalidRequest, NotFound, NotAllowed.
    """
    operator_only(who, "set budgets")
    if isinstance(max_hourly, bool) or not isinstance(max_hourly, int | float) or not 0 <= max_hourly <= HIGHEST_BUDGET:
        raise InvalidRequest("A budget must be at least 0 US dollars per hour.", field="max_hourly")
    assert math.isfinite(max_hourly)
    holder = _holder(user, group, blueprint)
    with transaction.atomic():
        row, _ = Budget.objects.update_or_create(**holder, defaults={"max_hourly": float(max_hourly)})
        record_event(
            "budget.set", f"{row}: {dollars(row.max_hourly)} per hour", actor=who.actor,
            blueprint_id=row.blueprint_id, details={"max_hourly": float(max_hourly)},
        )  # fmt: skip
    _wake(row)
    return budget_info(row)


@checked
def remove_budget(who: Caller, *, user: Any = None, group: str = "", blueprint: str = "") -> None:
    """Remove the budget of a user, a group or a blueprint.

    Leases that waited for the budget are tried again. Raises InvalidRequest, NotFound, NotAllowed.
    """
    operator_only(who, "remove budgets")
    holder = _holder(user, group, blueprint)
    with transaction.atomic():
        row = Budget.objects.filter(**holder).first()
        if row is None:
            raise NotFound(f"{next(filter(None, holder.values()))} has no budget.", field="user")
        record_event("budget.removed", f"{row}", actor=who.actor, blueprint_id=row.blueprint_id)
        Budget.objects.filter(pk=row.pk).delete()
    _wake(row)


_WAITING = "state = 'pending' AND reason = %s AND (owner_id = %s OR charged_group_id = %s)"


def _wake(row: Budget) -> None:
    """Wake the leases that wait for a budget.

    Call after the budget was committed, because a claim locks leases before budgets and reads committed rows.
    """
    if row.blueprint is not None:
        hints.after_commit("serve", row.blueprint.resource_type)
        return
    found = rows(
        f"UPDATE leases_lease SET parked = FALSE WHERE {leases_by_id(_WAITING)} RETURNING type",
        (Reason.WAITING_BUDGET, row.user_id, row.group_id),
    )
    for resource_type in sorted({kind for (kind,) in found}):
        hints.after_commit("serve", resource_type)


MOST_RECORDS = 1000
"""The maximum number of usage records in one result."""

_LATELY = dt.timedelta(days=30)

Wanted = Mapping[str, Any] | UsageFilter


def usage_report(who: Caller, wanted: Wanted = UsageFilter(), *, by: str = "owner") -> UsageReport:  # noqa: B008
    """Return the costs within a time span, summed by one dimension. Raises InvalidRequest with the field.

    The dimensions are owner, group, lease, blueprint, kind, resource, place, (instance) type and market.
    """
    if by not in get_args(By):
        raise InvalidRequest(f"Cannot group by {by!r}.", field="by", hint=f"Choose one of: {', '.join(get_args(By))}.")
    span = _span(who, _read(wanted))
    found = tuple(_sum(*row) for row in usage.groups(span, by, MOST_RECORDS))
    total = _sum(None, "", *usage.total(span))
    return UsageReport(since=span.since, until=span.until, by=by, groups=found, total=total)


def usage_records(who: Caller, wanted: Wanted = UsageFilter(), *, after: int = 0, limit: int = 200) -> list[UsageInfo]:  # noqa: B008
    """Return the usage records of a report, ordered by id, starting after id `after`. Raises InvalidRequest."""
    if not 1 <= limit <= MOST_RECORDS:
        raise InvalidRequest(f"The limit must be from 1 to {MOST_RECORDS}.", field="limit")
    input_checks.check("after", after)
    return [UsageInfo(**row) for row in usage.records(_span(who, _read(wanted)), after=after, limit=limit)]


def all_usage_records(who: Caller, wanted: Wanted = UsageFilter()) -> Iterator[UsageInfo]:  # noqa: B008
    """Yield all usage records of a report, reading them in pages."""
    span = _span(who, _read(wanted))
    after = 0
    while found := usage.records(span, after=after, limit=MOST_RECORDS):
        yield from (UsageInfo(**row) for row in found)
        after = found[-1]["id"]


def _read(wanted: Wanted) -> UsageFilter:
    if isinstance(wanted, UsageFilter):
        return wanted
    if not isinstance(wanted, Mapping):
        raise InvalidRequest("The filter must be a mapping of names to values.")
    try:
        return UsageFilter.model_validate(dict(wanted))
    except ValidationError as error:
        raise invalid(error) from None


def _span(who: Caller, asked: UsageFilter) -> Span:
    """Return the time span of a query. It ends now at the latest, because open records cost nothing in the future.

    Raises InvalidRequest if the span ends before it begins.
    """
    now = usage.now()
    until = min(asked.until or now, now)
    since = asked.since or until - _LATELY
    if since >= (asked.until or max(now, since + _LATELY)):
        raise InvalidRequest("since must be earlier than until.", field="since")
    only = asked.model_dump(include=_ONLY) | {"owner_id": None if who.operator else who.id}
    return Span(since=since, until=max(until, since), now=now, only=only)


_ONLY = set(UsageFilter.model_fields) - {"since", "until"}


def _sum(
    pk: int | None, name: str, leases: int, seconds: float, cost: float, hourly: float, energy_wh: float | None
) -> UsageSum:
    return UsageSum(
        id=pk, name=name, leases=leases, seconds=float(seconds), cost=float(cost), hourly=float(hourly),
        energy_wh=energy_wh,
    )  # fmt: skip


def usage_dimensions() -> tuple[By, ...]:
    """Return the names of the dimensions by which costs can be summed."""
    return cast("tuple[By, ...]", get_args(By))
