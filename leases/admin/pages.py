"""Pages of lists, without counting whole tables."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Page, Paginator
from django.utils.functional import cached_property

from leases.engine.core.database import rows


class Bounded(Paginator):  # type: ignore[type-arg]
    """Counts no further than a person turns pages. A whole table that is longer is estimated from its statistics."""

    most = 1_000

    @cached_property
    def count(self) -> int:
        """How many rows there are: exact up to `most`, else an estimate of the table, else `most`."""
        found: Any = self.object_list
        number = int(found.order_by()[: self.most + 1].count())
        if number <= self.most:
            return number
        return max(self.most, 0 if found.query.where else estimate(found.model._meta.db_table))

    def page(self, number: int | str) -> Any:
        """The rows of a page, sorted by their numbers alone: whole rows with their relations are read of this page
        only."""
        found: Any = self.object_list
        first = (self.validate_number(number) - 1) * self.per_page
        ids = list(found.values_list("pk", flat=True)[first : first + self.per_page])
        rows = {row.pk: row for row in found.order_by().filter(pk__in=ids)}
        return Page([rows[pk] for pk in ids if pk in rows], int(number), self)

    @property
    def said(self) -> str:
        """The count in words, honest about what was not counted."""
        if self.count < self.most:
            return f"{self.count:,}"
        return f"more than {self.most:,}" if self.count == self.most else f"about {self.count:,}"


def estimate(table: str) -> int:
    """How many rows the database's statistics say that a table has; 0 when they say nothing."""
    found = rows("SELECT reltuples::bigint FROM pg_class WHERE oid = %s::regclass", (table,))
    return max(int(found[0][0]), 0) if found else 0
