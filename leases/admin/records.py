"""Read-only records of the engine: events, runs, shares, locks, failures, remembered errors and others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from blueprints.models import RememberedError
from leases import attestation
from leases.admin.toolkit import columns, html, panels, search
from leases.admin.toolkit.actions import Action, FormData, MessageForm
from leases.admin.toolkit.base import RecordAdmin
from leases.admin.toolkit.equivalent_commands import Equivalent, declared
from leases.admin.toolkit.filters import DiscoveryAttention, StillRemembered, WatchAttention
from leases.admin.toolkit.panels import Panel
from leases.models import (
    Capacity,
    Console,
    ConsoleAttachment,
    ConsoleInput,
    ConsoleOutput,
    Debt,
    Event,
    Failure,
    Finding,
    FormerConfig,
    Lease,
    LeaseEvidence,
    LeaseGroup,
    LoginAttempt,
    Part,
    ProviderWatch,
    ReportedHardware,
    ResourceCredential,
    ResourceIdentity,
    Run,
    Share,
    SlotLock,
    Sync,
)
from leases.operations import installation
from leases.operations.callers import Caller

RECENT = 20_000

"""The number of latest events in which words are searched."""


@admin.register(Event)
class EventAdmin(RecordAdmin):
    """The admin of events, which shows the object, the reason and the actor of each."""

    related = ("lease", "resource", "blueprint")
    list_display = ("when", "what", "kind", "lease_", "resource_", "blueprint_", "lasted", "reason", "says", "actor")
    list_filter = ("to_state", "at")
    search_fields = ("kind", "reason", "message", "actor", "=lease__id", "=resource__id")
    search_help_text = (
        f"Number of a lease or resource, or a kind, reason, message or actor among the last {RECENT:,} events"
    )
    ordering = ("-id",)
    fields = (
        "when", "what", "kind", "lease_", "resource_", "blueprint_", "reason", "message", "actor", "lasted", "more"
    )  # fmt: skip

    when = columns.time("time", "at")
    what = columns.column("event", panels.transition)
    lease_ = columns.link("lease", "lease")
    resource_ = columns.link("resource", "resource")
    blueprint_ = columns.link("blueprint", "blueprint")
    lasted = columns.duration("previous state lasted", "duration")
    says = columns.text("message", "message")
    more = columns.values("details", "details")

    def found(self, words: str) -> Q:
        """Return the condition for all events of a lease or resource by number, or for recent events by words.

        Words are searched only in the last `RECENT` events.
        """
        if (pk := search.number(words)) is not None:
            return Q(lease=pk) | Q(resource=pk)
        last = Event.objects.order_by("-id").values_list("id", flat=True).first() or 0
        said = [Q(**{f"{name}__icontains": words}) for name in ("kind", "reason", "message", "actor")]
        return Q(pk__gt=last - RECENT) & reduce(or_, said)


class AnswerForm(MessageForm):
    """A form for yes or no, with a text."""

    yes = forms.TypedChoiceField(
        label="Answer", choices=((True, "Yes, or done"), (False, "No")), coerce=lambda value: value == "True",
        widget=forms.RadioSelect, initial=True, help_text="The step receives the answer and the message.",
    )  # fmt: skip
    field_order = ("yes", "message")


def _resolve(who: Caller, row: Any, given: FormData) -> str:
    holder = {"lease_id": row.lease_id} if row.lease_id is not None else {"resource_id": row.resource_id}
    installation.resolve(who, **holder, yes=given["yes"], message=given["message"])
    return "The step continues."


@admin.register(Run)
class RunAdmin(RecordAdmin):
    """The admin of runs. Memos are private to the kind, and are not shown."""

    acts = (
        Action(
            name="resolve", label="Resolve", does=_resolve, form=AnswerForm,
            equivalent=Equivalent(
                what="", command="drydock resolve --{side} {side_id} --yes -m TEXT", method="POST",
                path="{side}s/{side_id}/resolve", body={"yes": True, "message": "TEXT"},
            ),
            applies=lambda run: run.waits_for == "operator",
            sentence="Answer the step: the task has been done, or yes or no to its question. The step then continues.",
        ),
    )  # fmt: skip
    related = ("lease", "resource")
    list_display = ("number", "resource_", "lease_", "step", "done", "says", "waits_", "tries", "due", "since")
    list_filter = ("phase", "waits_for", "in_call", "cancel_wanted")
    search_fields = ("phase", "step", "sentence", "hold_who", "resource__name", "lease__name")
    ordering = ("-id",)
    fields = (
        "phase", "resource_", "lease_", "step", "position", "done", "sentence", "waits_", "tries", "due", "in_call",
        "uninterruptible", "cancel_wanted", "since", "of_step",
    )  # fmt: skip

    number = columns.column("run", lambda run: f"{run.phase} (#{run.pk})", "id")
    resource_ = columns.link("resource", "resource")
    lease_ = columns.link("lease", "lease")
    done = columns.column("progress", lambda run: html.progress(run.percent), "percent")
    says = columns.text("message", "sentence")
    waits_ = columns.column("waits for", panels.waits_for)
    due = columns.time("next call", "due_at")
    since = columns.time("started", "started_at")
    of_step = columns.time("step started", "step_since")


@admin.register(Share)
class ShareAdmin(RecordAdmin):
    """The admin of shares: the amounts of a resource that each lease holds."""

    related = ("lease", "resource")
    list_display = ("lease", "resource_", "amounts", "since")
    search_fields = ("=lease__id", "lease__name", "resource__name")
    search_help_text = "Any search term for the lease or the resource"
    ordering = ("-lease_id",)
    fields = ("lease", "resource_", "amounts", "since")

    resource_ = columns.link("resource", "resource")
    amounts = columns.column("amounts", lambda row: html.amounts(columns.amounts(row)))
    since = columns.time("since", "created_at")

    def found(self, words: str) -> Q:
        """Return the condition for shares of leases or resources that match the words."""
        return Q(lease__in=search.lease_ids(words)) | Q(resource__in=search.resource_ids(words))


@admin.register(SlotLock)
class SlotLockAdmin(RecordAdmin):
    """The admin of slot locks, which are exclusive claims by name."""

    related = ("lease", "resource")
    list_display = ("key", "name", "value", "holder", "since")
    search_fields = ("key", "name", "value", "lease__name", "resource__name")
    ordering = ("key",)
    fields = ("key", "name", "value", "holder", "since")

    holder = columns.column("held by", lambda row: html.link_with_number(row.lease or row.resource))
    since = columns.time("since", "created_at")


@admin.register(LoginAttempt)
class LoginAttemptAdmin(RecordAdmin):
    """The admin of refused logins at BMCs, which are counted so that no BMC locks its account."""

    list_display = ("place", "slot", "refused", "tried")
    list_filter = ("refused",)
    search_fields = ("place",)
    ordering = ("place", "slot")
    fields = ("place", "slot", "refused", "tried")

    tried = columns.time("tried", "at")


@admin.register(FormerConfig)
class FormerConfigAdmin(RecordAdmin):
    """The admin of configs that blueprints had, kept while a resource has that generation."""

    related = ("blueprint",)
    list_display = ("blueprint_", "generation", "kind")
    list_filter = ("kind",)
    search_fields = ("blueprint__name", "kind")
    ordering = ("blueprint", "generation")
    fields = ("blueprint_", "generation", "kind", "config")

    blueprint_ = columns.link("blueprint", "blueprint")


@admin.register(Failure)
class FailureAdmin(RecordAdmin):
    """The admin of failed actions on resources, such as a destruction, a stop or a start."""

    related = ("lease", "resource")
    list_display = ("resource_", "act", "code", "attempts", "failing", "tried", "says")
    list_filter = ("act",)
    search_fields = ("resource__name", "code", "message")
    ordering = ("-id",)
    fields = ("resource_", "lease", "act", "code", "attempts", "failing", "tried", "message")

    resource_ = columns.link("resource", "resource")
    says = columns.text("provider message", "message")
    failing = columns.time("failing since", "since")
    tried = columns.time("last attempt", "at")


@admin.register(Debt)
class DebtAdmin(RecordAdmin):
    """The admin of deferred cleanups, which are done before a resource is leased again."""

    related = ("lease", "resource")
    list_display = ("lease", "resource_", "apart", "tries", "due", "says")
    search_fields = ("=lease__id", "lease__name", "resource__name", "message")
    ordering = ("-id",)
    fields = ("lease", "resource_", "apart", "phase", "tries", "due", "message", "since")

    resource_ = columns.link("resource", "resource")
    due = columns.time("next attempt", "due_at")
    says = columns.text("last error", "message")
    since = columns.time("since", "created_at")


@admin.register(LeaseGroup)
class LeaseGroupAdmin(RecordAdmin):
    """The admin of groups of leases, which are granted all together or not at all."""

    related = ("owner",)
    list_display = ("number", "owner", "same", "different", "near", "distance", "asked")
    search_fields = ("=id", "=leases__id")
    ordering = ("-id",)
    fields = ("owner", "same", "different", "near", "distance", "asked")

    number = columns.number()
    asked = columns.time("requested", "created_at")

    def panels(self, row: LeaseGroup, request: HttpRequest) -> list[Panel]:
        """List the members of the group."""
        found = Lease.objects.filter(group=row).select_related("owner", "resource")
        return [panels.leases("Members", found.defer("secrets", "resource__secrets").order_by("id"))]


@admin.register(Capacity)
class CapacityAdmin(RecordAdmin):
    """The admin of the further classes of capacity."""

    related = ("resource",)
    list_display = ("name", "resource_", "bar")
    search_fields = ("name", "resource__name")
    ordering = ("-id",)
    fields = ("name", "resource_", "bar")

    resource_ = columns.link("resource", "resource")
    bar = columns.column("used", lambda row: html.bar(row.name, row.used, row.total), "used")


@admin.register(Part)
class PartAdmin(RecordAdmin):
    """The admin of the named parts of resources."""

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
    """The admin of discoveries: when the resources of each blueprint were last discovered, or why that failed."""

    related = ("blueprint",)
    list_display = ("blueprint_", "place", "source", "found", "seen", "due", "says")
    list_filter = (DiscoveryAttention, "source")
    search_fields = ("blueprint__name", "place", "message")
    ordering = ("blueprint__name", "place")
    fields = ("blueprint_", "place", "source", "found", "seen", "applied", "due", "message", "conflicts_")

    conflicts_ = columns.column("conflicts", lambda row: " ".join(one["message"] for one in row.conflicts) or "-")

    blueprint_ = columns.column("blueprint", lambda row: row.blueprint.name, "blueprint__name")
    seen = columns.time("last success", "seen_at")
    applied = columns.time("last stored report", "applied_at")
    due = columns.time("next discovery", "due_at")
    says = columns.text("error", "message")


@admin.register(ProviderWatch)
class ProviderWatchAdmin(RecordAdmin):
    """The admin of watches: who watches what at which provider, what was heard last, or why that fails."""

    list_display = ("kind", "place", "credential", "worker", "since", "changed", "listed", "says")
    list_filter = (WatchAttention, "kind")
    search_fields = ("kind", "credential", "place", "worker", "message")
    ordering = ("kind", "credential", "place")
    fields = ("kind", "place", "credential", "worker", "since", "until", "changed", "listed", "failing", "message")

    since = columns.time("watched since", "started_at")
    until = columns.time("worker's token ends", "token_until")
    changed = columns.time("last change", "event_at")
    listed = columns.time("last listing", "listed_at")
    failing = columns.time("failing since", "failing_since")
    says = columns.text("error", "message")


@admin.register(ResourceIdentity)
class ResourceIdentityAdmin(RecordAdmin):
    """Identities of resources: serial numbers, UUIDs, hardware addresses."""

    related = ("resource",)
    list_display = ("namespace", "value", "resource_")
    list_filter = ("namespace",)
    search_fields = ("value", "resource__name")
    ordering = ("-id",)
    fields = ("namespace", "value", "resource_")

    resource_ = columns.link("resource", "resource")


@admin.register(ResourceCredential)
class ResourceCredentialAdmin(RecordAdmin):
    """Own credentials of resources: the names of their secrets, never the secrets."""

    related = ("resource",)
    list_display = ("resource_", "secrets_", "changed")
    search_fields = ("resource__name", "resource__identity")
    ordering = ("-resource_id",)
    fields = ("resource_", "secrets_", "changed")

    resource_ = columns.link("resource", "resource")
    secrets_ = columns.column("secrets", lambda row: ", ".join(row.resource.credential_fields))
    changed = columns.time("stored", "changed_at")


@admin.register(Finding)
class FindingAdmin(RecordAdmin):
    """Findings: what the last report of a place says about each resource."""

    related = ("resource", "sync__blueprint")
    list_display = ("resource_", "blueprint_", "place")
    search_fields = ("resource__name", "resource__identity", "sync__place")
    ordering = ("-resource_id",)
    fields = ("resource_", "blueprint_", "place", "what")

    resource_ = columns.link("resource", "resource")
    blueprint_ = columns.column("blueprint", lambda row: row.sync.blueprint.name, "sync__blueprint__name")
    place = columns.column("place", lambda row: row.sync.place, "sync__place")
    what = columns.values("draft", "draft")


@admin.register(ReportedHardware)
class ReportedHardwareAdmin(RecordAdmin):
    """The hardware in the last report of each place. The devices are on the page of the hardware of hosts."""

    related = ("sync__blueprint",)
    list_display = ("sync_", "blueprint_", "place", "counts_", "unready", "size", "changed")
    search_fields = ("sync__blueprint__name", "sync__place")
    ordering = ("sync_id",)
    fields = ("sync_", "blueprint_", "place", "counts_", "unready", "size", "digest", "changed")

    sync_ = columns.link("discovery", "sync")
    blueprint_ = columns.column("blueprint", lambda row: row.sync.blueprint.name, "sync__blueprint__name")
    place = columns.column("place", lambda row: row.sync.place, "sync__place")
    counts_ = columns.values("counts", "counts")
    changed = columns.time("changed", "changed_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return rows without the content of the reports."""
        return super().get_queryset(request).defer("content")


