"""Conversion of the Redfish resources of a machine to one inventory. Pure functions that call no BMC.

BMCs pad values with blanks, leave them out, or send placeholders; the same value is in another resource with each
vendor. Two captured trees, of a Dell R750 and of a BlueField-3, are what this was written and is tested against.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from blueprints.bmc.texts import serial_of, shown
from blueprints.bmc.values import Device, Disk, Firmware, Inventory, Nic
from blueprints.identities import Identity, is_placeholder, real

Json = Mapping[str, Any]

_ARCHITECTURES = {"x86": "x86", "x86-64": "x86_64", "arm-a64": "arm64", "arm": "arm64", "power": "ppc64le"}
_HEALTH: Mapping[str, Literal["ok", "degraded", "failed"]] = {"OK": "ok", "Warning": "degraded", "Critical": "failed"}
_PROCESSORS: Mapping[str, Literal["gpu", "fpga", "dpu"]] = {"GPU": "gpu", "FPGA": "fpga", "DPU": "dpu"}
_DPU = re.compile(r"bluefield|\bDPU\b|pensando|\bIPU\b", re.IGNORECASE)
_DELL = re.compile(r"\A(Installed|Current|Previous)-\d+-.*?__(.+)\Z")
"""The id of a firmware component at an iDRAC. Only `Installed` runs; the others are images that could be installed."""
_DIGITS = re.compile(r"[0-9]{1,18}")
_LARGEST = 10**18
"""Numbers beyond it are no amounts, and would not fit into 64 bits."""
_ON_BOARD = frozenset(["Component", "Module", "StorageEnclosure", "Zone"])
"""Types of chassis that are part of a machine, and are not the machine."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources of one machine, as its BMC sent them."""

    system: Json
    root: Json
    chassis: Sequence[Json] = ()
    managers: Sequence[Json] = ()
    processors: Sequence[Json] = ()
    drives: Sequence[Json] = ()
    interfaces: Sequence[Json] = ()
    """The Ethernet interfaces of the system."""
    adapters: Sequence[Json] = ()
    functions: Sequence[Json] = ()
    """The network device functions of its adapters, if there are no Ethernet interfaces."""
    firmware: Sequence[Json] = ()
    missing: Sequence[str] = ()
    """The resources that could not be read, one sentence for each."""


def inventory(given: Resources) -> Inventory:
    """Return what the resources of a machine say about it."""
    system, chassis = given.system, main_chassis(given.chassis, given.system)
    vendor, serial = _first("Manufacturer", system, chassis), _first("SerialNumber", system, chassis)
    ports = nics(given)
    cpus = [one for one in given.processors if one.get("ProcessorType", "CPU") == "CPU" and _present(one)]
    about, memory = _object(system, "ProcessorSummary"), _object(system, "MemorySummary")
    return Inventory(
        vendor=vendor,
        model=_first("Model", system, chassis),
        serial=serial,
        sku=_first("SKU", system, chassis),
        uuid=text(system.get("UUID")).lower(),
        bios_version=text(system.get("BiosVersion")),
        bmc_version=_bmc_version(given),
        cpus=len(cpus) or whole(about.get("Count")),
        threads=whole(about.get("LogicalProcessorCount")) or _sum(cpus, "TotalThreads"),
        memory_mib=_mib(memory.get("TotalSystemMemoryGiB")),
        arch=next(filter(None, map(_arch, cpus)), ""),
        health=health(system),
        identities=identities(given, vendor, serial, ports),
        disks=tuple(map(_disk, filter(_present, given.drives))),
        nics=ports,
        firmware=firmware(given.firmware),
        devices=devices(given),
        missing=tuple(given.missing),
    )


def identities(given: Resources, vendor: str, serial: str, ports: Iterable[Nic]) -> tuple[Identity, ...]:
    """Return the names by which the machine is recognized, without placeholders and duplicates."""
    manager = next(iter(given.managers), {})
    shared = len(paths(_object(manager, "Links").get("ManagerForServers"))) > 1
    names = [
        {serial_of(vendor): serial},
        {"dmi_uuid": text(given.system.get("UUID"))},
        {"bmc_uuid": "" if shared else text(manager.get("ServiceEntryPointUUID")) or text(given.root.get("UUID"))},
        *({"mac": port.mac} for port in ports),
    ]
    return tuple(dict.fromkeys(one for name in names for one in real(name)))


def nics(given: Resources) -> tuple[Nic, ...]:
    """Return the network ports that have an address."""
    found = {}
    for one in given.interfaces:
        mac = _mac(one.get("PermanentMACAddress")) or _mac(one.get("MACAddress"))
        if mac and mac not in found:
            link = {"LinkUp": True, "LinkDown": False, "NoLink": False}.get(str(one.get("LinkStatus")))
            found[mac] = Nic(name=name_of(one), mac=mac, speed_mbps=whole(one.get("SpeedMbps")) or None, link=link)
    for one in given.functions:
        ethernet = _object(one, "Ethernet")
        mac = _mac(ethernet.get("PermanentMACAddress")) or _mac(ethernet.get("MACAddress"))
        if mac and mac not in found:
            found[mac] = Nic(name=name_of(one), mac=mac)
    return tuple(sorted(found.values(), key=lambda port: port.name))


def firmware(components: Iterable[Json]) -> tuple[Firmware, ...]:
    """Return the installed components, each once, under names that stay the same when the version changes."""
    found: dict[str, Firmware] = {}
    for one in components:
        (name, installed), version = component(one), text(one.get("Version"))
        if name and version and installed and name not in found:
            found[name] = Firmware(component=name, version=version, updateable=one.get("Updateable") is True)
    return tuple(made for _, made in sorted(found.items()))


