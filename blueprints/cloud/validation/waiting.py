"""Assertions, and waiting for what a provider does in its own time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from blueprints.cloud.faults import CloudError, Meaning
from drydock.core import clock
from drydock.core.errors import DrydockError
from interfaces.errors import InterfaceError

T = TypeVar("T")

LATER = frozenset({Meaning.THROTTLED, Meaning.UNAVAILABLE, Meaning.CONFLICT, Meaning.AMBIGUOUS})
"""The same call later: all calls but a create are idempotent, so a lost answer is asked for again."""


class Unmet(DrydockError):
    """What a check asserts is not so."""

    code = "unmet"


class LeftOut(DrydockError):
    """There is nothing to do a check with."""

    code = "left_out"


def expect(holds: object, otherwise: str) -> None:
    """Raise Unmet with the message unless the condition holds."""
    if not holds:
        raise Unmet(otherwise)


class Waiting:
    """Waiting with a common limit. `pace`: seconds between two polls."""

    def __init__(self, pace: float) -> None:
        self.pace = pace
        self.until_at = float("inf")

    def limit(self, seconds: float) -> None:
        """Let nothing wait longer than this many seconds from now."""
        self.until_at = clock.monotonic() + seconds

    def until(self, what: str, look: Callable[[], T | None], seconds: float) -> T:
        """What `look` gives as soon as it gives something. A host that does not answer yet, and a provider that wants
        to be asked later, are looked at again. Raises Unmet at the end."""
        began, last = clock.monotonic(), ""
        end = min(began + seconds, self.until_at)
        while True:
            try:
                if found := look():
                    return found
            except InterfaceError as error:
                last = error.message
            except CloudError as error:
                if error.meaning not in LATER:
                    raise
                last = error.message
            if clock.monotonic() >= end:
                raise Unmet(f"{what}: not within {clock.monotonic() - began:.0f} s. {last}".strip())
            clock.sleep(min(self.pace, max(0.0, end - clock.monotonic())))

    def asked(self, call: Callable[[], T], seconds: float) -> T:
        """What a call answers, made again while the provider says: later."""
        return self.until("The provider lets the call through", lambda: (call(),), seconds)[0]
