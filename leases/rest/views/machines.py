"""Machines: power, disk, instance type, tags and console."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, StrictInt

from drydock_client.values import ConsoleInfo, MachineInfo
from leases.hostcalls import of_lease, of_resource
from leases.operations.machines import LARGEST_DISK_GIB
from leases.rest import bodies
from leases.rest.endpoint import Asked, Endpoint, operation
from leases.rest.models import Scope


class Disk(bodies.Body):
    """The new size of the boot disk, which can only grow."""

    disk_gib: Annotated[StrictInt, Field(ge=1, le=LARGEST_DISK_GIB)]


class Type(bodies.Body):
    """The provider's name for the new instance type, as listed by `offers` for the machine's zone."""

    type_name: Annotated[str, Field(min_length=1, max_length=128)]


class Tags(bodies.Body):
    """Tags to set; other tags are not changed. Names that begin with `drydock` are reserved."""

    tags: Annotated[dict[str, Annotated[str, Field(max_length=255)]], Field(min_length=1, max_length=20)]


_ACTS: tuple[tuple[str, str, type[BaseModel]], ...] = (
    ("stop", "Switch its machine off", bodies.Empty),
    ("start", "Switch its machine on", bodies.Empty),
    ("reboot", "Reboot its machine", bodies.Empty),
    ("resize", "Let the disk of its machine grow", Disk),
    ("change-type", "Make its machine another instance type", Type),
    ("tags", "Set tags on its machine", Tags),
)


class OfLease(Endpoint):
    """The machine of a lease."""

    @operation("Look at the machine of a lease", gives=MachineInfo)
    def get(self, asked: Asked, id: int) -> MachineInfo:
        """Return the machine's power state, type and tags, the operations it supports, and the operation in
        progress."""
        return asked.client.machine(id)


class OfResource(Endpoint):
    """A resource as a machine."""

    @operation("Look at a resource as a machine", gives=MachineInfo, scope=Scope.OPERATE)
    def get(self, asked: Asked, id: int) -> MachineInfo:
        """Return the machine's power state, type and tags, the operations it supports, and the operation in
        progress."""
        return asked.client.machine(id, resource=True)


class ConsoleOfLease(Endpoint):
    """The console of a lease's machine."""

    @operation("Read the console of its machine", gives=ConsoleInfo, scope=Scope.LEASE, asks=of_lease)
    def post(self, asked: Asked, id: int) -> ConsoleInfo:
        """Return the newest 64 KiB of the console, with secrets removed. Allowed for operators, and for the owner of a
        lease that holds the whole machine. Every reading is recorded as an event."""
        return asked.client.console(id)


class ConsoleOfResource(Endpoint):
    """The console of a resource."""

    @operation("Read its console", gives=ConsoleInfo, scope=Scope.OPERATE, asks=of_resource)
    def post(self, asked: Asked, id: int) -> ConsoleInfo:
        """Return the newest 64 KiB of the console, with secrets removed. Every reading is recorded as an event."""
        return asked.client.console(id, resource=True)


def _acting(act: str, summary: str, body: type[BaseModel], *, resource: bool) -> Any:
    """Create the view of one operation on a machine."""
    scope = Scope.OPERATE if resource else Scope.LEASE

    class Act(Endpoint):
        """An operation on a machine."""

        @operation(
            summary.replace("its machine", "a resource") if resource else summary, gives=MachineInfo, scope=scope,
            body=body,
        )  # fmt: skip
        def post(self, asked: Asked, id: int) -> MachineInfo:
            """Start the operation and return the machine. `progress` describes the work in progress, and `outcome`
            later says how it ended. Allowed for operators, and for the owner of a lease that holds the whole
            machine."""
            return asked.client.change_machine(id, act, resource=resource, **asked.body.model_dump())

    return Act


OF_LEASES = {act: _acting(act, summary, body, resource=False) for act, summary, body in _ACTS}
OF_RESOURCES = {act: _acting(act, summary, body, resource=True) for act, summary, body in _ACTS}
