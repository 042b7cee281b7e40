"""The machine of a lease: its status, actions on it, and its console output."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from drydock_client.operations import Operations
from drydock_client.values import ConsoleInfo, MachineInfo

ACTS = ("stop", "start", "reboot", "resize", "change-type", "tags")


class Machines(Operations):
    """Machines of exclusive leases.

    `id` is the id of the lease that holds the machine exclusively or, with `resource`, which is for operators only, the
    id of the resource.
    """

    @abstractmethod
    def machine(self, id: int, *, resource: bool = False) -> MachineInfo:
        """Return a machine's power, type, tags, capabilities and current action."""

    @abstractmethod
    def change_machine(self, id: int, act: str, *, resource: bool = False, **given: Any) -> MachineInfo:
        """Request `stop`, `start`, `reboot`, `resize(disk_gib)`, `change-type(type_name)` or `tags(tags)`.

        Raises NotSupported, naming the capability, if the machine lacks it, and Conflict while the machine is busy.
        """

    @abstractmethod
    def console(self, id: int, *, resource: bool = False) -> ConsoleInfo:
        """Return the last 64 KiB of a machine's console output. Records an event."""
