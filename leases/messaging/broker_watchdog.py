"""Ends a worker that no longer receives messages from the broker, so that its supervisor restarts it."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import threading
from collections.abc import Sequence

from celery import current_app
from celery.signals import task_received
from celery.worker import state
from django.conf import settings

from drydock.core import clock
from leases.engine.core import database

log = logging.getLogger(__name__)

CHECK_SECONDS = 5.0

DEAF_CHECKS = 6

"""Number of consecutive checks without a received message after which a worker is considered deaf.

These checks take half a minute, while a worker with a free process receives a message within milliseconds. Checks are
counted and not seconds, because the machine may be suspended.
"""

END_CHECK_SECONDS = 1.0

QUIET_CHECKS = 10

"""Number of consecutive checks without active tasks after which a worker that should end is considered hung."""

_LOG_SECONDS = 2.0


class BrokerContact:
    """Counts consecutive checks at which messages are waiting and the worker is free, but receives none.

    Makes no calls.
    """

    looks = 0

    def heard(self) -> None:
        """Record that the worker has received a message."""
        self.looks = 0

    def deaf(self, *, waiting: int, free: int) -> bool:
        """Record a check. Return True if the worker has stopped receiving messages.

        `waiting` is the number of messages in the worker's queues, and `free` the number of its idle processes.
        """
        self.looks = self.looks + 1 if waiting and free > 0 else 0
        return self.looks >= DEAF_CHECKS


class BrokerWatchdog:
    """A thread in the worker's main process that checks whether the worker still receives messages."""

    def __init__(self, queues: Sequence[str], processes: int) -> None:
        self.queues, self.processes = queues, processes
        self.hearing = BrokerContact()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        task_received.connect(self._heard)
        self._thread.start()

    def end(self) -> None:
        """Stop checking, because the worker is shutting down cleanly."""
        task_received.disconnect(self._heard)
        self._over.set()

    def _heard(self, **_: object) -> None:
        self.hearing.heard()

    def _look(self) -> None:
        # A worker that was told to end takes no more tasks, and may finish its current ones.
        while not (self._over.wait(CHECK_SECONDS) or database.is_draining()):
            free = self.processes - len(state.active_requests)
            if self.hearing.deaf(waiting=_waiting(self.queues), free=free):
                log.critical(
                    "This worker does not receive messages from the broker although messages are waiting. "
                    "It exits to be restarted."
                )
                os.kill(os.getpid(), signal.SIGTERM)
                break
        if self._hangs():
            _say("This worker did not stop in time, so it is killed. The sweep finds its unfinished work.")
            faulthandler.dump_traceback(file=2)
            os.kill(os.getpid(), signal.SIGKILL)

    def _hangs(self) -> bool:
        """Wait until the worker ends. Return True if it still runs although it should have ended.

        The worker should end as soon as it has no active tasks, and at the latest when the tokens of its steps
        have expired.
        """
        quiet, until = 0, clock.monotonic() + settings.DRYDOCK.step_token_seconds
        while not self._over.wait(END_CHECK_SECONDS):
            quiet = 0 if state.active_requests else quiet + 1
            if quiet >= QUIET_CHECKS or clock.monotonic() > until:
                return True
        return False


def _say(message: str) -> None:
    """Log a message, or write it to standard error if a signal handler that hangs holds the lock of the log."""
    said = threading.Thread(target=log.critical, args=(message,), daemon=True)
    said.start()
    said.join(_LOG_SECONDS)
    if said.is_alive():
        os.write(2, f"{message}\n".encode())


def _waiting(queues: Sequence[str]) -> int:
    """Return the number of unread messages in the queues, or 0 if the broker does not answer."""
    try:
        with current_app.connection_for_write() as broker:
            client = broker.default_channel.client  # type: ignore[attr-defined]
            return sum(int(client.llen(queue)) for queue in queues)
    except Exception:
        return 0
