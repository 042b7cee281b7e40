"""Leases for Python programs.

    from leases.allocator import Allocator

    with Allocator("host", requirements={"vcpus": 2}, owner="ada", ttl="2h").allocate() as lease:
        lease.interface("command").check(["uname", "-a"])

`leases.signals.lease_changed` tells of every change of state, in the process that made it.
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
from drydock_client.waiting import end_of
from interfaces.contract import Interface
from leases.client.errors import LeaseFailed
from leases.client.protocol import Attendance
from leases.client.values import Explanation, LeaseEnd, LeaseInfo, Verdict
from leases.engine.core.database import InsideTransaction, patient, refuse_inside_transaction
from leases.local import LocalClient
from leases.operations import asking, holding, using
from leases.operations.callers import Caller, caller
from leases.private_worker import Onlooker, PrivateWorker, attendance
from leases.requests import LeaseRequest
from leases.requests import read as read_request

__all__ = ["Allocator", "InsideTransaction", "Lease", "LeaseFailed", "aallocate_many", "allocate_many"]

Seconds = float | str | None
"""Seconds, or a span such as "90s" or "5m"; None waits as long as it takes."""

_QUICKEST, _SLOWEST = 0.01, 0.25
_CLEANING = 60.0
"""Seconds a worker of this process is given to clean what a lease has used."""


class Allocator:
    """A request for one lease: `type`, its requirements, for whom, and any field of `LeaseRequest`. A `workload` may be
    no more than its command: exact arguments, or one line for a shell.

    Raises InvalidRequest with the field at fault; nothing is written before `allocate`.
    """

    def __init__(self, type: str, *, requirements: Mapping[str, Any] | None = None, owner: Any, **fields: Any) -> None:
        if isinstance(fields.get("workload"), str | list | tuple):
            fields["workload"] = {"command": fields["workload"]}
        self.request: LeaseRequest = read_request({"type": type, "requirements": dict(requirements or {}), **fields})
        self.owner = owner

    def allocate(self) -> Lease:
        """Ask for the lease; it is active at once where there is room, else it waits or is built.

        Inside your transaction only its row is written; all else follows your commit. Raises InvalidRequest, and
        Conflict when the idempotency key stands for another request.
        """
        who = patient(caller, self.owner)
        return Lease(asking.request_patiently(who, self.request), who)

    def explain(self) -> Explanation:
        """What would come of it now, with every candidate's verdict. Nothing is written."""
        return asking.explain(caller(self.owner), self.request)

    async def aallocate(self) -> Lease:
        """`allocate` for async code."""
        return await sync_to_async(self.allocate)()

    async def aexplain(self) -> Explanation:
        """`explain` for async code."""
        return await sync_to_async(self.explain)()


def allocate_many(
    asked: Sequence[Allocator], *, same: str = "", different: str = "", idempotency_key: str | None = None
) -> list[Lease]:
    """Ask for several leases of one owner, granted all together or not at all, in the order asked.

    `same`, `different`: `resource` or `parent`, what they must share or must not. Raises InvalidRequest, Conflict.
    """
    if not asked:
        return []
    who = patient(caller, asked[0].owner)
    requests = [one.request for one in asked]
    ids = asking.request_group_patiently(who, requests, same=same, different=different, idempotency_key=idempotency_key)
    return [Lease(pk, who) for pk in ids]


async def aallocate_many(
    asked: Sequence[Allocator], *, same: str = "", different: str = "", idempotency_key: str | None = None
) -> list[Lease]:
    """`allocate_many` for async code."""
    return await sync_to_async(allocate_many)(asked, same=same, different=different, idempotency_key=idempotency_key)


