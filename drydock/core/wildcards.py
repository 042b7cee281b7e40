"""Patterns in which `*` matches any characters, evaluated in linear time.

In a regular expression, each star would be `.*`, and the engine would try every way of dividing the text among them: a
few hundred stars block the interpreter for seconds.
"""

from __future__ import annotations


def matches(pattern: str, text: str) -> bool:
    """Return whether the whole text matches the pattern. Case matters."""
    first, *rest = pattern.split("*")
    if not rest:
        return text == pattern
    *middle, last = rest
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in middle:
        # The leftmost place leaves the most room for the pieces that follow, so no other needs to be tried.
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True
