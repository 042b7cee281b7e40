"""The fleet on one page: what each backend can serve and has, what it costs now, what its kind can do, and orphans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from leases.admin import cells, elsewhere
from leases.admin.panels import Panel
from leases.client.values import BackendInfo, OrphanInfo
from leases.operations import callers, fleet, orphans

_MAY = ("blueprints.view_blueprint", "leases.view_resource", "leases.view_stray")


def page(site: Any, request: HttpRequest) -> HttpResponse:
    """The page. Raises PermissionDenied for who may not see what it sums up."""
    if not request.user.has_perms(_MAY):
        raise PermissionDenied
    who = callers.caller(request.user)
    found, strays = fleet.backends(who, able=True), orphans.list_(who)
    context = {
        **site.each_context(request), "title": "Fleet",
        "panels": [_backends(found), _readings(found), _capabilities(found), _orphans(strays)],
        "elsewhere": [elsewhere.same(request, key, {}) for key in ("fleet", "orphans")],
    }  # fmt: skip
    return TemplateResponse(request, "admin/drydock/fleet.html", context)


def _backends(found: Sequence[BackendInfo]) -> Panel:
    cost = sum(one.price + one.orphans_price for one in found)
    unpriced = sum(one.unpriced for one in found)
    return Panel(
        title="Backends", empty="No blueprints.",
        note=f"${cost:.4f} an hour now" + (f", and {unpriced} machines without a price." if unpriced else "."),
        columns=(
            "Order", "Backend", "Kind", "Account", "Regions", "Confidential", "Largest", "From", "Machines", "Drift",
            "$/hour",
        ),
        rows=[
            (
                one.order, one.name if one.enabled else f"{one.name} (disabled)", one.kind, one.account or cells.DASH,
                cells.short(", ".join(one.regions)), ", ".join(one.confidential) or cells.DASH, _largest(one),
                cells.DASH if one.cheapest is None else f"{one.cheapest:.4f}", _counts(one.machines),
                _counts(one.drift), f"{one.price:.4f}",
            )
            for one in found
        ],
    )  # fmt: skip


def _largest(one: BackendInfo) -> Any:
    if not one.largest_cpu_millicores:
        return cells.DASH
    return f"{one.largest_cpu_millicores / 1000:g} CPUs, {one.largest_ram_mib / 1024:g} GiB"


def _counts(counts: Mapping[str, int]) -> Any:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or cells.DASH


def _readings(found: Sequence[BackendInfo]) -> Panel:
    """How old what is known of each account is, and what fails."""
    return Panel(
        title="Data freshness", empty="Nothing is read.", columns=("Backend", "Account", "What", "Oldest", "Problems"),
        rows=[
            (
                one.name, one.account, what, "not yet" if age is None else cells.span(age),
                cells.short("; ".join((*(said for said in one.failing if said.startswith(what)), *one.errors)), 200),
            )
            for one in found
            for what, age in sorted(one.ages.items())
        ],
    )  # fmt: skip


def _capabilities(found: Sequence[BackendInfo]) -> Panel:
    kinds = {one.kind: {*one.can, *(one.capabilities or ())} for one in found}
    names = sorted(set().union(*kinds.values())) if kinds else []
    return Panel(
        title="What kinds can do", columns=("", *kinds), empty="No kinds are in use.",
        rows=[(name, *("yes" if name in can else cells.DASH for can in kinds.values())) for name in names],
    )  # fmt: skip


def _orphans(found: Sequence[OrphanInfo]) -> Panel:
    cost = sum(one.price or 0.0 for one in found)
    return Panel(
        title="Orphans", empty="There is nothing without a row, and no row without its machine.",
        note=f"${cost:.4f} an hour" if found else "",
        columns=("Name", "What", "Backend", "Where", "$/hour", "Proof", "First seen", "What becomes of it"),
        rows=[
            (
                one.key, one.what, one.blueprint, one.zone or one.location or cells.DASH,
                cells.DASH if one.price is None else f"{one.price:.4f}", cells.badge(one.proof),
                cells.moment(one.first_seen_at), cells.short(one.message, 300),
            )
            for one in found
        ],
        more=("Decide about them", reverse("admin:leases_stray_changelist")),
    )  # fmt: skip
