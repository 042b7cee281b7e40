"""What leases have cost, and budgets, in the admin."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db.models import Q
from django.http import HttpRequest

from drydock.core import clock
from leases.admin import columns, finding
from leases.admin.base import OperatedAdmin, RecordAdmin
from leases.client.values import BudgetInfo
from leases.engine.placement.budget_check import dollars
from leases.models import Budget, Usage
from leases.operations import budgets
from leases.operations.callers import caller

_NAME = get_user_model().USERNAME_FIELD


def _seconds(row: Usage) -> float:
    return max(((row.ended_at or clock.now()) - row.started_at).total_seconds(), 0.0)


def _cost(row: Usage) -> str:
    return dollars(_seconds(row) / 3600 * row.part * row.price)


@admin.register(Usage)
class UsageAdmin(RecordAdmin):
    """Each time that a lease held a share of something with a price."""

    list_display = (
        "number", "owner", "group", "lease_name", "blueprint", "kind", "resource", "instance_type", "place", "market",
        "hourly", "part_", "started", "ended", "cost",
    )  # fmt: skip
    list_filter = ("kind", "market")
    search_fields = ("owner", "group", "blueprint", "place", "instance_type")
    search_help_text = "The number of a lease or resource; or owner, group, blueprint, place, type"
    ordering = ("-id",)
    fields = (
        "lease_id", "lease_name", "owner", "group", "blueprint", "kind", "type", "resource_id", "resource", "offer",
        "instance_type", "place", "market", "hourly", "part_", "started", "ended", "ends", "cost",
    )  # fmt: skip

    number = columns.column("lease", lambda row: f"lease {row.lease_id}", "id")
    hourly = columns.column("$ an hour", lambda row: dollars(row.price), "price")
    part_ = columns.column("part", lambda row: f"{row.part:.0%}", "part")
    started = columns.moment("from", "started_at")
    ended = columns.moment("to", "ended_at")
    ends = columns.moment("ends for want of budget", "ends_at")
    cost = columns.column("$ up to now", _cost)

    def found(self, words: str) -> Q | None:
        """By the number of a lease or resource; else by words."""
        if (pk := finding.number(words)) is not None:
            return Q(lease_id=pk) | Q(resource_id=pk)
        return None


class BudgetForm(forms.ModelForm):  # type: ignore[type-arg]
    """Names a user, a group or a blueprint, and an amount as operations accept it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "max_hourly" in self.fields:
            self.fields["max_hourly"] = forms.FloatField(
                min_value=0, max_value=budgets.MOST, label="US dollars an hour"
            )

    def clean(self) -> dict[str, Any]:
        """One of them, not more."""
        given = super().clean() or {}
        holders = {"user", "group", "blueprint"}
        if holders <= set(self.fields) and sum(bool(given.get(name)) for name in holders) != 1:
            self.add_error("user", "Name either a user, a group or a blueprint.")
        return given


def _holder(row: Budget) -> dict[str, Any]:
    return {
        "user": row.user, "group": "" if row.group is None else row.group.name,
        "blueprint": "" if row.blueprint is None else row.blueprint.name,
    }  # fmt: skip


def _now(row: Any) -> BudgetInfo:
    """What is spent of it, read once for a page."""
    if not hasattr(row, "now"):
        row.now = budgets.info(row)
    found: BudgetInfo = row.now
    return found


@admin.register(Budget)
class BudgetAdmin(OperatedAdmin):
    """What users, groups and blueprints may cost an hour."""

    form = BudgetForm
    related = ("user", "group", "blueprint")
    autocomplete_fields: ClassVar[tuple[str, ...]] = ("user", "group", "blueprint")
    list_display = ("whose", "sort", "hourly")
    search_fields = (f"user__{_NAME}", "group__name", "blueprint__name")
    ordering = ("id",)
    fields = ("user", "group", "blueprint", "max_hourly")

    whose = columns.column("whose", lambda row: str(row.user or row.group or row.blueprint))
    sort = columns.column("a", lambda row: "user" if row.user_id else "group" if row.group_id else "blueprint")
    hourly = columns.column("$ an hour", lambda row: dollars(row.max_hourly), "max_hourly")
    spent = columns.column("spent", lambda row: dollars(_now(row).used))
    left = columns.column("left", lambda row: dollars(_now(row).left))
    waiting = columns.column("leases that wait for more", lambda row: _now(row).waiting)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Whose it is stays so."""
        shown = ("spent", "left", "waiting")
        return self.readonly_fields if obj is None else ("user", "group", "blueprint", *shown, *self.readonly_fields)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """With what is spent, once it is there."""
        return self.fields if obj is None else (*self.fields, "spent", "left", "waiting")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Set by operations; leases that it held back are tried again."""
        budgets.set_(caller(request.user), **_holder(obj), max_hourly=obj.max_hourly)
        obj.pk = Budget.objects.get(user=obj.user, group=obj.group, blueprint=obj.blueprint).pk

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Removed by operations, so that those who wait for it are served."""
        budgets.remove(caller(request.user), **_holder(obj))
