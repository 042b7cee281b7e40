"""What beat sends, and how often; with the broker gone, beat sweeps by itself."""

from __future__ import annotations

from typing import Any

from celery import beat
from django.conf import settings

from leases import hints

BEAT: dict[str, dict[str, Any]] = {
    "sweep": {
        "task": "leases.sweep",
        "schedule": settings.DRYDOCK.sweep_interval_seconds,
        "options": {"queue": "periodic"},
    },
}


class Scheduler(beat.Scheduler):
    """Beat's scheduler in memory. What it cannot send to a worker it carries out itself, so that a stopped broker
    costs speed and nothing else."""

    producer: Any = None
    """Beat's own would wait for the broker; a hint is sent with one bounded try."""

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send the entry's hint; where the broker does not take it, do its work here."""
        from django.db import close_old_connections

        from leases.inline import settle

        hint = entry.task.removeprefix("leases.")
        if hints.send(hint):
            return
        close_old_connections()
        try:
            settle()
        except Exception:
            hints.log.exception("The sweep in beat failed; the next one follows.")
