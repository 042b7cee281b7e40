"""Objects of the double's resource group, and the operations that work on them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

from tests.clouds.azure.faults import Refusal

Json = dict[str, Any]
MACHINE, DISK = "Microsoft.Compute/virtualMachines", "Microsoft.Compute/disks"
NSG, IP = "Microsoft.Network/networkSecurityGroups", "Microsoft.Network/publicIPAddresses"
NIC, NETWORK = "Microsoft.Network/networkInterfaces", "Microsoft.Network/virtualNetworks"
COLLECTIONS = {one.lower(): one for one in (MACHINE, DISK, NSG, IP, NIC, NETWORK)}
IN_USE = {
    NIC: (400, "NicInUse"),
    IP: (400, "PublicIPAddressCannotBeDeleted"),
    NSG: (400, "InUseNetworkSecurityGroupCannotBeDeleted"),
    NETWORK: (400, "InUseSubnetCannotBeDeleted"),
    DISK: (409, "OperationNotAllowed"),
}


@dataclasses.dataclass(frozen=True)
class Machine:
    """A virtual machine, for whoever starts something real for it."""

    id: str
    key: str
    user_data: str
    user: str
    public_key: str


@dataclasses.dataclass
class Thing:
    """One object: its JSON without what is computed, and where it stands."""

    id: str
    type: str
    name: str
    body: Json
    state: str = "Creating"
    power: str = ""
    failure: tuple[str, str] | None = None
    machine: Machine | None = None
    started: bool = False
    busy: bool = False

    @property
    def properties(self) -> Json:
        """Of its JSON."""
        return self.body.setdefault("properties", {})

    @property
    def location(self) -> str:
        """Where it is."""
        return str(self.body["location"]).lower()

    def json(self) -> Json:
        """As it is answered."""
        about = {**self.properties, "provisioningState": self.state}
        return {**self.body, "id": self.id, "name": self.name, "type": self.type, "properties": about}

    def view(self) -> Json:
        """The instance view of a machine."""
        level, code, said = "Info", f"ProvisioningState/{self.state.lower()}", f"Provisioning {self.state.lower()}"
        statuses: list[Json] = []
        if self.failure:
            statuses.append(
                {"code": f"{code}/{self.failure[0]}", "level": "Error", "message": self.failure[1],
                 "displayStatus": "Provisioning failed"}
            )  # fmt: skip
        else:
            statuses.append({"code": code, "level": level, "displayStatus": said})
        if self.power:
            statuses.append({"code": f"PowerState/{self.power}", "level": "Info", "displayStatus": f"VM {self.power}"})
        return {"statuses": statuses}


@dataclasses.dataclass
class Operation:
    """Something long: what it does when it ends, and how it is told."""

    id: str
    ends: float
    finish: Callable[[], tuple[str, str] | None]
    started: float
    done: bool = False
    error: tuple[str, str] | None = None

    def json(self, now: float) -> Json:
        """As Azure-AsyncOperation answers."""
        if not self.done:
            share = (now - self.started) / max(self.ends - self.started, 0.001)
            return {"name": self.id, "status": "InProgress", "percentComplete": int(min(share, 0.99) * 100)}
        if self.error:
            code, message = self.error
            return {"name": self.id, "status": "Failed", "error": {"code": code, "message": message}}
        return {"name": self.id, "status": "Succeeded"}


class Things:
    """All objects by their id in small letters: ARM does not mind the letters' case."""

    def __init__(self) -> None:
        self._all: dict[str, Thing] = {}

    def __iter__(self) -> Any:
        return iter(list(self._all.values()))

    def find(self, id: str) -> Thing | None:
        """One, or None."""
        return self._all.get(id.lower())

    def get(self, id: str) -> Thing:
        """One. Raises Refusal."""
        there = self.find(id)
        if there is None:
            words = id.split("/")
            name = f"{'/'.join(words[6:])}"
            raise Refusal(404, "ResourceNotFound", f"The Resource '{name}' under resource group '{words[4]}' was not "
                          "found. For more details please go to https://aka.ms/ARMResourceNotFoundFix")  # fmt: skip
        return there

    def add(self, thing: Thing) -> None:
        """Put one in."""
        self._all[thing.id.lower()] = thing

    def drop(self, id: str) -> None:
        """Take one out, if it is there."""
        self._all.pop(id.lower(), None)

    def of(self, *types: str) -> list[Thing]:
        """Those of some types, by name."""
        return sorted((one for one in self._all.values() if one.type in types), key=lambda one: one.name)

    def user_of(self, thing: Thing) -> Thing | None:
        """Who still needs it."""
        for other in self._all.values():
            if other is not thing and thing.id.lower() in _needs(other):
                return other
        return None


def _needs(thing: Thing) -> set[str]:
    """The ids that an object refers to, without those of parts inside another (a subnet counts as its network)."""
    about = thing.properties
    found: list[str] = []
    if thing.type == MACHINE:
        found += [one["id"] for one in about["networkProfile"]["networkInterfaces"]]
        found.append(about["storageProfile"]["osDisk"]["managedDisk"]["id"])
    if thing.type == NIC:
        settings = [one["properties"] for one in about["ipConfigurations"]]
        found += [one["subnet"]["id"].rsplit("/subnets/", 1)[0] for one in settings]
        found += [one["publicIPAddress"]["id"] for one in settings if one.get("publicIPAddress")]
        found += [about["networkSecurityGroup"]["id"]] if about.get("networkSecurityGroup") else []
    return {one.lower() for one in found}


def addresses() -> Callable[[], str]:
    """127.40.0.1, 127.40.0.2, ..."""
    numbers = itertools.count(1)

    def address() -> str:
        number = next(numbers)
        return f"127.40.{number // 250}.{number % 250 + 1}"

    return address
