"""The Celery app of a worker that never ends in an orderly way: `celery -A tests.leases.hanging`."""

from __future__ import annotations

import threading

from celery.signals import worker_shutting_down

from leases.messaging import broker_watchdog

broker_watchdog.CHECK_SECONDS = broker_watchdog.END_CHECK_SECONDS = 0.2

from drydock.celery import app  # noqa: E402

__all__ = ["app"]


def hang_for_ever(**_):
    """As its main process may after broken connections."""
    threading.Event().wait()


@app.on_after_finalize.connect
def _last(**_):
    """After our own listener, which the tasks bring along."""
    import leases.tasks  # noqa: F401

    worker_shutting_down.connect(hang_for_ever, weak=False)
