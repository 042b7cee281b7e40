"""The threads of a worker's main process that watch providers, so that no pool process is held.

One thread looks for watches without a worker and extends the tokens of ours. Each watch has a thread of its own, which
may wait for news for minutes. One that has lost its token stores nothing, and ends.
"""

from __future__ import annotations

import logging
import random
import threading
import uuid
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass

from django.conf import settings
from django.db import connection

from blueprints import registry
from blueprints.contract import Watches
from blueprints.models import Blueprint
from blueprints.specs import BlueprintView
from blueprints.watches import Changes, Ending, WatchFailed, WatchNews
from drydock.core import clock
from drydock.core.logging import about, hidden
from leases.engine.core import database, installation, specs
from leases.engine.core.workers import own_name
from leases.engine.lifecycle import watches
from leases.engine.lifecycle.watches import Key, TokenLost

log = logging.getLogger(__name__)

_LOOK_EVERY = 5.0
"""Seconds between two looks for watches without a worker, at most a quarter of a token's term."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds until a watch that has ended is opened again, doubled each time that nothing was heard."""
_KEPT_OPEN = 1800.0
"""Seconds after a change for which the database connection of a watch stays open: the longest phase of a build."""
MOST = 64
"""Maximum number of watches of one worker."""


class Watcher:
    """Watches for one worker, until it is ended."""

    def __init__(self) -> None:
        self.name = own_name()
        self._watches: dict[Key, WatchThread] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="drydock-watches", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop, and give the tokens back."""
        self._over.set()
        self._thread.join(5)

    def _look(self) -> None:
        while not (self._over.is_set() or database.is_draining()):
            _try(self._once)
            self._over.wait(min(_LOOK_EVERY, settings.DRYDOCK.step_token_seconds / 4))
        _try(self._end_all)

    def _end_all(self) -> None:
        for one in self._watches.values():
            one.stop()
        watches.release([one.token for one in self._watches.values()])

    def _once(self) -> None:
        """Extend our tokens, forget what has ended, and begin what no worker watches."""
        wanted: dict[Key, list[int]] = {}
        if not installation.current().problem:
            wanted = watches.wanted()
            watches.arrange(wanted)
        kept = watches.keep([one.token for one in self._watches.values()])
        for key, one in list(self._watches.items()):
            if key not in wanted or one.token not in kept or not one.is_alive():
                one.stop()
                watches.release([one.token])
                del self._watches[key]
            else:
                one.users = wanted[key]
        for key in wanted:
            if key not in self._watches and len(self._watches) < MOST and (token := watches.take(key, self.name)):
                self._watches[key] = WatchThread(key, token)


@dataclass
class _Pace:
    """The seconds to wait after a failure: twice as long after each, until something is heard."""

    seconds: float = _FIRST_PAUSE

    def reset(self) -> None:
        self.seconds = _FIRST_PAUSE

    def next(self) -> float:
        now, self.seconds = self.seconds, min(self.seconds * 2, _LONGEST_PAUSE)
        return now * (0.5 + random.random() / 2)  # noqa: S311 - spreads the load, and protects nothing


class _KindFailed(Exception):
    """The kind raised an exception, perhaps because it cannot read its bookmark."""


class WatchThread:
    """A thread that watches one place under a token, and stores what happens there."""

    def __init__(self, key: Key, token: uuid.UUID) -> None:
        self.key, self.token = key, token
        self.users: list[int] = []
        """The ids of the blueprints that use the place."""
        self._pace = _Pace()
        self._changed_at = float("-inf")
        self._ending = Ending()
        name = f"drydock-watch-{key.kind}-{key.place}"
        self._thread = threading.Thread(target=self._follow, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let the thread end."""
        self._ending.end()

    def is_alive(self) -> bool:
        """Return whether the thread still runs."""
        return self._thread.is_alive()

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(seconds)

    def _follow(self) -> None:
        """Open the watch again and again, until it is stopped or its token is lost."""
        with about(watch=f"{self.key.kind} {self.key.place}".strip()):
            while not self._ending.over:
                try:
                    self._open()
                except TokenLost:
                    return
                except Exception as error:
                    self._failed(error)
                finally:
                    connection.close()
                self._ending.wait(self._pace.next())

    def _open(self) -> None:
        """Open the watch with what is configured now, and store its news until it ends. Raises TokenLost."""
        kind, users = registry.kind(self.key.kind), watches.wanted().get(self.key)
        if not isinstance(kind, Watches) or not users:
            raise TokenLost
        self.users = users
        view = specs.blueprint_view(Blueprint.objects.get(pk=users[0]), secrets=True)
        start, here = watches.bookmark(self.token), installation.current().short
        connection.close()
        with hidden(view.credentials), closing(self._news(kind, view, here, start)) as found:
            for news in found:
                if self._ending.over:
                    return
                self._ending.wait(self._store(news))

    def _news(self, kind: Watches, view: BlueprintView, here: str, start: str) -> Generator[WatchNews, None, None]:
        """Yield the news of a kind. Raises _KindFailed for what the kind raises."""
        news = None
        try:
            news = iter(kind.watch(view, self.key.place, here, start, self._ending))
            while (one := next(news, None)) is not None:
                yield one
        except Exception as error:
            raise _KindFailed(f"{type(error).__name__}: {error}") from error
        finally:
            self._ending.forget()
            if isinstance(news, Generator):
                news.close()

    def _store(self, news: WatchNews) -> float:
        """Store news. Return the seconds to wait before the next ones.

        The database connection stays open for some time after a change, because others often follow, and opening one
        takes longer than all the rest. It is closed after news that were stored on disk only, see `watches.store`.
        """
        if isinstance(news, Changes) and news.objects:
            self._changed_at = clock.monotonic()
        try:
            if isinstance(news, WatchFailed):
                self._changed_at = float("-inf")
                watches.failed(self.token, news.message, news.bookmark, self.users)
                return max(news.after, self._pace.next())
            watches.store(self.token, news, self.users)
            self._pace.reset()
            return news.after
        finally:
            if clock.monotonic() - self._changed_at > _KEPT_OPEN:
                connection.close()

    def _failed(self, error: Exception) -> None:
        """Log an unexpected error, and store it if the database can be reached.

        After an error of the kind, the watch begins with a listing, in case that its bookmark is the cause.
        """
        if database.is_lost(error):
            database.report(error)
            return
        log.error("The watch failed.", exc_info=error)
        try:
            bookmark = "" if isinstance(error, _KindFailed) else None
            watches.failed(self.token, str(error) or type(error).__name__, bookmark, self.users)
        except TokenLost:
            self.stop()
        except Exception as further:
            log.warning("The error of the watch could not be stored: %s", further)


def _try(act: Callable[[], None]) -> None:
    """Call `act`, and log its error. The connection is closed, because children are forked between two calls."""
    try:
        act()
    except Exception as error:
        if database.is_lost(error):
            database.report(error)
        else:
            log.exception("The watches could not be looked after.")
    finally:
        connection.close()
