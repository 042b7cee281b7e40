"""A limit on calls per second that all clients of one account in this process share.

Providers count calls per account (and region) with a token bucket, and it is cheaper to stay within the limit here than
to be throttled there. Other processes and programs use the same account, so calls may still be throttled, which is
handled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from threading import Lock

from blueprints.cloud.faults import CloudError, Meaning


class Rate:
    """A thread-safe token bucket: `burst` calls at once, refilled at `per_second`."""

    def __init__(
        self,
        per_second: float,
        burst: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if per_second <= 0 or burst < 1:
            raise ValueError("per_second must be more than 0 and burst at least 1.")
        self.per_second, self.burst = per_second, burst
        self._clock, self._sleep = clock, sleep
        self._tokens, self._at = float(burst), clock()
        self._lock = Lock()

    def take(self, most: float) -> None:
        """Wait for up to `most` seconds until one call is allowed.

        If the wait would be longer, raise CloudError THROTTLED at once, without taking a token; its `after` is the wait
        in seconds.
        """
        wait = self._reserve(most)
        if wait > 0:
            self._sleep(wait)

    def drain(self) -> None:
        """Empty the bucket, because the provider throttled a call. It refills at the usual rate."""
        with self._lock:
            self._refill()
            self._tokens = min(self._tokens, 0.0)

    def _reserve(self, most: float) -> float:
        with self._lock:
            self._refill()
            wait = max(0.0, (1.0 - self._tokens) / self.per_second)
            if wait > most:
                raise CloudError(
                    Meaning.THROTTLED,
                    f"Drydock's own rate limit of {self.per_second:g} calls per second has been reached.",
                    after=wait,
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
    """Return this process's rate limit for `name`: an account, a region and a type of call, but no secret."""
    with _lock:
        return _shared.setdefault((name, per_second, burst), Rate(per_second, burst))
