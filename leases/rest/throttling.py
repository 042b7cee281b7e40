"""How often a user may ask, with however many tokens: so many requests a minute in every web process, counted in
its memory."""

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
    """What a user has left: `level` requests at the time `at`; it fills again evenly."""

    level: float
    at: float


class Buckets:
    """The buckets of all users, the least used forgotten first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[int, Bucket] = OrderedDict()

    def take(self, key: int, per_minute: int, now: float) -> float:
        """Take one; 0 when there was one, else the seconds until there is."""
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
        """Begin anew."""
        with self._lock:
            self._found.clear()


BUCKETS = Buckets()


class TokenThrottle(BaseThrottle):
    """Refuses a user who asks too often; `DRYDOCK_REQUESTS_PER_MINUTE`."""

    _wait = 0.0

    def allow_request(self, request: Request, view: Any) -> bool:
        """Whether it may go on."""
        self._wait = BUCKETS.take(
            cast(Token, request.auth).user_id, settings.DRYDOCK.requests_per_minute, clock.monotonic()
        )
        return self._wait == 0

    def wait(self) -> float:
        """Seconds until it may."""
        return self._wait
