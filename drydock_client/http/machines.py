"""Machines, over HTTP."""

from __future__ import annotations

from typing import Any

from drydock_client.http.connection import Connection
from drydock_client.values import AccessInfo, ConsoleInfo, MachineInfo, from_json


class HttpMachines:
    """`drydock_client.machines.Machines` on a server."""

    http: Connection

    def machine(self, id: int, *, resource: bool = False) -> MachineInfo:
        return from_json(MachineInfo, self.http.get(f"{_of(resource)}/{id}/machine"))

    def change_machine(self, id: int, act: str, *, resource: bool = False, **given: Any) -> MachineInfo:
        return from_json(MachineInfo, self.http.send("POST", f"{_of(resource)}/{id}/{act}", given))

    def console(self, id: int, *, resource: bool = False) -> ConsoleInfo:
        return from_json(ConsoleInfo, self.http.send("POST", f"{_of(resource)}/{id}/console"))

    def access(self, id: int) -> AccessInfo:
        return from_json(AccessInfo, self.http.get(f"leases/{id}/access"))


def _of(resource: bool) -> str:
    return "resources" if resource else "leases"
