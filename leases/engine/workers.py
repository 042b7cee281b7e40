"""Workers as rows: who lives, as far as the database knows."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial

from django.conf import settings
from django.db import connection

from leases.engine.transaction import run

log = logging.getLogger(__name__)

QUEUES = ("claims", "steps", "periodic")


def own_name() -> str:
    """This process as a worker."""
    return f"{socket.gethostname()}:{os.getpid()}"


def seen(name: str, queues: Sequence[str] = QUEUES) -> None:
    """A worker of this name (host:process) lives, and serves these queues."""
    run(
        "INSERT INTO leases_worker (name, queues, seen_at) VALUES (%s, %s, clock_timestamp())"
        " ON CONFLICT (name) DO UPDATE SET seen_at = clock_timestamp(), queues = EXCLUDED.queues",
        (name, list(queues)),
    )


def gone(name: str) -> None:
    """A worker has ended in an orderly way."""
    run("DELETE FROM leases_worker WHERE name = %s", (name,))


def forget_lost() -> int:
    """Forget those that were lost long ago."""
    return run("DELETE FROM leases_worker WHERE seen_at < clock_timestamp() - interval '1 day'")


class Pulse:
    """Says that this worker lives, from a thread of its own, since a worker without work lives too."""

    def __init__(self, queues: Sequence[str]) -> None:
        self.name, self.queues = own_name(), tuple(queues)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The worker ends in an orderly way."""
        self._over.set()
        self._thread.join(5)

    def _beat(self) -> None:
        while not self._over.is_set():
            self._say(partial(seen, self.name, self.queues))
            self._over.wait(settings.DRYDOCK.lost_worker_seconds / 3)
        self._say(partial(gone, self.name))

    def _say(self, what: Callable[[], None]) -> None:
        """Bad luck costs one beat. No connection is kept: children are forked meanwhile."""
        try:
            what()
        except Exception as error:
            log.warning("This worker could not say that it lives: %s", error)
        finally:
            connection.close()
