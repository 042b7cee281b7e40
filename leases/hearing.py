"""A worker that no longer hears the broker ends itself, and whoever keeps it starts it again.

After broken connections Celery's main process can go on living without reading its queues
(https://github.com/celery/celery/issues/8030, https://github.com/celery/celery/issues/10205). Such a one also does not
end when it is told to.
"""

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

LOOK_SECONDS = 5.0
DEAF_LOOKS = 6
"""So many looks in turn, which is half a minute; a worker that has a free process hears of a message within
milliseconds. Looks and not seconds are counted, since a machine may stand still."""
END_LOOK_SECONDS = 1.0
QUIET_LOOKS = 10
"""So many looks in turn at which a worker that was told to end has nothing at hand: it hangs."""
_LOG_SECONDS = 2.0


class Hearing:
    """What speaks for a worker's being deaf: messages wait, it could take one, and takes none. Pure."""

    looks = 0

    def heard(self) -> None:
        """It has received a message."""
        self.looks = 0

    def deaf(self, *, waiting: int, free: int) -> bool:
        """One look: how many messages wait in its queues, and how many of its processes are free."""
        self.looks = self.looks + 1 if waiting and free > 0 else 0
        return self.looks >= DEAF_LOOKS


class Watch:
    """Looks from a thread of its own in the worker's main process."""

    def __init__(self, queues: Sequence[str], processes: int) -> None:
        self.queues, self.processes = queues, processes
        self.hearing = Hearing()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        task_received.connect(self._heard)
        self._thread.start()

    def end(self) -> None:
        """The worker ends in an orderly way."""
        task_received.disconnect(self._heard)
        self._over.set()

    def _heard(self, **_: object) -> None:
        self.hearing.heard()

    def _look(self) -> None:
        # One that is told to end takes nothing more, and may finish what it has at hand.
        while not (self._over.wait(LOOK_SECONDS) or database.is_draining()):
            free = self.processes - len(state.active_requests)
            if self.hearing.deaf(waiting=_waiting(self.queues), free=free):
                log.critical("This worker hears nothing from the broker while messages wait: it ends, to be restarted.")
                os.kill(os.getpid(), signal.SIGTERM)
                break
        if self._hangs():
            _say("This worker was told to end and hangs: it is ended by force. The sweep finds what it was at.")
            faulthandler.dump_traceback(file=2)
            os.kill(os.getpid(), signal.SIGKILL)

    def _hangs(self) -> bool:
        """Told to end, it should be over as soon as nothing is at hand, and at the latest when no step that it is at
        would count any more."""
        quiet, until = 0, clock.monotonic() + settings.DRYDOCK.step_token_seconds
        while not self._over.wait(END_LOOK_SECONDS):
            quiet = 0 if state.active_requests else quiet + 1
            if quiet >= QUIET_LOOKS or clock.monotonic() > until:
                return True
        return False


def _say(message: str) -> None:
    """Into the log; past it, where what hangs holds the log's lock, as a signal's handler may."""
    said = threading.Thread(target=log.critical, args=(message,), daemon=True)
    said.start()
    said.join(_LOG_SECONDS)
    if said.is_alive():
        os.write(2, f"{message}\n".encode())


def _waiting(queues: Sequence[str]) -> int:
    """How many messages wait unread; 0 when the broker does not say."""
    try:
        with current_app.connection_for_write() as broker:
            client = broker.default_channel.client  # type: ignore[attr-defined]
            return sum(int(client.llen(queue)) for queue in queues)
    except Exception:
        return 0
