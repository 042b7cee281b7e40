"""List events, and follow new events in order, although ids are assigned before transactions commit."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator

from drydock_client.operations import Operations, operation
from drydock_client.values import EventInfo

AT_ONCE = 1000
_LATE = 10.0
"""Seconds for which an event with a smaller id may still appear, because its transaction was committed later."""


class Events(Operations):
    """Events. Owners see only the events of their own leases."""

    @operation("GET", "events", "List events", query="EventFilter")
    def events(
        self, *, lease: int | None = None, resource: int | None = None, blueprint: str = "", kind: str = "",
        after: int = 0, limit: int = 200, newest: bool = False,
    ) -> list[EventInfo]:  # fmt: skip
        """List events in the order of their ids, starting after `after`; with `newest`, the last `limit` events."""

    @operation("GET", "leases/{id}/events", "List the events of a lease", query="LeaseEvents")
    def lease_events(
        self, id: int, *, kind: str = "", after: int = 0, limit: int = 200, newest: bool = False
    ) -> list[EventInfo]:
        """List the events of a lease in the order of their ids, starting after `after`."""

    @abstractmethod
    def follow(
        self, *, lease: int | None = None, resource: int | None = None, blueprint: str = "", kind: str = "",
        after: int | None = None, stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[EventInfo]:  # fmt: skip
        """Yield events as they are recorded."""


def follow(
    fetch: Callable[[int], list[EventInfo]], *, after: int, every: float, stop: Callable[[], bool]
) -> Iterator[EventInfo]:
    """Yield each event once, until `stop` returns True. `fetch(id)` returns at most AT_ONCE events after `id`.

    Reads the events of the last few seconds again, because an event with a lower id may be committed later.
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
    """Return the cursor after moving it past old events, before which no further event can appear."""
    for pk in sorted(seen):
        if now - seen[pk] < _LATE and len(seen) < AT_ONCE - 100:
            break
        cursor = max(cursor, pk)
        del seen[pk]
    return cursor
