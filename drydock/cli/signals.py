"""Ctrl-C and SIGTERM: the command in hand is left at once, and what was leased is released in peace."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

from drydock.cli.exits import INTERRUPTED, TERMINATED, Stopped

_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGHUP: TERMINATED}


def _stop(number: int, _: object) -> None:
    # Only once: what follows is the clearing up, and a second signal must not end that.
    for known in _CODES:
        signal.signal(known, signal.SIG_IGN)
    raise Stopped(_CODES[signal.Signals(number)])


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Signals raise Stopped in here, once; the clearing up is not disturbed by further ones."""
    before = {number: signal.signal(number, _stop) for number in _CODES}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """No signal ends what is done in here."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _CODES}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
