"""What Google checks of an instance that is asked for, and what it makes of it."""

from __future__ import annotations

import re
from typing import Any

from tests.clouds.gce.discovery import Refused
from tests.clouds.gce.world import Resource, World, fingerprint, now

LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}")
LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
HYPERDISK_ONLY = (
    "a3-ultragpu-", "a4-", "a4x-", "c4-", "c4a-", "c4d-", "c4n-", "ct6e-", "g4-", "h4d-", "m4-", "n4-", "n4a-", "n4d-",
    "tpu7x-", "x4-",
)  # fmt: skip
STAYS = ("a2-", "a3-", "a4-", "a4x-", "ct", "g2-", "g4-", "h3-", "h4d-", "tpu", "x4-")
"""Types that are never migrated live, besides bare metal."""
TECHNOLOGIES = {"n2d": {"SEV", "SEV_SNP"}, "c2d": {"SEV"}, "c3d": {"SEV"}, "c4d": {"SEV"}, "c3": {"TDX"}}
METRICS = {"n2": "N2_CPUS", "n2d": "N2D_CPUS", "c2": "C2_CPUS", "c2d": "C2D_CPUS", "c3": "C3_CPUS", "t2d": "T2D_CPUS"}


def invalid(name: str, value: Any, why: str) -> Refused:
    return Refused(400, "invalid", f"Invalid value for field 'resource.{name}': '{value}'. {why}")


def last(link: str) -> str:
    return link.rpartition("/")[2]


def machine_type(world: World, zone: str, link: str) -> Resource:
    """Its row of the catalogue."""
    for row in world.catalogue["types"]:
        if row["name"] == last(link) and zone in row.get("zones", [zone]):
            found: Resource = row
            return found
    why = f"Machine type with name '{last(link)}' does not exist in zone '{zone}'."
    raise invalid("machineType", link, why)


def check(world: World, zone: str, body: Resource) -> None:
    """Raises what Google refuses at once."""
    row = machine_type(world, zone, body.get("machineType", ""))
    check_labels(body.get("labels", {}))
    _disk(world, row, body.get("disks") or [{}])
    for card in body.get("networkInterfaces") or [{}]:
        there = world.catalogue["networks"].get(last(card.get("network", "default")))
        if there is None and "subnetwork" not in card:
            raise Refused(404, "notFound", f"The resource '{card.get('network', 'default')}' was not found")
        if there and not (there["auto"] or there.get("range") or "subnetwork" in card):
            why = "Subnetwork should be specified for custom subnetmode network"
            raise invalid("resource.networkInterfaces[0]", card["network"], why)
    _scheduling(row, body)
    _confidential(row, body)
    _metal(row, body)
    _quotas(world, zone, row, body)


def check_labels(labels: Resource) -> None:
    """Raises for labels that Google does not take."""
    for name, value in labels.items():
        if not (LABEL.fullmatch(name) and LABEL_VALUE.fullmatch(value)):
            raise invalid("labels", f"{name}={value}", "Label keys and values have to be [a-z0-9_-], at most 63.")
    if len(labels) > 64:
        raise invalid("labels", len(labels), "At most 64 labels.")


def image(world: World, link: str) -> Resource:
    """Raises 404 where there is none."""
    found = re.search(r"projects/([^/]+)/global/images/(family/)?([^/]+)$", link)
    for one in world.catalogue["images"]:
        name = one["family"] if found and found[2] else one["name"]
        fits = found and (one["project"], name) == (found[1], found[3])
        if fits and not (found and found[2] and one.get("deprecated")):
            there: Resource = one
            return there
    raise Refused(404, "notFound", f"The resource '{link[link.find('projects/') :]}' was not found")


def _disk(world: World, row: Resource, disks: list[Resource]) -> None:
    made = disks[0].get("initializeParams", {})
    if not disks[0].get("boot"):
        raise invalid("disks", "", "The first disk has to be a boot disk.")
    there = image(world, made.get("sourceImage", ""))
    if int(made.get("diskSizeGb", there["diskSizeGb"])) < there["diskSizeGb"]:
        raise invalid("disks[0].initializeParams.diskSizeGb", made["diskSizeGb"], "It is smaller than the image.")
    if there["architecture"] != row.get("architecture", "X86_64"):
        raise invalid("disks[0]", there["name"], "The image's architecture is not the machine type's.")
    kind = last(made.get("diskType", "pd-standard"))
    metal = row["name"].endswith("-metal")
    if (row["name"].startswith(HYPERDISK_ONLY) or metal) and not kind.startswith("hyperdisk"):
        raise invalid("disks[0].type", kind, f"{kind} disks are not supported by {row['name']}.")
    check_labels(made.get("labels", {}))


def _scheduling(row: Resource, body: Resource) -> None:
    said = body.get("scheduling", {})
    spot, limit = said.get("provisioningModel") == "SPOT", said.get("maxRunDuration")
    stays = said.get("onHostMaintenance", "MIGRATE") == "MIGRATE"
    gpus = row.get("accelerators") or body.get("guestAccelerators")
    confidential = body.get("confidentialInstanceConfig")
    fixed = row["name"].endswith("-metal") or row["name"].startswith(STAYS)
    if stays and (spot or gpus or confidential or fixed):
        raise invalid("scheduling.onHostMaintenance", "MIGRATE", "These instances cannot be live migrated.")
    if spot and said.get("automaticRestart", True):
        raise invalid("scheduling.automaticRestart", True, "Spot instances cannot be restarted automatically.")
    if limit is not None and not 30 <= int(limit["seconds"]) <= 120 * 86_400:
        raise invalid("scheduling.maxRunDuration", limit, "30 seconds to 120 days.")
    if limit is not None and "instanceTerminationAction" not in said:
        raise invalid("scheduling.instanceTerminationAction", "", "It has to be given with maxRunDuration.")
    if "instanceTerminationAction" in said and not (spot or limit):
        raise invalid("scheduling.instanceTerminationAction", "", "Only for Spot or with maxRunDuration.")


