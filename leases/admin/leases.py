"""Leases in the console: the list, the page of one lease, and the actions."""

from __future__ import annotations

from functools import partial
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from leases import attestation, hostcalls
from leases.admin import lease_panels
from leases.admin.toolkit import columns, html, search
from leases.admin.toolkit.actions import Action, ConfirmForm, FormData, MessageForm
from leases.admin.toolkit.base import RecordAdmin
from leases.admin.toolkit.equivalent_commands import declared
from leases.admin.toolkit.filters import LeaseAttention, ReasonFilter, TypeFilter
from leases.admin.toolkit.form_fields import DurationField
from leases.admin.toolkit.panels import Head, Panel
from leases.models import Lease, LeaseEvidence
from leases.operations import infos, leases, lifetimes
from leases.operations.callers import Caller, caller
from leases.validation.fields import LONGEST_NOTE

OPEN = ("pending", "acquired", "active")


class ExtendForm(ConfirmForm):
    """The form of the extend action."""

    ttl = DurationField(
        label="Duration", help_text='From now, such as "90m", "2h" or "1d12h". A lease is never shortened.'
    )


class HoldForm(ConfirmForm):
    """The form of the hold action."""

    ttl = DurationField(
        label="Duration",
        required=False,
        help_text='From now, such as "2h". Leave empty to hold until the hold is ended.',
    )
    message = forms.CharField(label="Reason", max_length=500, required=False, help_text="Recorded in the event.")


class NoteForm(ConfirmForm):
    """The form of the note action."""

    note = forms.CharField(
        max_length=LONGEST_NOTE, required=False, widget=forms.Textarea, help_text="Leave empty to remove the note."
    )


class AttestForm(ConfirmForm):
    """The form of the attest action."""

    kind = forms.ChoiceField(
        label="Evidence", choices=LeaseEvidence.Kind.choices, initial=LeaseEvidence.Kind.TDX, required=False,
        help_text="TPM 2.0: of a host that was enrolled with its TPM.",
    )  # fmt: skip
    mr_td = forms.CharField(
        label="Accepted MR_TD", max_length=2000, required=False,
        help_text="96 hexadecimal digits; separate several values by blanks. Leave empty to accept any.",
    )  # fmt: skip


class TransferForm(MessageForm):
    """The form of the transfer action: the new owner and a reason."""

    to = forms.CharField(label="New owner", max_length=150)
    field_order = ("to", "message")


def _note(who: Caller, row: Any, given: FormData) -> str:
    leases.set_note(who, row.pk, note=given["note"].replace("\r\n", "\n"))
    return "Note saved."


def _transfer(who: Caller, row: Any, given: FormData) -> str:
    leases.transfer(who, row.pk, to=given["to"], message=given["message"])
    return f"Transferred to {given['to']}."


def _release(who: Caller, row: Any, given: FormData) -> str:
    leases.release(who, row.pk, message=given["message"])
    return "The lease is being released."


def _extend(who: Caller, row: Any, given: FormData) -> str:
    until = lifetimes.extend(who, row.pk, ttl=given["ttl"])
    return "A longer duration was requested." if until is None else f"Extended until {until:%Y-%m-%d %H:%M:%S} UTC."


def _begin_hold(who: Caller, row: Any, given: FormData) -> str:
    end = leases.hold(who, row.pk, ttl=given["ttl"], reason=given["message"])
    return "Held until the hold is ended." if end is None else f"Held until {end:%Y-%m-%d %H:%M:%S} UTC."


def _end_hold(who: Caller, row: Any, given: FormData) -> str:
    leases.unhold(who, row.pk)
    return "The hold has ended."


def _attest(who: Caller, row: Any, given: FormData) -> str:
    with hostcalls.calling(who.id, partial(hostcalls.of_lease, row.pk)):
        return attestation.attest(
            who, row.pk, mr_td=given["mr_td"].split(), kind=given["kind"] or LeaseEvidence.Kind.TDX
        ).message


