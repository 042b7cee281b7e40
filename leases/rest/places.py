"""So many requests of one process may take long at the same time, lest nobody is left to answer the others."""

from __future__ import annotations

import threading
from collections import Counter

from django.conf import settings


class Places:
    """At most half the threads for each sort of long request, and three quarters for all of them together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, sort: str) -> bool:
        """Whether there was a place; it is given back with `leave`."""
        threads = settings.DRYDOCK.web_threads
        with self._lock:
            if self._taken[sort] >= max(1, threads // 2) or self._taken.total() >= max(1, threads * 3 // 4):
                return False
            self._taken[sort] += 1
            return True

    def leave(self, sort: str) -> None:
        """Give a place back."""
        with self._lock:
            self._taken[sort] -= 1


PLACES = Places()
