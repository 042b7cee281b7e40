"""What stands in the emulated clouds, in the same words for all three: read from the doubles, not through a client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from blueprints.gce.api import TAGS_ITEM
from blueprints.gce.api import joined_tags as labelled
from blueprints.testing.conformance import Outside
from tests.clouds.azure.things import MACHINE, NETWORK


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One machine."""

    type: str
    power: str
    """on, off, or whatever else the cloud calls it."""
    tags: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Looks:
    """How to look at a double: everything there is, and the machine of a key."""

    things: Callable[[Any], Iterator[Outside]]
    machine: Callable[[Any, str], Seen]


def _ec2_things(double: Any) -> Iterator[Outside]:
    for sort, names in double.objects().items():
        for name in names:
            # A group's own name is its key; other things are called by EC2, and bear the key as a tag.
            tags = double.tags(_group_id(double, name) if sort == "security_groups" else name)
            yield Outside(name=f"{sort} {tags.get('Name') or name}", tags=tags)


def _group_id(double: Any, name: str) -> str:
    groups = (one for backend in double._backends() for groups in backend.groups.values() for one in groups.values())
    return next(str(one.id) for one in groups if one.name == name)


def _ec2_machine(double: Any, key: str) -> Seen:
    with double._lock:
        double.age()
        one = next(one for one in reversed(double._instances()) if double.machine(one).key == key)
    power = {"running": "on", "stopped": "off"}.get(one.state, one.state)
    return Seen(type=one.instance_type, power=power, tags=double.tags(one.id))


def _gce_things(double: Any) -> Iterator[Outside]:
    with double.world.lock:
        for (_, name), one in double.world.instances.items():
            yield Outside(name=f"instance {name}", tags=_gce_tags(one))
        for (_, name), one in double.world.disks.items():
            yield Outside(name=f"disk {name}", tags=one.get("labels", {}))
        for name, one in double.world.firewalls.items():
            yield Outside(name=f"firewall rule {name}", tags=json.loads(one["description"]))


def _gce_tags(one: Mapping[str, Any]) -> dict[str, str]:
    items = {item["key"]: item["value"] for item in one.get("metadata", {}).get("items", ())}
    return labelled(one.get("labels", {}), items.get(TAGS_ITEM, ""))


def _gce_machine(double: Any, key: str) -> Seen:
    with double.world.lock:
        one = next(one for (_, name), one in double.world.instances.items() if name == key)
        power = {"RUNNING": "on", "TERMINATED": "off"}.get(one["status"], one["status"])
        return Seen(type=one["machineType"].rpartition("/")[2], power=power, tags=_gce_tags(one))


def _azure_things(double: Any) -> Iterator[Outside]:
    with double.ground.lock:
        double.ground.settle()
        for one in double.ground.things:
            # The network is made once for all machines, and stays.
            if one.type != NETWORK:
                yield Outside(name=f"{one.type} {one.name}", tags=one.body.get("tags") or {})


def _azure_machine(double: Any, key: str) -> Seen:
    with double.ground.lock:
        double.ground.settle()
        one = next(one for one in double.ground.things.of(MACHINE) if one.name == key)
        power = {"running": "on", "deallocated": "off"}.get(one.power, one.power)
        return Seen(type=one.properties["hardwareProfile"]["vmSize"], power=power, tags=one.body.get("tags") or {})


LOOKS = {
    "ec2": Looks(things=_ec2_things, machine=_ec2_machine),
    "gce": Looks(things=_gce_things, machine=_gce_machine),
    "azure": Looks(things=_azure_things, machine=_azure_machine),
}
