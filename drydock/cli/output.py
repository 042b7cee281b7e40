"""Saying things: rich on a terminal, plain in a pipe, JSON where asked."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from drydock.core import clock
from drydock.core.units import in_words

if TYPE_CHECKING:
    from rich.console import Console

COLOURS = {
    "active": "green", "pending": "yellow", "acquired": "cyan", "released": "blue", "destroyed": "dim",
    "broken": "red", "ok": "green", "warn": "yellow", "fail": "red", "build": "green", "wait": "yellow", "no": "red",
}  # fmt: skip


def emit(value: Any) -> None:
    """One JSON document on standard output."""
    from leases.client.values import to_json

    print(json.dumps(to_json(value), indent=2 if sys.stdout.isatty() else None, ensure_ascii=False), flush=True)


def emit_line(value: Any) -> None:
    """One line of a stream of JSON documents."""
    from leases.client.values import to_json

    print(json.dumps(to_json(value), ensure_ascii=False), flush=True)


def say(text: str) -> None:
    """A line for people, beside what a program may read."""
    print(text, file=sys.stderr, flush=True)


@lru_cache(maxsize=2)
def console(stderr: bool = False) -> Console:
    """The terminal."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "Nothing.") -> None:
    """A table on standard output; aligned columns of plain text in a pipe."""
    texts = [[text(cell) for cell in row] for row in rows]
    if not texts:
        say(empty)
    elif sys.stdout.isatty():
        console().print(rich_table(headers, texts))
    else:
        widths = [max(len(row[n]) for row in [list(headers), *texts]) for n in range(len(headers))]
        for row in [[h.upper() for h in headers], *texts]:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def rich_table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> Any:
    """A table for a terminal, states in their colours."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(*headers, box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for row in rows:
        made.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in row))
    return made


def pairs(title: str, facts: Iterable[tuple[str, Any]]) -> None:
    """Names and values of one thing, those without a value left out."""
    shown = [(name, text(value)) for name, value in facts if text(value)]
    width = max((len(name) for name, _ in shown), default=0)
    print(title)
    for name, value in shown:
        print(f"  {name.ljust(width)}  {value}")


def text(value: Any) -> str:
    """A value as a person reads it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, dt.datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, dt.timedelta):
        return in_words(value)
    if isinstance(value, dict):
        return " ".join(f"{key}={text(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return " ".join(text(one) for one in value)
    return str(value)


def ago(moment: dt.datetime | None) -> str:
    """How long ago, or in how long."""
    if moment is None:
        return ""
    seconds = (clock.now() - moment).total_seconds()
    return f"{in_words(seconds)} ago" if seconds >= 0 else f"in {in_words(-seconds)}"
