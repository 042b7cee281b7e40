"""A folder that stands for a machine with disks, on which `drydock-agent` runs as over SSH."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from drydock_agent.disks.jobs import Jobs
from drydock_agent.disks.machine import Machine

TOOLS = Path(__file__).with_name("disk_tools.py")
MIB = 1 << 20


class DiskMachine:
    """Builds /sys, /proc and /dev as Linux has them, with regular files for disks, and runs the program on them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._tools, self._doubles = root / "tools", root / "doubles"
        self.program = [sys.executable, "-m", "drydock_agent.program"]
        for folder in ("sys/block", "sys/class", "dev", "run", "proc/self", "tools", "doubles"):
            (root / folder).mkdir(parents=True)
        for tool in ("nvme", "hdparm", "blkdiscard", "tpm2_clear"):
            self.install(tool, f'#!/bin/sh\nexec "{sys.executable}" -IS "{TOOLS}" {tool} "$@"\n')
        self.write("proc/self/mountinfo", "22 1 0:20 / / rw - rootfs rootfs rw\n")
        self.write("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n")

    def install(self, tool: str, script: str) -> None:
        path = self._tools / tool
        path.write_text(script)
        path.chmod(0o755)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def sata(self, name: str = "sda", mib: int = 8, **values) -> Path:
        """Add a SATA disk. `values` go to its double, or with a leading slash in `files` to its folder in /sys."""
        place = f"sys/devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:{ord(name[-1]) - 97}:0"
        folder = self._block(name, f"{place}/block/{name}", mib, number=f"8:{16 * (ord(name[-1]) - 97)}")
        (folder / "device").symlink_to("../..")
        self.write(f"{place}/vendor", "ATA     \n")
        self.write(f"{place}/model", "INTEL SSDSC2BW24\n")
        self.write(f"{folder}/queue/rotational", f"{int(values.pop('rotational', False))}\n")
        self.write(f"{folder}/queue/discard_max_bytes", f"{values.pop('discard', 0)}\n")
        self.double(name, {
            "ata": True, "serial": f"BTDA4{name.upper()}1", "wwn": f"55cd2e404c3d2a1{ord(name[-1]) % 16:x}", **values,
        })  # fmt: skip
        return self.root / "dev" / name

    def virtio(self, name: str = "vda", mib: int = 8, serial: str = "disk-1") -> Path:
        place = f"sys/devices/pci0000:00/0000:00:0{ord(name[-1]) - 92}.0/virtio{ord(name[-1]) - 97}"
        folder = self._block(name, f"{place}/block/{name}", mib, number=f"254:{16 * (ord(name[-1]) - 97)}")
        (folder / "device").symlink_to("../..")
        self.write(f"{place}/vendor", "0x1af4\n")
        self.write(f"{folder}/serial", f"{serial}\n")
        return self.root / "dev" / name

    def nvme(self, controller: str = "nvme0", mib: int = 8, spaces: int = 1, **values) -> Path:
        """Add a controller with namespaces. Return the path of the first one.

        `detached` has the ids of further ones, which are no disks.
        """
        place = f"sys/devices/pci0000:00/0000:00:04.0/nvme/{controller}"
        for number in range(1, spaces + 1):
            name = f"{controller}n{number}"
            folder = self._block(name, f"{place}/{name}", mib, number=f"259:{number}")
            (folder / "device").symlink_to("..")
            self.write(f"{folder}/wwid", f"eui.0000000000000000000000000000000{number}\n")
            self.write(f"{folder}/queue/discard_max_bytes", "2199023255040\n")
        (self.root / "dev" / controller).touch()
        self.write(f"{place}/serial", f"S64G{controller}\n")
        self.write(f"{place}/model", "SAMSUNG MZQL23T8HCLS-00A07               \n")
        self.write(f"{place}/transport", "pcie\n")
        (self.root / "sys/class/nvme").mkdir(exist_ok=True)
        (self.root / "sys/class/nvme" / controller).symlink_to(f"../../../{place}")
        usual = {"oacs": 0x5F, "fna": 4, "sanicap": 3, "dlfeat": 1, "flbas": 0}
        self.double(controller, usual | values)
        return self.root / "dev" / f"{controller}n1"

    def _block(self, name: str, path: str, mib: int, number: str) -> Path:
        folder = self.root / path
        folder.mkdir(parents=True)
        (self.root / "sys/block" / name).symlink_to(os.path.relpath(folder, self.root / "sys/block"))
        sizes = {"size": mib * 2048, "removable": 0, "ro": 0, "dev": number, "queue/logical_block_size": 512}
        for file, value in sizes.items():
            self.write(f"{folder}/{file}", f"{value}\n")
        with open(self.root / "dev" / name, "wb") as opened:
            opened.write(os.urandom(MIB))
            opened.truncate(mib * MIB)
        return folder

    def double(self, name: str, values: dict) -> None:
        (self._doubles / f"{name}.json").write_text(json.dumps(values))

    def state(self, name: str) -> dict:
        """Return what the double of a device remembers."""
        return json.loads((self._doubles / f"{name}.json").read_text())

    def environment(self) -> dict[str, str]:
        return {
            **os.environ, "PATH": f"{self._tools}:{os.environ['PATH']}", "DISK_DOUBLES": str(self._doubles),
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        }  # fmt: skip

    def run(self, *argv: str, given: object = None) -> dict:
        """Run the program, and return what it prints."""
        content = given if isinstance(given, bytes) else json.dumps(given).encode() if given is not None else b""
        done = subprocess.run(
            [*self.program, *argv, "--root", str(self.root)],
            input=content, capture_output=True, env=self.environment(), cwd="/", timeout=60, check=False,
        )  # fmt: skip
        assert done.stderr == b"", done.stderr.decode()
        answer = json.loads(done.stdout)
        assert done.returncode == (1 if "error" in answer and "state" not in answer else 0), answer
        return answer

    def refusal(self, *argv: str, given: object = None) -> dict:
        """Run the program, and return the error that it prints."""
        return self.run(*argv, given=given)["error"]

    def disks(self) -> dict[str, dict]:
        return {one["name"]: one for one in self.run("disks", "list")["disks"]}

    def show(self, job: str) -> dict:
        return Jobs(Machine(str(self.root))).show(job)

    def wait(self, job: str, seconds: float = 60) -> dict:
        """Return the state of a job that has ended."""
        until = time.monotonic() + seconds
        while (state := self.show(job))["state"] == "running":
            assert time.monotonic() < until, state
            time.sleep(0.02)
        return state

    def erase(self, job: str = "erase-1", **request) -> dict:
        """Erase disks, and return the result."""
        self.run("disks", "erase", "--job", job, given=request)
        state = self.wait(job)
        assert state["state"] == "done", state
        return state["result"]

    def write_image(self, url: str, job: str = "write-1", seed: bytes = b"", **request) -> dict:
        """Write an image, and return the final state of the job."""
        request = {"disk": {"min_size_bytes": MIB}, **request, "url": url, "seed": base64.b64encode(seed).decode()}
        self.run("disks", "write", "--job", job, given=request)
        return self.wait(job)

    def stop_all(self) -> None:
        """End what a failed test has left."""
        jobs = Jobs(Machine(str(self.root)))
        folder = self.root / "run/drydock-agent/jobs"
        for name in os.listdir(folder) if folder.exists() else ():
            if not name.startswith("."):
                jobs.stop(name)
