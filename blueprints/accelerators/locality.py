"""The position of devices in their host: NUMA node, root bus, root port and PCIe switches.

A NUMA node is stated for a root bus as a whole, because places must not be in several wider ones. If the functions of
a bus disagree, or none knows its node, it stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

from blueprints.localities import Locality
from drydock_agent import Device, Hardware

_SWITCHES = 3
"""Switches one below another that are told apart. Deeper ones are left out."""

_DEEPEST = 32
"""Bridges one below another that are followed. Real hosts have fewer than ten."""


def localities(hardware: Hardware) -> Mapping[str, Locality]:
    """Return the locality of each device whose position is known, by its id."""
    devices = {one.id: one for one in hardware.devices}
    nodes = _nodes(hardware)
    found = {one.id: _locality(_whole(one, devices), devices, nodes) for one in hardware.devices}
    return {id: locality for id, locality in found.items() if locality}


def _whole(device: Device, devices: Mapping[str, Device]) -> Device:
    """Return the device that a slice or VF is part of, because it is where that device is."""
    return devices.get(device.part_of, device)


def _nodes(hardware: Hardware) -> dict[str, int]:
    stated: dict[str, set[int]] = {}
    for one in hardware.devices:
        if one.root and one.numa_node is not None:
            stated.setdefault(one.root, set()).add(one.numa_node)
    return {root: found.pop() for root, found in stated.items() if len(found) == 1}


def _locality(device: Device, devices: Mapping[str, Device], nodes: Mapping[str, int]) -> Locality:
    if not device.root:
        return ()
    node = nodes.get(device.root)
    above = _bridges(device, devices)
    # Below the root port each switch has two bridges: its upstream port, and the downstream port to the device.
    names = [
        "" if node is None else f"NUMA node {node}",
        f"root bus {device.root.removeprefix('pci')}",
        f"root port {above[0]}" if above else "",
        *(f"switch {one}" for one in above[1::2][:_SWITCHES]),
    ]
    while names and not names[-1]:
        names.pop()
    return tuple(names)


def _bridges(device: Device, devices: Mapping[str, Device]) -> list[str]:
    """Return the bridges above a device, the outermost first."""
    found: list[str] = []
    parent = device.parent
    while parent and parent not in found and len(found) < _DEEPEST:
        found.append(parent)
        parent = devices[parent].parent if parent in devices else ""
    return found[::-1]
