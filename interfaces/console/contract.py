"""The contract of the `console` interface: an open line to a serial console, independent of what carries it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Self

from interfaces.contract import Interface, StillMine
from interfaces.deadline import Deadline
from interfaces.transport import NoAccount, Transport

LARGEST_READ = 16 << 10
"""Maximum number of bytes that a line returns at once."""


class Line(ABC):
    """An open line to a serial console, used by one thread. What the machine sends must be read, or the line stalls."""

    @abstractmethod
    def read(self, wait: float) -> bytes:
        """Return what arrives within `wait` seconds, at most `LARGEST_READ` bytes. Empty if nothing does.

        Also keeps the line alive, so call it at least every few seconds. Raises ConsoleClosed, and the errors of the
        connection.
        """

    @abstractmethod
    def write(self, content: bytes) -> int:
        """Send bytes to the machine without waiting. Return the number of bytes taken, which may be 0.

        Raises ConsoleClosed, and the errors of the connection.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the console, so that others can open it. Never raises."""


Connect = Callable[[Deadline, bool], Line]
"""Opens a line within a deadline. The second argument says whether to end the session of somebody else."""


class Console(Interface):
    """The serial console of a leased machine. Only one line to it can be open at a time."""

    name: ClassVar[str] = "console"
    default_timeout: ClassVar[float] = 30.0

    def __init__(self, transport: Transport | None, *, still_mine: StillMine, connect: Connect) -> None:
        """Prepare a console that `connect` opens. A console that is reached beside the account needs no transport."""
        super().__init__(transport or NoAccount("A console"), still_mine=still_mine)
        self._connect = connect

    @classmethod
    def beside(cls, connect: Connect, *, still_mine: StillMine) -> Self:
        """Return a console that is reached beside the lease's account."""
        return cls(None, still_mine=still_mine, connect=connect)

    def connect(self, *, take: bool = False, timeout: float | None = None) -> Line:
        """Open the line. Close it.

        Raises ConsoleBusy if a session outside Drydock uses the console, unless `take` is true: that session is then
        ended. Raises LeaseEnded, DeadlineExceeded, and the errors of the connection.
        """
        watch = self._watch("Opening the console", timeout)
        return self._connect(watch.deadline, take)
