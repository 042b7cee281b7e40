"""Form fields for spans and secrets."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from django import forms

from drydock.core.units import written as written
from leases.admin.acts import Span


class SpanOfColumn(Span):
    """A span in a form of a model: shown as it is typed."""

    def prepare_value(self, value: Any) -> Any:
        """A stored span as text."""
        return written(value) if isinstance(value, dt.timedelta) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether another span was typed."""
        try:
            return bool(self.clean(data) != (self.clean(initial) if isinstance(initial, str) else initial))
        except forms.ValidationError:
            return True


class Unseen(forms.Textarea):
    """A text area that never shows what it holds, neither what is stored nor what was typed."""

    def format_value(self, value: Any) -> None:
        """Nothing."""
        return


class SecretsField(forms.CharField):
    """A JSON object of secrets to store; empty keeps those that are stored."""

    widget = Unseen(attrs={"rows": 6, "autocomplete": "off", "spellcheck": "false"})

    def clean(self, value: Any) -> Any:
        """The object, or None when nothing was typed."""
        text = super().clean(value)
        if not text:
            return None
        try:
            given = json.loads(text)
        except ValueError:
            # Not the parser's own words: they may quote what was typed.
            raise forms.ValidationError('That is not valid JSON. Write it like {"private_key": "..."}.') from None
        if not isinstance(given, dict) or not given:
            raise forms.ValidationError('Give an object with at least one name, like {"private_key": "..."}.')
        return given

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether something was typed."""
        return bool(data)
