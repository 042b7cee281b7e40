"""A machine that QEMU emulates, as a Redfish system of sushy-tools' application.

    with qemu_machine(folder, "127.9.9.1") as machine, redfish_double(machine) as double:
        session = Redfish().open(double.access(), double.credential(), deadline=30)

The BMC switches a real process: media are fetched from their addresses and inserted as drives, the boot override holds
for one start of the firmware, and a graceful shutdown presses the power button. The machine has an NVMe and a SATA
disk (files in the folder), a TPM where swtpm is installed, and a network that ends in QEMU: `address:port` of this
machine leads to its port 22, and the guest reaches `GUEST_SITE`, which leads to a port of 127.0.0.1, and nothing else.
QEMU's own DHCP and TFTP server serves the folder `tftp` to a machine that boots by PXE.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sushy_tools import error

from tests.blueprints.host_peers import free_port
from tests.bmc.machine import Machine
from tests.metal.qmp import QmpError, monitor

ACCEL = os.environ.get("ACCEL", "tcg,thread=multi")
GUEST_SITE = "10.0.2.100"
"""The address at which the guest reaches the port `site` of 127.0.0.1, on its port 80."""
LARGEST_MEDIUM = 1 << 30
OVMF = (Path("/usr/share/OVMF/OVMF_CODE_4M.secboot.fd"), Path("/usr/share/OVMF/OVMF_VARS_4M.ms.fd"))
"""UEFI firmware, and its variables with the keys of Microsoft, which has signed Debian's shim: Secure Boot is on."""
_FIRST, _LAST = 1, 90
_DEVICES = {"Cd": "cd", "Pxe": "port"}
"""The device of each boot source that can be first once."""
_SERIAL = {"nvme": "NVME-DRYDOCK-1", "sata": "SATA-DRYDOCK-1"}
_RELAY = Path(__file__).with_name("relay.py")


@dataclass(kw_only=True, eq=False)
class Qemu:
    """How a machine is built. Sizes are in MiB. `site` is a port of 127.0.0.1 that the guest may reach."""

    folder: Path
    address: str
    port: int
    memory: int = 1536
    disks: dict[str, int] = field(default_factory=lambda: {"nvme": 64, "sata": 64})
    site: int = 0
    uefi: bool = False

    @property
    def tftp(self) -> Path:
        """The folder of QEMU's boot server. A machine that boots by PXE starts with `boot.ipxe` in it."""
        return self.folder / "tftp"

    def disk(self, name: str) -> Path:
        """The file that is the disk `nvme` or `sata`."""
        return self.folder / f"{name}.raw"

    @property
    def factory(self) -> Path:
        """A folder in which `tests.blueprints.tpm_peers.manufacture` may have made the TPM."""
        return self.folder / "factory"

    @property
    def tpm(self) -> Path:
        """The state of the TPM."""
        return self.factory / "state" if self.factory.exists() else self.folder / "tpm"

    @property
    def line(self) -> Path:
        """The socket of the serial console, for one caller at a time."""
        return self.folder / "line"

    @property
    def console(self) -> str:
        """What the machine has written to its serial console, of all starts."""
        path = self.folder / "console"
        return path.read_text(errors="replace") if path.exists() else ""


