"""What runs on a machine of the double: Drydock's ramdisk, or the system that is on its disk.

    with guests(folder, "127.9.8.1") as guest, redfish_double(Machine(on_power=guest.switched)) as double:
        guest.machine = double.machine

The disks are regular files, and both systems are SSH servers of this machine. The ramdisk is as a real one: it gets its
keys from the second medium, which it fetches from Drydock, and runs `drydock-agent` on the disks. The deployed system
has the host key and the control account of the seed that was written to the disk.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import shlex
import shutil
import subprocess
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pycdlib

from blueprints.bmc.values import PowerState
from interfaces.keys import KeyPair, new_key_pair
from tests.agent.disk_machine import DiskMachine
from tests.agent.forks import program, serving
from tests.blueprints import host_peers
from tests.bmc.machine import Machine

log = logging.getLogger(__name__)

RAMDISK = "http://127.0.0.1:9/drydock-ramdisk.iso"
"""Address of the ramdisk's image. The double inserts it, and fetches nothing from it."""
_FORCED = """#!/bin/sh
# Drydock runs commands with a PATH of its own; the ramdisk of this test has its agent elsewhere.
exec /bin/sh -c "$(printf %s "$SSH_ORIGINAL_COMMAND" | sed 's#PATH=/usr/local/sbin:#PATH={bin}:/usr/local/sbin:#')"
"""
_AGENT = """#!/bin/sh
PATH={tools}:$PATH DISK_DOUBLES={doubles} exec {program} "$@" --root {root}
"""


@dataclass(eq=False)
class Guests:
    """The systems of one machine. `runs` is the one that runs: `ramdisk`, `disk`, or an empty string."""

    folder: Path
    address: str
    control: KeyPair
    port: int
    disks: DiskMachine
    machine: Machine | None = None
    ignores_override: bool = False
    """Whether the firmware boots from the disk although the virtual CD was chosen."""
    hangs: bool = False
    """Whether the ramdisk does not get as far as its network."""
    boots: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _sshd: subprocess.Popen[bytes] | None = None
    _runs: str = ""
    _switching: Any = field(default_factory=threading.RLock)

    @property
    def runs(self) -> str:
        """Which system runs, once a change of power has had its effect."""
        with self._switching:
            return self._runs

    def registration(self) -> dict[str, Any]:
        """As an operator registers a machine whose keys nobody knows yet."""
        return {"address": self.address, "port": self.port, "user": "root"}

    def switched(self, state: PowerState) -> None:
        """Start or end what runs on the machine, as its BMC has switched it."""
        with self._switching:
            if state is PowerState.OFF:
                self.stop()
            elif state is PowerState.ON:
                try:
                    self._start()
                except Exception as error:
                    log.exception("nothing boots")
                    self.problems.append(f"{type(error).__name__}: {error}")

    def _start(self) -> None:
        assert self.machine is not None
        chosen = self.machine.boots[-1]
        target, media = chosen["BootSourceOverrideTarget"], list(chosen["media"].values())
        over_network = target in ("Pxe", "UefiHttp") and len(media) == 1
        if (over_network or (target == "Cd" and RAMDISK in media)) and not self.ignores_override:
            self._boot_ramdisk(next(one for one in media if one != RAMDISK))
        else:
            self._boot_disk()

    def _boot_ramdisk(self, url: str) -> None:
        self.boots.append("ramdisk")
        if self.hangs:
            return
        with urllib.request.urlopen(url, timeout=20) as answer:
            files = iso_files(answer.read())
        medium = self.folder / "medium"
        shutil.rmtree(medium, ignore_errors=True)
        medium.mkdir()
        for name, content in files.items():
            (medium / name).write_bytes(content)
        shutil.rmtree(self.disks.root / "run", ignore_errors=True)
        (self.disks.root / "run").mkdir()
        self.disks.run("boot", "apply", str(medium))
        root = self.disks.root
        private, keys = root / "etc/ssh/ssh_host_ed25519_key", root / "root/.ssh/authorized_keys"
        self._serve(private.read_text(), keys.read_text(), f"ForceCommand {self.folder}/forced\n")
        self._runs = "ramdisk"

    def _boot_disk(self) -> None:
        seed = self.seed()
        self.boots.append("disk")
        if seed is None:
            return
        said = json.loads(seed["user-data"].decode().removeprefix("#cloud-config\n"))
        keys = "".join(f"{key}\n" for user in said["users"] for key in user.get("ssh_authorized_keys", []))
        home = self.folder / "home"
        home.mkdir(mode=0o700, exist_ok=True)
        self._serve(said["ssh_keys"]["ed25519_private"], keys, "", home)
        self._runs = "disk"

    def _serve(self, host_key: str, keys: str, more: str, home: Path | None = None) -> None:
        (self.folder / "host").unlink(missing_ok=True)
        (self.folder / "host").touch(mode=0o600)
        (self.folder / "host").write_text(host_key)
        (self.folder / "control").write_text(keys)
        config = host_peers.sshd_config(self.folder, self.address, self.port, more=more, home=home)
        (self.folder / "config").write_text(config)
        self._sshd = host_peers.start_sshd(self.folder, self.address, self.port)

    def stop(self) -> None:
        """End what runs, with the jobs of the ramdisk, as a machine that loses its power."""
        with self._switching:
            if self._sshd is not None:
                pair = KeyPair(private="", public="")
                host_peers.Server(self.address, self.port, self.folder, pair, self.control, self._sshd).stop()
            self._sshd, self._runs = None, ""
            self.disks.stop_all()

    def seed(self) -> dict[str, bytes] | None:
        """Return the files of the seed on a disk, or None if no disk has a system."""
        for disk in sorted((self.disks.root / "dev").iterdir()):
            said = subprocess.run(["sfdisk", "--json", disk], capture_output=True, check=False)
            parts = json.loads(said.stdout)["partitiontable"].get("partitions", []) if said.returncode == 0 else []
            for part in parts[-1:]:
                with disk.open("rb") as opened:
                    opened.seek(512 * part["start"])
                    content = opened.read(512 * part["size"])
                if content[0x8001:0x8006] == b"CD001":
                    return iso_files(content)
        return None

    def holds(self, text: bytes) -> bool:
        """Return whether a text is somewhere on a disk."""
        return any(text in disk.read_bytes() for disk in (self.disks.root / "dev").iterdir())


