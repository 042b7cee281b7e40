"""Rate limiting by user, for all tokens of the user together.

Each web process counts the requests per minute in memory.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, cast

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from drydock.core import clock
from leases.rest.models import Token

_REMEMBERED = 10_000


@dataclass
class Bucket:
    """A token bucket of one user: `level` requests were left at the time `at`. It refills evenly over a minute."""

    level: float
    at: float


class Buckets:
    """The buckets of all users. Those not used for the longest time are dropped first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[int, Bucket] = OrderedDict()

    def take(self, key: int, per_minute: int, now: float) -> float:
        """Take one request from a bucket. Return 0, or the number of seconds to wait if no request was left."""
        rate = per_minute / 60
        with self._lock:
            bucket = self._found.pop(key, None) or Bucket(float(per_minute), now)
            self._found[key] = bucket
            bucket.level = min(float(per_minute), bucket.level + (now - bucket.at) * rate)
            bucket.at = now
            if len(self._found) > _REMEMBERED:
                self._found.popitem(last=False)
            if bucket.level < 1:
                return (1 - bucket.level) / rate
            bucket.level -= 1
            return 0.0

    def forget(self) -> None:
        """Drop all buckets, so that every user starts with a full one."""
        with self._lock:
            self._found.clear()


BUCKETS = Buckets()


class TokenThrottle(BaseThrottle):
    """Limits each user to `DRYDOCK_REQUESTS_PER_MINUTE` requests."""

    _wait = 0.0

    def allow_request(self, request: Request, view: Any) -> bool:
        """Return whether the request may proceed."""
        self._wait = BUCKETS.take(
            cast(Token, request.auth).holder, settings.DRYDOCK.requests_per_minute, clock.monotonic()
        )
        return self._wait == 0

    def wait(self) -> float:
        """Return the number of seconds until the next request is allowed."""
        return self._wait