def _confidential(row: Resource, body: Resource) -> None:
    said = body.get("confidentialInstanceConfig")
    if not said:
        return
    kind = said.get("confidentialInstanceType", "SEV")
    if kind not in TECHNOLOGIES.get(row["name"].partition("-")[0], set()):
        why = f"{kind} is not supported by {row['name']}."
        raise invalid("confidentialInstanceConfig", kind, why)


def _metal(row: Resource, body: Resource) -> None:
    if not row["name"].endswith("-metal"):
        return
    cards = {card.get("nicType", "IDPF") for card in body.get("networkInterfaces") or ()}
    if cards - {"IDPF"}:
        raise invalid("networkInterfaces[0].nicType", cards, "Bare metal has IDPF cards.")
    if body.get("shieldedInstanceConfig", {}).get("enableVtpm"):
        raise invalid("shieldedInstanceConfig", "", "Bare metal has no virtual TPM.")


def cards(row: Resource, body: Resource) -> int:
    """How many GPUs."""
    attached = sum(one["acceleratorCount"] for one in body.get("guestAccelerators", ()))
    return int(attached or (row.get("accelerators") or [0, 0])[1])


def metrics(row: Resource, body: Resource) -> dict[str, float]:
    """What an instance counts towards in its region."""
    series = row["name"].partition("-")[0]
    used = {METRICS.get(series, "CPUS"): float(row["guestCpus"]), "INSTANCES": 1.0}
    for one in body.get("guestAccelerators", ()):
        model = last(one["acceleratorType"]).removeprefix("nvidia-tesla-").upper()
        spot = "PREEMPTIBLE_" if body.get("scheduling", {}).get("provisioningModel") == "SPOT" else ""
        used[f"{spot}NVIDIA_{model}_GPUS"] = float(one["acceleratorCount"])
    public = [config for card in body.get("networkInterfaces", ()) for config in card.get("accessConfigs", ())]
    return {**used, "IN_USE_ADDRESSES": float(len(public))}


def usage(world: World, region: str) -> dict[str, float]:
    """What is used there now."""
    total: dict[str, float] = {}
    for (zone, _), it in world.instances.items():
        if zone.rpartition("-")[0] == region:
            for metric, amount in metrics(machine_type(world, zone, it["machineType"]), it).items():
                total[metric] = total.get(metric, 0.0) + amount
    return total


def _quotas(world: World, zone: str, row: Resource, body: Resource) -> None:
    region = zone.rpartition("-")[0]
    used, limits = usage(world, region), world.quotas[region]
    for metric, amount in metrics(row, body).items():
        limit = limits.get(metric)
        if limit is not None and used.get(metric, 0.0) + amount > limit:
            text = f"Quota '{metric}' exceeded.  Limit: {float(limit)} in region {region}."
            raise Refused(403, "quotaExceeded", text)
    everywhere = sum(cards(machine_type(world, z, it["machineType"]), it) for (z, _), it in world.instances.items())
    most = world.catalogue["project_quotas"]["GPUS_ALL_REGIONS"]
    if cards(row, body) + everywhere > most:
        raise Refused(403, "quotaExceeded", f"Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: {float(most)} globally.")


def made(world: World, zone: str, body: Resource) -> tuple[Resource, Resource]:
    """The instance and its boot disk."""
    where, name = f"{world.link}/zones/{zone}", body["name"]
    params = body["disks"][0]["initializeParams"]
    there = image(world, params["sourceImage"])
    disk: Resource = {
        "kind": "compute#disk",
        "id": world.new_id(),
        "name": params.get("diskName", name),
        "zone": where,
        "status": "READY",
        "sizeGb": str(params.get("diskSizeGb", there["diskSizeGb"])),
        "type": params.get("diskType", f"{where}/diskTypes/pd-standard"),
        "sourceImage": params["sourceImage"],
        "labels": dict(params.get("labels", {})),
        "creationTimestamp": now(),
        "selfLink": f"{where}/disks/{params.get('diskName', name)}",
        "users": [f"{where}/instances/{name}"],
    }
    attached = {name: it for name, it in body["disks"][0].items() if name != "initializeParams"}
    it: Resource = {
        **body,
        "kind": "compute#instance",
        "id": world.new_id(),
        "zone": where,
        "machineType": f"{where}/machineTypes/{last(body['machineType'])}",
        "status": "PROVISIONING",
        "creationTimestamp": now(),
        "selfLink": f"{where}/instances/{name}",
        "labels": dict(body.get("labels", {})),
        "labelFingerprint": fingerprint(body.get("labels", {})),
        "metadata": {**body.get("metadata", {}), "fingerprint": fingerprint(body.get("metadata", {}))},
        "disks": [{**attached, "source": disk["selfLink"], "diskSizeGb": disk["sizeGb"], "index": 0}],
        "networkInterfaces": [_card(world, card) for card in body.get("networkInterfaces", [{}])],
    }
    return it, disk


def _card(world: World, card: Resource) -> Resource:
    network = f"{world.link}/global/networks/{last(card.get('network', 'default'))}"
    outside = [dict(one) for one in card.get("accessConfigs", ())]
    return {**card, "name": "nic0", "network": network, **({"accessConfigs": outside} if outside else {})}
