"""Authorizations and quotas in the console. Operations change them, and wake the leases that waited for them."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.http import HttpRequest

from drydock.core.errors import InvalidRequest
from leases.admin.toolkit import columns
from leases.admin.toolkit.actions import Action, FormData, MessageForm
from leases.admin.toolkit.base import OperatedAdmin
from leases.admin.toolkit.equivalent_commands import declared
from leases.admin.toolkit.form_fields import DurationColumnField
from leases.models import Authorization, Quota
from leases.operations import permissions
from leases.operations.callers import Caller, caller

MOST = (1 << 31) - 1

_NAME = get_user_model().USERNAME_FIELD


def holder(row: Any) -> dict[str, Any]:
    """Return the user or group of a row as the arguments that operations accept."""
    return {"user": row.user, "group": "" if row.group is None else row.group.name}


class HolderForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form that names a user or a group."""

    def clean(self) -> dict[str, Any]:
        """Require exactly one of user and group."""
        given = super().clean() or {}
        if {"user", "group"} <= set(self.fields) and bool(given.get("user")) == bool(given.get("group")):
            self.add_error("user", "Choose either a user or a group.")
        return given


class QuotaForm(HolderForm):
    """The form of a quota, which returns limits as operations accept them."""

    default_ttl = DurationColumnField(
        label="Default lease duration",
        required=False,
        help_text='The duration of a lease whose request does not specify one, such as "8h".',
    )
    max_ttl = DurationColumnField(
        label="Maximum lease duration", required=False,
        help_text='The longest duration that an owner can request, such as "30d". Leave empty for no limit.',
    )  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in permissions.AMOUNTS:
            if name in self.fields:
                self.fields[name] = forms.IntegerField(
                    label=self.fields[name].label,
                    min_value=0,
                    max_value=MOST,
                    required=False,
                    help_text="Leave empty for no limit.",
                )

    def clean_max_extra(self) -> dict[str, int]:
        """Refuse what the operation would refuse."""
        given = self.cleaned_data["max_extra"] or {}
        try:
            permissions.extra_limits(given)
        except InvalidRequest as error:
            raise forms.ValidationError(str(error)) from None
        return given


def _authorize(who: Caller, row: Any, given: FormData) -> str:
    permissions.authorize(who, row.blueprint.name, **holder(row), message=given["message"])
    return "Approved."


def _decline(who: Caller, row: Any, given: FormData) -> str:
    permissions.decline(who, row.blueprint.name, **holder(row), message=given["message"])
    return "Declined."


class HolderAdmin(OperatedAdmin):
    """The base class for admins of rows that belong to a user or a group."""

    autocomplete_fields: ClassVar[tuple[str, ...]] = ("user", "group")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Make the `holder` field read-only once the row exists."""
        return self.readonly_fields if obj is None else ("user", "group", *self.readonly_fields)


@admin.register(Authorization)
class AuthorizationAdmin(HolderAdmin):
    """The admin of authorizations. An authorization that is added here is approved. Actions change it later."""

    acts = (
        Action(
            name="approve", label="Approve", does=_authorize, form=MessageForm,
            equivalent=declared("change_authorization", "drydock authorizations allow {id}", act="approve"),
            applies=lambda row: row.state != "authorized",
            sentence="The user or group may use the blueprint. Leases that wait for this authorization are retried.",
        ),
        Action(
            name="decline", label="Decline", does=_decline, form=MessageForm,
            equivalent=declared("change_authorization", "drydock authorizations decline {id}", act="decline"),
            applies=lambda row: row.state != "declined",
            sentence="The user or group may not use the blueprint. Existing leases are not affected.",
        ),
    )  # fmt: skip
    form = HolderForm
    related = ("blueprint", "user", "group", "decided_by")
    autocomplete_fields = ("blueprint", "user", "group")
    list_display = ("whose", "blueprint_", "status", "note_", "asked", "decided", "decided_by_")
    list_filter = ("state", "blueprint")
    search_fields = (f"user__{_NAME}", "group__name", "blueprint__name", "note")
    date_hierarchy = "created_at"
    ordering = ("-id",)
    fields = ("blueprint", "user", "group", "note")

    whose = columns.column("user or group", lambda row: str(row.user or row.group))
    blueprint_ = columns.link("blueprint", "blueprint")
    status = columns.state()
    note_ = columns.text("note", "note")
    asked = columns.time("requested", "created_at")
    decided = columns.time("decided", "decided_at")
    decided_by_ = columns.link("decided by", "decided_by")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return all fields of an existing authorization, or the fields to fill in for a new one."""
        return self.fields if obj is None else (*self.fields, "status", "asked", "decided", "decided_by_")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False, because actions change authorizations."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Authorize the user or group by the operation."""
        who = caller(request.user)
        obj.pk = permissions.authorize(who, obj.blueprint.name, **holder(obj), message=obj.note).id

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Decline the authorization before it is deleted.

        This records an event, and pending leases are decided again.
        """
        permissions.decline(caller(request.user), obj.blueprint.name, **holder(obj), message="Deleted.")
        super().delete_model(request, obj)


@admin.register(Quota)
class QuotaAdmin(HolderAdmin):
    """The admin of quotas: what users and groups may hold at the same time, and how long each lease may last."""

    form = QuotaForm
    related = ("user", "group")
    list_display = ("whose", *permissions.LIMITS)
    search_fields = (f"user__{_NAME}", "group__name")
    ordering = ("id",)
    fields = ("user", "group", *permissions.LIMITS)

    whose = columns.column("user or group", lambda row: str(row.user or row.group))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Set the limits by the operation, which tries the leases again that waited for them."""
        limits = {name: form.cleaned_data.get(name) for name in permissions.LIMITS}
        if extra := limits[permissions.EXTRA]:
            limits[permissions.EXTRA] = dict.fromkeys(form.initial.get(permissions.EXTRA) or {}) | extra
        permissions.set_quota(caller(request.user), **holder(obj), limits=limits)
        obj.pk = Quota.objects.get(user=obj.user, group=obj.group).pk

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Remove the quota by the operation, which tries the leases again that waited for it."""
        permissions.set_quota(caller(request.user), **holder(obj), limits=dict.fromkeys(permissions.LIMITS))
        super().delete_model(request, obj)
