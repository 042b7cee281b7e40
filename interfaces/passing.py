"""Check which characters operating systems accept in a path or an argument."""

from __future__ import annotations


def unpassable(text: str) -> str:
    """Describe the first character that system calls reject, for use in a sentence. Empty if there is none.

    Bytes that are not UTF-8 are valid: Python represents them as lone surrogates, U+DC80 to U+DCFF.
    """
    if "\0" in text:
        return "a NUL character"
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        return f"the lone surrogate U+{ord(text[error.start]):04X}"
    return ""
