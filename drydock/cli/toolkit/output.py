"""Output: rich on a terminal, plain text in a pipe, JSON on request.

Everything that the program prints passes through here. Names, commands and messages often come from a tenant, so their
control characters are escaped: no name of a lease or file can steer an operator's terminal.
"""

from __future__ import annotations

import codecs
import datetime as dt
import json
import re
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TextIO

from drydock.core import clock
from drydock.core.characters import escaped, escaped_json
from drydock.core.units import in_words

if TYPE_CHECKING:
    from rich.console import Console


COLOURS = {
    "active": "green", "pending": "yellow", "acquired": "cyan", "released": "blue", "destroyed": "dim",
    "broken": "red", "ok": "green", "warn": "yellow", "fail": "red", "build": "green", "wait": "yellow", "no": "red",
}  # fmt: skip

_AS_WRITTEN: dict[str, Any] = {"ensure_ascii": False}

_COLOUR = re.compile("(\x1b\\[[0-9;]{0,32}m)")

_BEGUN = re.compile("(\r|\x1b(\\[[0-9;]{0,32})?)\\Z")


def emit(value: Any) -> None:
    """Print one JSON document on standard output."""
    from drydock_client.values import to_json

    _put(sys.stdout, escaped_json(json.dumps(to_json(value), indent=2 if sys.stdout.isatty() else None, **_AS_WRITTEN)))


def emit_line(value: Any) -> None:
    """Print one line of a stream of JSON documents."""
    from drydock_client.values import to_json

    _put(sys.stdout, escaped_json(json.dumps(to_json(value), **_AS_WRITTEN)))


def line(text: object = "", end: str = "\n") -> None:
    """Print text on standard output."""
    _put(sys.stdout, escaped(str(text), keep="\n\t"), end)


def say(text: str) -> None:
    """Print a line for people on standard error."""
    _put(sys.stderr, escaped(text, keep="\n\t"))


def aside(text: str) -> None:
    """Print a line for people on standard error, on a terminal on which a machine prints bytes of its own."""
    _put(sys.stderr, f"\r\n{escaped(text)}", "\r\n")


def raw(content: bytes) -> None:
    """Write bytes unchanged on standard output: for a terminal that its user has attached to a console."""
    sys.stdout.buffer.write(content)
    sys.stdout.flush()


def _put(stream: TextIO, text: str, end: str = "\n") -> None:
    print(text, end=end, file=stream, flush=True)


class Stream:
    """A job's output or a log, written to standard output.

    A pipe gets every byte unchanged. A terminal gets text in which control characters other than colors, line breaks
    and tabs are escaped: programs on a leased machine choose these bytes, and the reader may be an operator.
    """

    def __init__(self, *, raw: bool = False) -> None:
        self._raw = raw or not sys.stdout.isatty()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def write(self, content: bytes) -> None:
        """Write the next bytes."""
        if self._raw:
            sys.stdout.buffer.write(content)
        else:
            self._write(self._decoder.decode(content), over=False)
        sys.stdout.flush()

    def end(self) -> None:
        """Write any bytes that were held back because more could have followed."""
        if not self._raw:
            self._write(self._decoder.decode(b"", True), over=True)
            sys.stdout.flush()

    def _write(self, text: str, *, over: bool) -> None:
        text = (self._rest + text).replace("\r\n", "\n")
        begun = None if over else _BEGUN.search(text)
        text, self._rest = (text[: begun.start()], text[begun.start() :]) if begun else (text, "")
        # The odd pieces are colours. A lone return, as of a progress bar, would write over what was there before.
        pieces = _COLOUR.split(text.replace("\r", "\n"))
        sys.stdout.write("".join(one if n % 2 else escaped(one, keep="\n\t") for n, one in enumerate(pieces)))


@lru_cache(maxsize=2)
def console(stderr: bool = False) -> Console:
    """Return the terminal, which escapes control characters in everything printed to it."""
    from rich.console import Console
    from rich.segment import Segment

    class Escaping(Console):
        def render(self, renderable: Any, options: Any = None) -> Any:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else escaped(text, keep="\n"), style, control)

    return Escaping(stderr=stderr, highlight=False)


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "Nothing.") -> None:
    """Print a table on standard output, as aligned plain text if it is a pipe."""
    texts = [[text(cell) for cell in row] for row in rows]
    if not texts:
        say(empty)
    elif sys.stdout.isatty():
        console().print(rich_table(headers, texts))
    else:
        widths = [max(len(row[n]) for row in [list(headers), *texts]) for n in range(len(headers))]
        for row in [[h.upper() for h in headers], *texts]:
            line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def rich_table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> Any:
    """Return a table for a terminal, with states in their colors."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(*headers, box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for row in rows:
        made.add_row(*(Text(escaped(cell), style=COLOURS.get(cell, "")) for cell in row))
    return made


def pairs(title: str, facts: Iterable[tuple[str, Any]]) -> None:
    """Print the names and values of an object, leaving out empty values."""
    shown = [(name, text(value)) for name, value in facts if text(value)]
    width = max((len(name) for name, _ in shown), default=0)
    line(title)
    for name, value in shown:
        line(f"  {name.ljust(width)}  {value}")


def text(value: Any) -> str:
    """Return a value as readable text on one line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, dt.datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, dt.timedelta):
        return in_words(value)
    if isinstance(value, dict):
        return " ".join(f"{text(key)}={text(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return " ".join(text(one) for one in value)
    return escaped(str(value))


def ago(moment: dt.datetime | None) -> str:
    """Return how long ago a time was, or how far in the future it is."""
    if moment is None:
        return ""
    seconds = (clock.now() - moment).total_seconds()
    return f"{in_words(seconds)} ago" if seconds >= 0 else f"in {in_words(-seconds)}"
