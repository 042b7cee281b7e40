"""A worker in this process, with one thread that sweeps and several threads that handle hints."""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
from collections import deque

from drydock.core import clock

log = logging.getLogger(__name__)

SWEEP_EVERY = 0.3

"""Seconds between two sweeps. They are more frequent than those of Celery beat, because a user is waiting."""

HANDS = 4

GIVE_UP = 20

"""Number of consecutive failures of any kind after which the worker is considered unable to work."""

_PAUSE = 0.02

Hint = tuple[str, tuple[object, ...]]


class InlineWorker:
    """Threads that sweep and handle hints until `end` is called."""

    def __init__(self) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self._queue: queue.Queue[Hint] = queue.Queue()
        self._queued: set[Hint] = set()
        self._failures, self._last = 0, ""
        self._sweeping = True
        self._over, self._sweep_now = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._sweep, daemon=True)]
        self._threads += [threading.Thread(target=self._work, daemon=True) for _ in range(HANDS)]
        for thread in self._threads:
            thread.start()

    def take(self, found: deque[Hint]) -> None:
        """Move hints that were collected into the worker's queue. `found` is empty afterwards."""
        while found:
            hint = found.popleft()
            if hint[0] == "sweep":
                self._sweep_now.set()
            elif hint not in self._queued:
                self._queued.add(hint)
                self._queue.put(hint)

    def finish(self, patience: float) -> bool:
        """Wait until no sweep is due and no hint is left. Return False if that takes more than `patience` seconds.

        The hints that result from a hint are handled too; work that is due later is not.
        """
        until = clock.monotonic() + patience
        while self._queue.unfinished_tasks or self._sweeping or self._sweep_now.is_set():
            if clock.monotonic() >= until:
                return False
            clock.sleep(_PAUSE)
        return True

    def end(self, patience: float) -> None:
        """Stop the threads. Wait up to `patience` seconds until they have finished their current work."""
        self._over.set()
        self._sweep_now.set()
        until = clock.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, until - clock.monotonic()))

    def _sweep(self) -> None:
        from leases.engine.core import workers
        from leases.messaging import handlers, hints

        with hints.collected() as found:
            while not self._over.is_set():
                self._try(lambda: workers.seen(self.name), handlers.sweep)
                self.take(found)
                self._sweeping = False
                self._sweep_now.wait(SWEEP_EVERY)
                self._sweeping = True
                self._sweep_now.clear()
            self._try(lambda: workers.gone(self.name))
        self._close()

    def _work(self) -> None:
        from leases.messaging import handlers, hints

        with hints.collected() as found:
            while not self._over.is_set():
                try:
                    hint = self._queue.get(timeout=0.2)
                except queue.Empty:
                    continue
                self._queued.discard(hint)
                self._try(lambda: handlers.HANDLERS[hint[0]](*hint[1]))  # noqa: B023 - called at once
                self.take(found)
                self._queue.task_done()
        self._close()

    def _try(self, *acts: object) -> None:
        from leases.engine.core import database

        try:
            for act in acts:
                act()  # type: ignore[operator]
            self._failures = 0
        except Exception as error:
            if database.is_lost(error):
                database.report(error)
                return
            log.exception("An internal error occurred in the private worker.")
            self._failures += 1
            self._last = f"{type(error).__name__}: {str(error).strip()}"
            self._close()

    @property
    def trouble(self) -> str:
        """The last error if `GIVE_UP` attempts have failed in a row, or else an empty string."""
        return self._last if self._failures >= GIVE_UP else ""

    def _close(self) -> None:
        from django.db import connections

        connections.close_all()
