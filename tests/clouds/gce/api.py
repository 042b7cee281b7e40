"""Compute Engine's calls, as far as the double answers them: method id -> what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.clouds.gce import catalogue, machines
from tests.clouds.gce.discovery import Call, Refused
from tests.clouds.gce.lists import aggregated, listing
from tests.clouds.gce.world import Error, Resource, World, now

Act = Callable[[World, Call], Resource]


def _gone(call: Call, name: str) -> Refused:
    where = "/".join(f"{key}s/{value}" for key, value in call.path.items() if value != name)
    return Refused(404, "notFound", f"The resource '{where}/{name}' was not found")


def _operation(world: World, call: Call) -> Resource:
    """Of the scope that the path says; another scope's is not there."""
    it = world.operations.get(call.path["operation"])
    scope = {"zone", "region"} & set(call.path)
    if it is None or any(it.get(name, "").rpartition("/")[2] != call.path[name] for name in scope):
        raise _gone(call, call.path["operation"])
    if bool(scope) != bool({"zone", "region"} & set(it)):
        raise _gone(call, call.path["operation"])
    return it


def _operations(world: World, call: Call) -> Resource:
    name = next(iter({"zone", "region"} & set(call.path)), "")
    here = [it for it in world.operations.values() if it.get(name, "").rpartition("/")[2] == call.path.get(name, "")]
    return listing("operationList", here, call.query, 500, world.link)


def _firewall(world: World, call: Call) -> Resource:
    name = call.path["firewall"]
    for it in world.firewalls.values():
        if name in (it["name"], it["id"]) and not it.get("_coming"):
            return it
    raise _gone(call, name)


def _firewall_insert(world: World, call: Call) -> Resource:
    name = call.body["name"]
    if name in world.firewalls:
        text = f"The resource 'projects/{world.project}/global/firewalls/{name}' already exists"
        raise Refused(409, "alreadyExists", text)
    if len({":" in source for source in call.body.get("sourceRanges", ())}) > 1:
        raise Refused(400, "invalid", "Invalid value for field 'resource.sourceRanges': IPv4 and IPv6 cannot be mixed.")
    made: Resource = {
        "network": f"{world.link}/global/networks/default",
        "direction": "INGRESS",
        "priority": 1000,
        **call.body,
        "kind": "compute#firewall",
        "id": world.new_id(),
        "creationTimestamp": now(),
        "selfLink": f"{world.link}/global/firewalls/{name}",
        "_coming": True,
    }
    if "/" in made["network"]:
        made["network"] = f"{world.link}/{made['network'].partition(world.project + '/')[2]}"
    world.firewalls[name] = made

    def finish() -> Error | None:
        made.pop("_coming")
        return None

    return machines.begun(world, call, "insert", made, {}, finish)


def _firewall_patch(world: World, call: Call) -> Resource:
    it = _firewall(world, call)

    def finish() -> Error | None:
        it.update({name: value for name, value in call.body.items() if name not in ("name", "network")})
        return None

    return machines.begun(world, call, "patch", it, {}, finish)


def _firewall_delete(world: World, call: Call) -> Resource:
    it = _firewall(world, call)

    def finish() -> Error | None:
        world.firewalls.pop(it["name"], None)
        return None

    return machines.begun(world, call, "delete", it, {}, finish)


def _firewalls(world: World, call: Call) -> Resource:
    there = [it for it in world.firewalls.values() if not it.get("_coming")]
    return listing("firewallList", there, call.query, 500, world.link)


def _disk(world: World, call: Call) -> Resource:
    it = world.disks.get((call.path["zone"], call.path["disk"]))
    if it is None:
        raise _gone(call, call.path["disk"])
    return it


def _disk_delete(world: World, call: Call) -> Resource:
    it = _disk(world, call)
    if it.get("users"):
        text = f"The disk resource '{it['name']}' is already being used by '{it['users'][0]}'"
        raise Refused(400, "resourceInUseByAnotherResource", text)

    def finish() -> Error | None:
        world.disks.pop((call.path["zone"], it["name"]), None)
        return None

    return machines.begun(world, call, "delete", it, {"zone": call.path["zone"]}, finish)


def _disk_resize(world: World, call: Call) -> Resource:
    it, size = _disk(world, call), int(call.body["sizeGb"])
    if size <= int(it["sizeGb"]):
        raise Refused(400, "invalid", f"Invalid value for field 'sizeGb': '{size}'. It has to be larger than before.")

    def finish() -> Error | None:
        it["sizeGb"] = str(size)
        return None

    return machines.begun(world, call, "resizeDisk", it, {"zone": call.path["zone"]}, finish)


def _disks(world: World, call: Call) -> Resource:
    items: dict[str, list[Any]] = {zone: [] for zone in catalogue.zones(world)}
    for (zone, _), it in world.disks.items():
        items[zone].append(it)
    return aggregated("diskAggregatedList", "disks", items, call.query, 500, world.link, world.faults.dark)


ACTS: dict[str, Act] = {
    **catalogue.ACTS,
    **machines.ACTS,
    "compute.zoneOperations.get": _operation,
    "compute.regionOperations.get": _operation,
    "compute.globalOperations.get": _operation,
    "compute.zoneOperations.list": _operations,
    "compute.regionOperations.list": _operations,
    "compute.globalOperations.list": _operations,
    "compute.firewalls.get": _firewall,
    "compute.firewalls.insert": _firewall_insert,
    "compute.firewalls.patch": _firewall_patch,
    "compute.firewalls.delete": _firewall_delete,
    "compute.firewalls.list": _firewalls,
    "compute.disks.get": _disk,
    "compute.disks.delete": _disk_delete,
    "compute.disks.resize": _disk_resize,
    "compute.disks.aggregatedList": _disks,
}
WAITS: dict[str, Act] = {
    "compute.zoneOperations.wait": _operation,
    "compute.regionOperations.wait": _operation,
    "compute.globalOperations.wait": _operation,
}
"""Answered when the operation is done, or after some time."""
