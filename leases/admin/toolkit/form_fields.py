"""Form fields for durations and secrets, and a widget that edits a config with one input for each of its fields."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django import forms
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from drydock.core.errors import DrydockError, InvalidRequest
from drydock.core.units import duration, written
from leases.operations import blueprints


class DurationField(forms.CharField):
    """A form field for a duration such as "2h" or "1d12h"."""

    def clean(self, value: Any) -> Any:
        """Return the duration as a timedelta, or None if an optional field is empty."""
        text = super().clean(value)
        try:
            return duration(text) if text else None
        except InvalidRequest as error:
            raise forms.ValidationError(f"{error.message} {error.hint}".strip()) from None


class DurationColumnField(DurationField):
    """The field for a duration in the form of a model. It shows a duration as users type it."""

    def prepare_value(self, value: Any) -> Any:
        """Return a stored duration as text."""
        return written(value) if isinstance(value, dt.timedelta) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the typed duration differs from the stored one."""
        try:
            return bool(self.clean(data) != (self.clean(initial) if isinstance(initial, str) else initial))
        except forms.ValidationError:
            return True


class HiddenTextarea(forms.Textarea):
    """A text area that never shows its content, neither stored nor typed."""

    def format_value(self, value: Any) -> None:
        """Return None, so that nothing is rendered."""
        return


class SecretsField(forms.CharField):
    """A field for a JSON object of secrets. If it is left empty, the stored secrets are kept."""

    widget = HiddenTextarea(attrs={"rows": 6, "autocomplete": "off", "spellcheck": "false"})

    def clean(self, value: Any) -> Any:
        """Return the secrets, or None if nothing was typed."""
        text = super().clean(value)
        if not text:
            return None
        try:
            given = json.loads(text)
        except ValueError:
            # Not the parser's own words: they may quote what was typed.
            raise forms.ValidationError('Invalid JSON. Enter an object such as {"private_key": "..."}.') from None
        if not isinstance(given, dict) or not given:
            raise forms.ValidationError('Enter a JSON object with at least one field, such as {"private_key": "..."}.')
        return given

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether something was typed."""
        return bool(data)


OTHER = "~other"

"""The name of the input for fields that the schema does not define. Without it, saving would silently drop them."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One field of a config, with its input and its description."""

    key: str
    sort: str
    """The type of the input: `flag`, `choice`, `number`, `text`, `lines` or `json`."""
    default: Any = None
    needed: bool = False
    optional: bool = False
    """True if the field is omitted from the config when its input is empty."""
    says: str = ""
    choices: tuple[str, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)

    def written(self, value: Any) -> str:
        """Return a value as it appears in the input."""
        if value is None:
            return ""
        if self.sort == "lines" and isinstance(value, list | tuple):
            return "\n".join(str(one) for one in value)
        if self.sort == "json" or not isinstance(value, str | int | float):
            return "" if value in ({}, []) else json.dumps(value, indent=2)
        return str(value)

    def read(self, text: str) -> Any:
        """Return the value of a typed text.

        Text that cannot be parsed is returned unchanged, so that the kind refuses it.
        """
        text = text.replace("\r\n", "\n")
        if self.sort == "lines":
            return [line.strip() for line in text.split("\n") if line.strip()]
        if not text.strip() and (self.optional or self.sort != "text"):
            return None if self.optional else self.default
        if self.sort in ("json", "number"):
            try:
                return json.loads(text)
            except ValueError:
                return text
        return text


def settings_of(kind: str) -> list[Setting] | None:
    """Return the fields of a kind's config, or None if the kind cannot be loaded."""
    try:
        schema = blueprints.schema(kind).config
    except DrydockError:
        return None
    return settings_in(schema)


def settings_in(schema: Mapping[str, Any]) -> list[Setting]:
    """Return the fields of an object's JSON Schema."""
    needed = schema.get("required", ())
    return [_setting(key, one, key in needed) for key, one in schema.get("properties", {}).items()]


_LIMITS = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most", "exclusiveMaximum": "below"}

_SORTS = {"boolean": "flag", "integer": "number", "number": "number", "string": "text"}


