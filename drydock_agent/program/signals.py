"""SIGTERM and SIGINT end the agent: at once while it waits or scans, otherwise after the request at hand."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType


class _Interrupted(BaseException):
    """A signal came while the agent could be interrupted."""


class Stop:
    """Whether the agent was told to end. A token that the server has just sent is never lost."""

    def __init__(self) -> None:
        self.is_set = False
        self._allowed = False

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals. What they interrupt ends here."""
        before = {one: signal.signal(one, self._set) for one in (signal.SIGTERM, signal.SIGINT)}
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

    def sleep(self, seconds: float) -> None:
        """Sleep, unless a signal comes."""
        with self.allowed():
            time.sleep(seconds)

    def _set(self, _number: int, _frame: FrameType | None) -> None:
        self.is_set = True
        if self._allowed:
            self._allowed = False
            raise _Interrupted
