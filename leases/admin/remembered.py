"""Remembered errors in the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from blueprints.models import RememberedError
from leases.admin import cells, columns
from leases.admin.acts import Act, Given
from leases.admin.base import RecordAdmin
from leases.admin.filters import StillRemembered
from leases.operations import upkeep
from leases.operations.callers import Caller


def _clear(who: Caller, row: Any, given: Given) -> str:
    upkeep.clear_errors(who, error_id=row.pk)
    return "Forgotten."


@admin.register(RememberedError)
class RememberedErrorAdmin(RecordAdmin):
    """What is remembered of offers that failed."""

    acts = (
        Act(
            name="clear", label="Clear", does=_clear,
            sentence="It is forgotten, so that the offer, zone or blueprint is tried again at once.",
        ),
    )  # fmt: skip
    related = ("blueprint",)
    list_display = ("scope", "blueprint_", "key", "code", "says", "until_", "since")
    list_filter = (StillRemembered, "scope", "blueprint")
    search_fields = ("key", "code", "message", "blueprint__name")
    date_hierarchy = "created_at"
    ordering = ("-id",)
    fields = ("scope", "blueprint_", "key", "code", "message", "until_", "since")

    blueprint_ = columns.link("blueprint", "blueprint")
    says = columns.text("message", "message")
    since = columns.moment("since", "created_at")
    until_ = columns.column(
        "until", lambda row: cells.moment(row.until) if row.until else "an operator clears it", "until"
    )
