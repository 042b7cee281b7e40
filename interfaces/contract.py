"""What every interface is: a name, a way to the leased thing, and a check that the lease still holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, Self

from drydock.core import clock
from interfaces.errors import Cancelled, DeadlineExceeded
from interfaces.transport import Transport

StillMine = Callable[[], None]
"""Supplied by the engine: returns when the lease is active, raises `LeaseEnded` when it is over."""


_BOUND: ContextVar[float | None] = ContextVar("bound", default=None)


@contextmanager
def answering_within(seconds: float) -> Iterator[None]:
    """Let every `Deadline` that is made inside end within `seconds`, whatever it asks for."""
    until, outer = clock.monotonic() + seconds, _BOUND.get()
    token = _BOUND.set(until if outer is None else min(until, outer))
    try:
        yield
    finally:
        _BOUND.reset(token)


class Deadline:
    """A moment after which an operation gives up; never later than `answering_within` allows.

    `spare`: seconds beyond that bound, for ending what was begun within it.
    """

    __slots__ = ("_at", "seconds")

    def __init__(self, seconds: float, *, spare: float = 0.0) -> None:
        now, bound = clock.monotonic(), _BOUND.get()
        self.seconds = seconds if bound is None else min(seconds, max(0.0, bound + spare - now))
        self._at = now + self.seconds

    @property
    def remaining(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self._at - clock.monotonic())

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return self.remaining <= 0

    def check(self, what: str) -> None:
        """Raise `DeadlineExceeded` naming `what` when no time is left."""
        if self.expired:
            raise DeadlineExceeded(f"{what} took longer than {self.seconds:.3g} s.")


class Cancel:
    """Lets another thread end a running operation: pass it in, call `cancel()`."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        """Ask the operation to end; it then raises `Cancelled`. Repeating it is harmless."""
        self._event.set()

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._event.is_set()


class Watch:
    """Asks, between the parts of a long operation, whether it may go on."""

    # The engine's check reads a row; a command polled ten times a second need not ask as often.
    ASK_EVERY = 1.0

    def __init__(self, what: str, deadline: Deadline, still_mine: StillMine, cancel: Cancel | None = None) -> None:
        self.deadline = deadline
        self._what = what
        self._still_mine = still_mine
        self._cancel = cancel
        self._asked = clock.monotonic()
        still_mine()

    def check(self) -> None:
        """Raise `Cancelled`, `DeadlineExceeded` or what `still_mine` raises; else return at once."""
        if self._cancel is not None and self._cancel.cancelled:
            raise Cancelled(f"{self._what} was cancelled.")
        self.deadline.check(self._what)
        if clock.monotonic() - self._asked >= self.ASK_EVERY:
            self._still_mine()
            self._asked = clock.monotonic()


class Interface:
    """A typed API on a leased thing. A subclass sets `name` and calls `_watch` before each operation.

    Every operation has a deadline: `default_timeout` seconds unless the call says otherwise.
    """

    name: ClassVar[str] = ""
    default_timeout: ClassVar[float] = 60.0

    def __init__(self, transport: Transport, *, still_mine: StillMine) -> None:
        self.transport = transport
        self._still_mine = still_mine

    @classmethod
    def open(cls, transport: Transport, *, still_mine: StillMine, options: Mapping[str, Any]) -> Self:
        """Make the interface from what a kind put into its facts; `options` are constructor arguments."""
        return cls(transport, still_mine=still_mine, **options)

    def _watch(self, what: str, timeout: float | None = None, cancel: Cancel | None = None) -> Watch:
        """Check the lease and start the clock of one operation."""
        seconds = self.default_timeout if timeout is None else timeout
        return Watch(what, Deadline(seconds), self._still_mine, cancel)
