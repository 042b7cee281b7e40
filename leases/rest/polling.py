"""Long polling for a lease: limited in time, outside a transaction, and never in all threads of the process."""

from __future__ import annotations

import hashlib

from django.conf import settings

from drydock.core import clock
from drydock_client.values import LeaseInfo
from leases.local import LocalClient
from leases.operations import leases
from leases.places import PLACES

_FIRST, _LONGEST = 0.01, 0.25
_WAITING = 1.0
"""Seconds after which the reason why a lease waits is determined again for clients that wait for a change."""
_MOVING = ("pending", "acquired")


def tag(info: LeaseInfo) -> str:
    """Return an entity tag for a lease. It changes when the state, reason or message of the lease changes.

    The tag of a pending lease depends on what the lease waits for, but not on how long that will take.
    """
    why = info.waiting
    waits = info.message if why is None else f"{why.behind} {why.holder} {why.ends_at} {why.place} {why.help}"
    said = f"{info.id}\n{info.state}\n{info.reason}\n{waits}"
    return f'W/"{hashlib.sha256(said.encode()).hexdigest()[:16]}"'


def lease(client: LocalClient, lease_id: int, *, seconds: float, known: str) -> LeaseInfo:
    """Wait until a lease is active, has ended or has changed, and return it. Raises NotFound.

    Waits for at most `seconds` seconds. If `known`, an entity tag, is given, only a change ends the wait. Returns
    at once if too many requests are already waiting.
    """
    info = client.lease(lease_id)
    seconds = min(seconds, settings.DRYDOCK.longest_wait_seconds)
    if seconds <= 0 or _settled(info, known) or not PLACES.take("wait", client.who.id):
        return info
    try:
        return _watch(client, info, clock.monotonic() + seconds, known)
    finally:
        PLACES.leave("wait", client.who.id)


def _settled(info: LeaseInfo, known: str) -> bool:
    return tag(info) != known if known else info.state not in _MOVING


def _watch(client: LocalClient, info: LeaseInfo, end: float, known: str) -> LeaseInfo:
    pause, again = _FIRST, clock.monotonic() + _WAITING
    while not _settled(info, known) and (left := end - clock.monotonic()) > 0:
        clock.sleep(min(pause, left))
        pause = min(pause * 1.3, _LONGEST)
        if leases.moved(info.id, info) or (known and clock.monotonic() > again):
            again = clock.monotonic() + _WAITING
            info = client.lease(info.id)
    return info
