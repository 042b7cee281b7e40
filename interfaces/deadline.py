"""Deadlines for operations, a limit on all deadlines in a block, and cancellation from another thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from drydock.core import clock
from interfaces.errors import DeadlineExceeded

_BOUND: ContextVar[float | None] = ContextVar("bound", default=None)


@contextmanager
def answering_within(seconds: float) -> Iterator[None]:
    """Make every `Deadline` created in this block expire within `seconds`, even if it asks for more."""
    until, outer = clock.monotonic() + seconds, _BOUND.get()
    token = _BOUND.set(until if outer is None else min(until, outer))
    try:
        yield
    finally:
        _BOUND.reset(token)


class Deadline:
    """The time at which an operation gives up, never later than `answering_within` allows.

    `spare` extends that limit by a number of seconds, for cleaning up after an operation.
    """

    __slots__ = ("_at", "seconds")

    def __init__(self, seconds: float, *, spare: float = 0.0) -> None:
        now, bound = clock.monotonic(), _BOUND.get()
        self.seconds = seconds if bound is None else min(seconds, max(0.0, bound + spare - now))
        self._at = now + self.seconds

    @property
    def remaining(self) -> float:
        """The seconds left, never below 0."""
        return max(0.0, self._at - clock.monotonic())

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return self.remaining <= 0

    def check(self, what: str) -> None:
        """Raise `DeadlineExceeded`, naming `what`, if no time is left."""
        if self.expired:
            raise DeadlineExceeded(f"{what} took longer than {self.seconds:.3g} s.")


class Cancel:
    """Lets another thread cancel a running operation: pass it to the operation, then call `cancel()`."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        """Ask the operation to end. It then raises `Cancelled`. May be called repeatedly."""
        self._event.set()

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._event.is_set()
