"""Machines: stop, start, reboot, a larger disk, another type, tags, console; and how leases are reached."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, StrictInt

from leases.client.values import AccessInfo, ConsoleInfo, MachineInfo
from leases.hostcalls import of_lease, of_resource
from leases.operations.machines import LARGEST_DISK_GIB
from leases.rest import bodies
from leases.rest.endpoint import Asked, Endpoint, operation
from leases.rest.models import Scope


class Disk(bodies.Body):
    """How large the boot disk is to be. It never shrinks."""

    disk_gib: Annotated[StrictInt, Field(ge=1, le=LARGEST_DISK_GIB)]


class Type(bodies.Body):
    """The provider's name of another instance type, as `offers` lists it for the machine's zone."""

    type_name: Annotated[str, Field(min_length=1, max_length=128)]


class Tags(bodies.Body):
    """Tags to set; others stay. Names that begin with `drydock` are ours."""

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
        """Its power, type and tags, what can be done to it, and what is being done."""
        return asked.client.machine(id)


class OfResource(Endpoint):
    """A resource as a machine."""

    @operation("Look at a resource as a machine", gives=MachineInfo, scope=Scope.OPERATE)
    def get(self, asked: Asked, id: int) -> MachineInfo:
        """Its power, type and tags, what can be done to it, and what is being done."""
        return asked.client.machine(id, resource=True)


class ConsoleOfLease(Endpoint):
    """The console of the machine of a lease."""

    @operation("Read the console of its machine", gives=ConsoleInfo, scope=Scope.LEASE, asks=of_lease)
    def post(self, asked: Asked, id: int) -> ConsoleInfo:
        """The newest 64 KiB, without secrets. For who holds the whole machine, and operators; every reading is an
        event."""
        return asked.client.console(id)


class ConsoleOfResource(Endpoint):
    """The console of a resource."""

    @operation("Read its console", gives=ConsoleInfo, scope=Scope.OPERATE, asks=of_resource)
    def post(self, asked: Asked, id: int) -> ConsoleInfo:
        """The newest 64 KiB, without secrets. Every reading is an event."""
        return asked.client.console(id, resource=True)


class Access(Endpoint):
    """The access receipt of a lease."""

    @operation("How a lease is reached by SSH", gives=AccessInfo)
    def get(self, asked: Asked, id: int) -> AccessInfo:
        """Host, port, user, host keys with fingerprints, and until when: as of now, without any secret."""
        return asked.client.access(id)


def _acting(act: str, summary: str, body: type[BaseModel], *, resource: bool) -> Any:
    """The address of one act on a machine."""
    scope = Scope.OPERATE if resource else Scope.LEASE

    class Act(Endpoint):
        """An act on a machine."""

        @operation(
            summary.replace("its machine", "a resource") if resource else summary, gives=MachineInfo, scope=scope,
            body=body,
        )  # fmt: skip
        def post(self, asked: Asked, id: int) -> MachineInfo:
            """The machine as it is then: `progress` tells of the work on it, and later `outcome` how it ended. For who
            holds the whole machine, and operators."""
            return asked.client.change_machine(id, act, resource=resource, **asked.body.model_dump())

    return Act


OF_LEASES = {act: _acting(act, summary, body, resource=False) for act, summary, body in _ACTS}
OF_RESOURCES = {act: _acting(act, summary, body, resource=True) for act, summary, body in _ACTS}
