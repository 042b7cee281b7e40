"""What an order is in Compute Engine's words: the body of instances.insert."""

from __future__ import annotations

import re
import uuid
from typing import Any

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Confidential, Market, Order
from blueprints.gce import labels
from blueprints.gce.series import boots_from_hyperdisk, is_metal, migrates, series_of, split

NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
SHORTEST, LONGEST = 30, 120 * 86_400
"""Seconds of maxRunDuration. Source: cloud.google.com/compute/docs/instances/limit-vm-runtime, "Restrictions"."""
REQUESTS = uuid.UUID("6f7c1c1e-5d0b-5a3e-9f57-2d9a6f1f0d6c")
"""Namespace of our request ids, so that one token always is the same id (and never all zero, which Google refuses)."""


def request_id(token: str) -> str:
    """The requestId of an attempt."""
    return str(uuid.uuid5(REQUESTS, token))


def refused(text: str, code: str = "invalid") -> CloudError:
    """An order that Compute Engine would refuse."""
    return CloudError(Meaning.INVALID, text, provider_code=code)


def body(order: Order, project: str) -> dict[str, Any]:
    """The whole instance. Raises CloudError INVALID where the order cannot be one."""
    if not NAME.fullmatch(order.key):
        raise refused(f"{order.key!r} cannot be an instance's name: 1-63 of a-z, 0-9 and -, beginning with a letter.")
    if not (order.zone and order.type and order.image):
        raise refused("An instance needs a zone, a type and an image.")
    machine, accelerator, count = _split(order.type)
    zonal = f"projects/{project}/zones/{order.zone}"
    made: dict[str, Any] = {
        "name": order.key,
        "machine_type": f"{zonal}/machineTypes/{machine}",
        "labels": labels.labels(order.tags),
        "tags": {"items": [order.key]},
        "metadata": {"items": _metadata(order)},
        "disks": [_disk(order, machine, zonal)],
        "network_interfaces": [_card(order, machine, project)],
        "scheduling": _scheduling(order, machine, gpus=bool(accelerator)),
    }
    if not is_metal(machine):
        shield = {"enable_secure_boot": False, "enable_vtpm": True, "enable_integrity_monitoring": True}
        made["shielded_instance_config"] = shield
    if accelerator:
        link = f"{zonal}/acceleratorTypes/{accelerator}"
        made["guest_accelerators"] = [{"accelerator_type": link, "accelerator_count": count}]
    if order.confidential:
        made["confidential_instance_config"] = _confidential(order.confidential)
    return made


def _split(type_name: str) -> tuple[str, str, int]:
    try:
        return split(type_name)
    except ValueError as error:
        raise refused(str(error)) from None


def _metadata(order: Order) -> list[dict[str, str]]:
    items = {
        "enable-guest-attributes": "TRUE",
        "block-project-ssh-keys": "TRUE",
        "user-data": order.user_data,
        "ssh-keys": f"{order.user}:{order.public_key}" if order.user and order.public_key else "",
        labels.REST: labels.rest(order.tags),
    }
    return [{"key": key, "value": value} for key, value in items.items() if value]


def _disk(order: Order, machine: str, zonal: str) -> dict[str, Any]:
    """Raises CloudError NOT_OFFERED where the blueprint's type of disk does not go with the machine's."""
    hyperdisk = boots_from_hyperdisk(machine)
    if hyperdisk and order.disk_type.startswith("pd-"):
        text = f"{machine} boots from Hyperdisk alone, and the blueprint's disk_type is {order.disk_type}."
        raise CloudError(Meaning.NOT_OFFERED, text, provider_code="diskType")
    default = "hyperdisk-balanced" if hyperdisk else "pd-balanced"
    made: dict[str, Any] = {
        "source_image": order.image,
        "disk_name": order.key,
        "disk_type": f"{zonal}/diskTypes/{order.disk_type or default}",
        "labels": labels.labels(order.tags),
    }
    if order.disk_gib:
        made["disk_size_gb"] = order.disk_gib
    return {"boot": True, "auto_delete": True, "initialize_params": made}


def _card(order: Order, machine: str, project: str) -> dict[str, Any]:
    where = "subnetwork" if is_subnet(order.network) else "network"
    card: dict[str, Any] = {where: network_link(order.network, project)}
    if order.confidential in (Confidential.SEV_SNP, Confidential.TDX):
        card["nic_type"] = "GVNIC"
    elif is_metal(machine):
        card["nic_type"] = "IDPF"
    if order.public_address:
        card["access_configs"] = [{"name": "external", "type_": "ONE_TO_ONE_NAT"}]
    return card


def is_subnet(network: str) -> bool:
    """Whether an order's network names a subnet."""
    return "subnetworks/" in network


def network_link(network: str, project: str) -> str:
    """A network or subnet as a link; `default` where the order says nothing."""
    if "/" not in network:
        return f"projects/{project}/global/networks/{network or 'default'}"
    found = re.search(r"projects/.*", network)
    return found[0] if found else f"projects/{project}/{network}"


def _scheduling(order: Order, machine: str, *, gpus: bool) -> dict[str, Any]:
    """Of Z3, which may not be told to terminate where it can migrate, Google chooses what it does."""
    spot = order.market is Market.SPOT
    stays = migrates(machine) and not (spot or gpus or order.confidential)
    left = stays and series_of(machine) == "z3"
    made: dict[str, Any] = {
        **({} if left else {"on_host_maintenance": "MIGRATE" if stays else "TERMINATE"}),
        "automatic_restart": not spot,
        "provisioning_model": "SPOT" if spot else "STANDARD",
    }
    if order.ends_after is not None:
        made["max_run_duration"] = {"seconds": _duration(order.ends_after)}
    if spot or order.ends_after is not None:
        made["instance_termination_action"] = "DELETE"
    return made


def _duration(seconds: float) -> int:
    if not SHORTEST <= seconds <= LONGEST:
        text = f"Compute Engine ends an instance after 30 seconds to 120 days, not after {seconds:.0f} seconds."
        raise refused(text + " See cloud.google.com/compute/docs/instances/limit-vm-runtime.")
    return int(seconds)


def _confidential(technology: Confidential) -> dict[str, Any]:
    return {"enable_confidential_compute": True, "confidential_instance_type": technology.value.upper()}