class QemuMachine(Machine):
    """The machine, as the BMC sees it."""

    def __init__(self, qemu: Qemu, **about: Any) -> None:
        self.qemu = qemu
        self._process: subprocess.Popen[bytes] | None = None
        self._tpm: subprocess.Popen[bytes] | None = None
        super().__init__(**about)

    @property
    def power_state(self) -> str:  # type: ignore[override]
        """Read from the process, which also ends when its guest switches itself off."""
        return "On" if self._process is not None and self._process.poll() is None else "Off"

    @power_state.setter
    def power_state(self, state: str) -> None:
        """Ignore what the base class assumes."""

    def reset(self, wanted: str) -> None:
        if wanted not in self.resets:
            raise error.BadRequest(f"The value {wanted} for the property ResetType is not in the list of values.")
        with self._lock:
            self.asked.append(wanted)
            if wanted in ("On", "ForceOn"):
                self._switch_on()
            elif wanted == "ForceOff":
                self._switch_off()
            elif wanted in ("ForceRestart", "PowerCycle"):
                self._switch_off()
                self._switch_on()
            elif self.power_state == "On":
                self._ask("inject-nmi" if wanted == "Nmi" else "system_powerdown")

    def force(self, state: str) -> None:
        with self._lock:
            self._switch_on() if state == "On" else self._switch_off()

    def stop(self) -> None:
        super().stop()
        with self._lock:
            self._switch_off()

    def media_changed(self, device: str) -> None:
        """Take an ejected medium out of the running machine. An inserted one is there from the next start."""
        with self._lock:
            if self.power_state == "On" and not self.media[device].get("Inserted"):
                with contextlib.suppress(QmpError), monitor(self._socket) as qmp:
                    if device == "Cd":
                        qmp.execute("eject", id="cd", force=True)
                    else:
                        qmp.execute("device_del", id="usb")

    @property
    def _socket(self) -> Path:
        return self.qemu.folder / "monitor"

    def _ask(self, command: str) -> None:
        with monitor(self._socket) as qmp:
            qmp.execute(command)

    def _switch_off(self) -> None:
        """Cut the power."""
        for process in (self._process, self._tpm):
            if process is not None:
                process.kill()
                process.wait()
        self._process = self._tpm = None

    def _switch_on(self) -> None:
        if self.power_state == "On":
            return
        self._switch_off()  # what is left of a machine that switched itself off
        self._start()
        chosen = self.boots[-1]
        first = chosen["BootSourceOverrideTarget"]
        media = {slot: self._fetched(slot, url) for slot, url in chosen["media"].items()}
        self._socket.unlink(missing_ok=True)
        words = ["nice", "-n", "19", *self._words(media, first)]
        log = (self.qemu.folder / "qemu.log").open("ab")
        with log:
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if first in _DEVICES and self.boot["BootSourceOverrideEnabled"] != "Continuous":
            # Firmware reads the order at each reset, so the next one boots from the disk.
            device = f"/machine/peripheral/{_DEVICES[first]}"
            with monitor(self._socket) as qmp:
                qmp.execute("qom-set", path=device, property="bootindex", value=_LAST + (first == "Pxe"))

    def _fetched(self, slot: str, url: str) -> Path:
        """Fetch an inserted image, as BMCs do when the machine reads it."""
        target = self.qemu.folder / f"medium-{slot.lower()}"
        with urllib.request.urlopen(url, timeout=60) as answer, target.open("wb") as written:
            left = LARGEST_MEDIUM
            while chunk := answer.read(min(1 << 20, left)):
                written.write(chunk)
                left -= len(chunk)
        return target

    def _words(self, media: dict[str, Path], first: str) -> list[str]:
        it = self.qemu
        machine = "q35,smm=on" if it.uefi else "q35"
        log = f"logfile={it.folder / 'console'},logappend=on"
        words = [
            "qemu-system-x86_64", "-machine", machine, "-accel", ACCEL, "-cpu", "max", "-smp", "2",
            "-m", str(it.memory), "-nodefaults", "-display", "none", "-uuid", self.uuid, "-device", "virtio-rng-pci",
            "-smbios", f"type=1,manufacturer={self.vendor},product={self.model},serial={self.serial}",
            "-qmp", f"unix:{self._socket},server=on,wait=off",
            "-chardev", f"socket,id=console,path={it.line},server=on,wait=off,{log}",
            "-serial", "chardev:console",
        ]  # fmt: skip
        return [*words, *self._firmware(), *self._drives(media, first), *self._network(first), *self._tpm_words()]

    def _firmware(self) -> list[str]:
        if not self.qemu.uefi:
            return []
        code, variables = OVMF
        own = self.qemu.folder / "variables"
        if not own.exists():
            shutil.copy(variables, own)
        # Variables that only the firmware can change, in the mode of the processor that systems do not see.
        return ["-global", "driver=cfi.pflash01,property=secure,value=on", "-global", "ICH9-LPC.disable_s3=1",
                "-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={code}",
                "-drive", f"if=pflash,unit=1,format=raw,file={own}"]  # fmt: skip

    def _drives(self, media: dict[str, Path], first: str) -> list[str]:
        words = ["-device", "ahci,id=ahci", "-device", "qemu-xhci,id=xhci"]
        if cd := media.get("Cd"):
            words += ["-drive", f"if=none,id=cd-image,media=cdrom,readonly=on,format=raw,file={cd}"]
            order = f",bootindex={_FIRST if first == 'Cd' else _LAST}"
            words += ["-device", f"ide-cd,id=cd,bus=ahci.0,drive=cd-image{order}"]
        if usb := media.get("Usb"):
            words += ["-drive", f"if=none,id=usb-image,readonly=on,format=raw,file={usb}"]
            words += ["-device", "usb-storage,id=usb,bus=xhci.0,drive=usb-image,removable=on"]
        for number, (name, mib) in enumerate(self.qemu.disks.items()):
            path = self.qemu.disk(name)
            if not path.exists():
                with path.open("wb") as made:
                    made.truncate(mib << 20)
            words += ["-drive", f"if=none,id={name}-image,format=raw,discard=unmap,file={path}"]
            kind = "nvme,id=nvme" if name == "nvme" else f"ide-hd,id={name},bus=ahci.{number + 1}"
            order = 10 + number
            words += ["-device", f"{kind},drive={name}-image,serial={_SERIAL[name]},bootindex={order}"]
        return words

    def _network(self, first: str) -> list[str]:
        it = self.qemu
        net = f"user,id=net,restrict=on,hostfwd=tcp:{it.address}:{it.port}-:22"
        if it.tftp.exists():
            net += f",tftp={it.tftp},bootfile=boot.ipxe"
        if it.site:
            net += f",guestfwd=tcp:{GUEST_SITE}:80-cmd:{sys.executable} {_RELAY} {it.site}"
        order = f",bootindex={_FIRST if first == 'Pxe' else _LAST + 1}" if it.tftp.exists() else ""
        return ["-netdev", net, "-device", f"virtio-net-pci,id=port,netdev=net,mac={self.macs[0]}{order}"]

    def _tpm_words(self) -> list[str]:
        """Start the TPM, whose state stays as that of a real one does."""
        if not shutil.which("swtpm"):
            return []
        state, control = self.qemu.tpm, self.qemu.folder / "tpm.socket"
        state.mkdir(exist_ok=True)
        control.unlink(missing_ok=True)
        words = ["swtpm", "socket", "--tpm2", "--tpmstate", f"dir={state}", "--ctrl", f"type=unixio,path={control}"]
        self._tpm = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)  # fmt: skip
        _until(control.exists)
        return ["-chardev", f"socket,id=tpm,path={control}", "-tpmdev", "emulator,id=tpm0,chardev=tpm",
                "-device", "tpm-crb,tpmdev=tpm0"]  # fmt: skip


def _until(holds: Any) -> None:
    import time

    end = time.monotonic() + 30
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError("the TPM does not start")
        time.sleep(0.05)


@contextlib.contextmanager
def qemu_machine(
    folder: Path,
    address: str,
    *,
    port: int = 0,
    site: int = 0,
    uefi: bool = False,
    disks: dict[str, int] | None = None,
    **about: Any,
) -> Iterator[QemuMachine]:
    """A machine that is off. `about` are the fields of Machine, such as its serial number."""
    folder.mkdir(parents=True, exist_ok=True)
    if re.search(r"[,\s]", str(folder)):
        raise ValueError("the path of the folder would need quoting in QEMU's options")
    qemu = Qemu(folder=folder, address=address, port=port or free_port(address), site=site, uefi=uefi)
    qemu.disks = disks or qemu.disks
    machine = QemuMachine(qemu, **{"macs": ("52:54:00:0d:0c:01",), **about})
    try:
        yield machine
    finally:
        machine.stop()
