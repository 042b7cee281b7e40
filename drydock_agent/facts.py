"""Facts about a host and its devices, as frozen values with a versioned JSON form."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Mapping
from typing import Any

from drydock_agent import wire

VERSION = 1
"""The version of the JSON form. Readers reject other versions."""

ID_LENGTH = 200
"""The maximum length of a device's id in characters."""

Value = str | int | float | bool | tuple[str, ...]


class Readiness(enum.StrEnum):
    """Whether a device can be used now."""

    READY = "ready"
    SETUP_REQUIRED = "setup_required"
    REBOOT_REQUIRED = "reboot_required"
    UNSUPPORTED = "unsupported"


class Health(enum.StrEnum):
    """The condition of a device."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILED = "failed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScanWarning:
    """A problem during a scan. `subject` is the path, driver or tool that it affects."""

    subject: str
    message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Link:
    """A PCIe link: speeds in GT/s, widths in lanes. The maxima are those that the device supports."""

    speed: float | None = None
    width: int | None = None
    max_speed: float | None = None
    max_width: int | None = None

    def __str__(self) -> str:
        """Return the link in words, such as `x8 of x16, 8 of 16 GT/s`."""
        lanes = f"x{self.width}" if self.width else ""
        if self.max_width and self.max_width != self.width:
            lanes = f"{lanes or 'unknown width'} of x{self.max_width}"
        speed = f"{self.speed:g}" if self.speed else ""
        if self.max_speed and self.max_speed != self.speed:
            speed = f"{speed} of {self.max_speed:g}" if speed else f"up to {self.max_speed:g}"
        return ", ".join(filter(None, (lanes, f"{speed} GT/s" if speed else "")))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoggedError:
    """An error that the kernel log has about a device, once for each code."""

    code: str
    """The code, such as `xid 79`."""
    at: float
    """Seconds between the start of the machine and the last time that the error was logged."""
    count: int = 1
    part: str = ""
    """The GPU instance that the error is limited to, such as `mig-5`. Empty for the device as a whole."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Device:
    """A PCI function, or a part of one such as a MIG slice.

    A driver sets only the fields that it knows. The default of a field means "not known". Facts from several drivers
    about the same device are merged.
    """

    id: str
    """The PCI address in the form of sysfs (`0000:06:00.0`, domains up to 32 bits), or `ADDRESS/PART` for a part."""
    part_of: str = ""
    """The id of the device that contains this one: the PF of a VF, or the GPU of a slice."""
    kind: str = ""
    """The kind: gpu, accelerator, coprocessor, crypto, nvme, infiniband, nic, other_network, bridge or other."""
    device_class: str = ""
    """The class by which leases request the device, such as gpu, gpu_slice, fpga, qat or nic. Empty if none."""
    role: str = ""
    """lease_candidate, part, display_only, integrated_gpu, platform_crypto, management, or empty."""
    name: str = ""
    """The name of the model."""
    pci_class: str = ""
    """The PCI class as six hexadecimal digits, such as `030200`."""
    vendor_id: str = ""
    device_id: str = ""
    subsystem_vendor_id: str = ""
    subsystem_device_id: str = ""
    revision: str = ""
    vendor_name: str = ""
    device_name: str = ""
    subsystem_name: str = ""
    driver: str = ""
    """The kernel driver that is bound to the function."""
    numa_node: int | None = None
    """The NUMA node. None if the kernel does not know it (-1)."""
    local_cpus: str = ""
    iommu_group: int | None = None
    iommu_members: tuple[str, ...] = ()
    """All functions in the IOMMU group, including this one. They can be passed only to the same guest."""
    parent: str = ""
    """The address of the bridge upstream of the function. Empty on a root bus."""
    root: str = ""
    """The root bus, such as `pci0000:80`."""
    link: Link | None = None
    total_vfs: int | None = None
    vfs: tuple[str, ...] = ()
    firmware: Mapping[str, str] = dataclasses.field(default_factory=dict)
    memory_mib: int | None = None
    health: Health | None = None
    """The health of the device; None if unknown."""
    problems: tuple[str, ...] = ()
    """The reasons why the health is not `ok`, each as a sentence."""
    counters: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Errors since the machine started or the device was reset, such as `pcie_fatal` or `media_errors`.

    A count says nothing about the present, so it is not part of `health`. Compare it with an earlier one.
    """
    errors: tuple[LoggedError, ...] = ()
    """Errors of the device in the kernel log since its last reset."""
    identities: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Unique names of the device by namespace, such as `serial`, `uuid` or `mac`, without placeholders."""
    nodes: tuple[str, ...] = ()
    """Device nodes, such as `/dev/nvidia0`."""
    attributes: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    readiness: Readiness | None = None
    reason: str = ""
    """A sentence that explains the readiness."""
    found_by: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """The name of the model, or the ids of the device if it has none."""
        ids = ":".join(filter(None, (self.vendor_id, self.device_id)))
        return self.name or " ".join(filter(None, (self.vendor_name, self.device_name))) or ids


