"""The threads of a worker's main process that watch providers, so that no pool process is held.

One thread looks for watches without a worker and extends the tokens of ours, and each watch has a thread, which may be
blocked in a request for minutes. A thread that lost its token cannot store anything, and ends with its next news.
"""

from __future__ import annotations

import logging
import random
import threading
import uuid
from dataclasses import dataclass, field

from django.conf import settings
from django.db import connection

from blueprints import registry
from blueprints.contract import Watches
from blueprints.models import Blueprint
from blueprints.watches import WatchFailed
from drydock.core import clock
from drydock.core.logging import about, hidden
from leases.engine.core import database, installation, specs
from leases.engine.core.workers import own_name
from leases.engine.records import watches
from leases.engine.records.watches import Key, TokenLost

log = logging.getLogger(__name__)

_LOOK_EVERY = 5.0
"""Seconds between two looks for watches without a worker, at most a quarter of a token's term."""
_LONGEST_PAUSE = 60.0
MOST = 64
"""Maximum number of watches of one worker."""


@dataclass
class _Running:
    token: uuid.UUID
    stopped: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None


class Watcher:
    """Watches for one worker, until it is ended."""

    def __init__(self) -> None:
        self.name = own_name()
        self._running: dict[Key, _Running] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="drydock-watches", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop, and give the tokens back. Threads that are blocked in a request end with the process."""
        self._over.set()
        for one in self._running.values():
            one.stopped.set()
        self._thread.join(5)

    def _look(self) -> None:
        while not self._over.is_set():
            self._try(self._once)
            self._over.wait(min(_LOOK_EVERY, settings.DRYDOCK.step_token_seconds / 4))
        self._try(self._release)

    def _release(self) -> None:
        if self._running:
            watches.release([one.token for one in self._running.values()])

    def _once(self) -> None:
        """Extend our tokens, forget what has ended, and begin what no worker watches."""
        suspended = bool(installation.current().problem)
        wanted = {} if suspended else watches.wanted()
        watches.arrange(list(wanted))
        kept = watches.keep([one.token for one in self._running.values()]) if self._running else set()
        for key, one in list(self._running.items()):
            alive = one.thread is not None and one.thread.is_alive()
            if key not in wanted or one.token not in kept or not alive:
                one.stopped.set()
                watches.release([one.token])
                del self._running[key]
        for key in wanted:
            if key not in self._running and len(self._running) < MOST and not self._over.is_set():
                self._begin(key)

    def _begin(self, key: Key) -> None:
        token = watches.take(key, self.name)
        if token is None:
            return
        one = self._running[key] = _Running(token)
        one.thread = threading.Thread(target=follow, args=(key, token, one.stopped), daemon=True, name=f"watch {key.kind}")
        one.thread.start()

    def _try(self, act: object) -> None:
        """Call `act`. The database connection is closed afterwards, because children are forked between two calls."""
        try:
            act()  # type: ignore[operator]
        except Exception as error:
            if database.is_lost(error):
                database.report(error)
            else:
                log.exception("The watches could not be looked after.")
        finally:
            connection.close()


def follow(key: Key, token: uuid.UUID, stopped: threading.Event) -> None:
    """Watch a place, and store what happens there, until it is stopped or the token is lost."""
    failures = 0
    with about(watch=f"{key.kind} {key.place}".strip()):
        while not stopped.is_set():
            try:
                failed = _follow(key, token, stopped)
            except TokenLost:
                return
            except Exception as error:
                if database.is_lost(error):
                    database.report(error)
                else:
                    log.exception("The watch failed.")
                failed = WatchFailed(message=f"{type(error).__name__}: {error}", after=1.0)
                _tell(token, failed)
            finally:
                connection.close()
            if failed is None:
                failures = 0
                continue
            failures += 1
            longest = min(2.0 ** min(failures, 10), _LONGEST_PAUSE) * (0.5 + random.random() / 2)  # noqa: S311
            stopped.wait(max(failed.after, longest))


def _tell(token: uuid.UUID, failed: WatchFailed) -> None:
    """Store an unexpected error, if the database can be reached. The watch then begins with a listing."""
    try:
        watches.failed(token, failed)
    except Exception as error:
        log.warning("The error of the watch could not be stored: %s", error)


def _follow(key: Key, token: uuid.UUID, stopped: threading.Event) -> WatchFailed | None:
    """Open the watch with what is configured now. Return its error, or None if it has ended or was stopped.

    Once something was heard, an error counts as the first one.
    """
    kind = registry.kind(key.kind)
    blueprint_id = watches.wanted().get(key)
    if not isinstance(kind, Watches) or blueprint_id is None:
        raise TokenLost
    view = specs.blueprint_view(Blueprint.objects.get(pk=blueprint_id), secrets=True)
    start = watches.bookmark(token)
    connection.close()
    with hidden(view.credentials):
        for news in kind.watch(view, key.place, installation.current().short, start):
            if stopped.is_set():
                return None
            try:
                if isinstance(news, WatchFailed):
                    watches.failed(token, news)
                    return news
                watches.store(token, news)
            finally:
                connection.close()
    clock.sleep(0.1)
    return None
