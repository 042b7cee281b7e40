"""The record of a console: a stream of bytes without secrets, and text that does not steer a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from drydock.core.characters import escaped

BLOT = b"***"
SHORTEST = 6
"""Minimum length in characters of a value to remove. Shorter ones also occur as words of ordinary text."""
_PIECE = 128
SHOWN = 3
"""Bytes of what may be the beginning of a secret that are let through when nothing follows them for a moment.

Whoever types must see each key at once. Fewer bytes than half of the shortest secret give nothing away.
"""


class Redaction:
    """Removes secrets from a stream of bytes, also where a secret is split across parts of the stream.

    Bytes that may be the beginning of a secret are held back until the next ones decide.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        known = sorted({one.encode() for text in secrets for one in _pieces(text)}, key=len, reverse=True)
        self._whole = re.compile(b"|".join(map(re.escape, known))) if known else None
        self._beginnings = {one[:length] for one in known for length in range(1, len(one))}
        self._longest = max((len(one) for one in known), default=1) - 1
        self._held = b""
        self._let_through = 0

    def feed(self, content: bytes) -> bytes:
        """Take the next bytes of the stream. Return the bytes that can be shown."""
        found, at = bytearray(), 0
        self._held += content
        begun = self._begun()
        while self._whole is not None and (match := self._whole.search(self._held, at)):
            if match.start() >= begun:  # a longer secret may begin at the same place
                break
            found += self._held[max(at, self._let_through) : match.start()] + BLOT
            at, self._let_through = match.end(), 0
            begun = max(begun, at)
        found += self._held[max(at, self._let_through) : max(at, begun)]
        self._let_through = max(0, self._let_through - max(at, begun))
        self._held = self._held[max(at, begun) :]
        return bytes(found)

    def pause(self) -> bytes:
        """Return what can be shown although it may begin a secret, because nothing has followed it for a moment."""
        shown = self._held[self._let_through : SHOWN]
        self._let_through += len(shown)
        return shown

    def end(self) -> bytes:
        """Return the rest of the stream. What may be a cut-off secret is removed."""
        rest, self._held = self._held, b""
        let_through, self._let_through = self._let_through, 0
        return rest[let_through:] if len(rest) <= SHOWN else BLOT

    def _begun(self) -> int:
        """Return where the longest end of the held bytes begins that is also the beginning of a secret."""
        for length in range(min(len(self._held), self._longest), 0, -1):
            if self._held[-length:] in self._beginnings:
                return len(self._held) - length
        return len(self._held)


def _pieces(secret: str) -> Iterator[str]:
    """Yield the parts of a secret that are removed on their own.

    These are its lines, because a console breaks them in its own way. Long lines are cut, so that the beginnings of
    all pieces take little memory.
    """
    for line in map(str.strip, secret.splitlines()):
        yield from (piece for at in range(0, len(line), _PIECE) if len(piece := line[at : at + _PIECE]) >= SHORTEST)


_SEQUENCE = re.compile(
    r"\x1b(?:"
    r"\[[0-?]{0,64}[ -/]{0,8}[@-~]?"  # cursor, colours, modes
    r"|[\]PX^_][^\x07\x1b\n]{0,1024}(?:\x07|\x1b\\)?"  # titles, clipboard, strings of the terminal
    r"|[ -/]{0,8}[0-~]?"
    r")|\x9b[0-?]{0,64}[ -/]{0,8}[@-~]?"
)
_SILENT = re.compile("[\x00\x07\x08\x0e\x0f\x7f]")


def readable(content: bytes) -> str:
    """Return the record of a console as text: without sequences for terminals, and with other controls escaped.

    What a machine prints is chosen by its tenant, and must not steer the terminal of whoever reads the record.
    """
    text = content.decode("utf-8", "replace").replace("\r\n", "\n")
    text = _SILENT.sub("", _SEQUENCE.sub("", text)).replace("\r", "\n")
    return escaped(text, keep="\n\t")
