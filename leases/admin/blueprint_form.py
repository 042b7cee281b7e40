"""The form of a blueprint: its kind from the registry, its config checked by the kind."""

from __future__ import annotations

from typing import Any

from django import forms
from django.urls import reverse
from pydantic import ValidationError

from blueprints import registry
from blueprints.models import Blueprint
from drydock.core.errors import DrydockError
from leases.admin.config_widget import ConfigWidget
from leases.admin.fields import SpanOfColumn
from leases.client.values import BlueprintChange
from leases.mistakes import plain_message
from leases.models import Resource
from leases.operations.blueprints import EMPTIABLE, SPANS

CHANGEABLE = (
    "kind", "config", "order", "audience", "max_resources", "min_ready", "max_builds", "max_outdated", *SPANS, "note"
)  # fmt: skip


class BlueprintForm(forms.ModelForm):  # type: ignore[type-arg]
    """What may be said of a blueprint."""

    kind = forms.ChoiceField(help_text="The implementation it selects. The page of the blueprint says what it can do.")
    idle_timeout = SpanOfColumn(
        required=False,
        help_text='Idle longer: removed. Such as "30m"; empty: never, for a new one of a cloud 15 minutes.',
    )
    max_lifetime = SpanOfColumn(required=False, help_text='Older: no new lease, then removed. Such as "7d".')
    check_interval = SpanOfColumn(required=False, help_text='Between health checks. Such as "5m".')
    default_ttl = SpanOfColumn(
        label="Default lease", required=False, help_text='A lease that names no end lasts this long. Such as "8h".'
    )
    max_ttl = SpanOfColumn(
        label="Longest lease", required=False,
        help_text='No lease lasts longer, unless an operator lets it. Such as "30d"; empty: no limit.',
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
        """A name that no other has; those of removed ones are free."""
        name = str(self.cleaned_data["name"])
        if Blueprint.objects.filter(name=name).exclude(pk=self.instance.pk).exists():
            raise forms.ValidationError(f"There is a blueprint called {name} already.")
        return name

    def clean(self) -> dict[str, Any]:
        """The config as the kind reads it; everything that the kind finds is told on the field."""
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
            self.add_error("config", "Give an object.")
            return given
        try:
            kind.Config.model_validate(config or {})
        except ValidationError as error:
            self.add_error("config", [_sentence(dict(found)) for found in error.errors()])
            self._say_where(error)
        given["config"] = config or {}
        return given

    def _kind_now(self) -> str:
        """The kind whose inputs are shown: posted, stored, or the first that can be chosen."""
        known = registry.names()
        return str(self.data.get("kind") or self.instance.kind or self.initial.get("kind") or (known or [""])[0])

    def _say_where(self, error: ValidationError) -> None:
        """Each mistake beside its input too."""
        where: dict[str, list[str]] = {}
        for found in error.errors():
            if found["loc"]:
                where.setdefault(str(found["loc"][0]), []).append(_sentence(dict(found)))
        self.fields["config"].widget.problems = where

    def _same_type(self, resource_type: str) -> None:
        before = self.instance.resource_type
        if self.instance.pk and before != resource_type and Resource.objects.filter(blueprint=self.instance).exists():
            self.add_error("kind", f"Its resources are of type {before!r}, and this kind gives {resource_type!r}.")

    def change(self) -> BlueprintChange:
        """What was changed, as operations want it."""
        given = {name: self.cleaned_data.get(name) for name in CHANGEABLE if name in self.changed_data}
        empty = [name for name, value in given.items() if name in EMPTIABLE and value in (None, "")]
        return BlueprintChange(**{n: v for n, v in given.items() if n not in empty}, clear=empty)


def _sentence(found: dict[str, Any]) -> str:
    where = ".".join(str(piece) for piece in found["loc"])
    said = plain_message(found)
    return f"{where}: {said}." if where else f"{said}."
