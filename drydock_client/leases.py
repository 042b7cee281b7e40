"""Leases: request, list, wait for, extend, release and transfer them."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from drydock_client.errors import InvalidRequest, LeaseFailed, TimedOut
from drydock_client.operations import Operations, operation
from drydock_client.values import Explanation, LeaseEnd, LeaseInfo

Request = Mapping[str, Any]
"""The fields of `leases.validation.requests.LeaseRequest`."""

ENDED = "ended"
STATES = ("pending", "acquired", "active", "released", "destroyed", "broken")
"""The states, in the order in which a lease passes through them."""
LONGEST = 31_536_001
_QUICKEST, _SLOWEST = 0.05, 1.0


class Leases(Operations):
    """Operations on leases."""

    @operation(
        "POST", "leases", "Request a lease", scope="lease", status=201, body="LeaseRequest", query="For",
        spread="request", key="idempotency_key", location="leases/{0.id}", tagged=True, owned=True,
    )  # fmt: skip
    def request(self, request: Request) -> LeaseInfo:
        """Request a lease. It is granted at once if a resource has room; otherwise the lease waits."""

    @operation(
        "POST", "groups", "Request a group of leases", scope="lease", status=201, body="Group", query="For",
        names={"requests": "leases"}, key="key", owned=True,
    )  # fmt: skip
    def request_group(
        self, requests: Sequence[Request], *, same: str = "", different: str = "", near: str = "",
        key: str | None = None,
    ) -> list[LeaseInfo]:  # fmt: skip
        """Request several leases, granted all together or not at all. Return them in the order of the requests.

        A request with a `count` stands for that many leases. All leases must have the same resource, parent or host
        (`same`), or different resources or parents (`different`). With `same="whole"`, resources that are missing, such
        as a DPU, are also built on devices of the host. `near` (`prefer` or `require`) chooses devices of one host that
        are near one another.
        """

    @operation(
        "POST", "explain", "Explain a request", body="LeaseRequest", query="For", spread="request",
        owned=True,
    )  # fmt: skip
    def explain(self, request: Request) -> Explanation:
        """Return what would happen to a request now, with the verdict on every candidate. Writes nothing."""

    @operation(
        "POST", "groups/explain", "Explain a request for a group", body="Group", query="For",
        names={"requests": "leases"}, owned=True,
    )  # fmt: skip
    def explain_group(
        self, requests: Sequence[Request], *, same: str = "", different: str = "", near: str = ""
    ) -> Explanation:  # fmt: skip
        """Return what would happen to a group of leases now, with the verdict on each host. Writes nothing.

        The arguments are those of `request_group`. The verdicts name hosts if the leases must be in one host
        (`same="host"` or `"whole"`), and say how far apart the devices would be, what would be built, or what the host
        lacks.
        """

    @operation("GET", "leases/{id}", "Get a lease, or wait for it", query="Wait", waits="lease", tagged=True)
    def lease(self, id: int) -> LeaseInfo:
        """Return a lease with its place in the queue, its current step, and the verdicts on all candidates."""

    @operation("GET", "groups/{id}", "List the leases of a group")
    def group(self, id: int) -> list[LeaseInfo]:
        """List the leases of a group in the order in which they were requested, including leases that have ended."""

    @abstractmethod
    def named(self, name: str) -> int:
        """Return the id of the lease with a given name. Raises NotFound, Conflict.

        Prefers the caller's own open lease to the caller's newest ended lease. Operators can also find another owner's
        lease; Conflict if several owners have a lease with that name.
        """

    @operation(
        "GET", "leases", "List leases", query="LeaseFilter", names={"states": "state"}, flags={"states": "all"},
        cursor="before", owned=True,
    )  # fmt: skip
    def leases(
        self, *, states: Collection[str] | None = None, type: str = "", label: str = "", name: str = "",
        resource: int | None = None, group: int | None = None, held: bool = False, limit: int = 200,
        search: str = "",
    ) -> list[LeaseInfo]:  # fmt: skip
        """List leases, newest first: open leases if `states` is None, all leases if `states` is empty.

        `search` matches the beginning of a name, or words of a note.
        """

    @operation("POST", "leases/{id}/release", "Release a lease", scope="lease", body="Message")
    def release(self, id: int, *, message: str = "") -> LeaseInfo:
        """Release a lease, or cancel a pending one. Releasing it again has no effect."""

    @operation("POST", "leases/{id}/extend", "Extend a lease", scope="lease", body="Extension")
    def extend(self, id: int, *, ttl: str | None = None, until: dt.datetime | None = None) -> LeaseInfo:
        """Extend a lease to `until`, or to `ttl` from now. The lease is never shortened."""

    @operation("POST", "leases/{id}/heartbeat", "Send a heartbeat for a lease", scope="lease")
    def heartbeat(self, id: int) -> None:
        """Send a heartbeat for a lease that has a heartbeat limit."""

    @operation("POST", "leases/{id}/hold", "Hold a lease's resource for debugging", scope="lease", body="Hold")
    def hold(self, id: int, *, ttl: str | None = None, reason: str = "") -> LeaseInfo:
        """Keep the lease's resource unchanged after the lease ends, for at most seven days. Operators have no limit."""

    @operation("POST", "leases/{id}/unhold", "End a hold", scope="lease")
    def unhold(self, id: int) -> LeaseInfo:
        """End the hold on a lease. If the lease has already ended, its resource is cleaned now."""

    @operation("POST", "leases/{id}/retry", "Retry a lease", scope="lease")
    def retry(self, id: int) -> LeaseInfo:
        """Try again now to place a pending lease, or to complete the step for which a lease waits."""

    @operation("PUT", "leases/{id}/note", "Set the note of a lease", scope="lease")
    def set_note(self, id: int, *, note: str) -> LeaseInfo:
        """Replace a lease's note. An empty note removes it."""

    @operation("POST", "leases/{id}/transfer", "Transfer a lease to another user", scope="lease")
    def transfer(self, id: int, *, to: str, message: str = "") -> None:
        """Transfer a lease, with its files, to another user. The lease's processes end, and its keys are replaced.

        The other user's quota, budgets and authorizations must allow the lease. 409 if the lease belongs to a group or
        holds other leases.
        """

    @operation(
        "POST", "leases/{id}/private_key", "Get the generated private key of a lease", scope="lease",
        inside="PrivateKey.private_key",
    )  # fmt: skip
    def private_key(self, id: int) -> str:
        """Return the generated private key of a lease, only to its owner, not to operators. Records an event."""

    # Waiting

    def wait(self, id: int, *, until: str = "active", timeout: float | None = None) -> LeaseInfo:
        """Wait until a lease is `active`, has `ended`, or is in a given state.

        Raises LeaseFailed if the lease can no longer reach that state, TimedOut after `timeout` seconds (the lease
        itself continues to wait), NotFound and InvalidRequest.
        """
        checked(until)
        pause, end = _QUICKEST, _end_of(timeout)
        while not reached(info := self.lease(id), until):
            time.sleep(_rest(info, pause, end))
            pause = min(pause * 1.4, _SLOWEST)
        return info

    def wait_until_ended(self, id: int, *, timeout: float | None = None) -> LeaseEnd:
        """Wait until a lease has ended. Return how it ended, with its workload's exit code and its cost.

        Raises TimedOut, NotFound.
        """
        return end_of(self, self.wait(id, until=ENDED, timeout=timeout))

    async def await_until_ended(self, id: int, *, timeout: float | None = None) -> LeaseEnd:
        """Wait until a lease has ended, without blocking other async tasks. See `wait_until_ended`."""
        pause, end = _QUICKEST, _end_of(timeout)
        while not (info := await self._in_thread(lambda: self.lease(id))).over:
            await asyncio.sleep(_rest(info, pause, end))
            pause = min(pause * 1.4, _SLOWEST)
        found: LeaseEnd = await self._in_thread(lambda: end_of(self, info))
        return found

    def _in_thread(self, call: Callable[[], Any]) -> Awaitable[Any]:
        """Run a blocking call in a thread, so that other tasks continue."""
        return asyncio.to_thread(call)


