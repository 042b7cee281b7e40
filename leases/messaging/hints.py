"""Hints: messages that something may be due. If a hint is lost, the sweep finds the same work later."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from celery import current_app
from django.conf import settings
from django.db import transaction

from drydock.core import clock
from leases.engine.core import database
from leases.messaging import hint_dedup

log = logging.getLogger(__name__)

QUEUES = {
    "serve": "claims",
    "end": "claims",
    "step": "steps",
    "job": "steps",
    "watch": "steps",
    "sweep": "periodic",
    "discover": "steps",
    "orphans": "steps",
    "read": "steps",
    "bulk_check": "steps",
    "call_agent": "steps",
}

"""The queue for the task of each hint."""

ALONE = {"serve", "sweep"}

"""Hints that only one process at a time may handle with the same arguments.

Two processes would examine the same pending leases, and one would wait for the locks of the other.
"""

_PAUSE = 5.0

_local = threading.local()

_silent_until = 0.0


def after_commit(hint: str, *args: object) -> None:
    """Send the hint after the current transaction has committed, or at once if no transaction is open."""
    once_committed(send, hint, *args)


def once_committed(act: Callable[..., object], *args: object, **named: object) -> None:
    """Call `act` after the current transaction has committed, or at once if no transaction is open.

    An exception is only logged, in a single line if the database connection is lost, because the sweep finds what
    is due. A `partial` is not used, because it lacks the name that Django logs with an exception.
    """

    def call() -> None:
        try:
            act(*args, **named)
        except Exception as error:
            if not database.is_lost(error):
                raise
            database.report(error)

    transaction.on_commit(call, robust=True)


def send(hint: str, *args: object) -> bool:
    """Send the hint now, unless its queue already contains it. Never raises an exception.

    Return True if a worker will read the hint.
    """
    collected: deque[tuple[str, tuple[object, ...]]] | None = getattr(_local, "collected", None)
    if collected is None:
        return bool(_with_broker(partial(_publish, hint, args), otherwise=False))
    if (hint, args) not in collected:
        collected.append((hint, args))
    return True


def _publish(hint: str, args: tuple[object, ...], producer: Any) -> bool:
    queue = QUEUES[hint]
    if hint_dedup.put(producer.channel.client, queue, hint, args):
        current_app.send_task(
            f"leases.{hint}", args=args, queue=queue, retry=False, ignore_result=True, producer=producer
        )
    return True


@contextlib.contextmanager
def read(hint: str, *args: object) -> Iterator[bool]:
    """Provide a block in which a worker handles a hint that it has read.

    Yields False if another process is handling the same hint and will do so once more, so that nothing is left to
    do. Never raises an exception of its own.
    """
    begin, alone = (hint_dedup.begin, True) if hint in ALONE else (hint_dedup.take, False)
    mine = _with_broker(lambda producer: begin(producer.channel.client, hint, args), otherwise=True)
    try:
        yield mine
    finally:
        if alone and mine and _with_broker(lambda p: hint_dedup.end(p.channel.client, hint, args), otherwise=False):
            send(hint, *args)


_LOOKERS = 2
"""The divisor that determines how many of a worker's processes may check leases of one owner at the same time."""
_MARGIN = 10
"""Seconds by which a check may take longer than the time that its host has to answer."""


@contextlib.contextmanager
def looking(lease: int, owner: int | None) -> Iterator[bool]:
    """Reserve the host of a lease for a check in this block.

    Yields False if another process is checking the host, or if too many processes check leases of its owner: a
    tenant can make a host hang, and workers serve all owners. Never raises an exception of its own.
    """
    places = max(1, settings.DRYDOCK.worker_concurrency // _LOOKERS)
    seconds = math.ceil(settings.DRYDOCK.host_seconds) + _MARGIN
    until, taken = clock.monotonic() + seconds, list[str]()

    def begin(producer: Any) -> bool:
        taken.extend(hint_dedup.look(producer.channel.client, lease, owner, places=places, seconds=seconds))
        return bool(taken)

    try:
        yield _with_broker(begin, otherwise=True)
    finally:
        if taken and clock.monotonic() < until:
            _with_broker(lambda producer: hint_dedup.looked(producer.channel.client, taken), otherwise=False)


def _with_broker(act: Callable[[Any], bool], *, otherwise: bool) -> bool:
    """Call `act` with a producer, and return its result.

    Returns `otherwise` if hints are being collected, or if the broker does not answer.
    """
    global _silent_until
    if getattr(_local, "collected", None) is not None or clock.monotonic() < _silent_until:
        return otherwise
    try:
        with current_app.producer_or_acquire() as producer:
            return act(producer)
    except Exception as error:
        _silent_until = clock.monotonic() + _PAUSE
        log.warning("The broker does not accept hints (%s). The sweep finds work that is due.", error)
        return otherwise


@contextlib.contextmanager
def collected() -> Iterator[deque[tuple[str, tuple[object, ...]]]]:
    """Collect the hints of this thread instead of sending them, so that this process can handle them."""
    before = getattr(_local, "collected", None)
    _local.collected = deque()
    try:
        yield _local.collected
    finally:
        _local.collected = before
