"""A console in memory, for tests: the machine's side of its line can be written, read, occupied and cut."""

from __future__ import annotations

import threading

from drydock.core import clock
from interfaces.console.contract import LARGEST_READ, Console, Line
from interfaces.contract import StillMine
from interfaces.deadline import Deadline
from interfaces.errors import ConsoleBusy, ConsoleClosed
from interfaces.transport import Transport


def _always() -> None:
    """Let every operation continue, as for a lease that never ends."""


class FakeConsole(Console):
    """A console in memory. It echoes what is typed if `echo` is true. Thread-safe on the machine's side."""

    def __init__(
        self, transport: Transport | None = None, *, still_mine: StillMine = _always, echo: bool = True
    ) -> None:
        super().__init__(transport, still_mine=still_mine, connect=self._opened)
        self.echo = echo
        self.occupied = False
        """Whether a session outside Drydock uses the console."""
        self.typed = bytearray()
        """Everything that was sent to the machine."""
        self.opened = self.closed = 0
        self._output = bytearray()
        self._cut = False
        self._changed = threading.Condition()

    def print(self, content: bytes) -> None:
        """Let the machine print something."""
        with self._changed:
            self._output += content
            self._changed.notify_all()

    def cut(self) -> None:
        """End the open line, as the other end does."""
        with self._changed:
            self._cut = True
            self._changed.notify_all()

    def _opened(self, deadline: Deadline, take: bool) -> Line:
        with self._changed:
            if self.occupied and not take:
                raise ConsoleBusy
            self.occupied = self._cut = False
            self.opened += 1
        return _FakeLine(self)


class _FakeLine(Line):
    """The open line of a fake console."""

    def __init__(self, console: FakeConsole) -> None:
        self._console = console

    def read(self, wait: float) -> bytes:
        console, until = self._console, clock.monotonic() + wait
        with console._changed:
            while not console._output:
                if console._cut:
                    raise ConsoleClosed
                if (left := until - clock.monotonic()) <= 0:
                    return b""
                console._changed.wait(left)
            found = bytes(console._output[:LARGEST_READ])
            del console._output[:LARGEST_READ]
        return found

    def write(self, content: bytes) -> int:
        self._console.typed += content
        if self._console.echo:
            self._console.print(content)
        return len(content)

    def close(self) -> None:
        self._console.closed += 1
