"""What stands at providers without a row of its own."""

from __future__ import annotations

from django.contrib import admin

from leases.admin import columns
from leases.admin.base import RecordAdmin
from leases.models import Search, Stray


@admin.register(Stray)
class StrayAdmin(RecordAdmin):
    """Orphans: when each was first and last seen, and what becomes of it."""

    list_display = ("key", "blueprint_", "first_seen", "seen", "says")
    search_fields = ("key", "blueprint__name", "message")
    list_filter = ("blueprint",)
    related = ("blueprint",)
    ordering = ("-first_seen_at",)
    fields = ("key", "blueprint_", "resource_number", "epoch", "first_seen", "seen", "message")

    blueprint_ = columns.column("blueprint", lambda row: row.blueprint.name, "blueprint__name")
    first_seen = columns.moment("first seen", "first_seen_at")
    seen = columns.moment("seen", "seen_at")
    says = columns.text("what becomes of it", "message")


@admin.register(Search)
class SearchAdmin(RecordAdmin):
    """When orphans were looked for, and what could not be seen."""

    list_display = ("blueprint_", "found", "seen", "due", "says")
    search_fields = ("blueprint__name", "message")
    related = ("blueprint",)
    ordering = ("blueprint__name",)
    fields = ("blueprint_", "found", "seen", "due", "message")

    blueprint_ = columns.column("blueprint", lambda row: row.blueprint.name, "blueprint__name")
    seen = columns.moment("last succeeded", "seen_at")
    due = columns.moment("due", "due_at")
    says = columns.text("it says", "message")
