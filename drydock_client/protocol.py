"""What a shell, or any program outside the engine, asks of it: here or over HTTP, the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from drydock_client.catalogue import Catalogue, Wanted
from drydock_client.costing import Costs
from drydock_client.fleet import Fleet
from drydock_client.leasing import Leases, Request
from drydock_client.machines import Machines
from drydock_client.operating import Operating
from drydock_client.values import EventInfo
from drydock_client.working import Serving, Stream, Words, Work

__all__ = [
    "Attendance", "Catalogue", "Client", "Costs", "Fleet", "Leases", "Machines", "Operating", "Request", "Serving",
    "Stream", "Wanted", "Words", "Work",
]  # fmt: skip


class Attendance(Protocol):
    """Sees that somebody works on what is due while a program waits. Use it in a `with`."""

    def __enter__(self) -> Attendance: ...

    def __exit__(self, *_: object) -> None: ...

    def look(self) -> bool:
        """Whether a worker lives, brought to life here where that is this program's business; cheap, to be asked
        again and again while waiting."""

    @property
    def private(self) -> bool:
        """Whether the worker is this program's own, so that it should wait for the end of what it began."""


class Client(Leases, Machines, Work, Serving, Operating, Catalogue, Costs, Fleet, Protocol):
    """Everything. `name` is who asks, `owner` for whom."""

    name: str
    operator: bool

    def events(
        self, *, lease: int | None = None, resource: int | None = None, blueprint: str = "", kind: str = "",
        after: int = 0, limit: int = 200, newest: bool = False,
    ) -> list[EventInfo]:  # fmt: skip
        """Events by id, from the one after `after`; `newest`: the last ones."""

    def follow(
        self, *, lease: int | None = None, resource: int | None = None, blueprint: str = "", kind: str = "",
        after: int | None = None, stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[EventInfo]:  # fmt: skip
        """Events as they come."""

    def attended(self) -> Attendance:
        """See to it that somebody works on what is due, as far as that is this program's business."""

    def close(self) -> None:
        """Give connections back. It opens them again when it is used again."""
