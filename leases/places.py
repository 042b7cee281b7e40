"""Limits on the number of long requests in one web process, so that threads stay free for other requests."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from drydock.core.errors import Busy

_LATEST = 10
"""The longest time in seconds after which a refused client is told to try again."""


_SHARES = {"agent": 8}
"""The share of the threads that a type may take, if it is not one half: 8 means one eighth."""


class NoPlace(Busy):
    """The limit on concurrent requests of this type is reached.

    `after` is the number of seconds until the next attempt.
    """

    def __init__(self, message: str, *, after: int) -> None:
        super().__init__(message, hint="Try again in a moment.")
        self.after = after


class Places:
    """Limits the number of long requests that run at the same time, in proportion to the number of threads.

    One type of request may take half of the threads, agents that wait for orders an eighth, all types together three
    quarters, and a single user three eighths.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: Counter[tuple[str, int]] = Counter()
        self._refused: Counter[int] = Counter()

    def take(self, sort: str, user: int) -> bool:
        """Begin a request. Return False if the limits do not allow it. Call `leave` when the request ends."""
        threads = settings.DRYDOCK.web_threads
        with self._lock:
            of_sort = sum(number for (name, _), number in self._taken.items() if name == sort)
            of_user = sum(number for (_, whose), number in self._taken.items() if whose == user)
            free = (
                of_sort < max(1, threads // _SHARES.get(sort, 2))
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
        """End a request that `take` has allowed."""
        with self._lock:
            self._taken[sort, user] -= 1
            if not self._taken[sort, user]:
                del self._taken[sort, user]

    @contextmanager
    def held(self, sort: str, user: int, what: str) -> Iterator[None]:
        """Count this block as a request. Raises NoPlace with the message `what` if the limits do not allow it.

        The more requests of a user were refused in a row, the longer the user is told to wait, because even
        refusals cost time that other users need.
        """
        if not self.take(sort, user):
            raise NoPlace(what, after=min(_LATEST, 1 + self._refused[user] // 16))
        try:
            yield
        finally:
            self.leave(sort, user)


PLACES = Places()
