"""Deduplicate hints by keys in the broker.

The keys record which hints wait unread in a queue, which hints a process is handling, and for which leases a process is
using the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

UNREAD_SECONDS = 30

"""Seconds after which a key no longer means that a hint is waiting, because a whole queue may have been lost."""

UNDER_WAY_SECONDS = 10

"""Seconds after which another process may handle the same hint, because the first process may have died."""


def put(client: Any, queue: str, hint: str, args: Sequence[object]) -> bool:
    """Record that this hint is being sent. Return False if the queue already contains the same hint."""
    with client.pipeline(transaction=False) as together:
        together.set(_unread(hint, args), 1, nx=True, ex=UNREAD_SECONDS)
        together.llen(queue)
        fresh, waiting = together.execute()
    return bool(fresh) or not waiting


def take(client: Any, hint: str, args: Sequence[object]) -> bool:
    """Record that the hint was read, so that the same hint may be sent again. Always returns True."""
    client.delete(_unread(hint, args))
    return True


def begin(client: Any, hint: str, args: Sequence[object]) -> bool:
    """Return True if no other process is handling this hint, so that the caller may.

    Otherwise returns False, and the process that is handling the hint sends it again when it calls `end`.
    """
    if not client.set(_under_way(hint, args), 1, nx=True, ex=UNDER_WAY_SECONDS):
        return False
    return take(client, hint, args)


def end(client: Any, hint: str, args: Sequence[object]) -> bool:
    """Record that the hint was handled.

    Return True if the same hint was sent meanwhile. The caller must then send it again, because others ignored it.
    """
    client.delete(_under_way(hint, args))
    return bool(client.delete(_unread(hint, args)))


def look(client: Any, lease: int, owner: int | None, *, places: int, seconds: int) -> list[str]:
    """Record that a check on a lease's host begins, unless too many checks for the same owner are running.

    Returns the keys to pass to `looked`, or an empty list if the lease is already being checked or the limit is
    reached. The keys expire after `seconds`.
    """
    first = f"looking:lease:{lease}"
    if not client.set(first, 1, nx=True, ex=seconds):
        return []
    for place in range(places):
        if client.set(taken := f"looking:owner:{owner}:{place}", 1, nx=True, ex=seconds):
            return [first, taken]
    client.delete(first)
    return []


def looked(client: Any, taken: Sequence[str]) -> bool:
    """Delete the keys of a finished check."""
    return bool(client.delete(*taken))


def _unread(hint: str, args: Sequence[object]) -> str:
    return f"unread:{hint}:{':'.join(map(str, args))}"


def _under_way(hint: str, args: Sequence[object]) -> str:
    return f"under-way:{hint}:{':'.join(map(str, args))}"
