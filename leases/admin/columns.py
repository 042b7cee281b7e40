"""Makers of columns: functions for `list_display` and `fieldsets` that many records share."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeAlias

from django.contrib import admin

from leases.admin import cells

Column: TypeAlias = Callable[[Any, Any], Any]


def column(words: str, make: Callable[[Any], Any], ordering: str | None = None) -> Column:
    """A column of what `make` says of a row."""

    def shown(model_admin: Any, row: Any) -> Any:
        return make(row)

    shown.__name__ = words.replace(" ", "_").replace(",", "")
    return admin.display(description=words, ordering=ordering)(shown)


def moment(words: str, name: str) -> Column:
    """A time, seen from now."""
    return column(words, lambda row: cells.moment(getattr(row, name)), name)


def span(words: str, name: str) -> Column:
    """A length of time."""
    return column(words, lambda row: cells.span(getattr(row, name)), name)


def link(words: str, name: str) -> Column:
    """A related row; `name` may go over several relations (`resource.blueprint`)."""
    first, _, rest = name.partition(".")

    def found(row: Any) -> Any:
        near = getattr(row, first)
        return cells.link(attrgetter(rest)(near) if rest and near is not None else near)

    return column(words, found, name.replace(".", "__"))


def values(words: str, name: str) -> Column:
    """A mapping or list."""
    return column(words, lambda row: cells.values(getattr(row, name)))


def text(words: str, name: str, length: int = 90) -> Column:
    """A sentence, shortened."""
    return column(words, lambda row: cells.short(getattr(row, name), length), name)


def state(words: str = "state") -> Column:
    """The state as a badge."""
    return column(words, lambda row: cells.badge(row.state), "state")


def number() -> Column:
    """A row's name and number."""
    return column("name", named, "id")


def named(row: Any) -> str:
    """A row's name with its number, for names may be empty or the same."""
    name = getattr(row, "name", "")
    return f"{name} (#{row.pk})" if name else f"{row._meta.verbose_name} {row.pk}"


def said(row: Any) -> Any:
    """Reason and sentence of a status."""
    reason = row.reason.replace("_", " ")
    return cells.short(f"{reason}: {row.message}" if row.message else reason, 200)


def sentence(row: Any) -> str:
    """Reason and message as one sentence."""
    reason, message = row.reason.replace("_", " "), str(row.message)
    if not message or message.lower().startswith(reason):
        return message or str(reason)
    return f"{reason}: {message}" if reason else message


def amounts(row: Any) -> dict[str, int]:
    """Amounts by class, without those that are zero."""
    basic = {name: getattr(row, name) for name in ("slots", "cpu_millicores", "ram_mib", "disk_mib")}
    return {name: amount for name, amount in (basic | (row.extra or {})).items() if amount}
