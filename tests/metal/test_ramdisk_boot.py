"""The ramdisk boots in QEMU by way of a Redfish BMC, and erases and writes the disks of the machine."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blueprints.bmc.contract import Bmc
from blueprints.bmc.redfish import Redfish
from blueprints.bmc.values import BootDevice, BootOverride, PowerAction, PowerState
from interfaces.keys import new_key_pair
from tests.agent import disk_images
from tests.blueprints.host_peers import WORKER
from tests.bmc.double import RedfishDouble, redfish_double
from tests.metal import ramdisk
from tests.metal.qemu_machine import GUEST_SITE, QemuMachine, qemu_machine
from tests.peers import require

CANARY = b"a secret of the tenant before "
SECRET = "the-secret-of-this-boot"
MIB = 1 << 20


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A folder that a web server offers, with the ramdisk, and the server's port."""
    ramdisk.require()
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "ramdisk.iso").symlink_to(ramdisk.built() / "ramdisk.iso")
    with ramdisk.site(folder) as port:
        yield folder, port


def opened(double: RedfishDouble) -> Any:
    driver = Redfish()
    access = driver.Access.model_validate(double.access())
    return driver.open(access, double.credential(), deadline=60)


def boot_ramdisk(bmc: Bmc, port: int) -> None:
    """As the kind does: both media, the virtual CD once, and power."""
    for slot, name in (("Usb", "medium.iso"), ("Cd", "ramdisk.iso")):
        bmc.insert(slot, f"http://127.0.0.1:{port}/{name}")  # type: ignore[attr-defined]
    bmc.set_boot(BootOverride(device=BootDevice.MEDIUM))  # type: ignore[attr-defined]
    bmc.switch(PowerAction.ON)


def boot_over_network(bmc: Bmc, port: int) -> None:
    """As the kind does for `boot: network`: the medium with the settings, PXE once, and power."""
    bmc.insert("Usb", f"http://127.0.0.1:{port}/medium.iso")  # type: ignore[attr-defined]
    bmc.set_boot(BootOverride(device=BootDevice.NETWORK))  # type: ignore[attr-defined]
    bmc.switch(PowerAction.ON)


def booted(
    machine: QemuMachine, double: RedfishDouble, files: tuple[Path, int], boot: Any = boot_ramdisk
) -> ramdisk.Guest:
    host, control = new_key_pair("host"), new_key_pair("control")
    (files[0] / "medium.iso").write_bytes(ramdisk.medium(SECRET, host, control))
    with opened(double) as bmc:
        boot(bmc, files[1])
        assert bmc.power() is PowerState.ON
    guest = ramdisk.Guest(machine, host, control)
    guest.wait()
    return guest


def until_off(machine: QemuMachine) -> None:
    end = time.monotonic() + 300
    while machine.power_state == "On":
        assert time.monotonic() < end, machine.qemu.console[-2000:]
        time.sleep(0.5)


def plant(machine: QemuMachine) -> None:
    """Write a former tenant's text to all over the disks, and a file system that pretends to be the medium."""
    for name, mib in machine.qemu.disks.items():
        with machine.qemu.disk(name).open("wb") as disk:
            disk.truncate(mib * MIB)
            for at in range(1, mib, 7):
                disk.seek(at * MIB)
                disk.write(CANARY * 100)
    with machine.qemu.disk("sata").open("r+b") as disk:
        host, control = new_key_pair("forged"), new_key_pair("forged")
        disk.write(ramdisk.medium("a-forged-secret", host, control))


def holds(machine: QemuMachine, name: str, text: bytes) -> bool:
    return text in machine.qemu.disk(name).read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(2400, func_only=False)
def test_it_boots_once_erases_and_writes(tmp_path: Path, files: tuple[Path, int]) -> None:
    address = f"127.9.9.{WORKER + 1}"
    with qemu_machine(tmp_path / "machine", address, site=files[1]) as machine, redfish_double(machine) as double:
        plant(machine)
        guest = booted(machine, double, files)
        assert guest.agent("boot", "show") == {"boot": "boot-1", "secret": SECRET}
        _is_closed(guest)
        _lists(guest)
        _erases(guest)
        _writes(guest, files[0])
        _ends_as_it_was_asked(guest, double)