def _retry(who: Caller, row: Any, given: FormData) -> str:
    leases.retry(who, row.pk)
    return "Retrying."


ACTIONS = (
    Action(
        name="release", label="Release", does=_release, form=MessageForm, dangerous=True,
        equivalent=declared("release", "drydock release {id}"),
        applies=lambda lease: lease.state in OPEN,
        sentence="The lease ends now. Its processes and its access end, the resource is cleaned, and its share goes to "
        "the next pending lease. A pending lease is cancelled.",
    ),
    Action(
        name="extend", label="Extend", does=_extend, form=ExtendForm,
        equivalent=declared("extend", "drydock extend {id} 2h", ttl="2h"),
        applies=lambda lease: lease.state == "active" and lease.until is not None,
        sentence="The lease is extended. It cannot outlive its resource.",
    ),
    Action(
        name="hold", label="Hold", does=_begin_hold, form=HoldForm,
        equivalent=declared("hold", "drydock hold {id}"),
        applies=lambda lease: lease.state in (*OPEN, "released"),
        sentence="When the lease ends, its resource is kept unchanged for debugging until the hold ends. No other "
        "lease gets its share meanwhile.",
    ),
    Action(
        name="unhold", label="End the hold", does=_end_hold, applies=lambda lease: lease.held,
        equivalent=declared("unhold", "drydock unhold {id}"),
        sentence="The hold ends. If the lease has already ended, its resource is cleaned now.",
    ),
    Action(
        name="retry", label="Retry now", does=_retry, applies=lambda lease: lease.state in (*OPEN[:2], "released"),
        equivalent=declared("retry", "drydock retry {id}"),
        sentence="Placement, or the step that is waiting to be retried, is retried at once.",
    ),
    Action(
        name="attest", label="Attest", does=_attest, form=AttestForm,
        equivalent=declared("attest", "drydock attest {id}"),
        applies=lambda lease: lease.state == "active" and lease.type == "host",
        sentence="The machine makes a TDX quote, which is verified and kept with the lease. The owner of the lease can "
        "see it.",
    ),
    Action(
        name="transfer", label="Transfer", does=_transfer, form=TransferForm, dangerous=True,
        equivalent=declared("transfer", "drydock transfer {id} USER", to="USER"),
        applies=lambda lease: lease.state == "active",
        sentence="The lease and its files are transferred to another user, and count against that user's quota and "
        "budgets. All its processes end and its keys are replaced, so the current owner loses access.",
    ),
    Action(
        name="note", label="Note", does=_note, form=NoteForm,
        equivalent=declared("set_note", "drydock note {id} TEXT", note="TEXT"),
        sentence="This note replaces the current one. The owner of the lease can see it.",
    ),
)  # fmt: skip

OWNER = f"owner__{get_user_model().USERNAME_FIELD}"


def _status(row: Lease) -> Any:
    return html.badges(row.state, *lease_panels.flags(row))


def _owner(row: Lease) -> str:
    return "Drydock" if row.owner is None else row.owner.get_username()


def _flags(row: Lease) -> str:
    named = {"exclusive": row.exclusive, "replaced if lost": row.serve_again, "parked": row.parked}
    wished = f"release requested ({row.release_wanted})" if row.release_wanted else ""
    return ", ".join([word for word, on in named.items() if on] + ([wished] if wished else [])) or "-"


def _hold(row: Lease) -> Any:
    return "until the hold is ended" if row.held and not row.hold_until else html.time(row.hold_until)


def _interfaces(row: Lease) -> str:
    return "-" if row.resource is None else ", ".join(infos.interface_names(row.resource.blueprint.kind)) or "-"


def _traits(row: Lease) -> Any:
    found = {"required": row.traits, "forbidden": row.forbidden_traits, "preferred": row.preferred_traits}
    return html.values({name: traits for name, traits in found.items() if traits})


