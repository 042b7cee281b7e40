"""What is done to the machine of a lease, and how it is reached."""

from __future__ import annotations

from typing import Any, Protocol

from drydock_client.values import AccessInfo, ConsoleInfo, MachineInfo

ACTS = ("stop", "start", "reboot", "resize", "change-type", "tags")


class Machines(Protocol):
    """Machines, each by the lease that holds all of it; `resource`: by its own number, for operators."""

    def machine(self, id: int, *, resource: bool = False) -> MachineInfo:
        """Its power, type and tags, what can be done to it, and what is being done."""

    def change_machine(self, id: int, act: str, *, resource: bool = False, **given: Any) -> MachineInfo:
        """Ask for `stop`, `start`, `reboot`, `resize(disk_gib)`, `change-type(type_name)` or `tags(tags)`. Raises
        NotSupported with the capability, and Conflict while it is busy with something else."""

    def console(self, id: int, *, resource: bool = False) -> ConsoleInfo:
        """The newest 64 KiB that it wrote on its console; recorded."""

    def access(self, id: int) -> AccessInfo:
        """How a lease is reached by SSH now: its receipt."""
