"""Deduplicate hints with keys in the broker.

The keys mark which hints wait unread in a queue, which a process is handling, and which leases' hosts are in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

UNREAD_SECONDS = 30

"""Seconds for which a mark stands for a message. If a whole queue is lost, its marks no longer count."""

UNDER_WAY_SECONDS = 10

"""Seconds after which another process may handle the same hint, because the first may have died."""


def put(client: Any, queue: str, hint: str, args: Sequence[object]) -> bool:
    """Mark that this hint is being sent. Return False if the queue already contains the same hint."""
    with client.pipeline(transaction=False) as together:
        together.set(_unread(hint, args), 1, nx=True, ex=UNREAD_SECONDS)
        together.llen(queue)
        fresh, waiting = together.execute()
    return bool(fresh) or not waiting


def take(client: Any, hint: str, args: Sequence[object]) -> bool:
    """Record that the hint was read, so that the same hint is a new message from now on. Always returns True."""
    client.delete(_unread(hint, args))
    return True


def begin(client: Any, hint: str, args: Sequence[object]) -> bool:
    """Return True if the caller alone may handle this hint.

    Otherwise returns False, and `end` tells the process that handles it to send it again.
    """
    if not client.set(_under_way(hint, args), 1, nx=True, ex=UNDER_WAY_SECONDS):
        return False
    return take(client, hint, args)


def end(client: Any, hint: str, args: Sequence[object]) -> bool:
    """Record that the hint was handled.

    Return True if it was sent again meanwhile, so that the caller must resend it.
    """
    client.delete(_under_way(hint, args))
    return bool(client.delete(_unread(hint, args)))


def look(client: Any, lease: int, owner: int | None, *, places: int, seconds: int) -> list[str]:
    """Mark the start of a check on a lease's host, within the limit on concurrent checks for the lease's owner.

    Returns the marks to pass to `looked`, or an empty list if another check is under way or the limit is reached. The
    marks expire after `seconds`.
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
    """Remove the marks of a finished check."""
    return bool(client.delete(*taken))


def _unread(hint: str, args: Sequence[object]) -> str:
    return f"unread:{hint}:{':'.join(map(str, args))}"


def _under_way(hint: str, args: Sequence[object]) -> str:
    return f"under-way:{hint}:{':'.join(map(str, args))}"
