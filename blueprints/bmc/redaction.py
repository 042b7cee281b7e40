"""Text from a BMC, a host or a program, made fit for a message."""

from __future__ import annotations

from collections.abc import Iterable

from drydock.core.characters import escaped
from drydock.core.logging import BLOT, redact

LONGEST = 300
"""Maximum number of characters of a foreign text in a message."""


def shown(text: str | bytes, secrets: Iterable[str] = ()) -> str:
    """Return a foreign text as one line of at most 300 characters, with these and all other known secrets redacted."""
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    parts = {part for secret in secrets for part in (secret, *secret.splitlines()) if part.strip()}
    for part in sorted(parts, key=len, reverse=True):
        plain = plain.replace(part, BLOT)
    line = escaped(" ".join(redact(plain).split()))
    return f"{line[:LONGEST]}…" if len(line) > LONGEST else line
