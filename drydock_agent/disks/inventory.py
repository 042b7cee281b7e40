"""The disks of a machine: what they are, what they support, and whether something uses them."""

from __future__ import annotations

import dataclasses
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from drydock_agent.disks import ata, methods, nvme
from drydock_agent.disks.errors import DiskError
from drydock_agent.disks.machine import Machine
from drydock_agent.identity import identity, known

_DISK = re.compile(r"\A(?:[hsv]d[a-z]+|xvd[a-z]+|nvme\d+n\d+|mmcblk\d+|pmem\d+)\Z")
_AT_ONCE = 16
"""Disks that are asked at the same time, since one that fails answers slowly."""
_SECTOR = 512
"""The kernel counts the size of every disk in units of 512 bytes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Disk:
    """A disk of the machine."""

    name: str
    serial: str = ""
    wwn: str = ""
    model: str = ""
    vendor: str = ""
    hctl: str = ""
    size_bytes: int = 0
    sector_bytes: int = _SECTOR
    rotational: bool = False
    transport: str = ""
    removable: bool = False
    read_only: bool = False
    methods: tuple[str, ...] = ()
    """The methods of erasure that the disk supports, best first."""
    problem: str = ""
    """Why the disk can be neither erased nor written; empty if it can."""
    is_busy: bool = False
    nvme: nvme.Features | None = None
    ata: ata.Features | None = None

    @property
    def path(self) -> str:
        """The path of the disk on the machine."""
        return f"/dev/{self.name}"

    def to_json(self) -> dict[str, Any]:
        """Return the disk as it is listed."""
        hidden = {"is_busy", "nvme", "ata"}
        shown = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.name not in hidden}
        return shown | {"path": self.path, "methods": list(self.methods)}

    def check(self) -> None:
        """Raise DiskError if the disk cannot be used."""
        if self.problem:
            code = "busy" if self.is_busy else "read_only" if self.read_only else "disk"
            raise DiskError(code, f"{self.name}: {self.problem}")


def disks(machine: Machine) -> list[Disk]:
    """Return all disks in the order of their names. Raises DiskError if the machine has no /sys."""
    names = [one for one in machine.names("sys/block") if _DISK.match(one)]
    if not names and not (machine.root / "sys" / "block").is_dir():
        raise DiskError("no_sysfs", f"{machine.root / 'sys' / 'block'} does not exist, so no disk can be found.")
    uses = _Uses(machine)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda name: _disk(machine, name, uses), sorted(names, key=_natural))
        return [one for one in found if one is not None]


def choose(found: list[Disk], names: tuple[str, ...]) -> list[Disk]:
    """Return the disks with these names, or all fixed ones. Raises DiskError for a name that no disk has."""
    if not names:
        return [one for one in found if not one.removable]
    by_name = {one.name: one for one in found}
    for name in names:
        if name.removeprefix("/dev/") not in by_name:
            there = ", ".join(by_name) or "none"
            raise DiskError("no_disk", f"{name[:80]!r} is not a disk of this machine. Its disks: {there}.")
    wanted = {name.removeprefix("/dev/") for name in names}
    return [one for one in found if one.name in wanted]


def _disk(machine: Machine, name: str, uses: _Uses) -> Disk | None:
    folder = machine.inside(f"sys/block/{name}")
    if folder is None or machine.text(folder / "hidden") == "1":
        return None
    size = machine.number(folder / "size") * _SECTOR
    removable = machine.text(folder / "removable") == "1"
    if removable and not size:
        return None
    transport = _transport(machine, name, folder)
    at = nvme.features(machine, name, folder) if transport == "nvme" else None
    speaks_ata = transport in ("sata", "usb", "sas") and name.startswith("sd")
    ident = ata.features(machine, name, attempts=3 if transport == "sata" else 1) if speaks_ata else None
    used = uses.of(name, folder)
    read_only = machine.text(folder / "ro") == "1"
    made = Disk(
        name=name, size_bytes=size, sector_bytes=machine.number(folder / "queue/logical_block_size") or _SECTOR,
        rotational=machine.text(folder / "queue/rotational") == "1", transport=transport, removable=removable,
        read_only=read_only, nvme=at, ata=ident, is_busy=bool(used),
        problem=_problem(machine, name, size, read_only, used),
        **_identity(machine, folder, ident),
    )  # fmt: skip
    supported = methods.supported(at, ident, discards=_discards(machine, folder), zeroes=_zeroes(machine, folder))
    return dataclasses.replace(made, methods=supported)


def _problem(machine: Machine, name: str, size: int, read_only: bool, used: str) -> str:
    if used:
        return f"The machine itself uses the disk: {used}."
    if read_only:
        return "The disk is read-only."
    if not size:
        return "The disk reports no capacity. It has probably failed."
    try:
        machine.node(name)
    except DiskError as error:
        return error.message
    return ""


def _identity(machine: Machine, folder: Path, ident: ata.Features | None) -> dict[str, Any]:
    """Return serial number, WWN, model, vendor and SCSI address. The ATA names are the complete ones."""
    device = folder / "device"
    serial = next(
        filter(None, (identity(machine.text(one)) for one in (device / "serial", folder / "serial"))), ""
    ) or identity(_page(machine, device / "vpd_pg80"))
    wwn = next(filter(None, (machine.text(one) for one in (folder / "wwid", device / "wwid"))), "")
    vendor = known(machine.text(device / "vendor"))
    place = machine.inside(device)
    return {
        "serial": (ident.serial if ident else "") or serial,
        "wwn": (ident.wwn if ident else "") or identity(wwn),
        "model": (ident.model if ident else "") or known(machine.text(device / "model")),
        # A virtual disk has the number of a PCI vendor there.
        "vendor": "" if vendor == "ATA" or vendor.startswith("0x") else vendor[:100],
        "hctl": place.name if place is not None and re.fullmatch(r"\d+(:\d+){3}", place.name) else "",
    }


def _page(machine: Machine, path: Path) -> str:
    """Return the text of a page of vital product data, which begins with four bytes of type and length."""
    try:
        with open(machine.root / path, "rb") as opened:
            return opened.read(256)[4:].decode("ascii", "replace")
    except OSError:
        return ""


_TRANSPORTS = (
    ("/usb", "usb"), ("/ata", "sata"), ("/end_device-", "sas"), ("/session", "iscsi"), ("/rport-", "fc"),
    ("/virtio", "virtio"),
)  # fmt: skip


def _transport(machine: Machine, name: str, folder: Path) -> str:
    for prefix, transport in (("nvme", "nvme"), ("vd", "virtio"), ("xvd", "xen"), ("mmc", "mmc"), ("pmem", "nvdimm")):
        if name.startswith(prefix):
            return transport
    place = str(machine.inside(folder / "device") or folder)
    found = next((transport for part, transport in _TRANSPORTS if part in place), "scsi")
    # A SATA disk behind a SAS controller calls its vendor "ATA".
    return "sata" if found in ("sas", "scsi") and machine.text(folder / "device/vendor") == "ATA" else found


def _discards(machine: Machine, folder: Path) -> bool:
    return machine.number(folder / "queue/discard_max_bytes") > 0


def _zeroes(machine: Machine, folder: Path) -> bool:
    """Return whether the kernel says that discarded blocks read zero. Since Linux 4.12 it never says so."""
    return machine.text(folder / "queue/discard_zeroes_data") == "1"


class _Uses:
    """The uses of the machine's disks: mounts, swap space, volumes on top of them."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._by_number: dict[str, str] = {}
        self._by_name: dict[str, str] = {}
        for line in machine.text("proc/self/mountinfo").splitlines():
            words = line.split()
            if len(words) > 6 and "-" in words[6:]:
                source = words[words.index("-", 6) + 2 :][:1]
                use = f"is mounted at {words[4][:100]}"
                self._by_number.setdefault(words[2], use)
                self._by_name.setdefault("".join(source), use)
        for line in machine.text("proc/swaps").splitlines()[1:]:
            self._by_name["".join(line.split()[:1])] = "is swap space"

    def of(self, name: str, folder: Path) -> str:
        """Return one use of a disk or of its partitions, or an empty string."""
        parts = [
            one for one in self._machine.names(folder) if (self._machine.root / folder / one / "partition").exists()
        ]
        for one, place in ((name, folder), *((part, folder / part) for part in parts)):
            number = self._machine.text(place / "dev")
            use = self._by_name.get(f"/dev/{one}") or (self._by_number.get(number) if number else "")
            if use:
                return f"{one} {use}"
            if holders := self._machine.names(place / "holders"):
                return f"{one} is part of {holders[0]}"
        return ""


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [(0, int(one), "") if one.isdigit() else (1, 0, one) for one in re.findall(r"\d+|\D+", name)]