def component(one: Json) -> tuple[str, bool]:
    """Return the stable name of a firmware component, and whether the resource describes what is installed."""
    id, version = text(one.get("Id")), text(one.get("Version"))
    if dell := _DELL.match(id):
        return dell[2], dell[1] == "Installed"
    if id.isdigit():
        return text(one.get("Name")) or id, True
    if version and version in id:
        id = re.sub(r"[-_. ]{2,}", "-", id.replace(version, "")).strip("-_. ")
    return id or text(one.get("Name")), True


def devices(given: Resources) -> tuple[Device, ...]:
    """Return the processors that are no CPUs, and the network adapters."""
    found = []
    for one in given.processors:
        kind = str(one.get("ProcessorType", "CPU"))
        if kind != "CPU" and _present(one):
            found.append(_device(one, _PROCESSORS.get(kind, "other")))
    for one in given.adapters:
        dpu = _DPU.search(f"{text(one.get('Model'))} {text(one.get('PartNumber'))} {text(one.get('Name'))}")
        found.append(_device(one, "dpu" if dpu else "other"))
    return tuple(sorted(found, key=lambda device: (device.kind, device.name)))


def _device(one: Json, kind: Literal["gpu", "fpga", "dpu", "other"]) -> Device:
    return Device(
        kind=kind,
        name=name_of(one),
        vendor=text(one.get("Manufacturer")),
        model=text(one.get("Model")),
        serial=text(one.get("SerialNumber")),
        part_number=text(one.get("PartNumber")),
    )


def _disk(one: Json) -> Disk:
    protocol = text(one.get("Protocol"))
    return Disk(
        name=name_of(one),
        serial=text(one.get("SerialNumber")),
        model=text(one.get("Model")),
        protocol="NVMe" if protocol == "PCIe" else protocol,  # an iDRAC calls NVMe disks PCIe
        media=text(one.get("MediaType")),
        size_bytes=whole(one.get("CapacityBytes")) or None,
    )


def main_chassis(chassis: Sequence[Json], system: Json) -> Json:
    """Return the chassis that is the machine, empty if there is none.

    A system may be linked with a mere component, such as its BMC.
    """
    here = system.get("@odata.id")
    own = [one for one in chassis if here in paths(_object(one, "Links").get("ComputerSystems"))] or list(chassis)
    return min(own, key=lambda one: (one.get("ChassisType") in _ON_BOARD, bool(_within(one))), default={})


def _within(chassis: Json) -> Json:
    return _object(_object(chassis, "Links"), "ContainedBy")


def _bmc_version(given: Resources) -> str:
    """Return the version of the BMC. The inventory is right where the manager says another one."""
    manager = next(iter(given.managers), {})
    image = _object(_object(manager, "Links"), "ActiveSoftwareImage").get("@odata.id")
    named = (text(one.get("Version")) for one in given.firmware if image and one.get("@odata.id") == image)
    return next(filter(None, named), "") or text(manager.get("FirmwareVersion"))


def health(system: Json) -> Literal["", "ok", "degraded", "failed"]:
    """Return the health of a resource with everything in it; empty if it does not say."""
    status = _object(system, "Status")
    return _HEALTH.get(str(status.get("HealthRollup") or status.get("Health")), "")


def _arch(processor: Json) -> str:
    for key in ("InstructionSet", "ProcessorArchitecture"):
        if made := _ARCHITECTURES.get(text(processor.get(key)).lower()):
            return made
    return ""


def _present(one: Json) -> bool:
    return _object(one, "Status").get("State") != "Absent"


def _first(key: str, *places: Json) -> str:
    return next(filter(None, (text(place.get(key)) for place in places)), "")


def _sum(places: Iterable[Json], key: str) -> int | None:
    return sum(whole(place.get(key)) or 0 for place in places) or None


def _mib(gib: Any) -> int | None:
    number = isinstance(gib, int | float) and not isinstance(gib, bool) and 0 <= gib <= _LARGEST >> 10
    return round(gib * 1024) if number else None


def _mac(value: Any) -> str:
    """Return an address with colons in lower case, empty for placeholders such as 00:00:00:00:00:00."""
    return next((one.value for one in real({"mac": text(value)})), "")


def text(value: Any) -> str:
    """Return a text on one line of at most 300 characters; empty if it is a placeholder or no text."""
    plain = shown(value) if isinstance(value, str) else ""
    return "" if is_placeholder(plain) else plain


def whole(value: Any) -> int | None:
    """Return a number that is not negative, also if it was sent as a text or a fraction; None for anything else."""
    if isinstance(value, str):
        return int(value) if _DIGITS.fullmatch(value.strip()) else None
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LARGEST
    return int(value) if number else None


def name_of(one: Json) -> str:
    """Return the name of a resource at the BMC: the last part of its path, or its id."""
    path = one.get("@odata.id")
    if not isinstance(path, str) or not path.strip("/"):
        return text(one.get("Id"))
    return shown(path.rstrip("/").rsplit("/", 1)[-1])


def paths(links: Any) -> list[str]:
    """Return the paths of links, or of one link."""
    found = [links] if isinstance(links, Mapping) else links if isinstance(links, list) else []
    given = (one.get("@odata.id") for one in found if isinstance(one, Mapping))
    return [path for path in given if isinstance(path, str) and path]


def flat(values: Any) -> list[str]:
    """Return the texts of a list of allowed values, which some BMCs nest in another list."""
    if isinstance(values, str):
        return [values]
    return [text for one in values for text in flat(one)] if isinstance(values, list) else []


def _object(place: Json, key: str) -> Json:
    found = place.get(key)
    return found if isinstance(found, Mapping) else {}
