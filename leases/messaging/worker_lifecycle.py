"""The lifecycle of a Celery worker: register it, watch its broker connection, and drain it at shutdown."""

from __future__ import annotations

import signal
from typing import Any

from celery.signals import worker_process_init, worker_ready, worker_shutdown, worker_shutting_down

from leases.engine.core import database
from leases.engine.core.workers import Pulse
from leases.messaging.broker_watchdog import BrokerWatchdog
from leases.messaging.messages import DROPPED
from leases.messaging.watcher import Watcher

_pulse: Pulse | None = None

_watch: BrokerWatchdog | None = None

_watcher: Watcher | None = None


@worker_process_init.connect
def _leave_the_end_to_the_parent(**_: Any) -> None:
    """Ignore SIGTERM in a child process.

    A shell sends SIGTERM to the whole job (`kill %1`), but the children must finish their current steps, and only
    the parent ends them. The children notice the end of the parent, because they read the end of its pipe.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@worker_ready.connect
def _begin(sender: Any = None, **_: Any) -> None:
    """Start the heartbeat and the watchdog, after the children are forked and the worker accepts tasks."""
    global _pulse, _watch, _watcher
    database.forget_draining()
    queues = sorted(sender.app.amqp.queues.consume_from)
    _pulse = _pulse or Pulse(queues, DROPPED.report)
    _watch = _watch or BrokerWatchdog(queues, sender.pool.num_processes)
    if "steps" in queues:
        _watcher = _watcher or Watcher()


@worker_shutting_down.connect
def _ending(**_: Any) -> None:
    """Begin to drain the worker. Runs in a signal handler, so it only sets a byte."""
    database.begin_draining()


@worker_shutdown.connect
def _end(**_: Any) -> None:
    """Stop the watches, the watchdog and the heartbeat, after the current steps have finished."""
    global _pulse, _watch, _watcher
    if _watcher is not None:
        _watcher.end()
    if _watch is not None:
        _watch.end()
    if _pulse is not None:
        _pulse.end()
    _pulse = _watch = _watcher = None
