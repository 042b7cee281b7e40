"""SIGTERM and SIGINT end the agent: at once while it waits or scans, otherwise after the request at hand.

SIGUSR1, which the thread that listens sends, ends a wait only.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeVar

T = TypeVar("T")


class _Interrupted(BaseException):
    """A signal came while the agent could be interrupted."""


class _Woken(BaseException):
    """Another thread ended a wait."""


class Stop:
    """Whether the agent was told to end. A token that the server has just sent is never lost."""

    def __init__(self) -> None:
        self.is_set = False
        self._allowed = self._wakes = self._woken = False

    def wake(self) -> None:
        """End the wait of the main thread, or the next one. Called by other threads."""
        self._woken = True
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def take_wake(self) -> bool:
        """Return whether `wake` was called since this was asked the last time."""
        woken, self._woken = self._woken, False
        return woken

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals. What they interrupt ends here."""
        before = {one: signal.signal(one, self._set) for one in (signal.SIGTERM, signal.SIGINT)}
        before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._wake)
        try:
            yield
        except _Interrupted:
            pass
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """Let the signals interrupt what is done here."""
        self._allowed = True
        try:
            if self.is_set:
                raise _Interrupted
            yield
        finally:
            self._allowed = False

    def waiting(self, act: Callable[[], T]) -> T | None:
        """Return what `act` returns. Signals interrupt it; if `wake` ends it, the result is None."""
        try:
            try:
                with self.allowed():
                    self._wakes = True
                    return None if self._woken else act()
            finally:
                self._wakes = self._allowed = False
        except _Woken:
            return None

    def sleep(self, seconds: float) -> None:
        """Sleep, unless a signal comes."""
        until = time.monotonic() + seconds
        while not self._woken and (left := until - time.monotonic()) > 0:
            with self.allowed():
                time.sleep(min(left, 0.5))

    def _wake(self, _number: int, _frame: FrameType | None) -> None:
        if self._wakes:
            self._wakes = False
            raise _Woken

    def _set(self, _number: int, _frame: FrameType | None) -> None:
        self.is_set = True
        if self._allowed:
            self._allowed = False
            raise _Interrupted
