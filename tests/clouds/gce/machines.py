"""The calls on instances: PROVISIONING, STAGING, RUNNING, STOPPING, TERMINATED (which is stopped), gone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.clouds.gce import catalogue, orders
from tests.clouds.gce.discovery import Call, Refused
from tests.clouds.gce.lists import aggregated, listing
from tests.clouds.gce.world import Error, Resource, World, fingerprint, key_of

REQUEST = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NOTHING = "00000000-0000-0000-0000-000000000000"


def begun(
    world: World,
    call: Call,
    what: str,
    target: Resource,
    scope: Mapping[str, str],
    finish: Callable[[], Error | None],
    seconds: float | None = None,
) -> Resource:
    """Begin a call's operation, remembered under its requestId."""
    fault = world.faults.take("operation", call.method.id)
    operation = world.operate(what, target, scope, finish, seconds, fault)
    if "requestId" in call.query:
        world.asked[_request(call)] = operation["name"]
    return operation


def _request(call: Call) -> tuple[str, str]:
    return call.method.id + "/" + "/".join(call.path.values()), call.query["requestId"]


def replayed(world: World, call: Call) -> Resource | None:
    """The operation that this requestId began before. Raises Refused for an id that is none."""
    said = call.query.get("requestId")
    if said is None:
        return None
    if not REQUEST.fullmatch(said) or said == NOTHING:
        raise Refused(400, "invalid", f"Invalid value for field 'requestId': '{said}'. Must be a UUID, not all zero.")
    name = world.asked.get(_request(call))
    return world.operations[name] if name else None


def _zone(world: World, call: Call) -> str:
    zone = call.path["zone"]
    if zone in world.faults.dark:
        raise Refused(503, "backendError", f"Zone {zone} is unreachable.")
    if zone not in catalogue.zones(world):
        raise Refused(404, "notFound", f"The resource 'projects/{world.project}/zones/{zone}' was not found")
    return zone


def _instance(world: World, call: Call) -> Resource:
    zone, name = _zone(world, call), call.path["instance"]
    for (where, _), it in world.instances.items():
        if where == zone and name in (it["name"], it["id"]):
            return it
    text = f"The resource 'projects/{world.project}/zones/{zone}/instances/{name}' was not found"
    raise Refused(404, "notFound", text)


def _insert(world: World, call: Call) -> Resource:
    zone, body = _zone(world, call), dict(call.body)
    if (zone, body["name"]) in world.instances:
        text = f"The resource 'projects/{world.project}/zones/{zone}/instances/{body['name']}' already exists"
        raise Refused(409, "alreadyExists", text)
    orders.check(world, zone, body)
    it, disk = orders.made(world, zone, body)
    machine = orders.last(it["machineType"])
    world.instances[zone, it["name"]] = it
    world.disks[zone, disk["name"]] = disk
    lack = world.faults.take("exhaust", zone=zone, machine=machine) or world.faults.take("operation", call.method.id)
    if lack is None:
        world.later(world.pace.boot / 2, lambda: _becomes(it, "STAGING"))

    def finish() -> Error | None:
        if lack is not None:
            world.remove(it)
            return lack.code, lack.message
        _becomes(it, "STAGING")
        world.begin(it)
        _limited(world, it)
        return None

    return begun(world, call, "insert", it, {"zone": zone}, finish, world.pace.boot)


def _becomes(it: Resource, status: str) -> None:
    if it["status"] == "PROVISIONING":
        it["status"] = status


def _limited(world: World, it: Resource) -> None:
    """maxRunDuration counts from each start."""
    limit = it.get("scheduling", {}).get("maxRunDuration")
    began = it.get("lastStartTimestamp")

    def over() -> None:
        if it["status"] == "RUNNING" and it.get("lastStartTimestamp") == began:
            world.operate("compute.instances.delete", it, {"zone": key_of(it)[0]}, lambda: _removed(world, it))

    if limit:
        world.later(int(limit["seconds"]) * world.pace.second, over)


def _removed(world: World, it: Resource) -> Error | None:
    world.remove(it)
    return None


def _delete(world: World, call: Call) -> Resource:
    it = _instance(world, call)
    it["status"] = "STOPPING"
    return begun(world, call, "delete", it, {"zone": call.path["zone"]}, lambda: _removed(world, it))


def stopped(world: World, it: Resource) -> Error | None:
    """It is TERMINATED, and what stands behind it is ended."""
    world.end(it)
    with world.lock:
        it["status"] = "TERMINATED"
        for card in it["networkInterfaces"]:
            for outside in card.get("accessConfigs", ()):
                outside.pop("natIP", None)
    return None


def _stop(world: World, call: Call) -> Resource:
    it = _instance(world, call)
    if it["status"] == "TERMINATED":
        return begun(world, call, "stop", it, {"zone": call.path["zone"]}, lambda: None)
    it["status"] = "STOPPING"
    return begun(world, call, "stop", it, {"zone": call.path["zone"]}, lambda: stopped(world, it))


