"""Scan a tree with every driver, and merge the results."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections import Counter
from collections.abc import Hashable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from drydock_agent import pci
from drydock_agent.driver import Drivers, load_drivers
from drydock_agent.facts import ID_LENGTH, Device, Hardware, Host, Readiness, ScanWarning, changed
from drydock_agent.identity import identity
from drydock_agent.names import PciNames, system_names
from drydock_agent.tools import collect
from drydock_agent.tree import FolderTree, Limits, Tree

CAPTURED = "captured"
"""The trait of hardware that was read from a captured tree rather than from a running machine."""

_WORST = (Readiness.READY, Readiness.SETUP_REQUIRED, Readiness.REBOOT_REQUIRED, Readiness.UNSUPPORTED)


def scan(
    tree: Tree, *, drivers: Drivers | None = None, traits: Iterable[str] = (), names: PciNames | None = None
) -> Hardware:
    """Return the hardware that a tree describes.

    If a driver fails, a warning is added, and the facts of the other drivers are kept. `names` is used in place of this
    system's pci.ids.
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
            devices[id] = _merged(id, devices.get(id), one, driver.name, decided)
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
        # The package may be in a zipapp, which only the program itself has in its path.
        start = "import sys; sys.path.insert(0, sys.argv[1]); from drydock_agent.nvml import main; main()"
        tools["nvml"] = (sys.executable, "-c", start, str(Path(__file__).parents[1]))
    return FolderTree("/", limits=limits, extra=collect(tools))


def _place(device: Device) -> str:
    """Return the id in the form of sysfs. Raises ValueError for an id that the server would refuse."""
    place, slash, part = device.id.partition("/")
    if not place:
        raise ValueError("a device has no id")
    found = (pci.address(place) or place) + slash + part
    if len(found) > ID_LENGTH or not found.isprintable():
        raise ValueError(f"the id {found!r:.60} has more than {ID_LENGTH} characters, or unprintable ones")
    return found


def _merged(id: str, known: Device | None, new: Device, by: str, decided: dict[str, str]) -> Device:
    """Return the facts of two drivers on one device. The new ones win, but of two verdicts by vendors the worse one."""
    if known is None:
        if new.readiness is not None:
            decided[id] = by
        return changed(new, id=id, found_by=(by,))
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
    return changed(known, **changes)


def _with(known: Host, new: Host) -> Host:
    return dataclasses.replace(known, **_set_fields(known, new))


@lru_cache
def _defaults(cls: Hashable) -> dict[str, Any]:
    fields = dataclasses.fields(cast("Any", cls))
    return {one.name: {} if one.default_factory is not dataclasses.MISSING else one.default for one in fields}


def _set_fields(known: Any, new: Any) -> dict[str, Any]:
    """Return the fields that `new` sets, mappings and problems merged with those already known."""
    changes: dict[str, Any] = {}
    for name, default in _defaults(cast("Hashable", type(new))).items():
        value = getattr(new, name)
        if value == default:
            continue
        before = getattr(known, name)
        if isinstance(before, dict):
            value = before | dict(value)
        elif name == "problems":
            value = (*before, *(one for one in value if one not in before))
        elif name == "link" and before is not None:
            value = dataclasses.replace(before, **_set_fields(before, value))
        changes[name] = value
    return changes


def _named(device: Device, names: PciNames) -> Device:
    if not device.vendor_id:
        return device
    board = (device.subsystem_vendor_id, device.subsystem_device_id)
    found = names.all(device.vendor_id, device.device_id, board)
    return changed(device, **{name: getattr(device, name) or text for name, text in found.items()}) if found else device


def _real(identities: Any) -> dict[str, str]:
    return {key: text for key, one in sorted(identities.items()) if (text := identity(one))}


def _identified(devices: list[Device]) -> tuple[list[Device], list[ScanWarning]]:
    """Leave out placeholders, and every identity that two devices report."""
    clean = [changed(one, identities=_real(one.identities)) if one.identities else one for one in devices]
    count = Counter(pair for one in clean for pair in one.identities.items())
    twice = sorted(f"{key} {text}" for (key, text), times in count.items() if times > 1)
    warnings = [
        ScanWarning(subject=one, message="Several devices have this identity. It was dropped.") for one in twice
    ]
    for n, one in enumerate(clean if twice else ()):
        kept = {key: text for key, text in one.identities.items() if count[key, text] == 1}
        clean[n] = changed(one, identities=kept)
    return clean, warnings
