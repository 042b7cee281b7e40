"""What can be had: regions, zones, machine and accelerator types, images, networks."""

from __future__ import annotations

from typing import Any

from tests.clouds.gce.discovery import Call, Refused
from tests.clouds.gce.lists import aggregated, listing
from tests.clouds.gce.orders import usage
from tests.clouds.gce.world import Resource, World

CREATED = "1969-12-31T16:00:00.000-08:00"


def zones(world: World) -> list[str]:
    """All of them."""
    return [f"{region}-{zone}" for region, letters in world.catalogue["zones"].items() for zone in letters]


def _region(world: World, name: str) -> Resource:
    limits, used = world.quotas[name], usage(world, name)
    return {
        "kind": "compute#region",
        "id": str(1000 + len(name)),
        "name": name,
        "description": name,
        "status": "UP",
        "creationTimestamp": CREATED,
        "zones": [f"{world.link}/zones/{zone}" for zone in zones(world) if zone.startswith(f"{name}-")],
        "quotas": [
            {"metric": metric, "limit": float(limit), "usage": used.get(metric, 0.0)}
            for metric, limit in limits.items()
        ],
        "selfLink": f"{world.link}/regions/{name}",
    }


def _regions(world: World, call: Call) -> Resource:
    every = [_region(world, name) for name in world.catalogue["zones"]]
    return listing("regionList", every, call.query, page_size(world), world.link)


def _one_region(world: World, call: Call) -> Resource:
    if call.path["region"] not in world.catalogue["zones"]:
        raise _missing(world, "regions", call.path["region"])
    return _region(world, call.path["region"])


def _project(world: World, call: Call) -> Resource:
    cards = sum(
        int(one["acceleratorCount"]) for it in world.instances.values() for one in it.get("guestAccelerators", ())
    )
    used = {"GPUS_ALL_REGIONS": float(cards), "FIREWALLS": float(len(world.firewalls))}
    return {
        "kind": "compute#project",
        "id": "123456789012",
        "name": world.project,
        "creationTimestamp": CREATED,
        "quotas": [
            {"metric": metric, "limit": float(limit), "usage": used.get(metric, 0.0)}
            for metric, limit in world.catalogue["project_quotas"].items()
        ],
        "selfLink": world.link,
    }


def page_size(world: World) -> int:
    """The most entries that a page gets, whatever was asked for."""
    return int(world.catalogue.get("page", 500))


def _type(world: World, zone: str, row: Resource) -> Resource:
    made: Resource = {
        "kind": "compute#machineType",
        "id": "".join(str(ord(letter) % 10) for letter in row["name"]).lstrip("0")[:19],
        "name": row["name"],
        "description": f"{row['guestCpus']} vCPUs, {row['memoryMb'] / 1024:g} GB RAM",
        "guestCpus": row["guestCpus"],
        "memoryMb": row["memoryMb"],
        "isSharedCpu": row.get("isSharedCpu", False),
        "architecture": row.get("architecture", "X86_64"),
        "zone": zone,
        "maximumPersistentDisks": 128,
        "maximumPersistentDisksSizeGb": "263168",
        "creationTimestamp": CREATED,
        "selfLink": f"{world.link}/zones/{zone}/machineTypes/{row['name']}",
    }
    if row.get("accelerators"):
        name, count = row["accelerators"]
        made["accelerators"] = [{"guestAcceleratorType": name, "guestAcceleratorCount": count}]
    if row.get("ssd"):
        made["bundledLocalSsds"] = {"defaultInterface": "NVME", "partitionCount": row["ssd"]}
    if row.get("deprecated"):
        made["deprecated"] = {"state": row["deprecated"]}
    return made


def _types_in(world: World, zone: str) -> list[Resource]:
    return [_type(world, zone, row) for row in world.catalogue["types"] if zone in row.get("zones", [zone])]


def _card(world: World, zone: str, row: Resource) -> Resource:
    return {
        "kind": "compute#acceleratorType",
        "id": str(10000 + len(row["name"])),
        "name": row["name"],
        "description": row["name"],
        "maximumCardsPerInstance": row["most"],
        "zone": f"{world.link}/zones/{zone}",
        "creationTimestamp": CREATED,
        "selfLink": f"{world.link}/zones/{zone}/acceleratorTypes/{row['name']}",
    }


def _cards_in(world: World, zone: str) -> list[Resource]:
    return [_card(world, zone, row) for row in world.catalogue["accelerators"] if zone in row["zones"]]


def _types(world: World, call: Call) -> Resource:
    here = _types_in(world, _zone(world, call))
    return listing("machineTypeList", here, call.query, page_size(world), world.link)


