"""Numbers that lead to the rows they count, and counts that stop where they tell a person nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from django.utils.http import urlencode

from leases.engine.core.database import rows

MOST = 10_000
"""Counting further costs time and tells a person nothing."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number that leads to the rows it counts."""

    of: Any
    number: int = 0
    address: str = ""
    said: Any = ""

    @property
    def shown(self) -> str:
        """The number in words."""
        return f"{MOST:,}+" if self.number > MOST else f"{self.number:,}"


def listed(model: str, **chosen: Any) -> str:
    """The address of a list of `leases`, with its filters."""
    return f"{reverse(f'admin:leases_{model}_changelist')}?{urlencode(chosen)}"


def counted(found: Sequence[QuerySet[Any]]) -> list[int]:
    """How many rows each has, up to MOST, in one statement."""
    parts: list[str] = []
    params: list[Any] = []
    for one in found:
        sql, given = one.order_by().values("pk")[: MOST + 1].query.sql_with_params()
        parts.append(f"(SELECT count(*) FROM ({sql}) AS bounded)")  # noqa: S608 - made by the ORM
        params += given
    return list(rows(f"SELECT {', '.join(parts)}", params)[0])