def checked(wanted: str) -> str:
    """Return `wanted` unchanged. Raises InvalidRequest if it is neither a state of a lease nor `ended`."""
    if wanted not in (ENDED, *STATES):
        raise InvalidRequest(
            f"{wanted!r} cannot be waited for.", field="until", hint=f"Choose one of: {', '.join((ENDED, *STATES))}."
        )
    return wanted


def reached(info: LeaseInfo, wanted: str) -> bool:
    """Return whether a lease has reached the state `wanted`. Raises LeaseFailed if that has become impossible."""
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


def end_of(client: Any, info: LeaseInfo) -> LeaseEnd:
    """Return how a lease ended, with its usage, cost and energy."""
    records = tuple(client.usage_records({"lease": info.id, "since": info.created_at}, limit=1000))
    work = info.workload
    measured = [one.energy_wh for one in records if one.energy_wh is not None]
    return LeaseEnd(
        lease=info, exit_code=None if work is None else work.exit_code, metrics=info.metrics, usage=records,
        cost=sum(one.cost for one in records), energy_wh=sum(measured) if measured else None,
    )  # fmt: skip


def _end_of(timeout: float | None) -> float | None:
    """Return the time on the monotonic clock at which a timeout in seconds expires; None without a timeout.

    Raises InvalidRequest if the timeout is negative or longer than a year.
    """
    if timeout is None:
        return None
    if not 0 <= timeout < LONGEST:
        raise InvalidRequest("timeout must be a number of seconds from 0 to 31536000 (a year).", field="timeout")
    return time.monotonic() + timeout


def _rest(info: LeaseInfo, pause: float, end: float | None) -> float:
    """Return the seconds to sleep before the lease is read again. Raises TimedOut if no time is left."""
    left = pause if end is None else end - time.monotonic()
    if left <= 0:
        raise TimedOut(
            f"Lease {info.id} is still {info.state}: {info.message}".rstrip(": "), hint="It continues to wait."
        )
    return min(pause, left)
