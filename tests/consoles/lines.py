"""What the tests of lines share: typing and reading with a deadline."""

from __future__ import annotations

import time

from interfaces.console import Line

LONGEST = 20.0


def read_to_the_end(line: Line, typing: bytes = b"") -> None:
    """Read, and type the same bytes again and again, until the line raises what ended it."""
    until = time.monotonic() + LONGEST
    while time.monotonic() < until:
        line.read(0.05)
        if typing:
            line.write(typing)


def exchanged(line: Line, content: bytes = b"", *, expect: bytes | int, seconds: float = LONGEST) -> bytes:
    """Type bytes, and read until the expected text or number of bytes has come."""
    found, until = b"", time.monotonic() + seconds
    while content or not (len(found) >= expect if isinstance(expect, int) else expect in found):
        assert time.monotonic() < until, (content[:100], found[-500:])
        if content:
            content = content[line.write(content) :]
        found += line.read(0.05)
    return found
