"""Usage records and budgets in the console."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db.models import Q
from django.http import HttpRequest

from drydock.core import clock
from drydock_client.values import BudgetInfo
from leases.admin.toolkit import columns, html, search
from leases.admin.toolkit.base import OperatedAdmin, RecordAdmin
from leases.engine.placement.budget_check import dollars
from leases.models import Budget, Usage
from leases.operations import costs
from leases.operations.callers import caller

_NAME = get_user_model().USERNAME_FIELD


def _seconds(row: Usage) -> float:
    return max(((row.ended_at or clock.now()) - row.started_at).total_seconds(), 0.0)


def _cost(row: Usage) -> str:
    return dollars(_seconds(row) / 3600 * row.part * row.price)


def _energy(row: Usage) -> Any:
    return html.DASH if row.energy_wh is None else f"{row.energy_wh / 1000:.3f}"


@admin.register(Usage)
class UsageAdmin(RecordAdmin):
    """Usage records: for each period in which a lease held a priced resource, or one that measures its power."""

    list_display = (
        "number", "owner", "group", "lease_name", "blueprint", "kind", "resource", "instance_type", "place", "market",
        "hourly", "part_", "started", "ended", "cost", "energy",
    )  # fmt: skip
    list_filter = ("kind", "market")
    search_fields = ("owner", "group", "blueprint", "place", "instance_type")
    search_help_text = "Number of a lease or resource, or an owner, group, blueprint, location or instance type"
    ordering = ("-id",)
    fields = (
        "lease_id", "lease_name", "owner", "group", "blueprint", "kind", "type", "resource_id", "resource", "offer",
        "instance_type", "place", "market", "hourly", "part_", "started", "ended", "ends", "cost",
        "energy",
    )  # fmt: skip

    number = columns.column("lease", lambda row: f"lease {row.lease_id}", "id")
    hourly = columns.column("$/hour", lambda row: dollars(row.price), "price")
    part_ = columns.column("share", lambda row: f"{row.part:.0%}", "part")
    started = columns.time("from", "started_at")
    ended = columns.time("to", "ended_at")
    ends = columns.time("ends when budget is exhausted", "ends_at")
    cost = columns.column("cost so far ($)", _cost)
    energy = columns.column("energy (kWh)", _energy, "energy_wh")

    def found(self, words: str) -> Q | None:
        """Return the condition for records of the lease or resource with this number, or with these words."""
        if (pk := search.number(words)) is not None:
            return Q(lease_id=pk) | Q(resource_id=pk)
        return None


class BudgetForm(forms.ModelForm):  # type: ignore[type-arg]
    """The form of a budget: a user, a group or a blueprint, and an amount."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "max_hourly" in self.fields:
            self.fields["max_hourly"] = forms.FloatField(
                min_value=0, max_value=costs.HIGHEST_BUDGET, label="US dollars per hour"
            )

    def clean(self) -> dict[str, Any]:
        """Require exactly one of user, group and blueprint."""
        given = super().clean() or {}
        holders = {"user", "group", "blueprint"}
        if holders <= set(self.fields) and sum(bool(given.get(name)) for name in holders) != 1:
            self.add_error("user", "Choose exactly one of user, group and blueprint.")
        return given


def _holder(row: Budget) -> dict[str, Any]:
    return {
        "user": row.user, "group": "" if row.group is None else row.group.name,
        "blueprint": "" if row.blueprint is None else row.blueprint.name,
    }  # fmt: skip


def _now(row: Any) -> BudgetInfo:
    """Return the current spending of a budget, which is read once for each page."""
    if not hasattr(row, "now"):
        row.now = costs.budget_info(row)
    found: BudgetInfo = row.now
    return found


@admin.register(Budget)
class BudgetAdmin(OperatedAdmin):
    """Budgets: limits of cost per hour for users, groups and blueprints."""

    form = BudgetForm
    related = ("user", "group", "blueprint")
    autocomplete_fields: ClassVar[tuple[str, ...]] = ("user", "group", "blueprint")
    list_display = ("whose", "sort", "hourly")
    search_fields = (f"user__{_NAME}", "group__name", "blueprint__name")
    ordering = ("id",)
    fields = ("user", "group", "blueprint", "max_hourly")

    whose = columns.column("name", lambda row: str(row.user or row.group or row.blueprint))
    sort = columns.column("applies to", lambda row: "user" if row.user_id else "group" if row.group_id else "blueprint")
    hourly = columns.column("$/hour", lambda row: dollars(row.max_hourly), "max_hourly")
    spent = columns.column("spent", lambda row: dollars(_now(row).used))
    left = columns.column("left", lambda row: dollars(_now(row).left))
    waiting = columns.column("waiting leases", lambda row: _now(row).waiting)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Make the holder of an existing budget read-only."""
        shown = ("spent", "left", "waiting")
        return self.readonly_fields if obj is None else ("user", "group", "blueprint", *shown, *self.readonly_fields)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Add the current spending for an existing budget."""
        return self.fields if obj is None else (*self.fields, "spent", "left", "waiting")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Set the budget by its operation, which tries the leases again that waited for the budget."""
        costs.set_budget(caller(request.user), **_holder(obj), max_hourly=obj.max_hourly)
        obj.pk = Budget.objects.get(user=obj.user, group=obj.group, blueprint=obj.blueprint).pk

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Remove the budget by its operation, which tries the leases again that waited for the budget."""
        costs.remove_budget(caller(request.user), **_holder(obj))
