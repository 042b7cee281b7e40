"""A limit on calls per second that all clients of one account in this process share.

Providers count calls per account (and region) with a token bucket; keeping to it here costs less than being refused
there. Other processes and other programs use the same account, so being refused still happens and is answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from threading import Lock

from blueprints.cloud.faults import CloudError, Meaning


class Rate:
    """A token bucket: `burst` calls at once, refilled with `per_second`. Safe for threads."""

    def __init__(
        self,
        per_second: float,
        burst: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if per_second <= 0 or burst < 1:
            raise ValueError("A rate refills with more than nothing and holds at least one call.")
        self.per_second, self.burst = per_second, burst
        self._clock, self._sleep = clock, sleep
        self._tokens, self._at = float(burst), clock()
        self._lock = Lock()

    def take(self, most: float) -> None:
        """Wait for one call's turn, at most `most` seconds. Raises CloudError THROTTLED, at once and without having
        taken anything, where the wait would be longer; its `after` is that wait in seconds."""
        wait = self._reserve(most)
        if wait > 0:
            self._sleep(wait)

    def drain(self) -> None:
        """The provider says that it was too much: nothing is left until the bucket has refilled."""
        with self._lock:
            self._refill()
            self._tokens = min(self._tokens, 0.0)

    def _reserve(self, most: float) -> float:
        with self._lock:
            self._refill()
            wait = max(0.0, (1.0 - self._tokens) / self.per_second)
            if wait > most:
                raise CloudError(
                    Meaning.THROTTLED, f"Our own limit of {self.per_second:g} calls per second is used up.", after=wait
                )
            self._tokens -= 1.0
            return wait

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.per_second)
        self._at = now


_shared: dict[Hashable, Rate] = {}
_lock = Lock()


def shared(name: Hashable, per_second: float, burst: float) -> Rate:
    """The one rate of this process under a name (an account, a region and a sort of call, never a secret)."""
    with _lock:
        return _shared.setdefault((name, per_second, burst), Rate(per_second, burst))
