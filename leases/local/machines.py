"""Machines, and how leases are reached."""

from __future__ import annotations

from typing import Any

from interfaces.endpoints import LocalEndpoint
from leases.client import values
from leases.operations import machines, receipts
from leases.operations.callers import Caller


class LocalMachines:
    """The part of the client that is about machines."""

    who: Caller

    def machine(self, id: int, *, resource: bool = False) -> values.MachineInfo:
        return machines.get_resource(self.who, id) if resource else machines.get(self.who, id)

    def change_machine(self, id: int, act: str, *, resource: bool = False, **given: Any) -> values.MachineInfo:
        do = machines.act_on_resource if resource else machines.act_on_lease
        return do(self.who, id, act, **given)

    def console(self, id: int, *, resource: bool = False) -> values.ConsoleInfo:
        return machines.console_of_resource(self.who, id) if resource else machines.console(self.who, id)

    def access(self, id: int) -> values.AccessInfo:
        return receipts.access(self.who, id)

    def local_account(self, id: int) -> LocalEndpoint | None:
        return receipts.local_account(self.who, id)
