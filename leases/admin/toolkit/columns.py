"""Functions that make columns for `list_display` and `fieldsets`, which several admins share."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeAlias

from django.contrib import admin

from leases.admin.toolkit import html

Column: TypeAlias = Callable[[Any, Any], Any]


def column(words: str, make: Callable[[Any], Any], ordering: str | None = None) -> Column:
    """Return a column that shows the result of `make` for each row."""

    def shown(model_admin: Any, row: Any) -> Any:
        return make(row)

    shown.__name__ = words.replace(" ", "_").replace(",", "")
    return admin.display(description=words, ordering=ordering)(shown)


def time(words: str, name: str) -> Column:
    """Return a column that shows a time relative to now."""
    return column(words, lambda row: html.time(getattr(row, name)), name)


def duration(words: str, name: str) -> Column:
    """Return a column with a duration."""
    return column(words, lambda row: html.duration(getattr(row, name)), name)


def link(words: str, name: str) -> Column:
    """Return a column that links to a related row. `name` may follow relations (`resource.blueprint`)."""
    first, _, rest = name.partition(".")

    def found(row: Any) -> Any:
        near = getattr(row, first)
        return html.link(attrgetter(rest)(near) if rest and near is not None else near)

    return column(words, found, name.replace(".", "__"))


def values(words: str, name: str) -> Column:
    """Return a column with a mapping or list."""
    return column(words, lambda row: html.values(getattr(row, name)))


def text(words: str, name: str, length: int = 90) -> Column:
    """Return a column with a shortened text."""
    return column(words, lambda row: html.short(getattr(row, name), length), name)


def state(words: str = "state") -> Column:
    """Return a column with the state as a badge."""
    return column(words, lambda row: html.badge(row.state), "state")


def number() -> Column:
    """Return a column with the name and number of a row."""
    return column("name", name_with_number, "id")


def name_with_number(row: Any) -> str:
    """Return the name of a row with its number, because names may be empty or used more than once."""
    name = getattr(row, "name", "")
    return f"{name} (#{row.pk})" if name else f"{row._meta.verbose_name} {row.pk}"


def status_message(row: Any) -> Any:
    """Return the reason and the message of a row's status, shortened."""
    reason = row.reason.replace("_", " ")
    return html.short(f"{reason}: {row.message}" if row.message else reason, 200)


def sentence(row: Any) -> str:
    """Return the reason and the message of a row's status as one sentence."""
    reason, message = row.reason.replace("_", " "), str(row.message)
    if not message or message.lower().startswith(reason):
        return message or str(reason)
    return f"{reason}: {message}" if reason else message


def amounts(row: Any) -> dict[str, int]:
    """Return the amounts of a row by class, without those that are zero."""
    basic = {name: getattr(row, name) for name in ("slots", "cpu_millicores", "ram_mib", "disk_mib")}
    return {name: amount for name, amount in (basic | (row.extra or {})).items() if amount}