def _cards(world: World, call: Call) -> Resource:
    here = _cards_in(world, _zone(world, call))
    return listing("acceleratorTypeList", here, call.query, page_size(world), world.link)


def _all_types(world: World, call: Call) -> Resource:
    items = {zone: _types_in(world, zone) for zone in zones(world)}
    kind, dark = "machineTypeAggregatedList", world.faults.dark
    return aggregated(kind, "machineTypes", items, call.query, page_size(world), world.link, dark)


def _all_cards(world: World, call: Call) -> Resource:
    items = {zone: _cards_in(world, zone) for zone in zones(world)}
    kind, dark = "acceleratorTypeAggregatedList", world.faults.dark
    return aggregated(kind, "acceleratorTypes", items, call.query, page_size(world), world.link, dark)


def _zone(world: World, call: Call) -> str:
    if call.path["zone"] not in zones(world):
        raise _missing(world, "zones", call.path["zone"])
    return call.path["zone"]


def _missing(world: World, sort: str, name: str) -> Refused:
    return Refused(404, "notFound", f"The resource 'projects/{world.project}/{sort}/{name}' was not found")


def _image(row: Resource) -> Resource:
    where = f"https://www.googleapis.com/compute/v1/projects/{row['project']}/global/images"
    made: Resource = {
        "kind": "compute#image",
        "id": "".join(str(ord(letter) % 10) for letter in row["name"]).lstrip("0")[:19],
        **{name: row[name] for name in ("name", "family", "architecture", "creationTimestamp")},
        "diskSizeGb": str(row["diskSizeGb"]),
        "status": "READY",
        "sourceType": "RAW",
        "guestOsFeatures": [{"type": "UEFI_COMPATIBLE"}, {"type": "SEV_CAPABLE"}],
        "selfLink": f"{where}/{row['name']}",
    }
    if row.get("deprecated"):
        made["deprecated"] = {"state": row["deprecated"]}
    return made


def _images_of(world: World, call: Call) -> list[Resource]:
    return [_image(row) for row in world.catalogue["images"] if row["project"] == call.path["project"]]


def _images(world: World, call: Call) -> Resource:
    return listing("imageList", _images_of(world, call), call.query, page_size(world), world.link)


def _by_name(world: World, call: Call) -> Resource:
    for one in _images_of(world, call):
        if one["name"] == call.path["image"]:
            return one
    raise _missing(world, "global/images", call.path["image"])


def _by_family(world: World, call: Call) -> Resource:
    for one in _images_of(world, call):
        if one["family"] == call.path["family"] and "deprecated" not in one:
            return one
    raise _missing(world, "global/images/family", call.path["family"])


def _subnet(world: World, call: Call) -> Resource:
    region, name = call.path["region"], call.path["subnetwork"]
    for network, row in world.catalogue["networks"].items():
        if region in row["subnets"].get(name, ()):
            return {
                "kind": "compute#subnetwork",
                "id": "77",
                "name": name,
                "region": f"{world.link}/regions/{region}",
                "network": f"{world.link}/global/networks/{network}",
                "ipCidrRange": "10.128.0.0/20",
                "selfLink": f"{world.link}/regions/{region}/subnetworks/{name}",
            }
    raise _missing(world, f"regions/{region}/subnetworks", name)


def _network(world: World, name: str, row: Resource) -> Resource:
    made: Resource = {
        "kind": "compute#network",
        "id": str(700 + len(name)),
        "name": name,
        "creationTimestamp": CREATED,
        "selfLink": f"{world.link}/global/networks/{name}",
    }
    if row.get("range"):
        return {**made, "IPv4Range": row["range"]}
    links = [f"{world.link}/regions/{it}/subnetworks/{one}" for one, there in row["subnets"].items() for it in there]
    return {**made, "autoCreateSubnetworks": row["auto"], "subnetworks": links}


def _networks(world: World, call: Call) -> Resource:
    every = [_network(world, name, row) for name, row in world.catalogue["networks"].items()]
    return listing("networkList", every, call.query, page_size(world), world.link)


ACTS: dict[str, Any] = {
    "compute.projects.get": _project,
    "compute.regions.list": _regions,
    "compute.regions.get": _one_region,
    "compute.machineTypes.list": _types,
    "compute.machineTypes.aggregatedList": _all_types,
    "compute.acceleratorTypes.list": _cards,
    "compute.acceleratorTypes.aggregatedList": _all_cards,
    "compute.images.list": _images,
    "compute.images.get": _by_name,
    "compute.images.getFromFamily": _by_family,
    "compute.networks.list": _networks,
    "compute.subnetworks.get": _subnet,
}
