"""Following events whose ids are given before their transactions commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from drydock_client.values import EventInfo

AT_ONCE = 1000
_LATE = 10.0
"""Seconds in which an event with a smaller id may still become visible: its transaction was longer."""


def follow(
    fetch: Callable[[int], list[EventInfo]], *, after: int, every: float, stop: Callable[[], bool]
) -> Iterator[EventInfo]:
    """Events as they come, each once, until `stop` says so. `fetch(id)` gives at most AT_ONCE of those after `id`.

    The last seconds are looked at again for latecomers.
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
    """The cursor moved over what was seen so long ago that nothing before it can still come."""
    for pk in sorted(seen):
        if now - seen[pk] < _LATE and len(seen) < AT_ONCE - 100:
            break
        cursor = max(cursor, pk)
        del seen[pk]
    return cursor
