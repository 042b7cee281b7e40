"""The base class of interfaces: a name, a transport to the resource, and a check that the lease is still active."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from drydock.core import clock
from interfaces.deadline import Cancel as Cancel
from interfaces.deadline import Deadline as Deadline
from interfaces.errors import Cancelled
from interfaces.transport import Transport

StillMine = Callable[[], None]
"""A check supplied by the engine: raises `LeaseEnded` if the lease is no longer active."""


class Watch:
    """Checks whether a long operation may continue. The operation calls `check` between its parts."""

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
        """Raise `Cancelled`, `DeadlineExceeded` or what `still_mine` raises if the operation must stop."""
        if self._cancel is not None and self._cancel.cancelled:
            raise Cancelled(f"{self._what} was cancelled.")
        self.deadline.check(self._what)
        if clock.monotonic() - self._asked >= self.ASK_EVERY:
            self._still_mine()
            self._asked = clock.monotonic()


class Interface:
    """A typed API on a leased resource. A subclass sets `name` and calls `_watch` before each operation.

    Every operation has a deadline: `default_timeout` seconds unless the call specifies another.
    """

    name: ClassVar[str] = ""
    default_timeout: ClassVar[float] = 60.0

    def __init__(self, transport: Transport, *, still_mine: StillMine) -> None:
        self.transport = transport
        self._still_mine = still_mine

    @classmethod
    def open(cls, transport: Transport, *, still_mine: StillMine, options: Mapping[str, Any]) -> Self:
        """Create the interface over a transport. `options` are further constructor arguments, given by the kind."""
        return cls(transport, still_mine=still_mine, **options)

    def _watch(self, what: str, timeout: float | None = None, cancel: Cancel | None = None) -> Watch:
        """Check the lease, and start the deadline of one operation."""
        seconds = self.default_timeout if timeout is None else timeout
        return Watch(what, Deadline(seconds), self._still_mine, cancel)
