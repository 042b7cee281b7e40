"""The hardware of hosts, as it was last reported."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class DeviceInfo:
    """A device in a host, such as a GPU, or a part of one, such as a MIG slice or a VF."""

    id: str
    """The PCI address, or `ADDRESS/PART` for a part."""
    part_of: str
    kind: str
    device_class: str
    """The class by which leases request it; empty if it is not leased."""
    role: str
    model: str
    readiness: str
    """ready, setup_required, reboot_required or unsupported; empty for functions that leases do not use."""
    reason: str
    """Why it cannot be leased, or what it has been found to be able to do, as a sentence."""
    driver: str
    numa_node: int | None
    iommu_group: int | None
    link: str
    """The PCIe link in words: its width and speed, and the maxima that the device supports."""
    firmware: Mapping[str, str]
    memory_mib: int | None
    health: str
    """ok, degraded or failed; empty if it is unknown."""
    resource: int | None
    """The id of the resource that represents the device; None if leases cannot use it."""
    resource_state: str
    """The state of the resource, followed by drained, quarantined, maintenance or suspect, if it is."""
    leases: tuple[int, ...]
    """The leases on the device that the caller may see."""
    facts: Mapping[str, Any]
    """Everything that was reported about the device."""


@dataclass(frozen=True, kw_only=True)
class HardwareInfo:
    """The hardware of a host, as it was last reported to a blueprint.

    Owners see only the devices that their leases hold, and nothing about the host itself.
    """

    id: int
    """The id of the report. It stays the same as long as the blueprint searches the host."""
    blueprint: str
    place: str
    """The name of the host in the blueprint: for blueprints of accelerators, the id of its resource."""
    name: str
    """The name of the host."""
    host: int | None
    """The id of the host's resource."""
    source: str
    """`read` if Drydock reads the host, `sent` if an agent reports."""
    agent: int | None
    state: str
    """`ok`, `silent` (the agent does not report), `failing` (see `message`) or `unread` (nothing was reported yet)."""
    message: str
    """Why the last report failed, or what could not be stored; empty if nothing is wrong."""
    reported_at: dt.datetime | None
    """The time of the last report."""
    changed_at: dt.datetime | None
    """The time at which a report last differed from the one before."""
    next_at: dt.datetime | None
    """The time at which the next report is due."""
    counts: Mapping[str, Mapping[str, int]]
    """Number of devices by class, then by readiness. Those that are ready except that they have failed are `failed`."""
    captured: bool = False
    """Whether the devices are those of a captured tree, and not in the host."""
    devices: tuple[DeviceInfo, ...] = ()
    """The devices, if one report was requested."""
    warnings: tuple[str, ...] = ()
    """Problems during the scan."""
    facts: Mapping[str, Any] | None = None
    """What was reported about the host itself: processors, memory, TPM, identities. None unless one was requested."""


@dataclass(frozen=True, kw_only=True)
class HardwareScanInfo:
    """A scan that was requested."""

    report: int
    by: str
    """`agent` if an agent was ordered to report, `discovery` if a worker reads the host."""
    agent: int | None
    order: int | None
    """The id of the order to the agent, whose state shows how far the scan is."""
    next_at: dt.datetime
    """The time at which the next report is due. It changes when a worker has read the host."""