def iso_files(content: bytes) -> dict[str, bytes]:
    """The files at the top of an ISO image, by their Joliet names."""
    iso = pycdlib.PyCdlib()
    iso.open_fp(io.BytesIO(content))
    found = {}
    for one in iso.list_children(joliet_path="/"):
        if one.is_file():
            name, out = one.file_identifier().decode("utf-16-be"), io.BytesIO()
            iso.get_file_from_iso_fp(out, joliet_path=f"/{name}")
            found[name] = out.getvalue()
    iso.close()
    return found


@contextlib.contextmanager
def guests(folder: Path, address: str, *, control: KeyPair | None = None, mib: int = 16) -> Iterator[Guests]:
    """A machine with one empty disk at this address. Its systems need root, as their SSH servers let root in."""
    host_peers.needs_root()
    host_peers.require(host_peers.SSHD, "sfdisk")
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    disks = DiskMachine(folder / "machine")
    disks.virtio(mib=mib)
    made = Guests(folder, address, control or new_key_pair("control"), host_peers.free_port(address), disks)
    with tempfile.TemporaryDirectory() as place, serving(f"{place}/agent"):
        disks.program = program(f"{place}/agent")
        _install(made)
        try:
            yield made
        finally:
            made.stop()


def _install(made: Guests) -> None:
    """Install the agent of the ramdisk, which works on the disks of the machine."""
    root = made.disks.root
    (made.folder / "bin").mkdir()
    programs = {
        made.folder / "forced": _FORCED.format(bin=made.folder / "bin"),
        made.folder / "bin/drydock-agent": _AGENT.format(
            tools=root / "tools", doubles=root / "doubles", program=shlex.join(made.disks.program), root=root
        ),
    }
    for path, text in programs.items():
        path.write_text(text)
        path.chmod(0o755)