def _setting(key: str, one: Mapping[str, Any], needed: bool) -> Setting:
    sorts = [sort for sort in one.get("anyOf", [one]) if sort.get("type") != "null"]
    optional = len(sorts) < len(one.get("anyOf", [one]))
    plain = sorts[0] if len(sorts) == 1 else {}
    return Setting(
        key=key, sort=_sort(plain), default=one.get("default"), needed=needed, optional=optional,
        says=str(one.get("description", "")), choices=tuple(str(c) for c in plain.get("enum", ())),
        limits={_LIMITS[name]: value for name, value in plain.items() if name in _LIMITS},
    )  # fmt: skip


def _sort(plain: Mapping[str, Any]) -> str:
    if plain.get("enum"):
        return "choice"
    if plain.get("type") == "array" and plain.get("items", {}).get("type") == "string":
        return "lines"
    return _SORTS.get(plain.get("type", ""), "json")


def inputs_of(
    known: Sequence[Setting], name: str, given: Mapping[str, Any], problems: Mapping[str, list[str]]
) -> list[dict[str, Any]]:
    """Return the template context of each input, with its stored or typed value."""
    return [_input(name, one, given, problems.get(one.key, [])) for one in known]


def _input(name: str, one: Setting, given: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    value = given.get(one.key, one.default)
    return {
        "name": f"{name}.{one.key}", "id": f"id_{name}.{one.key}", "setting": one, "value": one.written(value),
        "on": value is True, "problems": problems,
        "default": "" if one.sort == "flag" else one.written(one.default)[:200],
        "rows": 3 if one.sort == "lines" else min(max(one.written(value).count("\n") + 1, 3), 16),
    }  # fmt: skip


def values_in(data: Any, name: str, known: Sequence[Setting]) -> dict[str, Any]:
    """Return the typed values, without those that are equal to their default."""
    found: dict[str, Any] = {}
    for one in known:
        typed = f"{name}.{one.key}" in data
        value = typed if one.sort == "flag" else one.read(data[f"{name}.{one.key}"]) if typed else one.default
        if value not in (None, "", [], one.default):
            found[one.key] = value
    return found


class ConfigWidget(forms.Textarea):
    """Inputs that are generated from the schema of `kind`, or a text area for JSON if the kind is unknown."""

    def __init__(self, attrs: Any = None) -> None:
        super().__init__(attrs)
        self.kind = ""
        self.problems: Mapping[str, list[str]] = {}

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        """Return the inputs with the stored or typed values."""
        context = super().get_context(name, value, attrs)
        given, known = _object(value), settings_of(self.kind)
        if given is None or known is None:
            return context
        context["settings"] = inputs_of(known, name, given, self.problems)
        others = {key: one for key, one in given.items() if key not in {setting.key for setting in known}}
        context["other"] = {"name": f"{name}.{OTHER}", "value": json.dumps(others, indent=2)} if others else None
        context["whole"] = json.dumps(given, indent=2, sort_keys=True) if given else ""
        return context

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> Any:
        """Render the inputs, or the text area if the schema is unknown."""
        context = self.get_context(name, value, attrs)
        if "settings" not in context:
            return super().render(name, value, attrs, renderer)
        return SafeString(render_to_string("admin/drydock/config.html", context))

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Any:
        """Return the typed values as one JSON object.

        If a complete object was posted (`config`), return it unchanged.
        """
        known = settings_of(str(data.get("kind", self.kind)))
        if name in data or known is None or not _has_inputs(data, name):
            return data.get(name)
        # What was said before stays said, also where it says what would be so anyway.
        before = _object(data.get(f"initial-{name}")) or {}
        found: dict[str, Any] = {}
        for one in known:
            typed = f"{name}.{one.key}" in data
            value = typed if one.sort == "flag" else one.read(data[f"{name}.{one.key}"]) if typed else one.default
            unsaid = value is None or (value == "" and one.needed)
            if not unsaid and (one.key in before or value != one.default):
                found[one.key] = value
            elif unsaid and one.key in before and before[one.key] is None:
                found[one.key] = None
        return json.dumps({**(_object(data.get(f"{name}.{OTHER}")) or {}), **found})

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """Return whether no part of the object was posted."""
        return name not in data and not _has_inputs(data, name)


def _has_inputs(data: Any, name: str) -> bool:
    return any(str(key).startswith(f"{name}.") for key in data)


def _object(value: Any) -> dict[str, Any] | None:
    """Return a stored or typed JSON object. An empty value gives {}, and a value that is not an object gives None."""
    if value in (None, ""):
        return {}
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
