"""What is held, by whom, and who works, in the admin: shares, locks, groups, capacities, parts, workers."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest

from leases.admin import cells, columns, finding, panels
from leases.admin.base import RecordAdmin
from leases.admin.panels import Panel
from leases.models import Capacity, Debt, Failure, Lease, LeaseGroup, Part, Share, SlotLock, Sync, Worker


@admin.register(Share)
class ShareAdmin(RecordAdmin):
    """Which amounts of which resource a lease holds."""

    related = ("lease", "resource")
    list_display = ("lease", "resource_", "amounts", "since")
    search_fields = ("=lease__id", "lease__name", "resource__name")
    search_help_text = "What finds its lease or its resource"
    ordering = ("-lease_id",)
    fields = ("lease", "resource_", "amounts", "since")

    resource_ = columns.link("resource", "resource")
    amounts = columns.column("amounts", lambda row: cells.amounts(columns.amounts(row)))
    since = columns.moment("since", "created_at")

    def found(self, words: str) -> Q:
        """Through its lease or its resource."""
        return Q(lease__in=finding.lease_ids(words)) | Q(resource__in=finding.resource_ids(words))


@admin.register(SlotLock)
class SlotLockAdmin(RecordAdmin):
    """Named exclusive claims."""

    related = ("lease", "resource")
    list_display = ("key", "name", "value", "holder", "since")
    search_fields = ("key", "name", "value", "lease__name", "resource__name")
    ordering = ("key",)
    fields = ("key", "name", "value", "holder", "since")

    holder = columns.column("held by", lambda row: cells.numbered(row.lease or row.resource))
    since = columns.moment("since", "created_at")


@admin.register(Failure)
class FailureAdmin(RecordAdmin):
    """Acts on resources that failed: a destruction that is repeated, a stop, a start, a change."""

    related = ("lease", "resource")
    list_display = ("resource_", "act", "code", "attempts", "failing", "tried", "says")
    list_filter = ("act",)
    search_fields = ("resource__name", "code", "message")
    ordering = ("-id",)
    fields = ("resource_", "lease", "act", "code", "attempts", "failing", "tried", "message")

    resource_ = columns.link("resource", "resource")
    says = columns.text("the provider says", "message")
    failing = columns.moment("since", "since")
    tried = columns.moment("last attempt", "at")


@admin.register(Debt)
class DebtAdmin(RecordAdmin):
    """What lost leases left on resources, which is cleaned before they serve again."""

    related = ("lease", "resource")
    list_display = ("lease", "resource_", "tries", "due", "says")
    search_fields = ("=lease__id", "lease__name", "resource__name", "message")
    ordering = ("-id",)
    fields = ("lease", "resource_", "tries", "due", "message", "since")

    resource_ = columns.link("resource", "resource")
    due = columns.moment("due", "due_at")
    says = columns.text("it says", "message")
    since = columns.moment("since", "created_at")


@admin.register(LeaseGroup)
class LeaseGroupAdmin(RecordAdmin):
    """Leases that are granted together."""

    related = ("owner",)
    list_display = ("number", "owner", "same", "different", "asked")
    search_fields = ("=id", "=leases__id")
    ordering = ("-id",)
    fields = ("owner", "same", "different", "asked")

    number = columns.number()
    asked = columns.moment("asked", "created_at")

    def panels(self, row: LeaseGroup, request: HttpRequest) -> list[Panel]:
        """Its members."""
        found = Lease.objects.filter(group=row).select_related("owner", "resource")
        return [panels.leases("Members", found.defer("secrets", "resource__secrets").order_by("id"))]


@admin.register(Capacity)
class CapacityAdmin(RecordAdmin):
    """Further classes of capacity."""

    related = ("resource",)
    list_display = ("name", "resource_", "bar")
    search_fields = ("name", "resource__name")
    ordering = ("-id",)
    fields = ("name", "resource_", "bar")

    resource_ = columns.link("resource", "resource")
    bar = columns.column("used", lambda row: cells.bar(row.name, row.used, row.total), "used")


@admin.register(Part)
class PartAdmin(RecordAdmin):
    """Named parts of resources."""

    related = ("resource",)
    list_display = ("identity", "part_class", "status", "resource_")
    list_filter = ("state",)
    search_fields = ("identity", "part_class", "resource__name")
    ordering = ("-id",)
    fields = ("identity", "part_class", "status", "resource_", "what")

    status = columns.state()
    resource_ = columns.link("resource", "resource")
    what = columns.values("attributes", "attributes")


@admin.register(Sync)
class SyncAdmin(RecordAdmin):
    """Discoveries: when each blueprint was last looked at, and why it failed."""

    related = ("blueprint",)
    list_display = ("blueprint_", "found", "seen", "due", "says")
    search_fields = ("blueprint__name", "message")
    ordering = ("blueprint__name",)
    fields = ("blueprint_", "found", "seen", "due", "message")

    blueprint_ = columns.column("blueprint", lambda row: row.blueprint.name, "blueprint__name")
    seen = columns.moment("last succeeded", "seen_at")
    due = columns.moment("due", "due_at")
    says = columns.text("it says", "message")


@admin.register(Worker)
class WorkerAdmin(RecordAdmin):
    """Workers, and when they were last seen."""

    list_display = ("name", "queues", "seen", "started")
    search_fields = ("name",)
    ordering = ("-seen_at",)
    fields = ("name", "queues", "seen", "started")

    seen = columns.moment("seen", "seen_at")
    started = columns.moment("started", "started_at")
