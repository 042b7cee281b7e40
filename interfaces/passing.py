"""What operating systems take as a path or an argument."""

from __future__ import annotations


def unpassable(text: str) -> str:
    """What in a text no system call takes, for a sentence; empty when all of it is fine.

    Bytes that are no UTF-8 are fine: Python writes them as half characters of their own, U+DC80 to U+DCFF.
    """
    if "\0" in text:
        return "a NUL character"
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        return f"the half character U+{ord(text[error.start]):04X}"
    return ""
