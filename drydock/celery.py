"""The Celery app. Messages are hints, so sending one has a time limit and losing one does no harm."""

from __future__ import annotations

import importlib
import importlib.util
import os
from functools import partial
from typing import Any

from celery import Celery
from celery.signals import celeryd_init, setup_logging
from django.conf import settings
from kombu import Connection, Queue
from kombu.transport import TRANSPORT_ALIASES

from drydock.core import semaphores
from drydock.engines import BROKER, ensure

READER = "drydock"
TRANSPORT_ALIASES[READER] = "leases.messaging.messages:Transport"
RETRY: dict[str, Any] = {"interval_start": 1, "interval_step": 0, "interval_max": 1}
"""Retry interval in seconds for a worker's connection to the broker. Celery's own grows to half a minute."""
QUEUES = ("claims", "steps", "periodic")


class DrydockCelery(Celery):
    """The Celery app. Starts the private broker if necessary. Producers try to connect once; workers keep trying."""

    def connection_for_write(self, url: str | None = None, **options: Any) -> Connection:
        """Return a producer's connection, which tries once and has a time limit on connecting and on each answer."""
        bound = settings.DRYDOCK.publish_timeout_seconds
        once = {"max_retries": 0, "socket_timeout": bound, "socket_connect_timeout": bound, "retry_on_timeout": False}
        options["transport_options"] = {**once, **(options.get("transport_options") or {})}
        self._bring_broker()
        return super().connection_for_write(url, **options)

    def connection_for_read(self, url: str | None = None, **options: Any) -> Connection:
        """Return a worker's connection, which drops foreign messages before Celery trusts them."""
        self._bring_broker()
        connection: Connection = super().connection_for_read(url, **options)
        connection.transport_cls = READER
        if connection.uri_prefix:  # of `redis+socket:`; a copy of the connection is made from it
            connection.uri_prefix = READER
        connection.ensure_connection = partial(connection.ensure_connection, **RETRY)  # type: ignore[method-assign]
        return connection

    def producer_or_acquire(self, producer: Any = None) -> Any:
        """Return a producer from the pool, starting the private broker again if it has stopped."""
        self._bring_broker()
        return super().producer_or_acquire(producer)

    def _bring_broker(self) -> None:
        if settings.DRYDOCK.private_broker:
            ensure(settings.ENGINES, BROKER)


# Django's checks import the pages and REST: 20 MiB of each worker's memory. `migrate` and `check --deploy` run them.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

app = DrydockCelery("drydock")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.task_queues = [Queue(name) for name in QUEUES]
app.autodiscover_tasks()


@setup_logging.connect
def _keep_our_logging(**_: Any) -> None:
    """Do nothing. Celery does not configure logging if this signal has a receiver."""


@celeryd_init.connect
def _need_semaphores(**_: Any) -> None:
    """End a worker with a message if semaphores do not work, because Celery would end it with a traceback."""
    if problem := semaphores.problem():
        raise SystemExit(problem)


@app.on_after_finalize.connect
def _schedule(sender: Celery, **_: Any) -> None:
    """Set the schedule of beat: `leases.schedule.BEAT`, with entries as in Celery's `beat_schedule`."""
    if importlib.util.find_spec("leases.schedule"):
        sender.conf.beat_schedule = importlib.import_module("leases.schedule").BEAT
