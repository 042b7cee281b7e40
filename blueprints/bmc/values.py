"""The frozen values that sessions with a BMC return. Amounts are in the units of their names."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from blueprints.identities import Identity


class PowerState(StrEnum):
    """The power of a machine, as its BMC reports it."""

    ON = "on"
    OFF = "off"
    CHANGING = "changing"
    """On its way to on or off, for example while the operating system shuts down."""
    UNKNOWN = "unknown"


class PowerAction(StrEnum):
    """A change of power that a BMC can be asked for."""

    ON = "on"
    OFF = "off"
    """At once, without asking the operating system."""
    SHUTDOWN = "shutdown"
    """By the operating system, which may ignore it."""
    RESET = "reset"
    CYCLE = "cycle"
    """Off, and on again after a few seconds, so that all devices lose their power."""
    NMI = "nmi"
    """Send a non-maskable interrupt, with which an operating system writes a crash dump."""


class BootDevice(StrEnum):
    """A source that a machine can boot from."""

    DISK = "disk"
    NETWORK = "network"
    """PXE."""
    HTTP = "http"
    """UEFI HTTP boot."""
    MEDIUM = "medium"
    """The virtual CD."""
    SETUP = "setup"
    """The setup menu of the firmware."""
    DEFAULT = "default"
    """The order that the firmware has; no override."""


@dataclass(frozen=True, kw_only=True)
class BootOverride:
    """The boot source that overrides the order of the firmware."""

    device: BootDevice
    once: bool = True
    """Whether the override ends with the next boot."""
    uri: str = ""
    """The address for `BootDevice.HTTP`; empty if the BMC or DHCP decides."""


@dataclass(frozen=True, kw_only=True)
class Medium:
    """A virtual drive of a BMC, and what is inserted."""

    slot: str
    """The name of the drive at the BMC."""
    cd: bool
    """Whether it can hold a CD image. Otherwise it holds floppy or USB images only."""
    image: str = ""
    """The address of the inserted image without credentials; empty if nothing is inserted."""
    inserted: bool = False


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A disk as the BMC describes it."""

    name: str
    serial: str = ""
    model: str = ""
    protocol: str = ""
    """NVMe, SATA, SAS, ..."""
    media: str = ""
    """SSD or HDD."""
    size_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Nic:
    """A network port of the machine."""

    name: str
    mac: str
    """In lower case with colons."""
    speed_mbps: int | None = None
    link: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Firmware:
    """An installed firmware component."""

    component: str
    """A name that stays the same when the version changes."""
    version: str
    updateable: bool = False


@dataclass(frozen=True, kw_only=True)
class Device:
    """A processor that is no CPU, or an adapter, as the BMC describes it."""

    kind: Literal["gpu", "fpga", "dpu", "other"]
    name: str
    vendor: str = ""
    model: str = ""
    serial: str = ""
    part_number: str = ""


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """The hardware of a machine, as its BMC describes it. Unknown values are empty or None."""

    vendor: str = ""
    model: str = ""
    serial: str = ""
    sku: str = ""
    uuid: str = ""
    bios_version: str = ""
    bmc_version: str = ""
    cpus: int | None = None
    """Number of sockets with a processor."""
    threads: int | None = None
    memory_mib: int | None = None
    arch: str = ""
    health: Literal["", "ok", "degraded", "failed"] = ""
    identities: tuple[Identity, ...] = ()
    """Serial numbers, UUIDs and MAC addresses without placeholders (`blueprints.identities.real`)."""
    disks: tuple[Disk, ...] = ()
    nics: tuple[Nic, ...] = ()
    firmware: tuple[Firmware, ...] = ()
    devices: tuple[Device, ...] = ()
    missing: tuple[str, ...] = ()
    """The parts that could not be read, one sentence for each."""


@dataclass(frozen=True, kw_only=True)
class Sensor:
    """A reading of a sensor."""

    name: str
    value: float | None
    unit: str
    """Cel, RPM, W, V, A, % or what the BMC calls it."""
    state: Literal["ok", "warning", "critical", "unknown"] = "unknown"
    whole: bool = False
    """Whether this is the power in watts that the whole machine draws. At most one sensor of a machine says so."""


@dataclass(frozen=True, kw_only=True)
class LogEntry:
    """An entry of the system event log."""

    id: str
    message: str
    severity: Literal["ok", "warning", "critical"]
    at: dt.datetime | None = None


@dataclass(frozen=True, kw_only=True)
class BmcTask:
    """A long task of a BMC, such as a firmware update. It goes on without us."""

    id: str
    state: Literal["running", "done", "failed", "unknown"]
    """`unknown`: the BMC does not know the task. BMCs forget tasks when they restart, and some list one only after it
    has begun."""
    percent: int | None = None
    message: str = ""
    updates: bool | None = None
    """Whether it updates firmware; None if the BMC does not say what it does."""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The TLS certificate that a BMC presents."""

    fingerprint: str
    """SHA-256 of the certificate in DER form, 64 lower-case hexadecimal digits."""
    subject: str = ""
    issuer: str = ""
    ends_at: dt.datetime | None = None


@dataclass(frozen=True, kw_only=True)
class SecureBoot:
    """Secure Boot of the machine's firmware."""

    enabled: bool
    """As configured; takes effect at the next boot."""
    in_force: bool | None = None
    """Whether the present boot was secured; None if the BMC does not say."""
    mode: str = ""


@dataclass(frozen=True, kw_only=True)
class Login:
    """The account with which a session was opened, and what it may do."""

    user: str
    role: str = ""
    """The role as the BMC names it, such as Administrator or Operator."""
    privileges: tuple[str, ...] = ()
    missing: tuple[str, ...] = field(default=())
    """Privileges that Drydock needs and the account lacks."""
