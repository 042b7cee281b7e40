"""Leases for Python programs.

    from leases.allocator import Allocator

    with Allocator("host", requirements={"vcpus": 2}, owner="ada", ttl="2h").allocate() as lease:
        lease.interface("command").check(["uname", "-a"])

`leases.signals.lease_changed` reports every change of state, in the process that made it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Self

from asgiref.sync import sync_to_async
from django.db import connection

from drydock.core import clock
from drydock.core.errors import TimedOut
from drydock.core.units import duration, in_words
from drydock_client.errors import LeaseFailed
from drydock_client.leases import end_of
from drydock_client.protocol import Attendance
from drydock_client.values import Explanation, LeaseEnd, LeaseInfo, Verdict
from interfaces.contract import Interface
from leases.engine.core.database import InsideTransaction, patient, refuse_inside_transaction
from leases.local import LocalClient
from leases.messaging.private_worker import Onlooker, PrivateWorker, worker_beside
from leases.operations import interfaces, leases, lifetimes
from leases.operations.callers import Caller, caller
from leases.validation.requests import LeaseRequest
from leases.validation.requests import read as read_request

__all__ = ["Allocator", "InsideTransaction", "Lease", "LeaseFailed", "aallocate_many", "allocate_many"]

Seconds = float | str | None
"""A number of seconds, or a time span such as "90s" or "5m". None means no limit."""

_QUICKEST, _SLOWEST = 0.01, 0.25
_CLEANING = 60.0
"""Time in seconds that a worker in this process has to clean up after a lease."""


class Allocator:
    """A request for one lease: its resource type, requirements, owner, and any other field of `LeaseRequest`.

    `workload` may also be only a command: a list of exact arguments, or one line for a shell. Raises InvalidRequest,
    which names the invalid field. Nothing is written before `allocate` is called.
    """

    def __init__(self, type: str, *, requirements: Mapping[str, Any] | None = None, owner: Any, **fields: Any) -> None:
        if isinstance(fields.get("workload"), str | list | tuple):
            fields["workload"] = {"command": fields["workload"]}
        self.request: LeaseRequest = read_request({"type": type, "requirements": dict(requirements or {}), **fields})
        self.owner = owner

    def allocate(self) -> Lease:
        """Request the lease.

        The lease is active at once if there is room. Otherwise it waits, or a resource is built. If you have a
        transaction open, only the row of the lease is written, and everything else happens after your commit. Raises
        InvalidRequest, and Conflict if the idempotency key was used for a different request.
        """
        who = patient(caller, self.owner)
        return Lease(leases.request_patiently(who, self.request), who)

    def explain(self) -> Explanation:
        """Return what would happen to the request now, with the verdict on every candidate. Writes nothing."""
        return leases.explain(caller(self.owner), self.request)

    async def aallocate(self) -> Lease:
        """Request the lease from async code; see `allocate`."""
        return await sync_to_async(self.allocate)()

    async def aexplain(self) -> Explanation:
        """Explain the request from async code; see `explain`."""
        return await sync_to_async(self.explain)()


def allocate_many(
    asked: Sequence[Allocator], *, same: str = "", different: str = "", near: str = "",
    idempotency_key: str | None = None,
) -> list[Lease]:  # fmt: skip
    """Request several leases for one owner, granted all together or not at all.

    Returns the leases in the order of the requests.

    All leases must have the same resource, parent or host (`same`), or different resources or parents (`different`).
    With `host`, every lease is on the same host or on a device in that host. With `whole`, resources that are missing,
    such as a DPU, are also built on devices of that host, and all leases are granted once they are built. `near`
    implies `host`: with `prefer`, the free devices nearest one another are chosen; with `require`, the leases wait for
    devices that share a place narrower than the host. Raises InvalidRequest, and Conflict if the idempotency key was
    used for another request.
    """
    if not asked:
        return []
    who = patient(caller, asked[0].owner)
    requests = [one.request for one in asked]
    ids = leases.request_group_patiently(
        who, requests, same=same, different=different, near=near, idempotency_key=idempotency_key
    )
    return [Lease(pk, who) for pk in ids]


async def aallocate_many(
    asked: Sequence[Allocator], *, same: str = "", different: str = "", near: str = "",
    idempotency_key: str | None = None,
) -> list[Lease]:  # fmt: skip
    """Request several leases from async code; see `allocate_many`."""
    return await sync_to_async(allocate_many)(
        asked, same=same, different=different, near=near, idempotency_key=idempotency_key
    )


class Lease:
    """A lease, as its owner uses it.

    The attributes show the lease as it was at the last `refresh`. Waiting for the lease also refreshes the attributes.
    As a context manager, a lease waits on entry until it is active, and is released on exit, whatever happens in
    between.
    """

    def __init__(self, id: int, who: Caller) -> None:
        self.id = id
        self._who = who
        self._info: LeaseInfo | None = None
        self._attended: PrivateWorker | Onlooker | None = None

    @classmethod
    def get(cls, id: int | str, *, owner: Any) -> Self:
        """Return a lease by its id or name. Raises NotFound if there is none, or if another owner has it."""
        who = caller(owner)
        found = cls(leases.named(who, id) if isinstance(id, str) else id, who)
        found.refresh()
        return found

    @property
    def info(self) -> LeaseInfo:
        """The lease with all its details."""
        return self._info if self._info is not None else self.refresh()

    @property
    def state(self) -> str:
        """The state of the lease: pending, acquired, active, released, destroyed or broken."""
        return self.info.state

    @property
    def reason(self) -> str:
        """The reason for the lease's state, as a code from `leases.reasons`."""
        return self.info.reason

    @property
    def message(self) -> str:
        """The reason for the lease's state, as text for people."""
        return self.info.message

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts on all candidates from the last decision about the lease."""
        return self.info.verdicts

    def refresh(self) -> LeaseInfo:
        """Read the lease again, and update the attributes."""
        self._info = patient(leases.get, self._who, self.id)
        return self._info

    def wait_until_active(self, timeout: Seconds = None) -> Self:
        """Wait until the lease can be used.

        Raises TimedOut (the lease itself continues to wait), LeaseFailed if the lease has broken or ended, and
        InsideTransaction at once if you have a transaction open.
        """
        refuse_inside_transaction("wait_until_active")
        with worker_beside(self.id) as attended:
            self._await(self._arrived, attended, timeout)
        return self

    def _await(self, done: Callable[[], bool], attended: Attendance, timeout: Seconds) -> None:
        pause = _Pause(timeout)
        while not done():
            attended.look()
            clock.sleep(self._next(pause))

    async def await_until_active(self, timeout: Seconds = None) -> Self:
        """Wait until the lease can be used, without blocking other async tasks. See `wait_until_active`."""
        await sync_to_async(refuse_inside_transaction)("await_until_active")
        async with self._attending() as attended:
            await self._async_await(self._arrived, attended, timeout)
        return self

    @contextlib.asynccontextmanager
    async def _attending(self) -> AsyncIterator[PrivateWorker | Onlooker]:
        attended = worker_beside(self.id)
        await sync_to_async(attended.__enter__)()
        try:
            yield attended
        finally:
            await asyncio.shield(sync_to_async(attended.__exit__)())

    async def _async_await(self, done: Callable[[], bool], attended: Attendance, timeout: Seconds) -> None:
        pause = _Pause(timeout)
        while not await sync_to_async(done)():
            await sync_to_async(attended.look)()
            await asyncio.sleep(await sync_to_async(self._next)(pause))

    def wait_until_ended(self, timeout: Seconds = None) -> LeaseEnd:
        """Wait until the lease has ended. Return how it ended, with the exit code of its workload and its cost.

        A lease ends when its workload ends, it expires, it is lost, or it is released. Raises TimedOut, and
        InsideTransaction at once if you have a transaction open.
        """
        refuse_inside_transaction("wait_until_ended")
        with worker_beside(self.id) as attended:
            self._await(self._over, attended, timeout)
        return self._end()

    async def await_until_ended(self, timeout: Seconds = None) -> LeaseEnd:
        """Wait until the lease has ended, without blocking other async tasks. See `wait_until_ended`."""
        await sync_to_async(refuse_inside_transaction)("await_until_ended")
        async with self._attending() as attended:
            await self._async_await(self._over, attended, timeout)
        return await sync_to_async(self._end)()

    def _over(self) -> bool:
        return (self.refresh() if patient(leases.moved, self.id, self._info) else self.info).over

    def _end(self) -> LeaseEnd:
        return end_of(LocalClient(self._who), self.refresh())

    def _arrived(self) -> bool:
        info = self.refresh() if patient(leases.moved, self.id, self._info) else self.info
        if info.state == "active":
            return True
        if info.state in ("pending", "acquired"):
            return False
        raise LeaseFailed(
            info.message or f"Lease {self.id} is {info.state}.", state=info.state, reason=info.reason,
            verdicts=info.verdicts,
        )  # fmt: skip

    def _next(self, pause: _Pause) -> float:
        seconds = pause.next()
        if seconds is None:
            info = self.refresh()
            raise TimedOut(
                f"Lease {self.id} is still {info.state} after {in_words(pause.limit or 0)}: {info.message}",
                hint="The lease keeps waiting. Release it if you no longer need it.",
            )
        return seconds

    def interface(self, name: str) -> Interface:
        """Return a typed interface: `command`, `filesystem`, `httpd` or another that the lease's kind provides.

        Raises LeaseEnded if the lease is not active, NotSupported if its kind has no such interface, and
        InsideTransaction if you have a transaction open.
        """
        return interfaces.interface(self._who, self.id, name)

    def extend(self, ttl: str | float | None = None, *, until: Any = None) -> None:
        """Extend the lease to `ttl` from now, or to `until`. If this is impossible, raises Conflict with the reason."""
        patient(lifetimes.extend, self._who, self.id, ttl=ttl, until=until)
        self.refresh()

    def heartbeat(self) -> None:
        """Send a heartbeat. Raises Conflict if the lease has ended or has no heartbeat limit."""
        patient(leases.heartbeat, self._who, self.id)

    def hold(self, ttl: str | float | None = None, *, reason: str = "") -> None:
        """Keep the resource of the lease unchanged after the lease ends, for debugging."""
        leases.hold(self._who, self.id, ttl=ttl, reason=reason)

    def release(self, message: str = "") -> None:
        """Release the lease. If you have a transaction open, the lease is released after your commit."""
        patient(leases.release, self._who, self.id, message=message)
        self._info = None

    def __enter__(self) -> Self:
        refuse_inside_transaction("with a lease")
        self._attended = worker_beside(self.id)
        self._attended.__enter__()
        try:
            self._await(self._arrived, self._attended, None)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        """Release the lease. A worker in this process then has some time to clean up."""
        attended, self._attended = self._attended, None
        try:
            self.release()
            if isinstance(attended, PrivateWorker) and not connection.in_atomic_block:
                attended.look()
                with contextlib.suppress(TimedOut):
                    self._await(self._settled, attended, _CLEANING)
        finally:
            if attended is not None:
                attended.__exit__()

    def _settled(self) -> bool:
        """Return whether nothing is left to clean up now, because the lease has ended or is held for debugging."""
        info = self.refresh()
        return info.over or info.held

    async def arefresh(self) -> LeaseInfo:
        """Refresh the lease from async code; see `refresh`."""
        return await sync_to_async(self.refresh)()

    async def ainterface(self, name: str) -> Interface:
        """Return a typed interface from async code.

        The interface's methods block, so call them through `asyncio.to_thread`.
        """
        return await sync_to_async(self.interface)(name)

    async def aextend(self, ttl: str | float | None = None, *, until: Any = None) -> None:
        """Extend the lease from async code; see `extend`."""
        await sync_to_async(self.extend)(ttl, until=until)

    async def aheartbeat(self) -> None:
        """Send a heartbeat from async code; see `heartbeat`."""
        await sync_to_async(self.heartbeat)()

    async def arelease(self, message: str = "") -> None:
        """Release the lease from async code; see `release`."""
        await sync_to_async(self.release)(message)

    async def __aenter__(self) -> Self:
        await sync_to_async(refuse_inside_transaction)("async with a lease")
        try:
            return await self.await_until_active()
        except BaseException:
            await asyncio.shield(self._async_leave())
            raise

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(self._async_leave())

    async def _async_leave(self) -> None:
        async with self._attending() as attended:
            await self.arelease()
            if isinstance(attended, PrivateWorker):
                await sync_to_async(attended.look)()
                with contextlib.suppress(TimedOut):
                    await self._async_await(self._settled, attended, _CLEANING)

    def __repr__(self) -> str:
        return f"<Lease {self.id}{f' {self._info.state}' if self._info else ''}>"


class _Pause:
    """The pauses between checks. The first pauses are short, so that quick changes are noticed at once."""

    def __init__(self, limit: Seconds) -> None:
        self.limit = None if limit is None else 0.0 if limit == 0 else duration(limit, field="timeout").total_seconds()
        self._until = None if self.limit is None else clock.monotonic() + self.limit
        self._pause = _QUICKEST

    def next(self) -> float | None:
        """Return the seconds to pause before the next check, or None if the time limit has passed."""
        left = _SLOWEST if self._until is None else self._until - clock.monotonic()
        if left <= 0:
            return None
        pause, self._pause = min(self._pause, left), min(self._pause * 1.5, _SLOWEST)
        return pause
