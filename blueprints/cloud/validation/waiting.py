"""Assertions, and waiting for results that take time at a provider."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from blueprints.cloud.faults import CloudError, Meaning
from drydock.core import clock
from drydock.core.errors import DrydockError
from interfaces.errors import InterfaceError

T = TypeVar("T")

LATER = frozenset({Meaning.THROTTLED, Meaning.UNAVAILABLE, Meaning.CONFLICT, Meaning.AMBIGUOUS})
"""Errors after which the same call is repeated later. All calls except a create are idempotent, so a call whose answer
was lost may be repeated too."""


class Unmet(DrydockError):
    """An assertion of a check does not hold."""

    code = "unmet"


class LeftOut(DrydockError):
    """The check cannot be carried out here."""

    code = "left_out"


def expect(holds: object, otherwise: str) -> None:
    """Raise Unmet with the message unless the condition holds."""
    if not holds:
        raise Unmet(otherwise)


class Waiting:
    """Waits with a common limit. `pace` is the number of seconds between two polls."""

    def __init__(self, pace: float) -> None:
        self.pace = pace
        self.until_at = float("inf")

    def limit(self, seconds: float) -> None:
        """Limit all waits to this many seconds from now."""
        self.until_at = clock.monotonic() + seconds

    def until(self, what: str, look: Callable[[], T | None], seconds: float) -> T:
        """Return the first result of `look` that is true.

        Polls again if a host does not answer yet or if the provider asks to be polled later. Raises Unmet on timeout.
        """
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
                raise Unmet(f"{what}: timed out after {clock.monotonic() - began:.0f} s. {last}".strip())
            clock.sleep(min(self.pace, max(0.0, end - clock.monotonic())))

    def asked(self, call: Callable[[], T], seconds: float) -> T:
        """Return the result of a call, which is repeated while the provider asks to be called later."""
        return self.until("The provider accepts the call", lambda: (call(),), seconds)[0]
