"""The operations of Drydock as an interface for programs, the same in process and over HTTP."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from drydock_client.agents import Agents
from drydock_client.blueprints import Blueprints
from drydock_client.costs import Costs
from drydock_client.credentials import Credentials
from drydock_client.events import Events
from drydock_client.fleet import Fleet
from drydock_client.installation import Installation
from drydock_client.instances import Instances
from drydock_client.interfaces import Interfaces, Words
from drydock_client.jobs import Jobs, Stream
from drydock_client.leases import Leases, Request
from drydock_client.machines import Machines
from drydock_client.offers import Offers, Wanted
from drydock_client.permissions import Permissions
from drydock_client.resources import Resources
from drydock_client.users import Users

__all__ = ["Attendance", "Client", "Request", "Stream", "Wanted", "Words"]


class Attendance(Protocol):
    """A context manager to use while a program waits. Reports whether a worker is alive."""

    def __enter__(self) -> Attendance: ...

    def __exit__(self, *_: object) -> None: ...

    def look(self) -> bool:
        """Return whether a worker is alive. Starts one first if this program is responsible for workers.

        Cheap enough to be called often.
        """

    @property
    def private(self) -> bool:
        """Whether this program runs the worker. If so, let the worker finish its work before the program ends."""


class Client(
    Leases, Machines, Interfaces, Jobs, Resources, Blueprints, Permissions, Credentials, Users, Offers, Costs,
    Instances, Fleet, Installation, Events, Agents,
):  # fmt: skip
    """A client with all operations. `name` is the caller's user name; `operator` is True for an operator."""

    name: str
    operator: bool

    @abstractmethod
    def attended(self) -> Attendance:
        """Return a context manager that keeps workers alive, if this program is responsible for them."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections. They are opened again when the client is next used."""
