"""Recognize the text of hardware that an agent reported before, so that most reports need not be parsed as a whole.

Each web process remembers, for each agent, the hash of this text and what was read from it. Nothing depends on it: a
report that is not recognized is read as usual.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from drydock_agent import wire

MOST_AGENTS = 10_000
"""The number of agents that a process remembers. Those that reported the longest ago are forgotten first."""
_HARDWARE = re.compile(rb'"hardware"\s*:\s*')
_BEGIN = b'{"'
"""Matches the beginning of a JSON text in UTF-8. `json` assumes UTF-8 if the second byte is not zero."""
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, kw_only=True)
class Known:
    """Hardware that an agent reported: the digest of its values, and the normalized identities of its host."""

    digest: str
    identities: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class _Text:
    """The text of this hardware: its length in bytes, and its hash."""

    length: int
    hash: bytes
    known: Known


class Repeats:
    """The text of the hardware that each agent reported last."""

    def __init__(self, most: int = MOST_AGENTS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._texts: OrderedDict[int, _Text] = OrderedDict()

    def recognize(self, agent_id: int, body: bytes) -> tuple[dict[str, Any], Known] | None:
        """Return a report without its hardware, and what is known of that. None if its text is not known.

        Raises wire.Malformed if the rest is not valid JSON.

        The text was a complete JSON value when it was learned. If what is left with an empty object in its place is a
        document with this object as its hardware, then the whole is that document with that hardware.
        """
        with self._lock:
            text = self._texts.get(agent_id)
        place = _place(body) if text is not None else None
        if text is None or place is None:
            return None
        end = place + text.length
        if sha256(body[place:end]).digest() != text.hash:
            return None
        rest = wire.parsed(body[:place] + b"{}" + body[end:])
        if not isinstance(rest, dict) or rest.get("hardware") != {}:
            return None
        return rest, text.known

    def learn(self, agent_id: int, body: bytes, hardware: object, known: Known) -> None:
        """Remember the text of the hardware in a body, instead of what the agent reported before.

        A body in which it cannot be found, such as one that is not UTF-8, is not remembered.
        """
        place = _place(body)
        if place is None:
            return
        try:
            value, length = _DECODER.raw_decode(body[place:].decode())
        except (ValueError, RecursionError):
            return
        if value != hardware:
            return
        written = body[place:].decode()[:length].encode()
        with self._lock:
            self._texts[agent_id] = _Text(length=len(written), hash=sha256(written).digest(), known=known)
            self._texts.move_to_end(agent_id)
            if len(self._texts) > self._most:
                self._texts.popitem(last=False)

    def forget(self) -> None:
        """Forget all agents."""
        with self._lock:
            self._texts.clear()


def _place(body: bytes) -> int | None:
    """Return where the hardware begins in a JSON text, or None if it is not found."""
    found = _HARDWARE.search(body) if body.startswith(_BEGIN) else None
    return found.end() if found else None


REPEATS = Repeats()
