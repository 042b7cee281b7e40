"""Blueprints in the admin: edited through operations, their config checked by their kind."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.urls import path

from blueprints.models import Blueprint, RememberedError
from leases.admin import blueprint_panels, blueprint_trial, cells, columns
from leases.admin.base import OperatedAdmin
from leases.admin.blueprint_acts import ACTS, problems
from leases.admin.blueprint_form import BlueprintForm
from leases.admin.panels import Panel
from leases.models import Resource
from leases.operations import blueprints
from leases.operations.callers import caller


def _status(row: Blueprint) -> Any:
    return cells.badges("enabled" if row.enabled else "disabled", *(["drained"] if row.drained else []))


def _counted(found: QuerySet[Any]) -> Coalesce:
    """How many rows of another table each blueprint has. Joined to one another they would be multiplied."""
    each = found.filter(blueprint=OuterRef("pk")).order_by().values("blueprint").annotate(n=Count("pk")).values("n")
    return Coalesce(Subquery(each), 0)


@admin.register(Blueprint)
class BlueprintAdmin(OperatedAdmin):
    """All blueprints."""

    acts = ACTS
    form = BlueprintForm
    change_form_template = "admin/drydock/blueprint.html"
    list_display = (
        "name",
        "status",
        "kind",
        "resource_type",
        "order",
        "there_",
        "limit",
        "audience",
        "errors_",
        "note_",
    )
    list_filter = ("enabled", "drained", "audience", "resource_type", "kind")
    search_fields = ("name", "kind", "resource_type", "note")
    ordering = ("order", "id")
    readonly_fields = ("status", "resource_type", "generation", "made")
    fieldsets = (
        (None, {"fields": ("name", "status", "kind", "config", "note")}),
        ("Who, and when", {"fields": ("audience", "order")}),
        ("Limits", {"fields": ("max_resources", "min_ready", "max_builds", "max_outdated")}),
        ("Time", {"fields": ("idle_timeout", "max_lifetime", "check_interval", "default_ttl", "max_ttl")}),
        ("Derived", {"fields": ("resource_type", "generation", "made")}),
    )
    add_fieldsets = (
        (None, {"fields": ("name", "kind", "config", "enabled", "note")}),
        *fieldsets[1:4],
    )

    status = columns.column("state", _status)
    there_ = columns.column("resources", lambda row: row.there, "there")
    limit = columns.column(
        "limit", lambda row: "-" if row.max_resources is None else row.max_resources, "max_resources"
    )
    errors_ = columns.column("errors", lambda row: row.remembered, "remembered")
    note_ = columns.text("note", "note")
    made = columns.moment("made", "created_at")

    def get_urls(self) -> list[Any]:
        """With what the form asks for while it is typed."""
        wrap = self.admin_site.admin_view
        return [
            path("inputs/", wrap(partial(blueprint_trial.inputs, self)), name="blueprints_blueprint_inputs"),
            path("trial/", wrap(self.trial_view), name="blueprints_blueprint_trial"),
            *super().get_urls(),
        ]

    @transaction.non_atomic_requests
    def trial_view(self, request: HttpRequest) -> HttpResponse:
        """The "check" button."""
        return blueprint_trial.tried(self, request)

    def get_queryset(self, request: HttpRequest) -> Any:
        """With how many resources there are, and how many errors are remembered."""
        there = _counted(Resource.objects.filter(gone_at=None))
        return super().get_queryset(request).annotate(there=there, remembered=_counted(RememberedError.objects.all()))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Whether it is enabled is said once, when it is added; then actions switch it."""
        return self.add_fieldsets if obj is None else self.fieldsets

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """The name is fixed: operations and configs refer to it."""
        return self.readonly_fields if obj is None else ("name", *self.readonly_fields)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Removing is an action of its own."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Added or changed by operations, which raise the generation, leave the event and wake who waits."""
        who = caller(request.user)
        if change:
            if form.changed_data:
                blueprints.change(who, obj.name, form.change())
            return
        data = form.cleaned_data
        info = blueprints.add(
            who, data["name"], data["kind"], data["config"], change=form.change(), enabled=data["enabled"]
        )
        obj.pk = info.id
        for level, sentence in problems(info) if info.problems else []:
            messages.add_message(request, level, sentence[:500])
        if data["enabled"] and not info.enabled:
            messages.error(request, "It stays disabled, because its check found something fatal.")

    def panels(self, row: Blueprint, request: HttpRequest) -> list[Panel]:
        """Resources, errors, authorizations, what its kind understands, and events."""
        return blueprint_panels.of(row)
