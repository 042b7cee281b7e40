"""CSV tables that are safe to open in spreadsheets: cells that look like formulas are escaped."""

from __future__ import annotations

import csv
import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


class _Line:
    """A file-like object for the csv module, which returns each line instead of storing it."""

    def write(self, text: str) -> str:
        """Return the line that the csv module writes."""
        return text


def lines(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield the lines of a CSV table."""
    writer = csv.writer(_Line())
    yield writer.writerow(headers)
    for row in rows:
        yield writer.writerow([_cell(one) for one in row])


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    return "" if value is None else value
