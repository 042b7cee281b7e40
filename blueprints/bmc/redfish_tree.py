"""The resources of one machine in the tree of its Redfish service, read as far as they can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from blueprints.bmc import inspection
from blueprints.bmc.errors import BmcAnswerInvalid, BmcError, BmcLacks, BmcRefused
from blueprints.bmc.inspection import name_of, paths, text
from blueprints.bmc.redfish_client import Client, Json

MOST_MEMBERS = 500
"""Members of a collection that are read."""
UNREADABLE = (BmcLacks, BmcRefused, BmcAnswerInvalid)
"""Errors that concern one resource, after which others can be read."""


class Tree:
    """The resources of one system and of what belongs to it."""

    def __init__(self, client: Client, system: str) -> None:
        self._client, self._wanted = client, system
        self.path = ""
        """The path of the system, known after it was read."""
        self._here = f"The BMC at {client.line.where}"

    @property
    def root(self) -> Json:
        """The service root."""
        return self._client.root

    def system(self) -> Json:
        """Read the system, which is found first if the registration does not name it."""
        if self.path:
            return self._client.get(self.path)
        if self._wanted.startswith("/"):
            self.path = self._wanted
            return self._client.get(self.path)
        found = {path.rstrip("/").rsplit("/", 1)[-1]: path for path in self._members(self.root, "Systems")}
        names = ", ".join(found) or "none"
        if self._wanted and self._wanted not in found:
            raise BmcLacks(f"{self._here} has no system {self._wanted!r}. Its systems: {names}.")
        if not self._wanted and len(found) != 1:
            hint = "Name one of them as `system` of the registration." if found else ""
            raise BmcLacks(f"{self._here} has {len(found)} systems: {names}.", hint=hint)
        self.path = found[self._wanted or next(iter(found))]
        return self._client.get(self.path)

    def _members(self, place: Json, key: str) -> list[str]:
        """Return the paths of the members of a collection that a resource names; none if it names none."""
        return [path for start in paths(place.get(key)) for path in paths(self._first(start)[:MOST_MEMBERS])]

    def read(self, place: Json, key: str, missing: list[str] | None = None) -> Iterator[Json]:
        """Read the members of a collection. What cannot be read is noted in `missing`, or else raised."""
        for start in paths(place.get(key)):
            yield from self._collection(start, missing)

    def _collection(self, start: str, missing: list[str] | None) -> Iterator[Json]:
        try:
            members = self._expanded(start)
        except UNREADABLE as error:
            self._note(error, missing)
            return
        if len(members) > MOST_MEMBERS and missing is not None:
            missing.append(f"{self._here} lists more than {MOST_MEMBERS} members of {start}; the others were not read.")
        for one in members[:MOST_MEMBERS]:
            if len(one.keys() - {"@odata.id", "@odata.type", "@odata.etag"}) > 0:
                yield one
            else:
                yield from self.resources(paths(one), missing)

    def resources(self, given: Sequence[str], missing: list[str] | None = None) -> Iterator[Json]:
        """Read resources by path. What cannot be read is noted in `missing`, or else raised."""
        for path in given:
            try:
                yield self._client.get(path)
            except UNREADABLE as error:
                self._note(error, missing)

    def _note(self, error: BmcError, missing: list[str] | None) -> None:
        if missing is None:
            raise error
        missing.append(error.message)

    def _expanded(self, start: str) -> list[Json]:
        """Return the members of a collection, whole if the BMC can send them with it, and one more than are used."""
        features = self.root.get("ProtocolFeaturesSupported")
        expand = features.get("ExpandQuery") if isinstance(features, dict) else None
        if isinstance(expand, dict) and expand.get("NoLinks") is True:
            try:
                return self._first(f"{start}?$expand=.($levels=1)")
            except UNREADABLE:
                pass  # some BMCs say that they can, and cannot
        return self._first(start)

    def _first(self, path: str) -> list[Json]:
        return list(islice(self._client.members(path), MOST_MEMBERS + 1))

    def managers(self, system: Json, missing: list[str] | None = None) -> list[Json]:
        """Read the managers of the system, of which the first is its BMC."""
        return list(self.resources(paths(links(system).get("ManagedBy")), missing))

    def chassis(self, system: Json, missing: list[str] | None = None) -> list[Json]:
        """Read the chassis of the system, also those that the system does not name, but that name it."""
        everything = list(self.read(self.root, "Chassis", missing))
        own = [one for one in everything if self.path in paths(links(one).get("ComputerSystems"))]
        return own or list(self.resources(paths(links(system).get("Chassis")), missing))

    def everything(self) -> inspection.Resources:
        """Read all resources that describe the machine."""
        missing: list[str] = []
        system, root = self.system(), self.root
        chassis = self.chassis(system, missing)
        storage = list(self.read(system, "Storage", missing))
        drives = [path for one in storage for path in paths(one.get("Drives"))]
        found = [one for place in chassis for one in self.read(place, "NetworkAdapters", missing)]
        # An adapter may be listed in a chassis and in the one that contains it.
        adapters = {(name_of(one), text(one.get("SerialNumber"))): one for one in found}
        interfaces = list(self.read(system, "EthernetInterfaces", missing))
        functions = [
            one
            for adapter in (() if interfaces else adapters.values())
            for one in self.read(adapter, "NetworkDeviceFunctions", missing)
        ]
        return inspection.Resources(
            system=system,
            root=root,
            chassis=chassis,
            managers=self.managers(system, missing),
            processors=list(self.read(system, "Processors", missing)),
            drives=list(self.resources(list(dict.fromkeys(drives)), missing)),
            interfaces=interfaces,
            adapters=list(adapters.values()),
            functions=functions,
            firmware=self.firmware(missing),
            missing=missing,
        )

    def firmware(self, missing: list[str] | None = None) -> list[Json]:
        """Read the components of the firmware inventory."""
        services = list(self.resources(paths(self.root.get("UpdateService")), missing))
        return [one for service in services for one in self.read(service, "FirmwareInventory", missing)]

    def tasks(self) -> list[str]:
        """Return the paths of the tasks that the task service lists."""
        services = self.resources(paths(self.root.get("Tasks")))
        return [path for service in services for path in self._members(service, "Tasks")]


def links(place: Json) -> Mapping[str, Any]:
    """Return the links of a resource."""
    return member(place, "Links")


def member(place: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object in a resource, empty if it is missing or something else."""
    found = place.get(key)
    return found if isinstance(found, Mapping) else {}
