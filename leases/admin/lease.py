"""Leases in the admin: what they are, how they came there, and why they wait."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from leases.admin import cells, columns, finding, lease_panels
from leases.admin.base import RecordAdmin
from leases.admin.filters import LeaseAttention, ReasonFilter, TypeFilter
from leases.admin.lease_acts import ACTS
from leases.admin.panels import Head, Panel
from leases.models import Lease
from leases.operations import reading
from leases.operations.callers import caller

OWNER = f"owner__{get_user_model().USERNAME_FIELD}"


def _status(row: Lease) -> Any:
    return cells.badges(row.state, *lease_panels.flags(row))


def _owner(row: Lease) -> str:
    return "Drydock itself" if row.owner is None else row.owner.get_username()


def _flags(row: Lease) -> str:
    named = {"exclusive": row.exclusive, "served again when lost": row.serve_again, "parked": row.parked}
    wished = f"its end is wanted ({row.release_wanted})" if row.release_wanted else ""
    return ", ".join([word for word, on in named.items() if on] + ([wished] if wished else [])) or "-"


def _hold(row: Lease) -> Any:
    return "until somebody ends the hold" if row.held and not row.hold_until else cells.moment(row.hold_until)


def _interfaces(row: Lease) -> str:
    return "-" if row.resource is None else ", ".join(reading.interface_names(row.resource.blueprint.kind)) or "-"


def _traits(row: Lease) -> Any:
    found = {"required": row.traits, "forbidden": row.forbidden_traits, "preferred": row.preferred_traits}
    return cells.values({name: traits for name, traits in found.items() if traits})


def _narrowed(row: Lease) -> Any:
    names = ("allowed_blueprints", "excluded_blueprints", "only_resources", "avoided_resources")
    return cells.values({name: getattr(row, name) for name in names if getattr(row, name)})


@admin.register(Lease)
class LeaseAdmin(RecordAdmin):
    """All leases."""

    acts = ACTS
    related = (
        "share",
        "owner", "charged_group", "group", "resource", "resource__blueprint", "for_resource", "for_lease", "replaced_by"
    )  # fmt: skip
    list_display = ("number", "status", "type", "owned_by", "on", "says", "asked", "in_state", "ends")
    list_filter = ("state", LeaseAttention, TypeFilter, ReasonFilter, "created_at", "resource__blueprint", "exclusive")
    search_fields = ("=id", "name", OWNER, "labels", "resource__name")
    search_help_text = "A number, or the beginning of a name, owner or resource, or a label: blue, team=blue"
    ordering = ("-id",)
    fieldsets = (
        (None, {"fields": ("status", "says", "owned_by", "charged_group", "labelled", "flags")}),
        ("Where", {"fields": ("on", "blueprint", "takes", "interfaces", "connect")}),
        (
            "When",
            {"fields": ("asked", "acquired", "active", "in_state", "lasts", "ends", "beat", "holding", "ended")},
        ),
        (
            "Asked for",
            {
                "fields": ("wanted", "traits_", "narrowed", "priority", "own_keys", "group", "held_by", "lost_for"),
                "classes": ("collapse",),
            },
        ),
    )

    number = columns.number()
    status = columns.column("state", _status, "state")
    says = columns.column("reason", lambda row: columns.said(reading.said(row)), "reason")
    owned_by = columns.column("owner", _owner, OWNER)
    labelled = columns.column("labels", lambda row: cells.pairs(row.labels))
    flags = columns.column("flags", _flags)
    on = columns.link("resource", "resource")
    blueprint = columns.link("blueprint", "resource.blueprint")
    takes = columns.column("amounts", lambda row: cells.amounts(columns.amounts(row)))
    interfaces = columns.column("interfaces", _interfaces)
    connect = columns.values("connect", "facts")
    asked = columns.moment("asked", "created_at")
    acquired = columns.moment("acquired", "acquired_at")
    active = columns.moment("active", "active_at")
    in_state = columns.moment("in this state", "since")
    lasts = columns.span("time to live", "ttl")
    ends = columns.moment("until", "until")
    beat = columns.moment("last heartbeat", "heartbeat_at")
    holding = columns.column("held", _hold)
    ended = columns.moment("ended", "ended_at")
    wanted = columns.values("requirements", "requirements")
    traits_ = columns.column("traits", _traits)
    narrowed = columns.column("blueprints and resources", _narrowed)
    own_keys = columns.values("public keys", "public_keys")
    held_by = columns.column("held by", lambda row: cells.link(row.for_lease or row.for_resource))
    lost_for = columns.link("replaced by", "replaced_by")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Lease]:
        """With whether somebody works for them."""
        return reading.with_workers(super().get_queryset(request))

    def found(self, words: str) -> Q:
        """By number, name, owner, label and resource."""
        return Q(pk__in=finding.lease_ids(words))

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """With why it waits."""
        row = super().get_object(request, *args, **kwargs)
        if row is not None:
            reading.with_waits([row], caller(request.user))
        return row

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """With why each of the listed leases waits."""
        found = super().get_changelist_instance(request)
        reading.with_waits(found.result_list, caller(request.user))
        return found

    def head(self, row: Lease) -> Head:
        """Its state, and what comes next."""
        return lease_panels.head(row)

    def panels(self, row: Lease, request: HttpRequest) -> list[Panel]:
        """Why it waits, its timeline, and what it holds."""
        return lease_panels.of(row, request)