def _is_closed(guest: ramdisk.Guest) -> None:
    """Nothing but the SSH server listens, and it has one host key and no password."""
    listening = {line.split()[4] for line in guest.check("ss -Hltun").splitlines() if "0.0.0.0:68" not in line}
    assert {one.rpartition(":")[2] for one in listening} == {"22"}, listening
    assert guest.check("ls /etc/ssh/ssh_host_*").split() == ["/etc/ssh/ssh_host_ed25519_key"]
    assert "passwordauthentication no" in guest.check("/usr/sbin/sshd -T")
    assert guest.check("cut -d: -f2 /etc/shadow").split() == ["*"]


def _lists(guest: ramdisk.Guest) -> None:
    found = {one["name"]: one for one in guest.agent("disks", "list")["disks"]}
    assert {"nvme0n1", "sda"} <= set(found)
    assert (found["nvme0n1"]["serial"], found["nvme0n1"]["size_bytes"]) == ("NVME-DRYDOCK-1", 64 * MIB)
    assert found["sda"]["serial"] == "SATA-DRYDOCK-1"
    assert found["nvme0n1"]["transport"] == "nvme"
    assert not any(one["problem"] for one in found.values() if not one["removable"]), found


def _erases(guest: ramdisk.Guest) -> None:
    machine = guest.machine
    assert holds(machine, "nvme", CANARY)
    assert holds(machine, "sata", CANARY)
    guest.agent("disks", "erase", "--job", "erase-1", request={"disks": [], "samples": 16})
    state = guest.finished("erase-1")
    assert state["state"] == "done", state
    disks = {one["name"]: one for one in state["result"]["disks"]}
    assert {name: one["verified"] for name, one in disks.items()} == {"nvme0n1": True, "sda": True}, disks
    guest.check("sync")
    assert not holds(machine, "nvme", CANARY)
    assert not holds(machine, "sata", CANARY)
    assert not holds(machine, "sata", b"DRYDOCK")


def _writes(guest: ramdisk.Guest, folder: Path) -> None:
    """An image is fetched by the guest, checked, and written to the disk that a hint names."""
    content = disk_images.raw(folder, mib=8)
    (folder / "image.zst").write_bytes(disk_images.zst(content))
    digest = hashlib.sha256((folder / "image.zst").read_bytes()).hexdigest()
    request = {
        "url": f"http://{GUEST_SITE}/image.zst", "sha256": digest, "format": "raw.zst",
        "disk": {"serial": "NVME-DRYDOCK-1", "min_size_bytes": MIB}, "seed": "", "ca": "",
    }  # fmt: skip
    guest.agent("disks", "write", "--job", "write-1", request=request)
    state = guest.finished("write-1")
    assert state["state"] == "done", state
    assert state["result"]["disk"]["name"] == "nvme0n1"
    guest.check("sync")
    with guest.machine.qemu.disk("nvme").open("rb") as disk:
        disk.seek(MIB)
        assert disk.read(MIB) == content[MIB : 2 * MIB]


def _ends_as_it_was_asked(guest: ramdisk.Guest, double: RedfishDouble) -> None:
    """The power button ends the ramdisk, the override held for one start, and the media can be ejected."""
    machine = guest.machine
    with opened(double) as bmc:
        for one in bmc.media():
            if one.inserted:
                bmc.eject(one.slot)
        assert bmc.boot() is None
        bmc.switch(PowerAction.SHUTDOWN)
    until_off(machine)
    with opened(double) as bmc:
        assert bmc.power() is PowerState.OFF
        assert not [one for one in bmc.media() if one.inserted]


