"""Marks in the broker: which hints wait in a queue unread, and which are being carried out by one process at a time.

They keep queues short: what is due is found by every sweep, and without marks each finding would be one more message.
A mark that is wrong costs a message too many, or one that comes late; the sweep is there for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

UNREAD_SECONDS = 30
"""How long a mark stands for a message. When all of a queue is lost, its marks no longer count."""
UNDER_WAY_SECONDS = 10
"""After this another process may join one that is still at it, or has died."""


def put(client: Any, queue: str, hint: str, args: Sequence[object]) -> bool:
    """Mark that this hint is being sent; False when a message with it waits in the queue already."""
    with client.pipeline(transaction=False) as together:
        together.set(_unread(hint, args), 1, nx=True, ex=UNREAD_SECONDS)
        together.llen(queue)
        fresh, waiting = together.execute()
    return bool(fresh) or not waiting


def take(client: Any, hint: str, args: Sequence[object]) -> bool:
    """The hint was read: what is sent from now on is another message. Always True, as whoever reads may go on."""
    client.delete(_unread(hint, args))
    return True


def begin(client: Any, hint: str, args: Sequence[object]) -> bool:
    """True for whoever carries this hint out alone. For others False; `end` tells the first that there was one."""
    if not client.set(_under_way(hint, args), 1, nx=True, ex=UNDER_WAY_SECONDS):
        return False
    return take(client, hint, args)


def end(client: Any, hint: str, args: Sequence[object]) -> bool:
    """It is carried out. True when it was asked for again meanwhile: whoever ends sends it again."""
    client.delete(_under_way(hint, args))
    return bool(client.delete(_unread(hint, args)))


def _unread(hint: str, args: Sequence[object]) -> str:
    return f"unread:{hint}:{':'.join(map(str, args))}"


def _under_way(hint: str, args: Sequence[object]) -> str:
    return f"under-way:{hint}:{':'.join(map(str, args))}"
