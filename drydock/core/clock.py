"""The clock for all programs. Deadlines stored in rows are compared with the database's clock instead."""

from __future__ import annotations

import datetime as dt
import time


def now() -> dt.datetime:
    """Return the current time in UTC."""
    return dt.datetime.now(dt.UTC)


def monotonic() -> float:
    """Return seconds that never decrease, for measuring durations."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    """Sleep in the foreground. Workers never call this to wait for a provider."""
    time.sleep(seconds)
