"""What beat sends, and how often; with the broker gone, beat sweeps by itself."""

from __future__ import annotations

from typing import Any

from celery import beat
from django.conf import settings

from drydock.core import clock
from leases import hints

BEAT: dict[str, dict[str, Any]] = {
    "sweep": {
        "task": "leases.sweep",
        "schedule": settings.DRYDOCK.sweep_interval_seconds,
        "options": {"queue": "periodic"},
    },
}


class Scheduler(beat.Scheduler):
    """Beat's scheduler in memory. What it cannot send, and what no worker would read, it carries out itself: a stopped
    broker, or workers that die, cost speed and nothing else."""

    producer: Any = None
    """Beat's own would wait for the broker; a hint is sent with one bounded try."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._began = clock.monotonic()

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send the entry's hint; where the broker does not take it, or no worker reads it, do its work here."""
        from django.db import close_old_connections

        from leases.engine.core import database
        from leases.inline import settle

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
                hints.log.exception("The sweep in beat failed; the next one follows.")

    def _unread(self, queue: str) -> bool:
        """Whether no worker of this queue was seen lately. Those that begin with beat are given time to."""
        from leases.engine.core import workers

        waited = clock.monotonic() - self._began > settings.DRYDOCK.lost_worker_seconds
        return waited and not workers.served(queue)
