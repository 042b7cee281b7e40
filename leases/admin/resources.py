"""Resources in the console: the list, and the page of one resource."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.postgres.expressions import ArraySubquery
from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import JSONObject
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.html import format_html, format_html_join

from blueprints.amounts import CLASSES
from leases.admin import registration, resource_acts, resource_panels
from leases.admin.hosts import erasures, sensors
from leases.admin.resource_actions import MACHINE_ACTIONS as OF_MACHINES
from leases.admin.resource_actions import RESOURCE_ACTIONS
from leases.admin.toolkit import columns, html, search
from leases.admin.toolkit.base import RecordAdmin
from leases.admin.toolkit.filters import ExistsFilter, ReasonFilter, ResourceAttention, TypeFilter
from leases.admin.toolkit.panels import Head, Panel
from leases.models import Capacity, Resource, Run
from leases.operations import attention
from leases.reports import cleaning


def _status(row: Resource) -> Any:
    return html.badges(row.state, *resource_panels.flags(row))


def _bars(row: Resource) -> Any:
    """Show how much of each class of capacity is used, including the further classes that were annotated."""
    found = {name: (getattr(row, f"used_{name}"), getattr(row, f"total_{name}")) for name in CLASSES}
    found |= {one["name"]: (one["used"], one["total"]) for one in getattr(row, "classes", ())}
    bars = [(html.room(name, used, total),) for name, (used, total) in found.items() if total]
    return format_html("<div class='dd-room'>{}</div>", format_html_join(" ", "{}", bars))


def _generation(row: Resource) -> str:
    return f"{row.generation} of {row.blueprint.generation}"


def _price(row: Resource) -> str:
    return "-" if row.price is None else f"${row.price:g} per hour"


def _observed(row: Resource) -> Any:
    failed = f", {row.check_failures} consecutive failed checks" if row.check_failures else ""
    return format_html("{}{} ({})", row.observed or "not observed", failed, html.time(row.observed_at))


@transaction.non_atomic_requests
def _outside(view: Callable[..., HttpResponse], model_admin: ResourceAdmin, request: HttpRequest, **path: Any) -> Any:
    """Call a view without a transaction, because the view reads keys from hosts."""
    return view(model_admin, request, **path)


@admin.register(Resource)
class ResourceAdmin(RecordAdmin):
    """The admin of resources."""

    acts = (*RESOURCE_ACTIONS, *OF_MACHINES)
    related = ("blueprint", "part_of", "reserved_for", "failure")
    list_display = ("number", "status", "type", "blueprint_", "slots", "says", "origin", "note_", "in_state", "dies")
    list_filter = (
        "state", "health", ResourceAttention, ("gone_at", ExistsFilter), TypeFilter, "blueprint", "origin",
        ReasonFilter,
    )  # fmt: skip
    search_fields = ("=id", "name", "identity")
    search_help_text = "A number, or the beginning of a name or identity"
    ordering = ("-id",)
    fieldsets = (
        (
            None,
            {
                "fields": (
                    "status",
                    "says",
                    "note_",
                    "blueprint_",
                    "generation_",
                    "type",
                    "origin",
                    "identity",
                    "credential_",
                )
            },
        ),
        ("Capacity", {"fields": ("capacity", "reserved", "idle")}),
        (
            "Health",
            {"fields": ("health_", "health_reason_", "observed_", "next_check", "power", "power_wanted", "missed")},
        ),
        ("Times", {"fields": ("made", "in_state", "dies", "gone")}),
        (
            "Details",
            {
                "fields": ("parent", "locality_", "zone", "offer", "price_", "attributes_", "traits_", "facts_"),
                "classes": ("collapse",),
            },
        ),
    )

    change_list_template = "admin/drydock/resources.html"
    change_form_template = "admin/drydock/resource.html"

    def get_urls(self) -> list[Any]:
        """Add the pages that register hosts, correct registrations and start acts."""
        pages = (
            ("register/", registration.register, "register"),
            ("<int:pk>/correct/", registration.correct, "correct"),
            ("<int:pk>/acts/<slug:name>/", resource_acts.start, "start_act"),
        )
        own = [
            path(where, self.admin_site.admin_view(partial(_outside, view, self)), name=f"leases_resource_{name}")
            for where, view, name in pages
        ]
        return [*own, *super().get_urls()]

    def may_operate(self, request: HttpRequest) -> bool:
        """Return whether the user may change resources. Operations check this again."""
        return request.user.has_perm("leases.change_resource")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Show the list with a link to the page that registers hosts."""
        return super().changelist_view(request, {"may_register": self.may_operate(request), **(extra_context or {})})

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Show the page of a resource, with a link for correcting its registration."""
        row = context.get("original")
        registered = row is not None and row.origin == "registered" and row.state in ("pending", "active")
        context["may_correct"] = registered and self.may_operate(request)
        return super().render_change_form(request, context, *args, **kwargs)

    number = columns.number()
    status = columns.column("state", _status, "state")
    says = columns.column("reason", columns.status_message, "reason")
    note_ = columns.text("note", "note")
    blueprint_ = columns.link("blueprint", "blueprint")
    generation_ = columns.column("generation", _generation)
    slots = columns.column("slots", lambda row: html.bar("slots", row.used_slots, row.total_slots), "used_slots")
    capacity = columns.column("used", _bars)
    reserved = columns.link("reserved for", "reserved_for")
    idle = columns.time("idle since", "idle_since")
    credential_ = columns.values("own credential", "credential_fields")
    health_ = columns.text("health", "health")
    health_reason_ = columns.text("health reason", "health_reason")
    observed_ = columns.column("observed", _observed)
    next_check = columns.time("next check", "check_at")
    made = columns.time("created", "created_at")
    in_state = columns.time("state since", "since")
    dies = columns.time("end of life", "dies_at")
    gone = columns.time("removed", "gone_at")
    parent = columns.link("part of", "part_of")
    locality_ = columns.column("locality", lambda row: " > ".join(filter(None, row.locality)))
    price_ = columns.column("price", _price, "price")
    attributes_ = columns.values("attributes", "attributes")
    traits_ = columns.values("traits", "traits")
    facts_ = columns.values("facts", "facts")

    def get_queryset(self, request: HttpRequest) -> Any:
        """Annotate each resource with its further classes of capacity, and with what runs on it or is owed to it."""
        further = Capacity.objects.filter(resource=OuterRef("pk")).order_by("name")
        rows = further.values(json=JSONObject(name="name", used="used", total="total"))
        acting = Run.objects.filter(resource=OuterRef("pk"), lease=None, phase=Run.Phase.ACT)
        cleaned = Run.objects.filter(resource=OuterRef("pk"), lease=None, phase__in=cleaning.PHASES)
        found = (
            super()
            .get_queryset(request)
            .annotate(
                classes=ArraySubquery(rows),
                has_act=Exists(acting),
                is_unclean=attention.UNCLEAN,
                is_cleaned=Exists(cleaned),
            )
        )
        if not getattr(request, "dd_one", False):
            return found
        return found.annotate(erasures_=erasures.latest(), sensors_=sensors.latest())

    def found(self, words: str) -> Q:
        """Return the condition for resources that match the words by number, name or identity."""
        return Q(pk__in=search.resource_ids(words))

    def head(self, row: Resource) -> Head:
        """Return the state of the resource, with its use and its health."""
        return resource_panels.head(row)

    def panels(self, row: Resource, request: HttpRequest) -> list[Panel]:
        """Return the runs, parts, leases, events and remembered errors."""
        return resource_panels.of(row, request)