def changed(device: Device, **changes: Any) -> Device:
    """Return a copy of a device with other values, as `dataclasses.replace` does, in a tenth of its time."""
    made = object.__new__(type(device))
    object.__setattr__(made, "__dict__", device.__dict__ | changes)
    return made


UNSTEADY = frozenset({"memory_used_mib", "compute_processes", "graphics_processes", "performance_state"})
"""Attributes that change while a device is used."""


def _steady(device: Device) -> Device:
    """Return a device without facts that change while it is used. An idle device lowers the speed of its link."""
    changes: dict[str, Any] = {}
    if not UNSTEADY.isdisjoint(device.attributes):
        changes["attributes"] = {name: value for name, value in device.attributes.items() if name not in UNSTEADY}
    if device.link is not None and device.link.speed is not None:
        changes["link"] = dataclasses.replace(device.link, speed=None)
    return changed(device, **changes) if changes else device


@dataclasses.dataclass(frozen=True, kw_only=True)
class CpuFacts:
    """The processors of a host."""

    vendor: str = ""
    model: str = ""
    sockets: int = 0
    cores: int = 0
    threads: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumaNode:
    """A NUMA node: its logical CPUs, its memory, and the distance to every node in the order of their numbers."""

    node: int
    cpus: str = ""
    memory_mib: int | None = None
    distances: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class CryptoAlgorithm:
    """An entry of /proc/crypto. Several drivers can provide one name; the kernel uses the highest priority."""

    driver: str
    name: str
    module: str = ""
    type: str = ""
    priority: int | None = None
    asynchronous: bool = False
    internal: bool = False
    passed: bool = False
    hardware: bool = False
    """Whether a separate device carries out the algorithm, rather than the processor."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Host:
    """The machine itself. Several drivers can each report some of the facts."""

    cpu: CpuFacts | None = None
    memory_mib: int | None = None
    numa_nodes: tuple[NumaNode, ...] = ()
    dmi: Mapping[str, str] = dataclasses.field(default_factory=dict)
    identities: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tpm: str = ""
    """The version of the TPM, such as `2.0`; empty if there is none."""
    confidential: tuple[str, ...] = ()
    """Enabled confidential computing technologies, such as sgx, tdx, sev_snp, or tdx_guest inside a guest."""
    crypto: tuple[CryptoAlgorithm, ...] = ()
    attributes: Mapping[str, Value] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hardware:
    """The result of a scan."""

    host: Host
    devices: tuple[Device, ...] = ()
    """All devices, in numeric order of their addresses."""
    traits: tuple[str, ...] = ()
    """`captured` if the tree is not a running machine."""
    warnings: tuple[ScanWarning, ...] = ()
    version: int = VERSION

    def device(self, id: str) -> Device | None:
        """Return the device with an id, or None, as for the empty `part_of` of a whole device."""
        return self._by_id.get(id) if id else None

    @functools.cached_property
    def _by_id(self) -> dict[str, Device]:
        return {one.id: one for one in reversed(self.devices)}

    def steady(self) -> Hardware:
        """Return the hardware without facts that change while devices are used, such as memory in use and processes.

        This is what is reported, because otherwise each report of a busy host would differ from the one before.
        """
        return dataclasses.replace(self, devices=tuple(map(_steady, self.devices)))

    def to_json(self) -> dict[str, Any]:
        """Return the hardware in its JSON form."""
        encoded: dict[str, Any] = wire.encoded(self)
        return encoded

    @classmethod
    def from_json(cls, document: object) -> Hardware:
        """Parse the JSON form. Raises wire.Malformed, which names the invalid field."""
        return wire.decoded(cls, document, version=VERSION)
