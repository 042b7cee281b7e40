"""A client of the engine in this very process. Django must be set up."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections

from drydock_client.waiting import Waits
from leases.client import values
from leases.client.protocol import Attendance
from leases.engine.core.database import patient, refuse_inside_transaction
from leases.local.catalogue import LocalCatalogue
from leases.local.costs import LocalCosts
from leases.local.fleet import LocalFleet
from leases.local.leases import LocalLeases
from leases.local.machines import LocalMachines
from leases.local.operating import LocalAccess, LocalBlueprints, LocalResources, LocalUsers
from leases.local.work import LocalJobs, LocalServing, LocalWork
from leases.operations import events, workers
from leases.operations.callers import Caller, on_behalf


class Onlooker(contextlib.AbstractContextManager["Onlooker"]):
    """Looks whether workers live, and starts none."""

    private = False

    def __exit__(self, *_: object) -> None:
        """Nothing was begun."""

    def look(self) -> bool:
        """Whether some worker was seen lately."""
        return patient(workers.alive)


class LocalClient(
    LocalLeases,
    LocalMachines,
    LocalWork,
    LocalServing,
    LocalJobs,
    LocalResources,
    LocalBlueprints,
    LocalAccess,
    LocalUsers,
    LocalCatalogue,
    LocalCosts,
    LocalFleet,
    Waits,
):
    """`leases.client.Client` over `leases.operations`. `attend` makes what keeps workers alive while one waits."""

    def __init__(self, who: Caller, *, owner: Any = None, attend: Callable[[], Attendance] = Onlooker) -> None:
        self.who = who
        self.name, self.operator = who.name, who.operator
        self.owner = on_behalf(who, owner).name if owner is not None else None
        self._attend = attend

    def events(
        self, *, lease: int | None = None, resource: int | None = None, blueprint: str = "", kind: str = "",
        after: int = 0, limit: int = 200, newest: bool = False,
    ) -> list[values.EventInfo]:  # fmt: skip
        return events.list_(
            self.who, lease_id=lease, resource_id=resource, blueprint=blueprint, kind=kind, after=after, limit=limit,
            newest=newest,
        )  # fmt: skip

    def follow(
        self, *, lease: int | None = None, resource: int | None = None, blueprint: str = "", kind: str = "",
        after: int | None = None, stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[values.EventInfo]:  # fmt: skip
        return events.follow(
            self.who, lease_id=lease, resource_id=resource, blueprint=blueprint, kind=kind, after=after, stop=stop
        )

    def wait(self, id: int, *, until: str = "active", timeout: float | None = None) -> values.LeaseInfo:
        refuse_inside_transaction("wait")
        return Waits.wait(self, id, until=until, timeout=timeout)

    def _in_thread(self, call: Callable[[], Any]) -> Awaitable[Any]:
        return sync_to_async(call)()

    def attended(self) -> Attendance:
        return self._attend()

    def close(self) -> None:
        connections.close_all()
