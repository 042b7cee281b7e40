"""From the hardware of a host to the drafts of its accelerators: a pure function."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from blueprints.accelerators import health
from blueprints.accelerators.bitstreams import fitting
from blueprints.accelerators.classes import CAPTURED, MIG, PASS_THROUGH, RDMA, SRIOV, VENDORS, cuda_trait
from blueprints.accelerators.config import Config
from blueprints.accelerators.layouts import (
    NETWORK,
    VFIO,
    attach_of,
    awaits_setup,
    not_attachable,
    others_of_group,
    outdated,
)
from blueprints.accelerators.locality import localities
from blueprints.accelerators.nodes import nodes_of, why_not_named
from blueprints.amounts import Amounts
from blueprints.answers import Health, Json
from blueprints.identities import Identity, real
from blueprints.localities import Locality
from blueprints.specs import Draft
from drydock_agent import Device, Hardware, Link, Readiness
from drydock_agent.facts import Health as Condition

_LEASED_ROLES = ("lease_candidate", "part", "")
_UUIDS = {"gpu": "gpu_uuid", "gpu_slice": "mig_uuid"}
_WORD, _PIECE = re.compile(r"[a-z0-9][a-z0-9._-]*"), re.compile(r"[a-z0-9]+")
_MODEL = re.compile(r"[a-z-].*\d|\d.*[a-z-]|\A\d{3,}\Z")


def drafts(config: Config, host: int, hardware: Hardware) -> list[Draft]:
    """Return a draft for each device that leases can use, and for each that contains such parts.

    A device that is not ready gets a draft that is refused, so that it stays known if it was ready before.
    """
    devices = {one.id: one for one in hardware.devices}
    usable = {
        one.id: why_not(one, hardware) or not_attachable(config, hardware, one)
        for one in hardware.devices if _is_leased(config, one)
    }  # fmt: skip
    containers = set(_containers(devices, [id for id, reason in usable.items() if not reason]))
    containers |= {id for id in usable if _is_to_be_set_up(config, hardware, devices[id])}
    places = localities(hardware)
    return [
        _draft(
            config, host, hardware, one, usable.get(one.id, ""), places.get(one.id, ()), container=one.id in containers
        )
        for one in hardware.devices
        if one.id in usable or one.id in containers
    ]


def identity(host: int, device: str) -> str:
    """Return the name of a device in its blueprint."""
    return f"{host}/{device}"


def _is_leased(config: Config, device: Device) -> bool:
    return device.device_class in config.classes and device.role in _LEASED_ROLES


def why_not(device: Device, hardware: Hardware) -> str:
    """Return why a device cannot be leased now, or an empty string."""
    if device.readiness is not Readiness.READY:
        state = (device.readiness or Readiness.UNSUPPORTED).value.replace("_", " ")
        return f"{state}. {device.reason}".strip()
    if device.health is Condition.FAILED:
        return " ".join(device.problems) or "The device has failed."
    if _is_split(device) and not any(one.part_of == device.id for one in hardware.devices):
        return "It is in MIG mode and has no slices."
    return ""


def _is_split(device: Device) -> bool:
    return device.device_class == "gpu" and device.attributes.get("mig") == "Enabled"


def _containers(devices: Mapping[str, Device], usable: list[str]) -> Iterator[str]:
    """Yield the devices that serve only as the wholes of usable parts: those in MIG mode, or not usable themselves."""
    for id in usable:
        whole = devices.get(devices[id].part_of)
        if whole is not None and (_is_split(whole) or whole.id not in usable):
            yield whole.id


def _is_to_be_set_up(config: Config, hardware: Hardware, device: Device) -> bool:
    """Return whether a device is known but not leased, until it was set up or has the slices that are declared."""
    return bool(awaits_setup(config, device)) or (_is_split(device) and bool(outdated(config, hardware, device)))


def _draft(
    config: Config, host: int, hardware: Hardware, device: Device, refused: str, locality: Locality, *,
    container: bool,
) -> Draft:  # fmt: skip
    name = device.device_class or device.kind
    captured = CAPTURED in hardware.traits
    nodes = nodes_of(config, hardware, device, captured=captured)
    known: Json = {
        "id": device.id, "class": name, "vendor": _vendor(hardware, device), "nodes": list(nodes.own),
        "shared": list(nodes.shared), "captured": captured, "part_of": device.part_of,
        "identities": dict(device.identities), "attributes": _steady(device), "iommu_group": device.iommu_group,
        "interfaces": list(_texts(device, "interfaces")), "attach": attach_of(config, device),
        "group": others_of_group(hardware, device), "sriov": bool(device.total_vfs),
        "readiness": device.readiness.value if device.readiness else "",
    }  # fmt: skip
    unnamed = why_not_named(known)
    return Draft(
        name=f"{name} {device.id}",
        identity=identity(host, device.id),
        identities=identities(device),
        host=host,
        part_of=identity(host, device.part_of) if hardware.device(device.part_of) else "",
        attributes=_attributes(hardware, device) | _images(config, device) | _of_config(config, device),
        capacity=Amounts(slots=0) if container else Amounts(extra={name: 1}),
        traits=_traits(hardware, device),
        locality=locality,
        facts={"host": host, "device": known},
        refused=unnamed or ("" if container else refused),
        health=_health(hardware, device),
        outdated=outdated(config, hardware, device),
    )  # fmt: skip


def _of_config(config: Config, device: Device) -> Json:
    """Return the attributes that depend on the config."""
    found = {"setup": awaits_setup(config, device)}
    if device.device_class in NETWORK or device.driver == VFIO:
        found["attach"] = attach_of(config, device)
    return {name: value for name, value in found.items() if value}


_STEADY = ("mig_index", "gpu_instance", "compute_instance", "mig_profile", "multiprocessors", "pass_through")
"""Attributes of a device that do not change while it is used."""


def _steady(device: Device) -> Json:
    return {name: device.attributes[name] for name in _STEADY if name in device.attributes}


def _texts(device: Device, name: str) -> tuple[str, ...]:
    value = device.attributes.get(name)
    return value if isinstance(value, tuple) else ()


def identities(device: Device) -> tuple[Identity, ...]:
    """Return what identifies a device wherever it is plugged in.

    Serial numbers are unique for each vendor only. Anyone can set the address of a VF.
    """
    named = {
        "serial": f"serial:{device.vendor_id or 'unknown'}",
        "uuid": _UUIDS.get(device.device_class, "uuid"),
        "unique_id": f"unique_id:{device.vendor_id or 'unknown'}",
    }
    found = dict(device.identities)
    if device.device_class == "vf":
        found = {name: value for name, value in found.items() if not name.startswith("mac")}
    return real({named.get(name, name): value for name, value in found.items()})


def _attributes(hardware: Hardware, device: Device) -> Json:
    whole = hardware.device(device.part_of) if device.device_class == "gpu_slice" else None
    capability = (device.attributes if whole is None else whole.attributes).get("compute_capability")
    version = (device if whole is None else whole).firmware.get("driver", "").lower()
    model = device.name or device.device_name
    vendor = _vendor(hardware, device)
    found: dict[str, Any] = {
        "class": device.device_class or None,
        "vendor": VENDORS.get(vendor, vendor),
        "model": model,
        "models": names_of(model, whole.name or whole.device_name if whole else ""),
        "memory_mib": device.memory_mib,
        "compute_capability": _number(capability),
        "driver": device.driver,
        "driver_version": version,
        "driver_versions": beginnings(version),
        "numa_node": device.numa_node if whole is None else whole.numa_node,
        "firmware": sorted({text for name, one in device.firmware.items() if name != "driver"
                            for text in (one.lower(), f"{name} {one}".lower())}),
        "address": device.id,
        "link": _link(device.link),
        "profile": str(device.attributes.get("mig_profile", "")).lower(),
        "health": device.health.value if device.health else None,
        "root": device.root,
        "behind": device.parent,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value not in (None, "", [])}


def _health(hardware: Hardware, device: Device) -> Health | None:
    """Return what is wrong with a device now; None if its driver says nothing. Reports cannot compare errors."""
    findings = health.conditions(hardware, device.id)
    return health.judged(findings) if findings or device.health is not None else None


def _images(config: Config, device: Device) -> Json:
    found = sorted(fitting(config.images, device))
    return {"images": found} if found else {}


def _vendor(hardware: Hardware, device: Device) -> str:
    """Return the PCI vendor id of a device. A slice has that of its whole."""
    whole = hardware.device(device.part_of)
    return device.vendor_id or (whole.vendor_id if whole else "")


def _number(value: object) -> float | None:
    try:
        return float(str(value))
    except ValueError:
        return None


def names_of(*models: str) -> list[str]:
    """Return the names by which leases can require these models: all of a name, and the words with digits in it."""
    names = [model.lower() for model in models if model]
    words = [word for name in names for word in (*_WORD.findall(name), *_PIECE.findall(name)) if _MODEL.search(word)]
    return list(dict.fromkeys([*names, *words]))


def beginnings(version: str) -> list[str]:
    """Return a version and its beginnings: 535, 535.54, 535.54.03."""
    parts = version.split(".")
    return [".".join(parts[: n + 1]) for n in range(len(parts))] if version else []


def _link(link: Link | None) -> str:
    """Return the link of a device in words. A device that sleeps has a slower link, so only its maximum counts."""
    if link is None or not (link.max_width or link.width):
        return ""
    width = f"x{link.width}" if link.width else "unknown width"
    most = f" of x{link.max_width}" if link.max_width and link.max_width != link.width else ""
    return f"{width}{most}" + (f", {link.max_speed:g} GT/s" if link.max_speed else "")


def _traits(hardware: Hardware, device: Device) -> frozenset[str]:
    capability = _number(device.attributes.get("compute_capability"))
    held = {
        CAPTURED: CAPTURED in hardware.traits,
        MIG: _is_split(device) or device.device_class == "gpu_slice",
        PASS_THROUGH: bool(device.attributes.get("pass_through")),
        RDMA: bool(device.attributes.get("rdma")),
        SRIOV: bool(device.total_vfs),
    }
    found = {trait for trait, has in held.items() if has}
    return frozenset(found | ({cuda_trait(capability)} if capability else set()))
