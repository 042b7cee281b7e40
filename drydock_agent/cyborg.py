"""The wire format of Cyborg's internal API for hardware, and its messages between drivers, agents and conductors.

The published document has no version and writes `reboot_equired`. This form has a version, sends both spellings and
accepts either. Facts for which the document has no field are in `acc_capability.device`, which only Drydock sends.
"""

from __future__ import annotations

import dataclasses
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from drydock_agent import wire
from drydock_agent.facts import Device, Hardware, Readiness, Value
from drydock_agent.wire import Malformed

VERSION = 1

READY, IN_PROGRESS = "READY", "IN-PROGRESS"

DISCOVERING = {"version": VERSION, "status": IN_PROGRESS}
"""The response to `POST /discovery`."""

ENTRIES = 20_000

_NAMESPACE = uuid.UUID("7c1f1c53-6f0e-5d4d-9b3e-2f8a3f5d1c60")

_STABLE = ("uuid", "serial", "mac")
"""The identities that make a UUID, best first, before all others in the order of their names."""

_TYPES = {
    "gpu": "GPU",
    "gpu_slice": "GPU",
    "vgpu": "GPU",
    "fpga": "FPGA",
    "npu": "AICHIP",
    "qat": "CRYPTO",
    "nic": "NIC",
    "vf": "NIC",
    "nvme": "SSD",
}
"""Device classes and Cyborg's types. Other classes are written in capitals."""

_CLASSES = {"GPU": "gpu", "FPGA": "fpga", "AICHIP": "npu", "CRYPTO": "qat", "NIC": "nic", "SSD": "nvme"}

_TYPE = re.compile(r"\A[A-Za-z][A-Za-z0-9_-]{0,49}\Z")

_LONGEST = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class DriverHello:
    """The request `POST /hello` of a driver that runs as a separate program."""

    status: str
    endpoint: str
    types: tuple[str, ...]
    """The driver's device classes, such as `qat` for the document's `CRYPTO`."""
    name: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        types = [device_type(one) for one in self.types]
        named = {"name": self.name} if self.name else {}
        given = types[0] if len(types) == 1 else types
        return {"version": VERSION, "status": self.status, "endpoint": self.endpoint, "type": given, **named}

    @classmethod
    def from_json(cls, document: object) -> DriverHello:
        """Parse the JSON form. Its version may be missing, as in the published document. Raises Malformed."""
        given = _object(document, "hello", {"version", "status", "endpoint", "type", "name"})
        _version(given)
        types = given.get("type")
        several = types if isinstance(types, list) else [types]
        if not 1 <= len(several) <= 20:
            raise Malformed("hello.type: one to twenty types are expected")
        status = _string(given.get("status"), "hello.status")
        if status != "READY":
            raise Malformed(f"hello.status: {status!r:.40} is not READY")
        return cls(
            status=status,
            endpoint=_string(given.get("endpoint"), "hello.endpoint"),
            types=tuple(device_class(_string(one, "hello.type")) for one in several),
            name=_string(given.get("name", ""), "hello.name", least=0),
        )


def device_type(device_class: str) -> str:
    """Return Cyborg's name for a device class."""
    return _TYPES.get(device_class, device_class.upper())


def device_class(device_type: str) -> str:
    """Return the device class for Cyborg's type name. Raises Malformed if the name is invalid."""
    if not _TYPE.match(device_type):
        raise Malformed(f"type: {device_type!r:.40} is not a name such as GPU")
    return _CLASSES.get(device_type.upper(), device_type.lower())


def device_uuid(device: Device, hardware: Hardware) -> str:
    """Return the UUID of a device, derived from its own identity if it has one, else from its host and address."""
    own = _identity(device.identities)
    if own:
        return str(uuid.uuid5(_NAMESPACE, own))
    whole = hardware.device(device.part_of) if device.part_of else None
    above = _identity(whole.identities) if whole else ""
    above = above or _identity(hardware.host.identities)
    return str(uuid.uuid5(_NAMESPACE, f"{above} {device.id}"))


def to_document(hardware: Hardware, *, every: bool = False, discovering: bool = False) -> dict[str, Any]:
    """Return the response to `GET /hardware`: the accelerators or, if `every` is true, all devices.

    `discovering` says that a discovery is running, so that the devices are those of the one before.
    """
    chosen = [one for one in hardware.devices if every or one.device_class]
    status = {"status": IN_PROGRESS} if discovering else {}
    return {"version": VERSION, **status, "hardware": [_entry(one, hardware) for one in chosen]}


def from_document(document: object) -> tuple[Device, ...]:
    """Return the devices in a response to `GET /hardware`. Raises Malformed, which names the field.

    A device without an address gets its UUID as `id` and as the identity `cyborg_uuid`.
    """
    wire.measure(document, ENTRIES)
    given = _object(document, "document", {"version", "status", "hardware"})
    _version(given)
    if given.get("status", READY) not in (READY, IN_PROGRESS):
        raise Malformed(f"status: {given['status']!r:.40} is neither {READY} nor {IN_PROGRESS}")
    entries = given.get("hardware")
    if not isinstance(entries, list):
        raise Malformed("hardware: a list is expected")
    devices = [_device(one, f"hardware[{n}]") for n, one in enumerate(entries)]
    if len({one.id for one in devices}) != len(devices):
        raise Malformed("hardware: two entries are the same device")
    return tuple(devices)


def is_discovering(document: object) -> bool:
    """Return whether a response to `GET /hardware` says that a discovery is still running.

    The published document has no such field; a response without it counts as complete.
    """
    return isinstance(document, Mapping) and document.get("status") == IN_PROGRESS


