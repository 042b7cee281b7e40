"""Refused logins at places that lock accounts, such as BMCs, as a record that all workers share.

A login is put on record before it is tried, so that workers that try at the same time, and one that dies meanwhile,
count too. What is not known to have succeeded counts as refused.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from drydock.core import clock

MOST, WINDOW = 2, 600.0
"""Refused logins that are allowed at one place, and the seconds for which each of them counts.

A BlueField-3 locks an account for 600 s after four (`AccountLockoutThreshold` and `AccountLockoutDuration` of the
captured AccountService).
"""
SOON = 2.0
"""Seconds after which to ask again while a login of another worker is under way."""

LOST = 60.0
"""Seconds after which a login whose outcome nobody has reported is taken for one whose worker has died."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A login that may be tried now, or the seconds after which to ask again."""

    token: str = ""
    """Empty if no login may be tried now."""
    wait: float = 0.0


class Logins(Protocol):
    """The record of the logins at places. A place is the address of a BMC, whatever was registered there."""

    def begin(self, place: str) -> Attempt:
        """Put a login on record, before it is tried. Try none if the answer has no token."""

    def accepted(self, attempt: str) -> None:
        """Strike a login from the record that was accepted, or not judged. Others stay, whoever tried them."""

    def refused(self, place: str, attempt: str = "") -> None:
        """Note that a login was refused. Without `attempt`, it is one that was accepted before, or not on record."""


@dataclass
class _Entry:
    token: str
    at: float
    refused: bool = False


class LoginsInMemory:
    """A record in memory, for tests of kinds and for the conformance suite."""

    def __init__(self, time: Callable[[], float] = clock.monotonic) -> None:
        self._time = time
        self._lock = threading.Lock()
        self._places: dict[str, list[_Entry]] = {}

    def begin(self, place: str) -> Attempt:
        """Put a login on record."""
        with self._lock:
            found = self._current(place)
            if len(found) >= MOST:
                return Attempt(wait=self._wait(found))
            found.append(_Entry(uuid.uuid4().hex, self._time()))
            return Attempt(token=found[-1].token)

    def accepted(self, attempt: str) -> None:
        """Strike a login from the record."""
        with self._lock:
            for found in self._places.values():
                found[:] = [one for one in found if one.token != attempt or one.refused]

    def refused(self, place: str, attempt: str = "") -> None:
        """Note that a login was refused."""
        with self._lock:
            found = self._current(place)
            entry = next((one for one in found if attempt and one.token == attempt), None)
            if entry is None:
                if len(found) >= MOST:
                    return
                found.append(entry := _Entry(attempt, 0.0))
            entry.at, entry.refused = self._time(), True

    def _current(self, place: str) -> list[_Entry]:
        found = self._places.setdefault(place, [])
        found[:] = [one for one in found if one.at > self._time() - WINDOW]
        return found

    def _wait(self, found: list[_Entry]) -> float:
        if not all(one.refused or one.at < self._time() - LOST for one in found):
            return SOON
        return max(min(one.at for one in found) + WINDOW - self._time(), 0.1)
