"""Tokens in the admin: made here, shown once, revoked."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from leases.admin import columns
from leases.admin.acts import Act, Given, Span
from leases.admin.base import OperatedAdmin
from leases.operations.callers import Caller, caller
from leases.rest import tokens
from leases.rest.models import Scope, Token


class TokenForm(forms.ModelForm):  # type: ignore[type-arg]
    """Whose, what for, and for how long."""

    ttl = Span(label="Valid for", initial="90d", max_length=20, help_text='Such as "12h" or "90d".')

    class Meta:
        model = Token
        fields = ("user", "name", "scope")


def _unbound(user: Any) -> bool:
    """Whether no permission of the console binds the user; the scope `operate` knows none of them."""
    return bool(user.is_superuser)


def _revoke(who: Caller, row: Any, given: Given) -> str:
    tokens.revoke(who, row.pk)
    return "Revoked."


@admin.register(Token)
class TokenAdmin(OperatedAdmin):
    """All tokens. The secret is nowhere kept, so only the answer to making one has it."""

    form = TokenForm
    list_display = ("name", "user", "scope", "tail", "made", "until", "revoked", "used")
    search_fields = ("name", "user__username", "tail")
    list_filter = ("scope",)
    related = ("user",)
    acts = (
        Act(
            name="revoke", label="Revoke", sentence="It is refused from now on, and stays so.", does=_revoke,
            applies=lambda row: row.revoked_at is None, dangerous=True,
        ),
    )  # fmt: skip
    made = columns.moment("made", "created_at")
    until = columns.moment("until", "expires_at")
    revoked = columns.moment("revoked", "revoked_at")
    used = columns.moment("last used", "last_used_at")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """What is asked for a new one; of another everything is only shown."""
        return ("user", "name", "scope", "ttl") if obj is None else self.list_display

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """A token is never changed."""
        return () if obj is None else self.list_display

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """It is revoked instead, so that what it did stays known."""
        return False

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Superusers make tokens for anybody; others for themselves, none that does more than the pages let them."""
        form = super().get_form(request, obj, change, **kwargs)
        if obj is None and not _unbound(request.user):
            user, scope = cast(Any, form.base_fields["user"]), cast(Any, form.base_fields["scope"])
            user.queryset = user.queryset.filter(pk=request.user.pk)
            user.initial = request.user.pk
            scope.choices = [one for one in scope.choices if one[0] != Scope.OPERATE]
        return form

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Made by operations, which keep only its digest."""
        if change:
            return
        given = form.cleaned_data
        made, obj.secret = tokens.create(
            caller(request.user), name=given["name"], scope=given["scope"], ttl=given["ttl"], owner=given["user"]
        )
        obj.pk, obj.tail = made.id, made.tail

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        """The secret, in this one answer: no message, cookie or session holds it."""
        context = {
            **self.admin_site.each_context(request), "title": "A new token", "opts": self.opts, "row": obj,
            "secret": obj.secret, "back": self._list(),
        }  # fmt: skip
        return TemplateResponse(request, "admin/drydock/token.html", context, headers={"Cache-Control": "no-store"})
