"""The Celery app of a worker whose clock is wrong by CHAOS_CLOCK_SECONDS: `celery -A chaos.skewed worker`."""

from __future__ import annotations

import datetime as dt
import os
import time
from typing import Any

import celery.worker.request
import kombu.transport.redis
from django.utils import timezone

from drydock.core import clock

_WRONG = float(os.environ["CHAOS_CLOCK_SECONDS"])


class _Wrong(dt.datetime):
    """The time of day as this worker sees it."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:
        return dt.datetime.now(tz) + dt.timedelta(seconds=_WRONG)


def _shift(module: Any, name: str, wrong: Any) -> None:
    """Replace a clock; the name must be there, so that this does not silently stop to do anything."""
    getattr(module, name)
    setattr(module, name, wrong)


_shift(clock, "now", lambda: _Wrong.now(dt.UTC))
_shift(timezone, "now", lambda: _Wrong.now(dt.UTC))
_shift(celery.worker.request, "datetime", _Wrong)
_shift(kombu.transport.redis, "time", lambda: time.time() + _WRONG)

from drydock.celery import app  # noqa: E402

__all__ = ["app"]
