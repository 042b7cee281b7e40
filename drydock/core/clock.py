"""The one clock of the programs. Deadlines in rows are compared with the database's clock instead."""

from __future__ import annotations

import datetime as dt
import time


def now() -> dt.datetime:
    """The time of day, in UTC."""
    return dt.datetime.now(dt.UTC)


def monotonic() -> float:
    """Seconds that never run backwards, for measuring spans."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    """Wait in the foreground; workers never call this for a provider."""
    time.sleep(seconds)
