"""The schedule of Celery beat, which runs the sweep itself if the broker or the workers are unavailable."""

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
    """A Celery beat scheduler that does work itself if it cannot send a hint, or if no worker would read the hint.

    Work is therefore only delayed if the broker has stopped or the workers are dead.
    """

    producer: Any = None
    """Disables the producer of beat, which would wait for the broker.

    Each hint is sent in one attempt with a time limit.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._began = clock.monotonic()

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send the hint of an entry.

        If the broker does not accept the hint or no worker would read it, do the work in this process.
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
        """Return True if no worker for this queue has sent a heartbeat recently.

        Workers that start together with beat are given time to send their first.
        """
        from leases.engine.core import workers

        waited = clock.monotonic() - self._began > settings.DRYDOCK.lost_worker_seconds
        return waited and not workers.served(queue)
