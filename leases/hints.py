"""Hints: messages that something may be due. Losing one costs time, never correctness; the sweep finds all.

Sending never raises, and after a failure the broker is left alone for a few seconds, so that a dead one costs a
caller at most one short timeout.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from celery import current_app
from django.db import transaction

from drydock.core import clock
from leases import marks
from leases.engine.core import database

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
}
"""Hint -> the queue its task is in."""
ALONE = {"serve", "sweep"}
"""Of these one process carries the same out at a time: two would look at the same waiters, and the one would wait for
the other's locks."""
_PAUSE = 5.0
_local = threading.local()
_silent_until = 0.0


def after_commit(hint: str, *args: object) -> None:
    """Send the hint when the transaction at hand has committed (at once when there is none)."""
    once_committed(send, hint, *args)


def once_committed(act: Callable[..., object], *args: object, **named: object) -> None:
    """Call it when the transaction at hand has committed (at once when there is none); what it raises is logged, and
    a lost connection to the database in one line: the sweep finds what is due.

    Not by a `partial`, whose missing name Django asks for when it logs that.
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
    """Send the hint now, unless it waits in its queue already; True when a worker will read it. Never raises."""
    collected: deque[tuple[str, tuple[object, ...]]] | None = getattr(_local, "collected", None)
    if collected is None:
        return bool(_with_broker(partial(_publish, hint, args), otherwise=False))
    if (hint, args) not in collected:
        collected.append((hint, args))
    return True


def _publish(hint: str, args: tuple[object, ...], producer: Any) -> bool:
    queue = QUEUES[hint]
    if marks.put(producer.channel.client, queue, hint, args):
        current_app.send_task(
            f"leases.{hint}", args=args, queue=queue, retry=False, ignore_result=True, producer=producer
        )
    return True


@contextlib.contextmanager
def read(hint: str, *args: object) -> Iterator[bool]:
    """A worker has read the hint and carries it out in this block. False when another process does so and will do it
    once more: nothing is left to do here. Never raises."""
    begin, alone = (marks.begin, True) if hint in ALONE else (marks.take, False)
    mine = _with_broker(lambda producer: begin(producer.channel.client, hint, args), otherwise=True)
    try:
        yield mine
    finally:
        if alone and mine and _with_broker(lambda p: marks.end(p.channel.client, hint, args), otherwise=False):
            send(hint, *args)


def _with_broker(act: Callable[[Any], bool], *, otherwise: bool) -> bool:
    """What `act` answers, given a producer; `otherwise` where nothing is sent or the broker does not answer."""
    global _silent_until
    if getattr(_local, "collected", None) is not None or clock.monotonic() < _silent_until:
        return otherwise
    try:
        with current_app.producer_or_acquire() as producer:
            return act(producer)
    except Exception as error:
        _silent_until = clock.monotonic() + _PAUSE
        log.warning("The broker does not take hints (%s); the sweep finds what is due.", error)
        return otherwise


@contextlib.contextmanager
def collected() -> Iterator[deque[tuple[str, tuple[object, ...]]]]:
    """Collect this thread's hints instead of sending them: for carrying them out in this process."""
    before = getattr(_local, "collected", None)
    _local.collected = deque()
    try:
        yield _local.collected
    finally:
        _local.collected = before
