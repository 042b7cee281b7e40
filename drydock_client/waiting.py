"""Wait until a lease is active, has ended, or is in a given state; the same in process and over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from drydock_client.errors import InvalidRequest, LeaseFailed, TimedOut
from drydock_client.values import LeaseEnd, LeaseInfo, UsageInfo

ENDED = "ended"
STATES = ("pending", "acquired", "active", "released", "destroyed", "broken")
"""The states, in the order in which a lease passes through them."""
LONGEST = 31_536_001
_QUICKEST, _SLOWEST = 0.05, 1.0


class Looks(Protocol):
    """The methods of a client that waiting needs."""

    def lease(self, id: int) -> LeaseInfo:
        """Return one lease."""

    def usage_records(self, wanted: Mapping[str, Any], *, after: int = 0, limit: int = 200) -> list[UsageInfo]:
        """Return the usage records of leases."""


def checked(wanted: str) -> str:
    """Return `wanted`. Raises InvalidRequest if it is neither a state nor `ended`."""
    if wanted not in (ENDED, *STATES):
        raise InvalidRequest(
            f"{wanted!r} cannot be waited for.", field="until", hint=f"Choose one of: {', '.join((ENDED, *STATES))}."
        )
    return wanted


def reached(info: LeaseInfo, wanted: str) -> bool:
    """Return whether a lease has reached a state. Raises LeaseFailed if it can no longer reach it."""
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
    """Return how a lease ended, and what it has cost."""
    records = tuple(client.usage_records({"lease": info.id, "since": info.created_at}, limit=1000))
    work = info.workload
    return LeaseEnd(
        lease=info, exit_code=None if work is None else work.exit_code, metrics=info.metrics, usage=records,
        cost=sum(one.cost for one in records),
    )  # fmt: skip


def _end_of(timeout: float | None) -> float | None:
    """Return when the timeout expires on the monotonic clock; None without a timeout. Raises InvalidRequest."""
    if timeout is None:
        return None
    if not 0 <= timeout < LONGEST:
        raise InvalidRequest("timeout must be a number of seconds from 0 to 31536000 (a year).", field="timeout")
    return time.monotonic() + timeout


class Waits:
    """Mixin with the waiting methods of a client."""

    def wait(self: Looks, id: int, *, until: str = "active", timeout: float | None = None) -> LeaseInfo:
        """Wait until a lease is `active`, has `ended`, or is in a given state.

        Raises LeaseFailed if it can no longer reach that state, TimedOut after `timeout` seconds (the lease keeps
        waiting), NotFound and InvalidRequest.
        """
        checked(until)
        pause, end = _QUICKEST, _end_of(timeout)
        while not reached(info := self.lease(id), until):
            time.sleep(_rest(info, pause, end))
            pause = min(pause * 1.4, _SLOWEST)
        return info

    def wait_until_ended(self, id: int, *, timeout: float | None = None) -> LeaseEnd:
        """Wait until a lease is over. Return how it ended, with its workload's exit code and its cost.

        Raises TimedOut, NotFound.
        """
        client: Any = self
        return end_of(client, client.wait(id, until=ENDED, timeout=timeout))

    async def await_until_ended(self, id: int, *, timeout: float | None = None) -> LeaseEnd:
        """Wait until a lease is over, without blocking other tasks; see `wait_until_ended`."""
        client: Any = self
        pause, end = _QUICKEST, _end_of(timeout)
        while not (info := await self._in_thread(lambda: client.lease(id))).over:
            await asyncio.sleep(_rest(info, pause, end))
            pause = min(pause * 1.4, _SLOWEST)
        found: LeaseEnd = await self._in_thread(lambda: end_of(client, info))
        return found

    def _in_thread(self, call: Callable[[], Any]) -> Awaitable[Any]:
        """Run a blocking call in a thread, so that other tasks continue."""
        return asyncio.to_thread(call)


def _rest(info: LeaseInfo, pause: float, end: float | None) -> float:
    """Return the seconds to sleep before looking again. Raises TimedOut."""
    left = pause if end is None else end - time.monotonic()
    if left <= 0:
        raise TimedOut(
            f"Lease {info.id} is still {info.state}: {info.message}".rstrip(": "), hint="It goes on by itself."
        )
    return min(pause, left)
