"""The form of a blueprint. Its "check" button shows what the blueprint would build, without storing the blueprint."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString
from pydantic import ValidationError

from blueprints import registry
from blueprints.models import Blueprint
from blueprints.specs import Draft
from drydock.core.errors import DrydockError
from drydock_client.values import BlueprintChange
from leases.admin.toolkit import html, live_regions
from leases.admin.toolkit.form_fields import ConfigWidget, DurationColumnField
from leases.admin.toolkit.panels import Panel
from leases.models import Resource
from leases.operations.blueprints import EMPTIABLE, SPANS, trial
from leases.operations.callers import caller
from leases.validation.errors import plain_message

CHANGEABLE = (
    "kind", "config", "order", "audience", "max_resources", "min_ready", "max_builds", "max_outdated", *SPANS, "note"
)  # fmt: skip


class BlueprintForm(forms.ModelForm):  # type: ignore[type-arg]
    """The form that adds or edits a blueprint."""

    kind = forms.ChoiceField(help_text="The implementation. The page of a saved blueprint lists its capabilities.")
    idle_timeout = DurationColumnField(
        required=False,
        help_text='Remove a resource that has been idle for this long, such as "30m". Leave empty for no limit; '
        "a new blueprint of a cloud kind then uses 15 minutes.",
    )
    max_lifetime = DurationColumnField(
        required=False,
        help_text='A resource older than this, such as "7d", gets no new leases and is removed once idle.',
    )
    check_interval = DurationColumnField(required=False, help_text='Time between health checks, such as "5m".')
    discovery_interval = DurationColumnField(
        required=False, help_text='Time between discoveries, such as "1m". Leave empty for that of the kind.'
    )
    default_ttl = DurationColumnField(
        label="Default lease duration",
        required=False,
        help_text='The duration of a lease whose request does not specify one, such as "8h".',
    )
    max_ttl = DurationColumnField(
        label="Maximum lease duration", required=False,
        help_text='The longest duration that an owner can request, such as "30d". Leave empty for no limit.',
    )  # fmt: skip

    class Meta:
        model = Blueprint
        fields = ("name", "enabled", *CHANGEABLE)
        widgets = {"config": ConfigWidget}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "kind" in self.fields:
            stored = self.instance.kind
            missing = [(stored, f"{stored} (not installed)")] if stored and stored not in registry.names() else []
            self.fields["kind"].widget.attrs.update({
                "hx-get": reverse("admin:blueprints_blueprint_inputs"), "hx-target": "#dd-config",
                "hx-swap": "outerHTML", "hx-trigger": "change",
            })  # fmt: skip
            self.fields["kind"].choices = [(name, name) for name in registry.names()] + missing  # type: ignore[attr-defined]
        if "config" in self.fields:
            self.fields["config"].widget.attrs.update(rows=18, cols=100, spellcheck="false")
            self.fields["config"].widget.kind = self._kind_now()
        for name in self.fields:
            # Only what was typed is written, not what somebody else changed since the page was opened.
            self.fields[name].show_hidden_initial = bool(self.instance.pk)

    def clean_name(self) -> str:
        """Require a name that no other blueprint uses. The names of removed blueprints may be used again."""
        name = str(self.cleaned_data["name"])
        if Blueprint.objects.filter(name=name).exclude(pk=self.instance.pk).exists():
            raise forms.ValidationError(f"A blueprint named {name} already exists.")
        return name

    def clean(self) -> dict[str, Any]:
        """Validate the config against the schema of the kind, and show every problem at its field."""
        given = super().clean() or {}
        name, config = given.get("kind"), given.get("config")
        if not name or "config" in self.errors:
            return given
        try:
            kind = registry.kind(name)
        except DrydockError as error:
            self.add_error("kind", str(error))
            return given
        self._same_type(kind.resource_type)
        if not isinstance(config or {}, dict):
            self.add_error("config", "Enter a JSON object.")
            return given
        try:
            kind.Config.model_validate(config or {})
        except ValidationError as error:
            self.add_error("config", [_sentence(dict(found)) for found in error.errors()])
            self._say_where(error)
        given["config"] = config or {}
        return given

    def _kind_now(self) -> str:
        """Return the kind whose inputs are shown: the posted one, else the stored one, else the first available."""
        known = registry.names()
        return str(self.data.get("kind") or self.instance.kind or self.initial.get("kind") or (known or [""])[0])

    def _say_where(self, error: ValidationError) -> None:
        """Also show each validation error next to its input."""
        where: dict[str, list[str]] = {}
        for found in error.errors():
            if found["loc"]:
                where.setdefault(str(found["loc"][0]), []).append(_sentence(dict(found)))
        self.fields["config"].widget.problems = where

    def _same_type(self, resource_type: str) -> None:
        before = self.instance.resource_type
        if self.instance.pk and before != resource_type and Resource.objects.filter(blueprint=self.instance).exists():
            self.add_error(
                "kind",
                f"The blueprint has resources of resource type {before!r}, but this kind provides {resource_type!r}.",
            )

    def change(self) -> BlueprintChange:
        """Return the changed fields as the value that operations accept."""
        given = {name: self.cleaned_data.get(name) for name in CHANGEABLE if name in self.changed_data}
        empty = [name for name, value in given.items() if name in EMPTIABLE and value in (None, "")]
        return BlueprintChange(**{n: v for n, v in given.items() if n not in empty}, clear=empty)


def _sentence(found: dict[str, Any]) -> str:
    where = ".".join(str(piece) for piece in found["loc"])
    said = plain_message(found)
    return f"{where}: {said}." if where else f"{said}."


def inputs_view(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Render empty inputs for the config of `?kind=`. The page requests them when another kind is chosen."""
    if not (model_admin.has_add_permission(request) or model_admin.has_change_permission(request)):
        raise PermissionDenied
    widget = ConfigWidget()
    widget.kind = request.GET.get("kind", "")
    return live_regions.answer(request, SafeString(widget.render("config", "{}", {"id": "id_config"})))


