"""Waiting for a lease: until it is active, has ended, or is in a given state; the same here and over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from drydock_client.errors import InvalidRequest, LeaseFailed, TimedOut
from drydock_client.values import LeaseEnd, LeaseInfo, UsageInfo

ENDED = "ended"
STATES = ("pending", "acquired", "active", "released", "destroyed", "broken")
"""In the order in which a lease passes through them."""
LONGEST = 31_536_001
_QUICKEST, _SLOWEST = 0.05, 1.0


class Looks(Protocol):
    """What waiting needs of a client."""

    def lease(self, id: int) -> LeaseInfo:
        """One lease."""

    def usage_records(self, wanted: Mapping[str, Any], *, after: int = 0, limit: int = 200) -> list[UsageInfo]:
        """What it has cost."""


def checked(wanted: str) -> str:
    """What can be waited for. Raises InvalidRequest."""
    if wanted not in (ENDED, *STATES):
        raise InvalidRequest(
            f"{wanted!r} cannot be waited for.", field="until", hint=f"There are: {', '.join((ENDED, *STATES))}."
        )
    return wanted


def reached(info: LeaseInfo, wanted: str) -> bool:
    """Whether a lease is where it is waited for. Raises LeaseFailed when it cannot come there any more."""
    if info.state == wanted or (wanted == ENDED and info.over):
        return True
    if wanted == ENDED or not (info.over or STATES.index(info.state) > STATES.index(wanted)):
        return False
    raise LeaseFailed(
        info.message or f"Lease {info.id} is {info.state}.",
        state=info.state,
        reason=info.reason,
        verdicts=info.verdicts,
    )


def end_of(client: Looks, info: LeaseInfo) -> LeaseEnd:
    """How a lease that is over has ended, and what it has cost."""
    records = tuple(client.usage_records({"lease": info.id, "since": info.created_at}, limit=1000))
    work = info.workload
    return LeaseEnd(
        lease=info, exit_code=None if work is None else work.exit_code, metrics=info.metrics, usage=records,
        cost=sum(one.cost for one in records),
    )  # fmt: skip


def _end_of(timeout: float | None) -> float | None:
    """Return when waiting ends on the monotonic clock; None: never. Raises InvalidRequest."""
    if timeout is None:
        return None
    if not 0 <= timeout < LONGEST:
        raise InvalidRequest("timeout must be a number of seconds from 0 to 31536000 (a year).", field="timeout")
    return time.monotonic() + timeout


class Waits:
    """The waiting calls of a client."""

    def wait(self: Looks, id: int, *, until: str = "active", timeout: float | None = None) -> LeaseInfo:
        """Wait until a lease is `active`, has `ended`, or is in a state. Raises LeaseFailed when it cannot come there
        any more, TimedOut after `timeout` seconds (it goes on by itself), NotFound, InvalidRequest."""
        checked(until)
        pause, end = _QUICKEST, _end_of(timeout)
        while not reached(info := self.lease(id), until):
            time.sleep(_rest(info, pause, end))
            pause = min(pause * 1.4, _SLOWEST)
        return info

    def wait_until_ended(self, id: int, *, timeout: float | None = None) -> LeaseEnd:
        """Wait until a lease is over. Returns how it ended, with the exit code of its workload and what it has cost.
        Raises TimedOut, NotFound."""
        client: Any = self
        return end_of(client, client.wait(id, until=ENDED, timeout=timeout))

    async def await_until_ended(self, id: int, *, timeout: float | None = None) -> LeaseEnd:
        """`wait_until_ended` for async code; other tasks go on meanwhile."""
        client: Any = self
        pause, end = _QUICKEST, _end_of(timeout)
        while not (info := await self._in_thread(lambda: client.lease(id))).over:
            await asyncio.sleep(_rest(info, pause, end))
            pause = min(pause * 1.4, _SLOWEST)
        found: LeaseEnd = await self._in_thread(lambda: end_of(client, info))
        return found

    def _in_thread(self, call: Callable[[], Any]) -> Awaitable[Any]:
        """Run a call that blocks, so that other tasks go on."""
        return asyncio.to_thread(call)


def _rest(info: LeaseInfo, pause: float, end: float | None) -> float:
    """Seconds until the next look. Raises TimedOut."""
    left = pause if end is None else end - time.monotonic()
    if left <= 0:
        raise TimedOut(
            f"Lease {info.id} is still {info.state}: {info.message}".rstrip(": "), hint="It goes on by itself."
        )
    return min(pause, left)
