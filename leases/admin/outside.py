"""What stands at providers without a row of its own."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Count, Q, Sum
from django.http import HttpRequest, HttpResponse

from leases.admin import cells, columns
from leases.admin.acts import Act, Given
from leases.admin.base import RecordAdmin
from leases.engine.sync import orphan_actions
from leases.models import Search, Stray
from leases.operations import orphans
from leases.operations.callers import Caller


def _settled(act: str) -> Any:
    def does(who: Caller, row: Stray, given: Given) -> str:
        return orphans.settle(who, row.pk, act).message

    return does


def _ours(row: Stray) -> bool:
    return row.proof != Stray.Proof.SUSPECT


DESTROY = Act(
    name="destroy", label="Destroy", does=_settled("destroy"), applies=_ours, dangerous=True,
    sentence="What stands there under that name is destroyed, when it is seen again long enough after the first time.",
)  # fmt: skip
ADOPT = Act(
    name="adopt", label="Adopt", does=_settled("adopt"),
    applies=lambda row: _ours(row) and orphan_actions.adoptable(row.what),
    sentence="The machine has a row again: quarantined, without room for anybody, with its cost; to be retired after "
    "somebody has looked at it.",
)  # fmt: skip


_SUMMED = 1000


@admin.register(Stray)
class StrayAdmin(RecordAdmin):
    """Orphans: what each is, what it costs, when it was first and last seen, and what becomes of it."""

    acts = (DESTROY, ADOPT)
    list_display = ("key", "what_", "blueprint_", "where", "price_", "proof_", "first_seen", "seen", "says")
    search_fields = ("key", "what", "blueprint__name", "message")
    list_filter = ("proof", "blueprint")
    related = ("blueprint",)
    ordering = ("-first_seen_at",)
    fields = (
        "key", "what_", "things", "blueprint_", "where", "price_", "proof_", "resource_number", "epoch", "made",
        "first_seen", "seen", "sightings", "wanted", "wanted_by", "message",
    )  # fmt: skip

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The list, with what the newest thousand of them cost."""
        newest = Stray.objects.order_by("-pk")[:_SUMMED]
        found = newest.aggregate(cost=Sum("price"), unknown=Count("pk", filter=Q(price=None)))
        unknown = f", and {found['unknown']} whose price is not known" if found["unknown"] else ""
        title = f"Orphans: ${found['cost'] or 0:.4f} an hour{unknown}"
        return super().changelist_view(request, {"title": title, **(extra_context or {})})

    what_ = columns.column("what", lambda row: row.what or row.blueprint.resource_type, "what")
    where = columns.column("where", lambda row: row.facts.get("zone") or row.facts.get("location") or cells.DASH)
    things = columns.column("it consists of", lambda row: ", ".join(row.facts.get("things") or ()) or cells.DASH)
    price_ = columns.column(
        "US dollars an hour", lambda row: cells.DASH if row.price is None else f"${row.price:.4f}", "price"
    )
    proof_ = columns.column("proof", lambda row: cells.badge(row.proof), "proof")
    made = columns.moment("made", "made_at")
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
