"""The schedule of Celery beat. If the broker or the workers are unavailable, beat runs the sweep itself."""

from __future__ import annotations

from typing import Any

from celery import beat
from django.conf import settings

from drydock.core import clock
from leases.messaging import hints

BEAT: dict[str, dict[str, Any]] = {
    "sweep": {
        "task": "leases.sweep",
        "schedule": settings.DRYDOCK.sweep_interval_seconds,
        "options": {"queue": "periodic"},
    },
}


class Scheduler(beat.Scheduler):
    """Celery beat's in-memory scheduler. It does the work itself if it cannot send a hint or no worker would read it.

    A stopped broker or dead workers therefore only delay work.
    """

    producer: Any = None
    """Disables beat's own producer, which would wait for the broker; a hint is sent with a single bounded try
    instead."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._began = clock.monotonic()

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send the entry's hint.

        If the broker does not accept it or no worker reads it, do its work in this process.
        """
        from django.db import close_old_connections

        from leases.engine.core import database
        from leases.messaging.inline import settle

        hint = entry.task.removeprefix("leases.")
        sent = hints.send(hint)
        close_old_connections()
        try:
            if not sent or self._unread(entry.options["queue"]):
                settle()
        except Exception as error:
            if database.is_lost(error):
                database.report(error)
            else:
                hints.log.exception("The sweep in beat failed. The next sweep tries again.")

    def _unread(self, queue: str) -> bool:
        """Return True if no worker for this queue was seen recently.

        Workers that start together with beat are given time to appear.
        """
        from leases.engine.core import workers

        waited = clock.monotonic() - self._began > settings.DRYDOCK.lost_worker_seconds
        return waited and not workers.served(queue)
