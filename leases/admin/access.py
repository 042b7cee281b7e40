"""Authorizations and quotas in the admin: decided and set by operations, which wake who waits."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.http import HttpRequest

from leases.admin import columns
from leases.admin.acts import Act, Given, Said
from leases.admin.base import OperatedAdmin
from leases.admin.fields import SpanOfColumn
from leases.models import Authorization, Quota
from leases.operations import access
from leases.operations.callers import Caller, caller

MOST = (1 << 31) - 1
_NAME = get_user_model().USERNAME_FIELD


def holder(row: Any) -> dict[str, Any]:
    """Whose it is, as operations want it."""
    return {"user": row.user, "group": "" if row.group is None else row.group.name}


class HolderForm(forms.ModelForm):  # type: ignore[type-arg]
    """Names a user or a group."""

    def clean(self) -> dict[str, Any]:
        """One of them, not both."""
        given = super().clean() or {}
        if {"user", "group"} <= set(self.fields) and bool(given.get("user")) == bool(given.get("group")):
            self.add_error("user", "Name either a user or a group.")
        return given


class QuotaForm(HolderForm):
    """Limits as operations accept them."""

    default_ttl = SpanOfColumn(
        label="Default lease", required=False, help_text='A lease that names no end lasts this long. Such as "8h".'
    )
    max_ttl = SpanOfColumn(
        label="Longest lease", required=False,
        help_text='No lease lasts longer, unless an operator lets it. Such as "30d"; empty: no limit.',
    )  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in access.AMOUNTS:
            if name in self.fields:
                self.fields[name] = forms.IntegerField(
                    min_value=0, max_value=MOST, required=False, help_text="Empty: no limit."
                )


def _authorize(who: Caller, row: Any, given: Given) -> str:
    access.authorize(who, row.blueprint.name, **holder(row), message=given["message"])
    return "Approved."


def _decline(who: Caller, row: Any, given: Given) -> str:
    access.decline(who, row.blueprint.name, **holder(row), message=given["message"])
    return "Declined."


class HeldAdmin(OperatedAdmin):
    """What belongs to a user or a group."""

    autocomplete_fields: ClassVar[tuple[str, ...]] = ("user", "group")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Whose it is stays so."""
        return self.readonly_fields if obj is None else ("user", "group", *self.readonly_fields)


@admin.register(Authorization)
class AuthorizationAdmin(HeldAdmin):
    """Who may use which blueprint. One that is added is approved; later the actions decide."""

    acts = (
        Act(
            name="approve", label="Approve", does=_authorize, form=Said, applies=lambda row: row.state != "authorized",
            sentence="They may use the blueprint, and those of their leases that wait for this are decided again.",
        ),
        Act(
            name="decline", label="Decline", does=_decline, form=Said, applies=lambda row: row.state != "declined",
            sentence="They may not use the blueprint (any more). Leases that are held stay.",
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

    whose = columns.column("whose", lambda row: str(row.user or row.group))
    blueprint_ = columns.link("blueprint", "blueprint")
    status = columns.state()
    note_ = columns.text("note", "note")
    asked = columns.moment("asked", "created_at")
    decided = columns.moment("decided", "decided_at")
    decided_by_ = columns.link("by", "decided_by")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """All of it once it is there."""
        return self.fields if obj is None else (*self.fields, "status", "asked", "decided", "decided_by_")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Decided by actions, not typed over."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Approved by operations."""
        who = caller(request.user)
        obj.pk = access.authorize(who, obj.blueprint.name, **holder(obj), message=obj.note).id

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Taken back first, so that it is recorded and those who wait are decided again."""
        access.decline(caller(request.user), obj.blueprint.name, **holder(obj), message="Deleted.")
        super().delete_model(request, obj)


@admin.register(Quota)
class QuotaAdmin(HeldAdmin):
    """What users and groups may hold at the same time, and how long each lease."""

    form = QuotaForm
    related = ("user", "group")
    list_display = ("whose", *access.LIMITS)
    search_fields = (f"user__{_NAME}", "group__name")
    ordering = ("id",)
    fields = ("user", "group", *access.LIMITS)

    whose = columns.column("whose", lambda row: str(row.user or row.group))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Set by operations; leases that it held back are tried again."""
        limits = {name: form.cleaned_data.get(name) for name in access.LIMITS}
        access.set_quota(caller(request.user), **holder(obj), limits=limits)
        obj.pk = Quota.objects.get(user=obj.user, group=obj.group).pk

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Lifted first, so that those who wait for it are served."""
        access.set_quota(caller(request.user), **holder(obj), limits=dict.fromkeys(access.LIMITS))
        super().delete_model(request, obj)
