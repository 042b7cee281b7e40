"""Scan a tree: let every driver read it, and merge what they found."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from drydock_agent import pci
from drydock_agent.driver import Drivers, load_drivers
from drydock_agent.facts import Device, Hardware, Host, Readiness, ScanWarning
from drydock_agent.identity import identity
from drydock_agent.names import PciNames, system_names
from drydock_agent.tools import collect
from drydock_agent.tree import FolderTree, Limits, Tree

CAPTURED = "captured"
"""The trait of hardware that was read from a capture, and is not there to be used."""

_WORST = (Readiness.READY, Readiness.SETUP_REQUIRED, Readiness.REBOOT_REQUIRED, Readiness.UNSUPPORTED)


def scan(
    tree: Tree, *, drivers: Drivers | None = None, traits: Iterable[str] = (), names: PciNames | None = None
) -> Hardware:
    """Return the hardware that a tree describes.

    A driver that fails becomes a warning; the facts of the others are kept. `names` replaces this system's pci.ids.
    """
    drivers = drivers or load_drivers()
    devices: dict[str, Device] = {}
    decided: dict[str, str] = {}
    host = Host()
    warnings = list(drivers.warnings)
    for driver in drivers.drivers:
        try:
            found = driver.read(tree)
            reported = [(one, _place(one)) for one in found.devices]
        except Exception as error:  # a stranger's driver may raise anything
            message = f"The driver failed on this machine: {type(error).__name__}: {error}"
            warnings.append(ScanWarning(subject=f"driver {driver.name}", message=message))
            continue
        for one, id in reported:
            known = devices.get(id, Device(id=id))
            devices[id] = _merged(known, one, driver.name, decided)
        host = _with(host, found.host) if found.host else host
    named = [_named(one, names or system_names()) for one in devices.values()]
    kept, repeated = _identified(sorted(named, key=lambda one: pci.order(one.id)))
    return Hardware(
        host=dataclasses.replace(host, identities=_real(host.identities)),
        devices=tuple(kept),
        traits=tuple(sorted(set(traits))),
        warnings=tuple([*warnings, *tree.warnings, *repeated]),
    )


def local_tree(drivers: Drivers, *, limits: Limits | None = None) -> Tree:
    """Return the tree of this machine, with the output of the tools that are installed. Each tool has 20 seconds."""
    tools = dict(drivers.tools)
    if importlib.util.find_spec("pynvml"):  # of nvidia-ml-py
        tools["nvml"] = (sys.executable, "-m", "drydock_agent.nvml")
    return FolderTree("/", limits=limits, extra=collect(tools))


def _place(device: Device) -> str:
    """Return the id in the form of sysfs. Raises ValueError for an empty one."""
    place, slash, part = device.id.partition("/")
    if not place:
        raise ValueError("a device has no id")
    return (pci.address(place) or place) + slash + part


def _merged(known: Device, new: Device, by: str, decided: dict[str, str]) -> Device:
    """Return the facts of two drivers on one device. The new ones win, but of two verdicts by vendors the worse one."""
    changes: dict[str, Any] = _set_fields(known, new)
    changes.pop("id", None)
    if new.readiness is not None:
        first = decided.get(known.id, "pci") == "pci" or known.readiness is None
        if not first and _WORST.index(new.readiness) <= _WORST.index(known.readiness or Readiness.READY):
            changes.pop("readiness", None)
            changes.pop("reason", None)
        else:
            changes |= {"readiness": new.readiness, "reason": new.reason}
            decided[known.id] = by
    changes["found_by"] = (*known.found_by, by)
    return dataclasses.replace(known, **changes)


def _with(known: Host, new: Host) -> Host:
    return dataclasses.replace(known, **_set_fields(known, new))


def _set_fields(known: Any, new: Any) -> dict[str, Any]:
    """Return the fields that `new` sets, mappings and problems merged with those already known."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(new):
        value, before = getattr(new, field.name), getattr(known, field.name)
        default = {} if field.default_factory is not dataclasses.MISSING else field.default
        if value == default:
            continue
        if isinstance(before, dict):
            value = before | dict(value)
        elif field.name == "problems":
            value = (*before, *(one for one in value if one not in before))
        elif field.name == "link" and before is not None:
            value = dataclasses.replace(before, **_set_fields(before, value))
        changes[field.name] = value
    return changes


def _named(device: Device, names: PciNames) -> Device:
    if not device.vendor_id:
        return device
    board = (device.subsystem_vendor_id, device.subsystem_device_id)
    found = names.device(device.vendor_id, device.device_id)
    return dataclasses.replace(
        device,
        vendor_name=device.vendor_name or names.vendor(device.vendor_id),
        device_name=device.device_name or found,
        subsystem_name=device.subsystem_name or names.subsystem(device.vendor_id, device.device_id, board),
    )


def _real(identities: Any) -> dict[str, str]:
    return {key: text for key, one in sorted(identities.items()) if (text := identity(one))}


def _identified(devices: list[Device]) -> tuple[list[Device], list[ScanWarning]]:
    """Leave out placeholders, and every identity that two devices report."""
    clean = [dataclasses.replace(one, identities=_real(one.identities)) for one in devices]
    count = Counter(pair for one in clean for pair in one.identities.items())
    twice = sorted(f"{key} {text}" for (key, text), times in count.items() if times > 1)
    warnings = [ScanWarning(subject=one, message="Several devices report it, so it identifies none.") for one in twice]
    unique = [
        dataclasses.replace(one, identities={pair[0]: pair[1] for pair in one.identities.items() if count[pair] == 1})
        for one in clean
    ]
    return unique, warnings
