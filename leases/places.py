"""How many requests of one web process may take long at the same time, so that threads stay free for the others."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from drydock.core.errors import Busy

_LATEST = 10
"""Seconds after which somebody is told to come again at the latest."""


class NoPlace(Busy):
    """As many requests of this sort are under way as may be. `after`: the seconds until it is worth asking again."""

    def __init__(self, message: str, *, after: int) -> None:
        super().__init__(message, hint="Try again in a moment.")
        self.after = after


class Places:
    """Bounds by the number of threads: half for each sort of long request, three quarters for all sorts together, and
    three eighths for all of one user."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: Counter[tuple[str, int]] = Counter()
        self._refused: Counter[int] = Counter()

    def take(self, sort: str, user: int) -> bool:
        """Take a place if there is one; it is given back with `leave`."""
        threads = settings.DRYDOCK.web_threads
        with self._lock:
            of_sort = sum(number for (name, _), number in self._taken.items() if name == sort)
            of_user = sum(number for (_, whose), number in self._taken.items() if whose == user)
            free = (
                of_sort < max(1, threads // 2)
                and self._taken.total() < max(1, threads * 3 // 4)
                and of_user < max(1, threads * 3 // 8)
            )
            if free:
                self._taken[sort, user] += 1
                self._refused.pop(user, None)
            else:
                self._refused[user] += 1
            return free

    def leave(self, sort: str, user: int) -> None:
        """Give a place back."""
        with self._lock:
            self._taken[sort, user] -= 1
            if not self._taken[sort, user]:
                del self._taken[sort, user]

    @contextmanager
    def held(self, sort: str, user: int, what: str) -> Iterator[None]:
        """Hold a place. Raises NoPlace, which says `what` there is too much of, where all are taken.

        The more of a user were refused since one was taken, the later they are told to come again: to refuse many costs
        the others time, too.
        """
        if not self.take(sort, user):
            raise NoPlace(what, after=min(_LATEST, 1 + self._refused[user] // 16))
        try:
            yield
        finally:
            self.leave(sort, user)


PLACES = Places()