def _start(world: World, call: Call) -> Resource:
    it = _instance(world, call)
    if it["status"] == "STOPPING":
        raise Refused(400, "resourceNotReady", f"The resource '{it['selfLink']}' is not ready")
    if it["status"] == "RUNNING":
        return begun(world, call, "start", it, {"zone": call.path["zone"]}, lambda: None)
    it["status"] = "STAGING"

    def finish() -> Error | None:
        world.begin(it)
        _limited(world, it)
        return None

    return begun(world, call, "start", it, {"zone": call.path["zone"]}, finish, world.pace.boot)


def _reset(world: World, call: Call) -> Resource:
    it = _instance(world, call)
    if it["status"] != "RUNNING":
        raise Refused(400, "resourceNotReady", f"The resource '{it['selfLink']}' is not ready")

    def finish() -> Error | None:
        world.end(it)
        world.begin(it)
        return None

    return begun(world, call, "reset", it, {"zone": call.path["zone"]}, finish)


def _set_labels(world: World, call: Call) -> Resource:
    it = _instance(world, call)
    if call.body.get("labelFingerprint") != it["labelFingerprint"]:
        raise Refused(412, "conditionNotMet", "Labels fingerprint either invalid or resource labels have changed")
    orders.check_labels(call.body.get("labels", {}))
    it["labels"] = dict(call.body.get("labels", {}))
    it["labelFingerprint"] = fingerprint(it["labels"])
    return begun(world, call, "setLabels", it, {"zone": call.path["zone"]}, lambda: None)


def _set_metadata(world: World, call: Call) -> Resource:
    it = _instance(world, call)
    if call.body.get("fingerprint") != it["metadata"]["fingerprint"]:
        raise Refused(412, "conditionNotMet", "Supplied fingerprint does not match current metadata fingerprint.")
    items = {"items": list(call.body.get("items", ()))}
    it["metadata"] = {**items, "fingerprint": fingerprint(items)}
    return begun(world, call, "setMetadata", it, {"zone": call.path["zone"]}, lambda: None)


def _set_type(world: World, call: Call) -> Resource:
    it, zone = _instance(world, call), call.path["zone"]
    if it["status"] != "TERMINATED":
        raise Refused(400, "resourceNotReady", "The instance has to be stopped before its machine type is changed.")
    row = orders.machine_type(world, zone, call.body["machineType"])
    it["machineType"] = f"{world.link}/zones/{zone}/machineTypes/{row['name']}"
    return begun(world, call, "setMachineType", it, {"zone": zone}, lambda: None)


def _serial(world: World, call: Call) -> Resource:
    it = _instance(world, call)
    text = world.consoles.get(it["id"], "")
    start = call.query.get("start", 0)
    start = int(start)
    at = max(0, len(text) + start) if start < 0 else start
    link = f"{it['selfLink']}/serialPort"
    return {
        "kind": "compute#serialPortOutput",
        "contents": text[at:],
        "start": str(at),
        "next": str(len(text)),
        "selfLink": link,
    }


def _guest_attributes(world: World, call: Call) -> Resource:
    it = _instance(world, call)
    items = {item["key"]: item["value"] for item in it.get("metadata", {}).get("items", ())}
    line = world.host_key(it["name"])
    if items.get("enable-guest-attributes") != "TRUE" or call.query.get("queryPath") != "hostkeys/" or not line:
        raise Refused(404, "notFound", f"The resource '{it['selfLink']}/guestAttributes/hostkeys/' was not found.")
    kind, body = line.split()[:2]
    return {
        "kind": "compute#guestAttributes",
        "queryPath": "hostkeys/",
        "queryValue": {"items": [{"namespace": "hostkeys", "key": kind, "value": body}]},
        "selfLink": f"{it['selfLink']}/guestAttributes",
    }


def _list(world: World, call: Call) -> Resource:
    zone = _zone(world, call)
    here = [it for (where, _), it in world.instances.items() if where == zone]
    return listing("instanceList", here, call.query, catalogue.page_size(world), world.link)


def _aggregated(world: World, call: Call) -> Resource:
    items: dict[str, list[Any]] = {zone: [] for zone in catalogue.zones(world)}
    for (zone, _), it in world.instances.items():
        items[zone].append(it)
    size, dark = catalogue.page_size(world), world.faults.dark
    return aggregated("instanceAggregatedList", "instances", items, call.query, size, world.link, dark)


ACTS: dict[str, Any] = {
    "compute.instances.insert": _insert,
    "compute.instances.get": _instance,
    "compute.instances.list": _list,
    "compute.instances.aggregatedList": _aggregated,
    "compute.instances.delete": _delete,
    "compute.instances.stop": _stop,
    "compute.instances.start": _start,
    "compute.instances.reset": _reset,
    "compute.instances.setLabels": _set_labels,
    "compute.instances.setMetadata": _set_metadata,
    "compute.instances.setMachineType": _set_type,
    "compute.instances.getSerialPortOutput": _serial,
    "compute.instances.getGuestAttributes": _guest_attributes,
}