def _narrowed(row: Lease) -> Any:
    names = ("allowed_blueprints", "excluded_blueprints", "only_resources", "avoided_resources")
    return html.values({name: getattr(row, name) for name in names if getattr(row, name)})


@admin.register(Lease)
class LeaseAdmin(RecordAdmin):
    """The admin of leases."""

    acts = ACTIONS
    related = (
        "share",
        "owner", "charged_group", "group", "resource", "resource__blueprint", "for_resource", "for_lease", "replaced_by"
    )  # fmt: skip
    list_display = ("number", "status", "type", "owned_by", "on", "says", "asked", "in_state", "ends")
    list_filter = ("state", LeaseAttention, TypeFilter, ReasonFilter, "created_at", "resource__blueprint", "exclusive")
    search_fields = ("=id", "name", OWNER, "labels", "resource__name")
    search_help_text = (
        "A number, the beginning of a name, owner or resource, a label (blue, team=blue), or words of a note"
    )
    ordering = ("-id",)
    fieldsets = (
        (None, {"fields": ("status", "says", "owned_by", "charged_group", "labelled", "note", "flags")}),
        ("Placement", {"fields": ("on", "blueprint", "takes", "distance", "interfaces", "connect")}),
        (
            "Times",
            {"fields": ("asked", "acquired", "active", "in_state", "lasts", "ends", "beat", "holding", "ended")},
        ),
        (
            "Request",
            {
                "fields": ("wanted", "traits_", "narrowed", "priority", "own_keys", "group", "held_by", "lost_for"),
                "classes": ("collapse",),
            },
        ),
    )

    number = columns.number()
    status = columns.column("state", _status, "state")
    says = columns.column("reason", lambda row: columns.status_message(infos.said(row)), "reason")
    owned_by = columns.column("owner", _owner, OWNER)
    labelled = columns.column("labels", lambda row: html.pairs(row.labels))
    flags = columns.column("flags", _flags)
    on = columns.link("resource", "resource")
    blueprint = columns.link("blueprint", "resource.blueprint")
    takes = columns.column("amounts", lambda row: html.amounts(columns.amounts(row)))
    distance = columns.column("distance", lambda row: infos.distance(row) or html.DASH)
    interfaces = columns.column("interfaces", _interfaces)
    connect = columns.values("connect", "facts")
    asked = columns.time("requested", "created_at")
    acquired = columns.time("acquired", "acquired_at")
    active = columns.time("active", "active_at")
    in_state = columns.time("state since", "since")
    lasts = columns.duration("duration", "ttl")
    ends = columns.time("until", "until")
    beat = columns.time("last heartbeat", "heartbeat_at")
    holding = columns.column("held until", _hold)
    ended = columns.time("ended", "ended_at")
    wanted = columns.values("requirements", "requirements")
    traits_ = columns.column("traits", _traits)
    narrowed = columns.column("blueprints and resources", _narrowed)
    own_keys = columns.values("public keys", "public_keys")
    held_by = columns.column("held by", lambda row: html.link(row.for_lease or row.for_resource))
    lost_for = columns.link("replaced by", "replaced_by")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Lease]:
        """Annotate each lease with whether no live worker could serve it."""
        return infos.with_workers(super().get_queryset(request))

    def found(self, words: str) -> Q:
        """Return the condition for leases that match the words by number, name, owner, label or resource."""
        return Q(pk__in=search.lease_ids(words))

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Return the lease, with the reason why it waits."""
        row = super().get_object(request, *args, **kwargs)
        if row is not None:
            infos.with_waits([row], caller(request.user))
        return row

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Return the list, with the reasons why its leases wait."""
        found = super().get_changelist_instance(request)
        infos.with_waits(found.result_list, caller(request.user))
        return found

    def head(self, row: Lease) -> Head:
        """Return the state of the lease, with what happens next."""
        return lease_panels.head(row)

    def panels(self, row: Lease, request: HttpRequest) -> list[Panel]:
        """Return the panels of the lease."""
        return lease_panels.of(row, request)
