"""A Celery worker's shift: it says that it lives, watches that it hears the broker, and when it is told to end
(SIGTERM) it finishes the steps at hand, begins no other, and leaves in an orderly way."""

from __future__ import annotations

import signal
from typing import Any

from celery.signals import worker_process_init, worker_ready, worker_shutdown, worker_shutting_down

from leases.engine.core import database
from leases.engine.core.workers import Pulse
from leases.hearing import Watch
from leases.messages import DROPPED

_pulse: Pulse | None = None
_watch: Watch | None = None


@worker_process_init.connect
def _leave_the_end_to_the_parent(**_: Any) -> None:
    """Ignore SIGTERM in a child: a shell sends it to the whole job (`kill %1`), and the parent alone decides that the
    children finish the steps at hand. They end with it, for they read the end of its pipe."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@worker_ready.connect
def _begin(sender: Any = None, **_: Any) -> None:
    """Its children are forked and it takes tasks."""
    global _pulse, _watch
    database.forget_draining()
    queues = sorted(sender.app.amqp.queues.consume_from)
    _pulse = _pulse or Pulse(queues, DROPPED.report)
    _watch = _watch or Watch(queues, sender.pool.num_processes)


@worker_shutting_down.connect
def _ending(**_: Any) -> None:
    """Called in a signal handler: no more than setting a byte."""
    database.begin_draining()


@worker_shutdown.connect
def _end(**_: Any) -> None:
    """The steps at hand are done."""
    global _pulse, _watch
    if _watch is not None:
        _watch.end()
    if _pulse is not None:
        _pulse.end()
    _pulse = _watch = None
