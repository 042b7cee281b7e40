"""Tokens in the admin: users create, see and revoke them. The secret of a token is shown once."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from leases.admin.toolkit import columns
from leases.admin.toolkit.actions import Action, FormData
from leases.admin.toolkit.base import OperatedAdmin
from leases.admin.toolkit.equivalent_commands import Equivalent
from leases.admin.toolkit.form_fields import DurationField
from leases.operations.callers import Caller, caller
from leases.rest import tokens
from leases.rest.models import Scope, Token


class TokenForm(forms.ModelForm):  # type: ignore[type-arg]
    """The form of a new token: user, name, scope and lifetime."""

    ttl = DurationField(label="Valid for", initial="90d", max_length=20, help_text='Such as "12h" or "90d".')

    class Meta:
        model = Token
        fields = ("user", "name", "scope")


def _unbound(user: Any) -> bool:
    """Return whether no console permission restricts the user. Tokens with scope `operate` ignore such permissions."""
    return bool(user.is_superuser)


def _revoke(who: Caller, row: Any, given: FormData) -> str:
    tokens.revoke(who, row.pk)
    return "Revoked."


@admin.register(Token)
class TokenAdmin(OperatedAdmin):
    """Tokens. Only the response that creates a token contains its secret."""

    form = TokenForm
    list_display = ("name", "user", "scope", "tail", "made", "until", "revoked", "used")
    search_fields = ("name", "user__username", "tail")
    list_filter = ("scope",)
    related = ("user",)
    acts = (
        Action(
            name="revoke", label="Revoke", sentence="The token stops working now. This cannot be undone.", does=_revoke,
            equivalent=Equivalent(what="", command="drydock tokens revoke {id}"),
            applies=lambda row: row.revoked_at is None, dangerous=True,
        ),
    )  # fmt: skip
    made = columns.time("made", "created_at")
    until = columns.time("until", "expires_at")
    revoked = columns.time("revoked", "revoked_at")
    used = columns.time("last used", "last_used_at")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields that can be filled in for a new token, or all fields of an existing token."""
        return ("user", "name", "scope", "ttl") if obj is None else self.list_display

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Make existing tokens read-only."""
        return () if obj is None else self.list_display

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False. Tokens are revoked instead, so that their use stays on record."""
        return False

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Let superusers create tokens for anyone, others only for themselves and within their permissions."""
        form = super().get_form(request, obj, change, **kwargs)
        if obj is None and not _unbound(request.user):
            user, scope = cast(Any, form.base_fields["user"]), cast(Any, form.base_fields["scope"])
            user.queryset = user.queryset.filter(pk=request.user.pk)
            user.initial = request.user.pk
            scope.choices = [one for one in scope.choices if one[0] != Scope.OPERATE]
        return form

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Create the token by its operation, which stores only a digest of the secret."""
        if change:
            return
        given = form.cleaned_data
        made, obj.secret = tokens.create(
            caller(request.user), name=given["name"], scope=given["scope"], ttl=given["ttl"], owner=given["user"]
        )
        obj.pk, obj.tail = made.id, made.tail

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        """Show the secret once, in this response. No message, cookie or session contains the secret."""
        context = {
            **self.admin_site.each_context(request), "title": "A new token", "opts": self.opts, "row": obj,
            "secret": obj.secret, "back": self._list(),
        }  # fmt: skip
        return TemplateResponse(request, "admin/drydock/token.html", context, headers={"Cache-Control": "no-store"})
