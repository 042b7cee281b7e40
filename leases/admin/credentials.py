"""Credentials in the console. Their secrets are stored but never shown."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from blueprints.models import Credential
from leases.admin import offers
from leases.admin.toolkit import columns, html
from leases.admin.toolkit.base import OperatedAdmin
from leases.admin.toolkit.form_fields import SecretsField
from leases.admin.toolkit.panels import Panel
from leases.engine.core.transitions import record_event
from leases.operations.callers import caller
from leases.operations.credentials import users_of


class CredentialForm(forms.ModelForm):  # type: ignore[type-arg]
    """The form of a credential: a name, a note and secrets to store."""

    secrets = SecretsField(
        help_text='A JSON object such as {"private_key": "..."}. It is encrypted and never shown again.'
    )

    class Meta:
        model = Credential
        fields = ("name", "secrets", "note")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk and "secrets" in self.fields:
            self.fields["secrets"].required = False
            self.fields["secrets"].help_text += " Leave empty to keep the stored secrets."
            self.initial.pop("secrets", None)

    def clean_secrets(self) -> Any:
        """Return the secrets that were typed or, if none were typed, the stored secrets, which are still encrypted."""
        typed = self.cleaned_data["secrets"]
        return self.instance.__dict__.get("secrets") if typed is None and self.instance.pk else typed


@admin.register(Credential)
class CredentialAdmin(OperatedAdmin):
    """Credentials, without their secrets."""

    acts = (offers.READ,)
    form = CredentialForm
    list_display = ("name", "note_", "made")
    search_fields = ("name", "note")
    ordering = ("name",)
    fields = ("name", "secrets", "note", "made")
    readonly_fields = ("made",)

    note_ = columns.text("note", "note")
    made = columns.time("created", "created_at")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Hide the field for secrets from users who may not change the credential."""
        changes = obj is None or self.has_change_permission(request, obj)
        return self.fields if changes else ("name", "note", "made")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Make the name of an existing credential read-only, because configs refer to it."""
        return self.readonly_fields if obj is None else ("name", *self.readonly_fields)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Store only the fields that were changed, and record an event."""
        changed = [name for name in form.changed_data if name != "name"] if change else None
        if changed == []:
            return
        obj.save(update_fields=changed)
        what = f"Credential {obj.name}: {', '.join(changed or ['added'])}."
        record_event("credential.changed", what, actor=caller(request.user).name)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Return the objects to delete. Credentials that a blueprint names are protected from deletion."""
        found, count, needed, protected = super().get_deleted_objects(objs, request)
        users = [f"blueprint {row.name}, whose config names {one.name}" for one in objs for row in users_of(one.name)]
        return found, count, needed, [*protected, *users]

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete the credential and record an event."""
        record_event("credential.deleted", f"Credential {obj.name}.", actor=caller(request.user).name)
        super().delete_model(request, obj)

    def panels(self, row: Credential, request: HttpRequest) -> list[Panel]:
        """Return panels with the blueprints that use the credential and with the polls of its account."""
        rows = [(html.link(found), found.kind) for found in users_of(row.name)]
        users = Panel(
            title="Blueprints that use it",
            columns=("Blueprint", "Kind"),
            rows=rows,
            empty="No blueprint uses this credential.",
        )
        return [users, offers.readings_of(row)]