def check_view(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Check the submitted form and show what the blueprint would build. Nothing is stored."""
    pk = request.POST.get("dd-id", "")
    row = model_admin.get_object(request, pk) if pk.isdecimal() else None
    if row is None:
        allowed = model_admin.has_add_permission(request)
    else:
        allowed = model_admin.has_change_permission(request, row)
    if request.method != "POST" or not allowed:
        raise PermissionDenied
    form = model_admin.form(request.POST, instance=row)
    form.is_valid()
    panels = _panels(request, form, row)
    return live_regions.answer(
        request, SafeString(render_to_string("admin/drydock/panels.html", {"panels": panels}, request))
    )


def _panels(request: HttpRequest, form: Any, row: Any) -> list[Panel]:
    wrong = [(name, problem) for name in ("kind", "config") for problem in form.errors.get(name, ())]
    if wrong:
        return [Panel(title="Correct these first", columns=("Field", "Problem"), rows=wrong)]
    given = form.cleaned_data
    try:
        found = trial(
            caller(request.user), name=given.get("name") or (row.name if row else "new"), kind=given["kind"],
            config=given["config"], id=row.pk if row else 0,
        )  # fmt: skip
    except DrydockError as error:
        return [Panel(title="Check", rows=[(html.badge("broken"), str(error))])]
    problems = [(html.badge("no" if p.fatal else "wait"), p.field or "-", p.message) for p in found.problems]
    return [
        Panel(title="Check", rows=problems or [(html.badge("ok"), "No problems found. Nothing was saved.")]),
        Panel(
            title="Possible builds", always=True, empty=found.says,
            columns=("", "Offer", "Zone", "$/hour", "Capacity", "Attributes"),
            rows=[_draft(number, draft) for number, draft in enumerate(found.drafts, 1)],
        ),
    ]  # fmt: skip


def _draft(number: int, draft: Draft) -> tuple[Any, ...]:
    own = draft.capacity
    sizes = {
        "slots": own.slots, "cpu_millicores": own.cpu_millicores, "ram_mib": own.ram_mib, "disk_mib": own.disk_mib
    } | dict(own.extra)  # fmt: skip
    return (
        f"{number}.", draft.offer or "-", draft.zone or "-", "-" if draft.price is None else f"{draft.price:g}",
        html.amounts({name: value for name, value in sizes.items() if value}), html.pairs(dict(draft.attributes)),
    )  # fmt: skip
