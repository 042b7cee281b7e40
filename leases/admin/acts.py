"""Actions: each is confirmed on a page that says what will happen, and carried out by operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from django import forms
from django.db.models import Model

from drydock.core.errors import DrydockError, InvalidRequest
from drydock.core.units import duration
from leases.operations.callers import Caller

Given: TypeAlias = dict[str, Any]


class Plain(forms.Form):
    """An action that needs only the confirmation."""


class Said(forms.Form):
    """A reason that may be given; it is kept with the event."""

    message = forms.CharField(max_length=500, required=False, help_text="Kept with the event.")


class NoteNeeded(forms.Form):
    """A note that must be given."""

    message = forms.CharField(label="Note", max_length=500, help_text="Why. Shown with the resource.")


class Span(forms.CharField):
    """A length of time as people write it."""

    def clean(self, value: Any) -> Any:
        """A timedelta, or None for an optional one left empty."""
        text = super().clean(value)
        try:
            return duration(text) if text else None
        except InvalidRequest as error:
            raise forms.ValidationError(f"{error.message} {error.hint}".strip()) from None


@dataclass(frozen=True, kw_only=True)
class Act:
    """One action on rows of a model.

    `does(who, row, given)` carries it out for one row, by operations, and may answer a sentence or several to show.
    """

    name: str
    label: str
    sentence: str
    """What will happen, for the page that asks."""
    does: Callable[[Caller, Any, Given], str | Sequence[tuple[int, str]] | None]
    applies: Callable[[Any], bool] = lambda _: True
    """Whether the row's page offers it. Operations decide for themselves."""
    form: type[forms.Form] = Plain
    permission: str = "change"
    dangerous: bool = False
    typed: bool = False
    """For one row only, whose name must be typed."""

    def form_for(self, rows: Sequence[Model], posted: Any = None) -> forms.Form:
        """The form of the page that asks."""
        form = self.form(posted)
        if self.typed:
            name = str(rows[0])
            form.fields["typed"] = forms.CharField(
                label="Its name", help_text=f"Type {name} to confirm.", validators=[_exactly(name)],
                widget=forms.TextInput(attrs={"autocomplete": "off"}),
            )  # fmt: skip
        return form


def _exactly(name: str) -> Callable[[str], None]:
    def check(typed: str) -> None:
        if typed != name.strip():
            raise forms.ValidationError("That is not its name.")

    return check


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of an action for one row: what it says, or why it could not be done."""

    row: Any
    said: str | Sequence[tuple[int, str]] | None = None
    problem: str = ""


def carry_out(act: Act, who: Caller, rows: Iterable[Any], given: Given) -> list[Outcome]:
    """The action on every row by itself: one that cannot be done does not keep the others from it."""
    return [_one(act, who, row, given) for row in rows]


def _one(act: Act, who: Caller, row: Any, given: Given) -> Outcome:
    try:
        return Outcome(row=row, said=act.does(who, row, given))
    except DrydockError as error:
        return Outcome(row=row, problem=str(error))