@pytest.mark.metal
@pytest.mark.timeout(1700, func_only=False)
def test_it_boots_by_uefi_with_secure_boot_and_has_a_tpm_and_boot_entries(
    tmp_path: Path, files: tuple[Path, int]
) -> None:
    require("ovmf")
    address = f"127.9.9.{WORKER + 1}"
    with qemu_machine(tmp_path / "machine", address, uefi=True) as machine, redfish_double(machine) as double:
        plant(machine)
        guest = booted(machine, double, files)
        assert guest.agent("boot", "show")["secret"] == SECRET
        assert guest.check("od -An -j4 -tu1 /sys/firmware/efi/efivars/SecureBoot-*").strip() == "1"
        assert "BootOrder" in guest.check("efibootmgr")
        guest.check("test -c /dev/tpmrm0 && tpm2_getcap properties-fixed >/dev/null")
        guest.agent("disks", "erase", "--job", "erase-1", request={"disks": [], "samples": 16})
        state = guest.finished("erase-1")
        assert all(one["verified"] for one in state["result"]["disks"]), state
        assert (state["result"]["tpm"], state["result"]["boot_entries_problem"]) == ("cleared", ""), state["result"]


@pytest.mark.metal
@pytest.mark.timeout(1700, func_only=False)
def test_it_boots_by_pxe_from_somebody_elses_boot_server(tmp_path: Path, files: tuple[Path, int]) -> None:
    """The boot server has kernel and files of the ramdisk, and no settings: these are on the medium."""
    for name in ("vmlinuz", "initramfs"):
        (files[0] / name).symlink_to(ramdisk.built() / name)
    address, site = f"127.9.9.{WORKER + 1}", f"http://{GUEST_SITE}"
    with (
        qemu_machine(tmp_path / "machine", address, site=files[1]) as machine,
        redfish_double(machine) as double,
    ):
        plant(machine)
        machine.qemu.tftp.mkdir()
        steps = ("#!ipxe", f"kernel {site}/vmlinuz console=ttyS0,115200n8", f"initrd {site}/initramfs", "boot")
        (machine.qemu.tftp / "boot.ipxe").write_text("\n".join(steps) + "\n")
        guest = booted(machine, double, files, boot_over_network)
        assert guest.agent("boot", "show")["secret"] == SECRET
        with opened(double) as bmc:
            assert bmc.boot() is None
            bmc.switch(PowerAction.OFF)
        until_off(machine)


@pytest.mark.metal
@pytest.mark.timeout(1700, func_only=False)
def test_without_a_medium_nothing_listens(tmp_path: Path, files: tuple[Path, int]) -> None:
    """Not even with the medium of somebody else on the disk."""
    address = f"127.9.9.{WORKER + 1}"
    with qemu_machine(tmp_path / "machine", address) as machine, redfish_double(machine) as double:
        plant(machine)
        with opened(double) as bmc:
            bmc.insert("Cd", f"http://127.0.0.1:{files[1]}/ramdisk.iso")
            bmc.set_boot(BootOverride(device=BootDevice.MEDIUM))
            bmc.switch(PowerAction.ON)
        end = time.monotonic() + ramdisk.PATIENCE
        while "looking for a medium" not in machine.qemu.console:
            assert time.monotonic() < end, machine.qemu.console[-2000:]
            time.sleep(1)
        time.sleep(30)
        guest = ramdisk.Guest(machine, new_key_pair("host"), new_key_pair("control"))
        assert guest.ssh("true").returncode == 255
        assert "the SSH server starts" not in machine.qemu.console
        assert "cannot be used" not in machine.qemu.console


@pytest.mark.metal
@pytest.mark.timeout(1700)
def test_two_builds_are_equal_bit_for_bit(tmp_path: Path) -> None:
    ramdisk.require()
    first = json.loads((ramdisk.built() / "manifest.json").read_text())
    second = ramdisk.build(tmp_path / "again")
    assert second["packages"] == first["packages"], "the mirror has changed meanwhile"
    assert second["files"] == first["files"]