@admin.register(LeaseEvidence)
class LeaseEvidenceAdmin(RecordAdmin):
    """Attestation evidence: what the verification of each quote found. Users save it with `drydock attest`."""

    related = ("lease",)
    list_display = ("lease_", "collected", "kind", "result", "says", "provider", "actor")
    list_filter = ("passed", "kind", "collected_at")
    search_fields = ("=lease__id", "lease__name", "actor")
    search_help_text = "Any search term for the lease"
    ordering = ("-id",)
    fields = ("lease_", "collected", "kind", "result", "says", "nonce", "chosen", "provider", "root", "collateral",
              "actor", "found_")  # fmt: skip

    lease_ = columns.link("lease", "lease")
    collected = columns.time("collected", "collected_at")
    result = columns.column("result", lambda row: html.badge("ok" if row.passed else "failed"), "passed")
    says = columns.column("verdict", lambda row: attestation.sentence(row))
    found_ = columns.values("checks", "verdict")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return rows without the quotes."""
        return super().get_queryset(request).defer("quote")

    def found(self, words: str) -> Q:
        """Return the condition for evidence of leases that match the words."""
        return Q(lease__in=search.lease_ids(words))


class _OfLease(RecordAdmin):
    """The base class of admins of consoles of leases. What was typed or printed is not shown."""

    related: ClassVar[Sequence[str]] = ("lease",)
    search_fields = ("=lease__id", "lease__name")
    search_help_text = "Any search term for the lease"
    ordering = ("-pk",)
    lease_ = columns.link("lease", "lease")

    def found(self, words: str) -> Q:
        """Return the condition for rows of leases that match the words."""
        return Q(lease__in=search.lease_ids(words))


@admin.register(Console)
class ConsoleOfLeaseAdmin(_OfLease):
    """Serial consoles that somebody has attached to. The page of a lease shows the end of the record."""

    related = ("lease", "resource")
    list_display = ("lease_", "resource_", "opened", "size", "problem")
    fields = ("lease_", "resource_", "opened", "size", "problem")

    resource_ = columns.link("resource", "resource")
    opened = columns.time("open since", "opened_at")


@admin.register(ConsoleAttachment)
class ConsoleAttachmentAdmin(_OfLease):
    """Programs that read a console, and may type there."""

    list_display = ("lease_", "user", "ends")
    fields = ("lease_", "user", "ends")

    ends = columns.time("ends", "until")


@admin.register(ConsoleInput)
class ConsoleInputAdmin(_OfLease):
    """What was typed at consoles and not sent to the machine yet, without the bytes."""

    list_display = ("number", "lease_", "typed_at")
    fields = ("lease_", "typed_at")

    number = columns.column("number", lambda row: row.pk, "id")
    typed_at = columns.time("typed", "at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return rows without the bytes."""
        return super().get_queryset(request).defer("content")


@admin.register(ConsoleOutput)
class ConsoleOutputAdmin(_OfLease):
    """The records of consoles, without the bytes."""

    list_display = ("lease_", "start", "end")
    fields = ("lease_", "start", "end")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return rows without the bytes."""
        return super().get_queryset(request).defer("content")


def _clear(who: Caller, row: Any, given: FormData) -> str:
    installation.clear_errors(who, error_id=row.pk)
    return "Cleared."


@admin.register(RememberedError)
class RememberedErrorAdmin(RecordAdmin):
    """The admin of remembered errors, which exclude offers, zones, locations and blueprints."""

    acts = (
        Action(
            name="clear", label="Clear", does=_clear,
            equivalent=declared("clear_errors", "drydock blueprints forget {blueprint}", blueprint="{blueprint}"),
            sentence="Clear the error. The offer, zone or blueprint is tried again at once.",
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
    since = columns.time("since", "created_at")
    until_ = columns.column(
        "until", lambda row: html.time(row.until) if row.until else "cleared by an operator", "until"
    )
