"""The fleet page, with the capacity, cost and capabilities of backends, and the list pages of orphans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Q, Sum
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from drydock_client.values import BackendInfo, OrphanInfo
from leases.admin.toolkit import columns, equivalent_commands, html
from leases.admin.toolkit.actions import Action, FormData
from leases.admin.toolkit.base import RecordAdmin
from leases.admin.toolkit.equivalent_commands import declared
from leases.admin.toolkit.panels import Panel
from leases.engine.sync import orphan_actions
from leases.models import Search, Stray
from leases.operations import callers, fleet
from leases.operations.callers import Caller

_MAY = ("blueprints.view_blueprint", "leases.view_resource", "leases.view_stray")


def page(site: Any, request: HttpRequest) -> HttpResponse:
    """Render the fleet page. Raises PermissionDenied if the user may not view the models that the page summarizes."""
    if not request.user.has_perms(_MAY):
        raise PermissionDenied
    who = callers.caller(request.user)
    found, strays = fleet.backends(who, able=True), fleet.list_orphans(who)
    context = {
        **site.each_context(request), "title": "Fleet",
        "panels": [_backends(found), _readings(found), _capabilities(found), _orphans(strays)],
        "elsewhere": [equivalent_commands.line_for(request, key, {}) for key in ("fleet", "orphans")],
    }  # fmt: skip
    return TemplateResponse(request, "admin/drydock/fleet.html", context)


def _backends(found: Sequence[BackendInfo]) -> Panel:
    cost = sum(one.price + one.orphans_price for one in found)
    unpriced = sum(one.unpriced for one in found)
    return Panel(
        title="Backends", empty="No blueprints.",
        note=f"Current cost: ${cost:.4f} per hour"
        + (f", without {unpriced} machines of unknown price." if unpriced else "."),
        columns=(
            "Order", "Backend", "Kind", "Account", "Regions", "Confidential", "Largest", "From", "Machines", "Drift",
            "$/hour",
        ),
        rows=[
            (
                one.order, one.name if one.enabled else f"{one.name} (disabled)", one.kind, one.account or html.DASH,
                html.short(", ".join(one.regions)), ", ".join(one.confidential) or html.DASH, _largest(one),
                html.DASH if one.cheapest is None else f"{one.cheapest:.4f}", _counts(one.machines),
                _counts(one.drift), f"{one.price:.4f}",
            )
            for one in found
        ],
    )  # fmt: skip


def _largest(one: BackendInfo) -> Any:
    if not one.largest_cpu_millicores:
        return html.DASH
    return f"{one.largest_cpu_millicores / 1000:g} CPUs, {one.largest_ram_mib / 1024:g} GiB"


def _counts(counts: Mapping[str, int]) -> Any:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or html.DASH


def _readings(found: Sequence[BackendInfo]) -> Panel:
    """Show how old the data of each account is, and which of its polls fail."""
    return Panel(
        title="Data freshness", empty="No account is polled.",
        columns=("Backend", "Account", "Data", "Age", "Problems"),
        rows=[
            (
                one.name, one.account, what, "never" if age is None else html.duration(age),
                html.short("; ".join((*(said for said in one.failing if said.startswith(what)), *one.errors)), 200),
            )
            for one in found
            for what, age in sorted(one.ages.items())
        ],
    )  # fmt: skip


def _capabilities(found: Sequence[BackendInfo]) -> Panel:
    kinds = {one.kind: {*one.can, *(one.capabilities or ())} for one in found}
    names = sorted(set().union(*kinds.values())) if kinds else []
    return Panel(
        title="Capabilities by kind", columns=("", *kinds), empty="No kinds in use.",
        rows=[(name, *("yes" if name in can else html.DASH for can in kinds.values())) for name in names],
    )  # fmt: skip


def _orphans(found: Sequence[OrphanInfo]) -> Panel:
    cost = sum(one.price or 0.0 for one in found)
    return Panel(
        title="Orphans", empty="No orphans, and no machine is missing.",
        note=f"${cost:.4f} per hour" if found else "",
        columns=("Name", "Type", "Backend", "Location", "$/hour", "Proof", "First seen", "Next action"),
        rows=[
            (
                one.key, one.what, one.blueprint, one.zone or one.location or html.DASH,
                html.DASH if one.price is None else f"{one.price:.4f}", html.badge(one.proof),
                html.time(one.first_seen_at), html.short(one.message, 300),
            )
            for one in found
        ],
        more=("Manage orphans", reverse("admin:leases_stray_changelist")),
    )  # fmt: skip


def _settle(act: str) -> Any:
    def does(who: Caller, row: Stray, given: FormData) -> str:
        return fleet.settle_orphan(who, row.pk, act).message

    return does


def _is_ours(row: Stray) -> bool:
    return row.proof != Stray.Proof.SUSPECT


DESTROY_ORPHAN = Action(
    name="destroy", label="Destroy", does=_settle("destroy"), applies=_is_ours, dangerous=True,
    equivalent=declared("settle_orphan", "drydock orphans destroy {id}", act="destroy"),
    sentence="The object is destroyed as soon as a later search confirms that it still exists.",
)  # fmt: skip

ADOPT_ORPHAN = Action(
    name="adopt", label="Adopt", does=_settle("adopt"),
    equivalent=declared("settle_orphan", "drydock orphans adopt {id}", act="adopt"),
    applies=lambda row: _is_ours(row) and orphan_actions.adoptable(row.what),
    sentence="The machine becomes a resource again. It is quarantined and serves no leases, and its cost is counted. "
    "Retire it after you have inspected it.",
)  # fmt: skip

_MAX_SUMMED = 1000


@admin.register(Stray)
class StrayAdmin(RecordAdmin):
    """The admin of orphans: their type and cost, when each was first and last seen, and what will be done with it."""

    acts = (DESTROY_ORPHAN, ADOPT_ORPHAN)
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
        """Show the list, with the cost of the latest thousand orphans in its title."""
        newest = Stray.objects.order_by("-pk")[:_MAX_SUMMED]
        found = newest.aggregate(cost=Sum("price"), unknown=Count("pk", filter=Q(price=None)))
        unknown = f", and {found['unknown']} of unknown price" if found["unknown"] else ""
        title = f"Orphans: ${found['cost'] or 0:.4f} per hour{unknown}"
        return super().changelist_view(request, {"title": title, **(extra_context or {})})

    what_ = columns.column("type", lambda row: row.what or row.blueprint.resource_type, "what")
    where = columns.column("location", lambda row: row.facts.get("zone") or row.facts.get("location") or html.DASH)
    things = columns.column("components", lambda row: ", ".join(row.facts.get("things") or ()) or html.DASH)
    price_ = columns.column("$/hour", lambda row: html.DASH if row.price is None else f"${row.price:.4f}", "price")
    proof_ = columns.column("proof", lambda row: html.badge(row.proof), "proof")
    made = columns.time("created", "made_at")
    blueprint_ = columns.column("blueprint", lambda row: row.blueprint.name, "blueprint__name")
    first_seen = columns.time("first seen", "first_seen_at")
    seen = columns.time("last seen", "seen_at")
    says = columns.text("next action", "message")


@admin.register(Search)
class SearchAdmin(RecordAdmin):
    """The admin of searches for orphans: when each search ran, and what it could not list."""

    list_display = ("blueprint_", "found", "seen", "due", "says")
    search_fields = ("blueprint__name", "message")
    related = ("blueprint",)
    ordering = ("blueprint__name",)
    fields = ("blueprint_", "found", "seen", "due", "message")

    blueprint_ = columns.column("blueprint", lambda row: row.blueprint.name, "blueprint__name")
    seen = columns.time("last success", "seen_at")
    due = columns.time("next search", "due_at")
    says = columns.text("error", "message")
