"""The workers of this installation, and which of them are alive according to their heartbeats in the database."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial

from django.conf import settings
from django.db import connection

from leases.engine.core import database
from leases.engine.core.database import rows, run

log = logging.getLogger(__name__)

QUEUES = ("claims", "steps", "periodic")


def own_name() -> str:
    """Return the name under which this process is listed in the table of workers."""
    return f"{socket.gethostname()}:{os.getpid()}"


def seen(name: str, queues: Sequence[str] = QUEUES) -> None:
    """Record a heartbeat of the worker `name` (host:process), with the queues that the worker serves."""
    run(
        "INSERT INTO leases_worker (name, queues, seen_at) VALUES (%s, %s, clock_timestamp())"
        " ON CONFLICT (name) DO UPDATE SET seen_at = clock_timestamp(), queues = EXCLUDED.queues",
        (name, list(queues)),
    )


def gone(name: str) -> None:
    """Remove a worker that has shut down from the list of workers."""
    run("DELETE FROM leases_worker WHERE name = %s", (name,))


def served(queue: str) -> bool:
    """Return whether a worker that serves this queue sent a heartbeat recently."""
    return bool(
        rows(
            "SELECT 1 FROM leases_worker WHERE %s = ANY (queues)"
            " AND seen_at > clock_timestamp() - %s * interval '1 s' LIMIT 1",
            (queue, settings.DRYDOCK.lost_worker_seconds),
        )
    )


def forget_lost() -> int:
    """Delete workers that have not sent a heartbeat for a day."""
    return run("DELETE FROM leases_worker WHERE seen_at < clock_timestamp() - interval '1 day'")


class Pulse:
    """A thread that records this worker's heartbeat and sends its other periodic reports, even during a long task."""

    def __init__(self, queues: Sequence[str], *reports: Callable[[], None]) -> None:
        self.name, self.queues, self._reports = own_name(), tuple(queues), reports
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop the thread, and remove the worker from the list of workers."""
        self._over.set()
        self._thread.join(5)

    def _beat(self) -> None:
        while not self._over.is_set():
            self._say(partial(seen, self.name, self.queues), *self._reports)
            self._over.wait(settings.DRYDOCK.lost_worker_seconds / 3)
        self._say(*self._reports, partial(gone, self.name))

    def _say(self, *reports: Callable[[], None]) -> None:
        """Record one heartbeat, and make the other reports.

        A failure costs only this heartbeat. The database connection is closed afterwards, because child
        processes are forked between heartbeats.
        """
        try:
            for report in reports:
                report()
        except Exception as error:
            if database.is_lost(error):
                database.report(error)
            else:
                log.warning("This worker could not report to the database: %s", error)
        finally:
            connection.close()
