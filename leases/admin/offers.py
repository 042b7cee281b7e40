"""Offers, provider quotas and the polls of accounts in the console."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse

from blueprints.models import Allowance, Credential, Listing, Reading
from leases.admin.toolkit import columns, html
from leases.admin.toolkit.actions import Action, FormData
from leases.admin.toolkit.base import RecordAdmin
from leases.admin.toolkit.equivalent_commands import declared
from leases.admin.toolkit.filters import OfferingKind, OfferSort, ReadingAttention
from leases.admin.toolkit.panels import Panel
from leases.operations import credentials
from leases.operations.callers import Caller

_TITLES = {Listing: "Offers", Reading: "Account polls", Allowance: "Provider quotas"}


def _read(who: Caller, row: Any, given: FormData) -> str:
    account = row if isinstance(row, Credential) else row.credential
    return f"{len(credentials.read(who, account.name).readings)} polls were started."


READ = Action(
    name="read", label="Poll now", does=_read,
    equivalent=declared("read_credential", "drydock credentials read {name}"),
    sentence="A worker polls the account now: its locations, its offers and quotas, and the status of Drydock's "
    "resources there.",
)  # fmt: skip


class CatalogueAdmin(RecordAdmin):
    """The base class for admins of rows that polls write. The title of the list differs from the name of the model."""

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list with its own title."""
        return super().changelist_view(request, {"title": _TITLES[self.model], **(extra_context or {})})


def _price(row: Listing) -> Any:
    return html.DASH if row.price is None else f"${row.price:.4f}"


def _gpus(row: Listing) -> Any:
    return " ".join([str(row.gpu_count), row.gpu_maker, row.gpu_model]) if row.gpu_count else html.DASH


def _boot(row: Listing) -> Any:
    return html.DASH if row.boot_seconds is None else f"{row.boot_seconds:.0f} s"


@admin.register(Listing)
class ListingAdmin(CatalogueAdmin):
    """The admin of offers, starting with the cheapest."""

    list_display = (
        "type", "kind", "account", "where", "market", "price_", "price_source", "vcpus", "memory", "gpus",
        "confidential_", "boot", "available",
    )  # fmt: skip
    list_filter = (OfferSort, OfferingKind, "available", "credential")
    search_fields = ("type", "location", "zone", "gpu_model", "family")
    related = ("credential",)
    ordering = ("price", "id")
    fields = (
        "type", "kind", "account", "location", "zone", "country", "market", "price_", "price_source", "vcpus",
        "memory", "arch", "gpus", "gpu_memory", "local_disk_gib", "network", "confidential_", "family", "boot",
        "available", "changed",
    )  # fmt: skip

    account = columns.link("account", "credential")
    where = columns.column("location", lambda row: row.zone or row.location, "location")
    price_ = columns.column("$/hour", _price, "price")
    memory = columns.column("memory", lambda row: html.amount("ram_mib", row.ram_mib), "ram_mib")
    gpus = columns.column("GPUs", _gpus, "gpu_count")
    gpu_memory = columns.column("memory of each GPU", lambda row: html.amount("ram_mib", row.gpu_memory_mib))
    confidential_ = columns.column("confidential", lambda row: " ".join(row.confidential) or html.DASH)
    boot = columns.column("boot time", _boot, "boot_seconds")
    changed = columns.time("last changed", "changed_at")


@admin.register(Reading)
class ReadingAdmin(CatalogueAdmin):
    """The admin of polls: what is read from each place, when, and with which result."""

    acts = (READ,)
    list_display = ("what", "account", "kind", "place", "seen", "found", "due", "says")
    list_filter = (ReadingAttention, "what", OfferingKind, "credential")
    search_fields = ("place", "message", "credential__name")
    related = ("credential",)
    ordering = ("credential__name", "kind", "place", "what")
    fields = ("what", "account", "kind", "place", "country", "seen", "found", "due", "message")

    account = columns.link("account", "credential")
    seen = columns.time("last success", "seen_at")
    due = columns.time("next poll", "due_at")
    says = columns.text("error", "message")


@admin.register(Allowance)
class AllowanceAdmin(CatalogueAdmin):
    """The admin of provider quotas: the limits of accounts, and what is used of them inside and outside Drydock."""

    list_display = ("name", "account", "kind", "where", "family", "market", "used_", "read")
    list_filter = (OfferingKind, "credential")
    search_fields = ("name", "location", "family")
    related = ("credential",)
    ordering = ("credential__name", "kind", "location", "name")
    fields = ("name", "account", "kind", "location", "family", "market", "used_", "read")

    account = columns.link("account", "credential")
    where = columns.column("location", lambda row: row.location or html.DASH, "location")
    used_ = columns.column("used", lambda row: f"{row.used:g} of {row.limit:g} {row.unit}", "used")
    read = columns.time("last poll", "read_at")


def readings_of(account: Credential) -> Panel:
    """List the polls of one account."""
    found = Reading.objects.filter(credential=account).order_by("kind", "place", "what")[:200]
    return Panel(
        title="Account polls", empty="This account is not polled.",
        columns=("Data", "Kind", "Location", "Last success", "Found", "Next poll", "Error"),
        rows=[
            (
                html.link(row, row.what), row.kind, row.place or html.DASH, html.time(row.seen_at), row.found,
                html.time(row.due_at), html.short(row.message),
            )
            for row in found
        ],
    )  # fmt: skip
