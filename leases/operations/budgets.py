"""Budgets: what owners, groups and blueprints may cost an hour, what of it is spent, and who waits for more."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import Q

from blueprints.models import Blueprint
from drydock.core.errors import InvalidRequest, NotFound
from leases import hints, owners
from leases.client.values import BudgetInfo
from leases.engine.core.database import leases_by_id, rows
from leases.engine.core.transitions import record_event
from leases.engine.placement import budgets as engine
from leases.engine.placement.budget_check import dollars
from leases.engine.placement.constraints import TINY
from leases.given import checked
from leases.models import Budget
from leases.operations.callers import Caller, operator_only
from leases.reasons import Reason

MOST = 1e9
"""Dollars an hour."""


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
        raise NotFound(f"No {what} {name!r}.", field=what)
    return found


def list_(who: Caller) -> list[BudgetInfo]:
    """All budgets for an operator; for others those that bound them."""
    return [one for _, one in _listed(who)]


def short(who: Caller) -> list[tuple[BudgetInfo, dt.datetime | None]]:
    """The budgets of `list_` of which nothing is left, or for more of which leases wait, each with the time since."""
    found = {pk: one for pk, one in _listed(who) if one.left <= TINY or one.waiting}
    began = engine.short_since(list(found)) if found else {}
    return [(one, began.get(pk)) for pk, one in found.items()]


def _listed(who: Caller) -> list[tuple[int, BudgetInfo]]:
    found = Budget.objects.select_related("user", "group", "blueprint").order_by("id")
    if not who.operator:
        found = found.filter(Q(user_id=who.id) | Q(group__user=who.id)).distinct()
    known = list(found)
    now = engine.standing([row.pk for row in known]) if known else {}
    return [(row.pk, _info(row, *now.get(row.pk, (0.0, 0)))) for row in known]


def info(row: Budget) -> BudgetInfo:
    """A budget with what is spent of it now."""
    return _info(row, *engine.standing([row.pk])[row.pk])


def _info(row: Budget, used: float, waiting: int) -> BudgetInfo:
    return BudgetInfo(
        user="" if row.user is None else row.user.get_username(), group="" if row.group is None else row.group.name,
        blueprint="" if row.blueprint is None else row.blueprint.name, max_hourly=row.max_hourly, used=used,
        left=max(row.max_hourly - used, 0.0), waiting=waiting,
    )  # fmt: skip


@checked
def set_(who: Caller, *, max_hourly: float, user: Any = None, group: str = "", blueprint: str = "") -> BudgetInfo:
    """Set what a user, a group or a blueprint may cost in US dollars an hour; leases it held back are tried again.

    Raises InvalidRequest, NotFound, NotAllowed.
    """
    operator_only(who, "set budgets")
    if isinstance(max_hourly, bool) or not isinstance(max_hourly, int | float) or not 0 <= max_hourly <= MOST:
        raise InvalidRequest("A budget is 0 or more US dollars an hour.", field="max_hourly")
    assert math.isfinite(max_hourly)
    holder = _holder(user, group, blueprint)
    with transaction.atomic():
        row, _ = Budget.objects.update_or_create(**holder, defaults={"max_hourly": float(max_hourly)})
        record_event(
            "budget.set", f"{row}: {dollars(row.max_hourly)} an hour", actor=who.actor,
            blueprint_id=row.blueprint_id, details={"max_hourly": float(max_hourly)},
        )  # fmt: skip
    _wake(row)
    return info(row)


@checked
def remove(who: Caller, *, user: Any = None, group: str = "", blueprint: str = "") -> None:
    """Let a user, a group or a blueprint cost any amount; leases that the budget held back are tried again.

    Raises InvalidRequest, NotFound, NotAllowed.
    """
    operator_only(who, "remove budgets")
    holder = _holder(user, group, blueprint)
    with transaction.atomic():
        row = Budget.objects.filter(**holder).first()
        if row is None:
            raise NotFound(f"There is no budget of {next(filter(None, holder.values()))}.", field="user")
        record_event("budget.removed", f"{row}", actor=who.actor, blueprint_id=row.blueprint_id)
        Budget.objects.filter(pk=row.pk).delete()
    _wake(row)


_WAITING = "state = 'pending' AND reason = %s AND (owner_id = %s OR charged_group_id = %s)"


def _wake(row: Budget) -> None:
    """After the budget is written: a claim locks leases before budgets, and looks at what is committed."""
    if row.blueprint is not None:
        hints.after_commit("serve", row.blueprint.resource_type)
        return
    found = rows(
        f"UPDATE leases_lease SET parked = FALSE WHERE {leases_by_id(_WAITING)} RETURNING type",
        (Reason.WAITING_BUDGET, row.user_id, row.group_id),
    )
    for resource_type in sorted({kind for (kind,) in found}):
        hints.after_commit("serve", resource_type)
