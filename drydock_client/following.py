"""Follow events in order, although their ids are assigned before their transactions commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from drydock_client.values import EventInfo

AT_ONCE = 1000
_LATE = 10.0
"""Seconds during which an event with a smaller id may still appear, because its transaction took longer."""


def follow(
    fetch: Callable[[int], list[EventInfo]], *, after: int, every: float, stop: Callable[[], bool]
) -> Iterator[EventInfo]:
    """Yield each event once, until `stop` returns True. `fetch(id)` returns at most AT_ONCE events after `id`.

    Reads the last few seconds again, because transactions may commit late.
    """
    cursor = after
    seen: dict[int, float] = {}
    while not stop():
        found = fetch(cursor)
        now = time.monotonic()
        fresh = [event for event in found if event.id not in seen]
        for event in fresh:
            seen[event.id] = now
            yield event
        cursor = _passed(cursor, seen, now)
        if len(found) < AT_ONCE or not fresh:
            time.sleep(every)


def _passed(cursor: int, seen: dict[int, float], now: float) -> int:
    """Return the cursor, moved past events that are so old that no event before them can still appear."""
    for pk in sorted(seen):
        if now - seen[pk] < _LATE and len(seen) < AT_ONCE - 100:
            break
        cursor = max(cursor, pk)
        del seen[pk]
    return cursor
