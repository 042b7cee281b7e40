"""A client that calls the engine in this process. Django must already be set up."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections

from drydock_client import values
from drydock_client.operations import Operation
from drydock_client.protocol import Attendance, Client
from leases.engine.core.database import patient, refuse_inside_transaction
from leases.local.functions import carry_out
from leases.local.interfaces import LocalInterfaces
from leases.operations import events, installation, leases
from leases.operations.callers import Caller, on_behalf


class Onlooker(contextlib.AbstractContextManager["Onlooker"]):
    """Reports whether workers are alive. Never starts one."""

    private = False

    def __exit__(self, *_: object) -> None:
        """Do nothing, because nothing was started."""

    def look(self) -> bool:
        """Return whether a worker sent a heartbeat recently."""
        return patient(installation.worker_alive)


class LocalClient(LocalInterfaces, Client):
    """Implements every operation of `drydock_client.protocol.Client` by calling `leases.operations`.

    `attend` returns the object that keeps workers alive while a program waits.
    """

    def __init__(self, who: Caller, *, owner: Any = None, attend: Callable[[], Attendance] = Onlooker) -> None:
        self.who = who
        self.name, self.operator = who.name, who.operator
        self.owner = on_behalf(who, owner).name if owner is not None else None
        self._attend = attend

    def carry_out(self, operation: Operation, arguments: Mapping[str, Any]) -> Any:
        """Call the function of an operation as the caller of this client, for its owner if it has one."""
        owner = {"owner": self.owner} if operation.owned else {}
        return carry_out(self.who, operation, {**arguments, **owner})

    def named(self, name: str) -> int:
        return leases.named(self.who, name)

    def follow(
        self, *, lease: int | None = None, resource: int | None = None, blueprint: str = "", kind: str = "",
        after: int | None = None, stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[values.EventInfo]:  # fmt: skip
        return events.follow(
            self.who, lease_id=lease, resource_id=resource, blueprint=blueprint, kind=kind, after=after, stop=stop
        )

    def wait(self, id: int, *, until: str = "active", timeout: float | None = None) -> values.LeaseInfo:
        refuse_inside_transaction("wait")
        return super().wait(id, until=until, timeout=timeout)

    def _in_thread(self, call: Callable[[], Any]) -> Awaitable[Any]:
        return sync_to_async(call)()

    def attended(self) -> Attendance:
        return self._attend()

    def close(self) -> None:
        connections.close_all()