class Lease:
    """A lease in the hands of its owner. What it says is as of the last `refresh`, which waiting does too.

    In a `with` it is waited for at the beginning and released at the end, whatever happens in between.
    """

    def __init__(self, id: int, who: Caller) -> None:
        self.id = id
        self._who = who
        self._info: LeaseInfo | None = None
        self._attended: PrivateWorker | Onlooker | None = None

    @classmethod
    def get(cls, id: int | str, *, owner: Any) -> Self:
        """A lease by its id or its name. Raises NotFound when there is none, or it is somebody else's."""
        who = caller(owner)
        found = cls(holding.named(who, id) if isinstance(id, str) else id, who)
        found.refresh()
        return found

    @property
    def info(self) -> LeaseInfo:
        """Everything that is known of it."""
        return self._info if self._info is not None else self.refresh()

    @property
    def state(self) -> str:
        """pending, acquired, active, released, destroyed or broken."""
        return self.info.state

    @property
    def reason(self) -> str:
        """Why it is in that state, as a code (`leases.reasons`)."""
        return self.info.reason

    @property
    def message(self) -> str:
        """Why it is in that state, in one sentence."""
        return self.info.message

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What every blueprint said when it was last decided about."""
        return self.info.verdicts

    def refresh(self) -> LeaseInfo:
        """Read it again."""
        self._info = patient(holding.get, self._who, self.id)
        return self._info

    def wait_until_active(self, timeout: Seconds = None) -> Self:
        """Wait until it can be used. Raises TimedOut (it goes on waiting by itself), LeaseFailed when it is broken
        or over, InsideTransaction at once when you have a transaction open."""
        refuse_inside_transaction("wait_until_active")
        with attendance(self.id) as attended:
            self._await(self._arrived, attended, timeout)
        return self

    def _await(self, done: Callable[[], bool], attended: Attendance, timeout: Seconds) -> None:
        pause = _Pause(timeout)
        while not done():
            attended.look()
            clock.sleep(self._next(pause))

    async def await_until_active(self, timeout: Seconds = None) -> Self:
        """`wait_until_active` for async code; other tasks go on meanwhile."""
        await sync_to_async(refuse_inside_transaction)("await_until_active")
        async with self._attending() as attended:
            await self._async_await(self._arrived, attended, timeout)
        return self

    @contextlib.asynccontextmanager
    async def _attending(self) -> AsyncIterator[PrivateWorker | Onlooker]:
        attended = attendance(self.id)
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
        """Wait until it is over, by itself (its workload ended, it expired, it was lost) or because somebody released
        it. Returns how it ended, with the exit code of its workload and what it has cost. Raises TimedOut,
        InsideTransaction at once when you have a transaction open."""
        refuse_inside_transaction("wait_until_ended")
        with attendance(self.id) as attended:
            self._await(self._over, attended, timeout)
        return self._end()

    async def await_until_ended(self, timeout: Seconds = None) -> LeaseEnd:
        """`wait_until_ended` for async code; other tasks go on meanwhile."""
        await sync_to_async(refuse_inside_transaction)("await_until_ended")
        async with self._attending() as attended:
            await self._async_await(self._over, attended, timeout)
        return await sync_to_async(self._end)()

    def _over(self) -> bool:
        return (self.refresh() if patient(holding.moved, self.id, self._info) else self.info).over

    def _end(self) -> LeaseEnd:
        return end_of(LocalClient(self._who), self.refresh())

    def _arrived(self) -> bool:
        info = self.refresh() if patient(holding.moved, self.id, self._info) else self.info
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
                hint="It goes on waiting; release it if you no longer want it.",
            )
        return seconds

    def interface(self, name: str) -> Interface:
        """A typed interface: `command`, `filesystem`, `httpd` or another that its kind has.

        Raises LeaseEnded unless it is active, NotSupported, InsideTransaction.
        """
        return using.interface(self._who, self.id, name)

    def extend(self, ttl: str | float | None = None, *, until: Any = None) -> None:
        """Let it last `ttl` from now, or until then. Raises Conflict with the reason where it cannot."""
        patient(holding.extend, self._who, self.id, ttl=ttl, until=until)
        self.refresh()

    def heartbeat(self) -> None:
        """Say that you live. Raises Conflict when it came too late."""
        patient(holding.heartbeat, self._who, self.id)

    def hold(self, ttl: str | float | None = None, *, reason: str = "") -> None:
        """Keep its resource as it is after the end of the lease, for debugging."""
        holding.hold(self._who, self.id, ttl=ttl, reason=reason)

    def release(self, message: str = "") -> None:
        """End it. Inside your transaction the wish is written, and acted on after your commit."""
        patient(holding.release, self._who, self.id, message=message)
        self._info = None

    def __enter__(self) -> Self:
        refuse_inside_transaction("with a lease")
        self._attended = attendance(self.id)
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
        """Release it; a worker of this process is given a while to clean."""
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
        """Whether nothing of it is left to clean now; what is held stays as it is."""
        info = self.refresh()
        return info.over or info.held

    async def arefresh(self) -> LeaseInfo:
        """`refresh` for async code."""
        return await sync_to_async(self.refresh)()

    async def ainterface(self, name: str) -> Interface:
        """`interface` for async code; its methods block, so call them by `asyncio.to_thread`."""
        return await sync_to_async(self.interface)(name)

    async def aextend(self, ttl: str | float | None = None, *, until: Any = None) -> None:
        """`extend` for async code."""
        await sync_to_async(self.extend)(ttl, until=until)

    async def aheartbeat(self) -> None:
        """`heartbeat` for async code."""
        await sync_to_async(self.heartbeat)()

    async def arelease(self, message: str = "") -> None:
        """`release` for async code."""
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
    """Pauses between looks: short ones first, so that what is quick is seen at once."""

    def __init__(self, limit: Seconds) -> None:
        self.limit = None if limit is None else 0.0 if limit == 0 else duration(limit, field="timeout").total_seconds()
        self._until = None if self.limit is None else clock.monotonic() + self.limit
        self._pause = _QUICKEST

    def next(self) -> float | None:
        """Seconds to the next look; None when the time is over."""
        left = _SLOWEST if self._until is None else self._until - clock.monotonic()
        if left <= 0:
            return None
        pause, self._pause = min(self._pause, left), min(self._pause * 1.5, _SLOWEST)
        return pause
