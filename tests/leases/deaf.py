"""The Celery app of a worker that stops reading its queues as soon as it is ready: `celery -A tests.leases.deaf`."""

from __future__ import annotations

from celery.signals import worker_ready

from leases.messaging import broker_watchdog

broker_watchdog.CHECK_SECONDS = 0.2

from drydock.celery import app  # noqa: E402

__all__ = ["app"]


@worker_ready.connect
def _deafen(sender, **_):
    sender.task_consumer.cancel()
