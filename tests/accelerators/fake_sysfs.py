"""A program that stands for the kernel behind a captured tree: it creates VFs and binds drivers when files are written.

It is a double: no machine here has a card with SR-IOV, or a device whose driver can be exchanged. The scripts that
write to the files are the real ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CARD, OTHER = "0000:3b:00.0", "0000:3b:00.1"
"""Two ports of a card with SR-IOV, in an IOMMU group each."""
DISK = "0000:5e:00.0"
"""An NVMe disk."""
_VF = "0000:3b:02.{}"
DRIVERS = {"ice": "8086:159b", "iavf": "8086:1889", "nvme": "144d:a808", "vfio-pci": "", "broken": ""}
"""Drivers of the host, and the device that each drives. `vfio-pci` takes any, if it is the override."""


def write(root: Path) -> None:
    """Write the tree of a machine with a network card and a disk."""
    for name in DRIVERS:
        folder = root / "sys/bus/pci/drivers" / name
        folder.mkdir(parents=True)
        (folder / "unbind").write_text("")
    (root / "sys/bus/pci/drivers_probe").write_text("")
    (root / "sys/bus/pci/devices").mkdir()
    (root / "sys/class/block").mkdir(parents=True)
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text("21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n")
    for group, address in enumerate((CARD, OTHER), 20):
        function(root, address, DRIVERS["ice"], "020000", "ice", group)
        (root / "sys/bus/pci/devices" / address / "sriov_totalvfs").write_text("8\n")
        (root / "sys/bus/pci/devices" / address / "sriov_numvfs").write_text("0\n")
    function(root, DISK, DRIVERS["nvme"], "010802", "nvme", 30)


def function(root: Path, address: str, ids: str, pci_class: str, driver: str, group: int) -> Path:
    """Add a PCI function."""
    folder = root / "sys/devices/pci0000:3a" / address
    folder.mkdir(parents=True, exist_ok=True)
    vendor, device = ids.split(":")
    values = {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": f"0x{pci_class}", "driver_override": "(null)"}
    for name, value in values.items():
        (folder / name).write_text(f"{value}\n")
    at = root / "sys/bus/pci/devices" / address
    at.symlink_to(os.path.relpath(folder, at.parent))
    members = root / f"sys/kernel/iommu_groups/{group}/devices"
    members.mkdir(parents=True, exist_ok=True)
    (members / address).symlink_to(os.path.relpath(folder, members))
    (folder / "iommu_group").symlink_to(os.path.relpath(members.parent, folder))
    if driver:
        bind(root, address, driver)
    return folder


def bind(root: Path, address: str, driver: str) -> None:
    """Bind a driver, or none."""
    folder = root / "sys/bus/pci/devices" / address
    (folder / "driver").unlink(missing_ok=True)
    if driver:
        (folder / "driver").symlink_to(
            os.path.relpath((root / "sys/bus/pci/drivers" / driver).resolve(), folder.resolve())
        )


def disk(root: Path, name: str, number: str, below: str = DISK) -> Path:
    """Add a disk of a function."""
    folder = root / "sys/devices/pci0000:3a" / below / "nvme/nvme0" / name
    (folder / "holders").mkdir(parents=True)
    (folder / "dev").write_text(f"{number}\n")
    at = root / "sys/class/block" / name
    at.symlink_to(os.path.relpath(folder, at.parent))
    return folder


def driver_of(root: Path, address: str) -> str:
    """The driver of a function, or an empty string."""
    link = root / "sys/bus/pci/devices" / address / "driver"
    return os.readlink(link).rpartition("/")[2] if link.is_symlink() else ""


def vfs_of(root: Path, address: str) -> list[str]:
    """The VFs of a card."""
    links = sorted((root / "sys/bus/pci/devices" / address).glob("virtfn*"))
    return [os.readlink(link).rpartition("/")[2] for link in links]


@contextmanager
def kernel(root: Path, *, most: int = 8) -> Iterator[None]:
    """Run the program. It creates at most `most` VFs, whatever the card offers."""
    program = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import serve; serve({str(root)!r}, {most})"], stdout=subprocess.PIPE
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline(), "the program did not start"
        yield
    finally:
        program.kill()
        program.communicate()


def serve(folder: str, most: int) -> None:
    """React to what is written to the tree, until the process is killed."""
    root = Path(folder)
    print("running", flush=True)
    while True:
        for at in sorted((root / "sys/bus/pci/devices").iterdir()):
            _count(root, at, most)
        for unbind in (root / "sys/bus/pci/drivers").glob("*/unbind"):
            if address := _taken(unbind):
                bind(root, address, "")
        if address := _taken(root / "sys/bus/pci/drivers_probe"):
            _probe(root, address)
        time.sleep(0.01)


def _taken(file: Path) -> str:
    try:
        word = file.read_text().strip()
        if word:
            file.write_text("")
    except OSError:
        return ""
    return word


def _probe(root: Path, address: str) -> None:
    at = root / "sys/bus/pci/devices" / address
    ids = ":".join((at / name).read_text().strip()[2:] for name in ("vendor", "device"))
    override = (at / "driver_override").read_text().strip()
    own = next((name for name, of in DRIVERS.items() if of == ids), "")
    chosen = own if override in ("", "(null)") else override
    # A probe does nothing to a device that has a driver, and drivers refuse devices that are not theirs.
    if chosen and chosen in ("vfio-pci", own) and not driver_of(root, address):
        bind(root, address, chosen)


def _count(root: Path, card: Path, most: int) -> None:
    try:
        wanted = int((card / "sriov_numvfs").read_text())
    except (OSError, ValueError):
        return
    there = sorted(card.glob("virtfn*"))
    if wanted == len(there):
        return
    if wanted == 0:
        for link in there:
            address = os.readlink(link).rpartition("/")[2]
            link.unlink()
            (root / "sys/bus/pci/devices" / address).unlink()
            for member in root.glob(f"sys/kernel/iommu_groups/*/devices/{address}"):
                member.unlink()
            shutil.rmtree(card.resolve().parent / address)
    elif not there and wanted <= most:
        for n in range(wanted):
            folder = function(root, _VF.format(n), DRIVERS["iavf"], "020000", "iavf", 40 + n)
            (folder / "physfn").symlink_to(f"../{card.name}")
            (card / f"virtfn{n}").symlink_to(f"../{folder.name}")
