"""Losing the connection to the database, and going on when the database is back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

from django.db import Error, InterfaceError, OperationalError, connection

from drydock.core import clock
from leases.engine import draining

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger(__name__)

LOST = (OperationalError, InterfaceError)
"""What Django raises when the connection broke or could not be made, among other things: see `is_lost`."""
PATIENCE = 60.0
"""Seconds for which programs that wait put up with a database that does not answer."""
_PAUSE = 0.25
_CONNECTION = "08"
_ENDED = {"57P01", "57P02", "57P03", "57P04", "57P05", "25P03"}
"""SQLSTATEs: ended by an administrator, a crash or a timeout, and refused while starting or stopping."""
_REPORT_EVERY = 1.0
_answering: ContextVar[bool] = ContextVar("answering", default=False)
_reported_at = float("-inf")
_guard = threading.Lock()


def is_lost(error: BaseException) -> bool:
    """Return whether an error means that a connection broke or could not be made.

    A broken connection is closed, so that the next statement connects anew; it may have been replaced already, when
    the transaction was rolled back. Inside a transaction nothing can be told: whoever began it has to see the error.
    """
    if not isinstance(error, LOST) or connection.in_atomic_block:
        return False
    if connection.connection is not None and not connection.is_usable():
        connection.close()
    return connection.connection is None or _of_connection(error)


def _of_connection(error: BaseException) -> bool:
    """Return whether the server, or libpq without it, tells of the connection and not of a statement."""
    if not isinstance(error, OperationalError):
        return False
    state = getattr(error.__cause__, "sqlstate", None) or ""
    return not state or state[:2] == _CONNECTION or state in _ENDED


def report(error: BaseException) -> None:
    """Log that the database does not answer: at most one line a second for each process."""
    global _reported_at
    with _guard:
        now = clock.monotonic()
        if now - _reported_at < _REPORT_EVERY:
            return
        _reported_at = now
    log.error("The database does not answer (%s). Work goes on when it is back.", str(error).strip().split("\n")[0])


def patient(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call something that may be repeated, again and again while the database does not answer.

    Raises the last error after `PATIENCE` seconds, and at once whatever does not mean a lost connection. While a web
    request is answered nothing is repeated, since its client is told to come back, nor in a worker that is ending.
    """
    until = clock.monotonic() + PATIENCE
    while True:
        try:
            return call(*args, **kwargs)
        except Error as error:
            if not is_lost(error) or _answering.get() or draining.begun() or clock.monotonic() >= until:
                raise
            report(error)
        clock.sleep(_PAUSE)


def request_started(**_: object) -> None:
    """Receive Django's signal of this name."""
    _answering.set(True)


def request_finished(**_: object) -> None:
    """Receive Django's signal of this name."""
    _answering.set(False)
