"""Characters that control a terminal or change the direction of text, so that it looks different from what it is."""

from __future__ import annotations

import re

UNSAFE = (
    "\x00-\x1f\x7f-\x9f"  # controls; U+009B begins an escape sequence as ESC [ does
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"  # direction marks, embeddings, overrides, isolates, line separators
    "\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f"
)
"""Categories Cc and Cf, and line and paragraph separators, as a character class for a regular expression.

The joiners U+200C and U+200D are not included, because some scripts and emoji need them and they do not change the
direction of text.
"""
NOT_TAKEN = "characters that control a terminal or the direction of text are not allowed"
_UNSAFE = re.compile(f"[{UNSAFE}\ud800-\udfff]")


def first_unsafe(text: str, allowed: str = "") -> str:
    """Return the first unsafe character or lone surrogate that is not in `allowed`, or an empty string."""
    return next((found[0] for found in _UNSAFE.finditer(text) if found[0] not in allowed), "")


def escaped(text: str, keep: str = "") -> str:
    r"""Return the text with unsafe characters escaped as in Python: `\x1b`, `\u202e`. Those in `keep` stay."""
    return _UNSAFE.sub(lambda found: found[0] if found[0] in keep else _written(found[0]), text)


def escaped_json(text: str) -> str:
    """Return a JSON text with unsafe characters escaped as in JSON. Line breaks between values stay."""
    return _UNSAFE.sub(lambda found: found[0] if found[0] in "\n" else _units(found[0]), text)


def _written(character: str) -> str:
    return (
        character.encode("ascii", "backslashreplace").decode() if ord(character) > 0x7F else f"\\x{ord(character):02x}"
    )


def _units(character: str) -> str:
    pairs = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{pairs[at : at + 4]}" for at in range(0, len(pairs), 4))