def _entry(device: Device, hardware: Hardware) -> dict[str, Any]:
    reboot = device.readiness is Readiness.REBOOT_REQUIRED
    return {
        "uuid": device_uuid(device, hardware),
        "acc_specs": {
            "remote": 0,
            "num": 1,
            "device_type": device_type(device.device_class or device.kind or "other"),
            "acc_capability": {"num": 1, "device": wire.encoded(device)},
        },
        "acc_status": {
            "setup_required": device.readiness is Readiness.SETUP_REQUIRED,
            "reboot_required": reboot,
            "reboot_equired": reboot,
        },
    }


def _device(given: object, path: str) -> Device:
    entry = _object(given, path, {"uuid", "acc_specs", "acc_status"})
    specs = _object(entry.get("acc_specs"), f"{path}.acc_specs", {"remote", "num", "device_type", "acc_capability"})
    capability = _object(specs.get("acc_capability", {}), f"{path}.acc_specs.acc_capability")
    readiness = _readiness(entry.get("acc_status"), f"{path}.acc_status")
    if "device" in capability:
        return _own(capability["device"], readiness, f"{path}.acc_specs.acc_capability.device")
    name = _string(specs.get("device_type"), f"{path}.acc_specs.device_type")
    found = _uuid(entry.get("uuid"), f"{path}.uuid")
    return Device(
        id=found,
        device_class=device_class(name),
        role="lease_candidate",
        name=name,
        identities={"cyborg_uuid": found},
        attributes=_attributes(specs, capability, path),
        readiness=readiness,
        reason=_REASONS[readiness],
    )


_REASONS = {
    Readiness.READY: "Its driver reports that it needs neither setup nor a reboot.",
    Readiness.SETUP_REQUIRED: "Its driver reports that it needs setup.",
    Readiness.REBOOT_REQUIRED: "Its driver reports that its host must be rebooted.",
}


def _own(given: object, readiness: Readiness, path: str) -> Device:
    """Return a device in Drydock's form. Its own verdict can be finer than the status, but not contradict it."""
    try:
        device = wire.value(Device, given)
    except Malformed as error:
        raise Malformed(f"{path}: {error}") from None
    told = device.readiness if device.readiness in _REASONS else Readiness.READY
    if told is not readiness:
        raise Malformed(f"{path}.readiness: it contradicts acc_status, which says {readiness.value}")
    return device


def _readiness(given: object, path: str) -> Readiness:
    status = _object(given, path, {"setup_required", "reboot_required", "reboot_equired"})
    for name, one in status.items():
        if not isinstance(one, bool):
            raise Malformed(f"{path}.{name}: true or false is expected")
    if "setup_required" not in status:
        raise Malformed(f"{path}.setup_required: it is missing")
    reboot = {status[name] for name in ("reboot_required", "reboot_equired") if name in status}
    if len(reboot) != 1:
        said = "the two spellings contradict each other" if reboot else "it is missing"
        raise Malformed(f"{path}.reboot_required: {said}")
    if True in reboot:
        return Readiness.REBOOT_REQUIRED
    return Readiness.SETUP_REQUIRED if status["setup_required"] else Readiness.READY


def _attributes(specs: Mapping[str, Any], capability: Mapping[str, Any], path: str) -> dict[str, Value]:
    """Return what a device can do as flat attributes, such as `ipsec.aes.3des`."""
    found: dict[str, Value] = {}
    for name in ("remote", "num"):
        if name in specs:
            found[name] = _number(specs[name], f"{path}.acc_specs.{name}")
    pending: list[tuple[str, object]] = [(name, one) for name, one in capability.items()]
    while pending:
        name, one = pending.pop()
        where = f"{path}.acc_specs.acc_capability.{name:.100}"
        if isinstance(one, Mapping):
            pending += [(f"{name}.{key}", below) for key, below in one.items()]
        elif isinstance(one, list):
            found[f"capability.{name}"] = tuple(_string(item, where) for item in one)
        else:
            found[f"capability.{name}"] = _value(one, where)
        if len(name) > _LONGEST or not name.isprintable():
            raise Malformed(f"{where}: the name is too long or has unprintable characters")
    return dict(sorted(found.items()))


def _identity(identities: Mapping[str, str]) -> str:
    names = [*(one for one in _STABLE if one in identities), *sorted(identities)]
    return f"{names[0]} {identities[names[0]]}" if names else ""


def _object(given: object, path: str, known: Iterable[str] | None = None) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise Malformed(f"{path}: an object is expected")
    for name in given:
        if known is not None and name not in known:
            raise Malformed(f"{path}.{name:.40}: this field is not known")
    return given


def _version(given: Mapping[str, Any]) -> None:
    found = given.get("version", VERSION)
    if type(found) is not int or found != VERSION:
        raise Malformed(f"version: {found!r:.40}; this program reads version {VERSION}")


def _string(given: object, path: str, *, least: int = 1) -> str:
    if not isinstance(given, str) or not least <= len(given) <= _LONGEST or not given.isprintable():
        raise Malformed(f"{path}: one line of {least} to {_LONGEST} printable characters is expected")
    return given


def _number(given: object, path: str) -> int:
    found = _value(given, path)
    if type(found) is not int:
        raise Malformed(f"{path}: a whole number is expected")
    return found


def _value(given: object, path: str) -> str | int | float | bool:
    if isinstance(given, str):
        return _string(given, path, least=0)
    if isinstance(given, bool):
        return given
    if isinstance(given, int | float):
        return wire.value(type(given), given)
    raise Malformed(f"{path}: text, a number, true or false is expected")


def _uuid(given: object, path: str) -> str:
    try:
        return str(uuid.UUID(_string(given, path)))
    except ValueError as error:
        raise error if isinstance(error, Malformed) else Malformed(f"{path}: {given!r:.60} is not a UUID") from None
