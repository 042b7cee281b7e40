"""`make test-gpu`: find, lease, enforce and clean a real NVIDIA GPU of this machine, and change none of its settings.

It takes the way of users: a scan, a blueprint of this machine as a host and one of its accelerators, a lease, commands
of the lease. It exits with 0 if all checks passed, or if there is nothing to test, which it says. It needs root,
because device nodes are given to accounts. Only what Drydock itself needs has to be installed.

With `--to FOLDER` it keeps what it saw there, without serial numbers and UUIDs, for use as a fixture.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from drydock.demo.hardware import PATIENCE, HardwareDemo

if TYPE_CHECKING:
    from drydock_agent import Device, Hardware
    from interfaces.command import Command
    from leases.allocator import Lease

DRIVER = Path("/proc/driver/nvidia/version")
_UNIQUE = re.compile(r"(GPU|MIG)-[0-9a-fA-F-]{36}")
_SERIALS = re.compile(r"<(serial|board_id|gpu_fru_part_number|chassis_serial_number|system_guid|rack_serial)>[^<]*<")
_PROGRAMS = re.compile(r"<(process_name)>[^<]*<")
_CLASSES = ("gpu", "gpu_slice")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stand:
    """What stands for a GPU where there is none: a captured tree, the device node of its GPU, a folder with tools."""

    root: str = ""
    node: str = ""
    tools: str = ""


class GpuCheck(HardwareDemo):
    """The scenes, on this machine's own GPU."""

    def __init__(self, stage: Any, stand: Stand, keep: Path | None) -> None:
        super().__init__(stage)
        self.stand, self.keep = stand, keep
        self.program = str(Path(stand.tools) / "nvidia-smi") if stand.tools else "nvidia-smi"

    def run(self) -> None:
        """Run all scenes, from an empty state folder to an empty state folder."""
        from drydock.cli.toolkit.exits import undisturbed
        from drydock.cli.toolkit.session import connect

        before = self._look()
        if before is None:
            return
        modes = _modes(self._nodes(before))
        self.stage.scene("Engines: a private PostgreSQL and broker, and a worker for the duration of the test")
        client = connect()
        self.client, self.owner = client, client.name
        with client.attended() as attended:
            attended.look()
            try:
                self._blueprints()
                gpu, other = self._lease(before)
                self._enforced(gpu, other)
                self._cleaned(gpu, before)
                other.release()
                self._nothing_left()
            finally:
                with undisturbed():
                    self._abandon(client)
        after = _modes(self._nodes(before))
        self.stage.promise("the device nodes have their owners and modes from before", after == modes, str(after))

    def _scan(self) -> Hardware:
        from drydock_agent import FolderTree, load_drivers, local_tree, scan

        drivers = load_drivers()
        tree = FolderTree(self.stand.root) if self.stand.root else local_tree(drivers)
        return scan(tree, drivers=drivers)

    def _look(self) -> Device | None:
        """Return the first GPU or slice that can be leased."""
        self.stage.scene("Look: the GPUs of this machine")
        hardware = self._scan()
        self._show(hardware)
        printed = _printed(self.program, "-q", "-x")
        self._keep("nvidia-smi.xml", printed)
        self._keep("nvidia-smi-L.txt", _printed(self.program, "-L"))
        self._keep("hardware.json", json.dumps(hardware.to_json(), indent=1))
        ready = [one for one in hardware.devices if one.device_class in _CLASSES and one.readiness == "ready"]
        split = {one.part_of for one in ready}
        found = [one for one in ready if one.id not in split and "10de" in (one.vendor_id or _whole(hardware, one))]
        self.stage.promise(
            "a GPU of NVIDIA is ready", bool(found), "; ".join(filter(None, map(_why, hardware.devices)))
        )
        if found:
            self.settings = self._read(found[0].id)
            uuid = found[0].identities.get("uuid", "")
            self.stage.promise("nvidia-smi knows its UUID", bool(uuid) and uuid.lower() in printed.lower(), uuid)
        return found[0] if found else None

    def _nodes(self, device: Device) -> tuple[str, ...]:
        return (self.stand.node,) if self.stand.node else device.nodes

    def _blueprints(self) -> None:
        from drydock_client.values import BlueprintChange

        self.stage.scene("Blueprints: this machine as a host, and its GPUs")
        self.client.add_blueprint("this-machine", "local_host", {}, BlueprintChange(min_ready=1))
        self.await_("the host is ready", lambda: self._resources("host"))
        config: dict[str, Any] = {"classes": list(_CLASSES), "reset": "never", "clocks": "keep"}
        if self.stand.root:
            nodes = {one.id: [self.stand.node] for one in self._scan().devices if one.device_class == "gpu"}
            config |= {"captured": self.stand.root, "nodes": nodes, "tools": self.stand.tools}
        self.client.add_blueprint("devices", "accelerators", config, BlueprintChange())
        self.await_("its GPUs were found", lambda: self._resources("accelerator"))

    def _lease(self, device: Device) -> tuple[Lease, Lease]:
        self.stage.scene("Lease: the GPU, and beside it the account of another lease")
        gpu = self._ask("accelerator", requirements={"class": device.device_class})
        # One with another GPU, if there is one, is also refused by its control group.
        several = len(self._resources("accelerator")) > 1
        other = self._ask("accelerator") if several else self._ask("host")
        for lease in (gpu, other):
            lease.wait_until_active(PATIENCE)
            self.stage.line(f"lease {lease.id}: {lease.info.type} {lease.info.resource_name} is active")
        variable = self._told(gpu, 'echo "$CUDA_VISIBLE_DEVICES"')
        known = {one.identities.get("uuid", "") for one in self._scan().devices} - {""}
        self.stage.promise("CUDA_VISIBLE_DEVICES is the UUID of a GPU of this machine", variable in known, variable)
        listed = self._told(gpu, f"{self.program} -L")
        self.stage.promise("nvidia-smi -L of the lease lists this GPU", variable in listed, listed)
        second = self._ask("host", exclusive=True)
        said = self._verdict(second)
        self.stage.promise("nobody else gets the whole host", second.state == "pending" and "lease" in said, said)
        second.release()
        return gpu, other

    def _enforced(self, gpu: Lease, other: Lease) -> None:
        self.stage.scene("Enforce: only the account of the lease opens the device")
        nodes = [str(one) for one in cast("list[str]", gpu.info.facts.get("nodes", ()))]
        self.stage.promise("the lease knows its device nodes", bool(nodes), str(gpu.info.facts))
        for lease, wanted in ((gpu, ("opened",)), (other, ("Permission denied", "Operation not permitted"))):
            for node in nodes:
                said = self._told(lease, f": 2>&1 <{node} && echo opened").rpartition(": ")[2]
                self.stage.promise(f"lease {lease.id} on {node}: {said}", said in wanted, said)
        self.stage.line(f"The isolation is {gpu.info.facts.get('isolation')}.")
        # Such as that the driver gives its nodes to everyone again, as soon as a program uses them.
        for warning in cast("list[str]", gpu.info.facts.get("warnings", ())):
            self.stage.line(warning)

    def _cleaned(self, gpu: Lease, before: Device) -> None:
        from blueprints.accelerators.nvidia import changed
        from leases.models import Resource

        self.stage.scene("Clean: the settings are read back, and the GPU is free for the next lease")
        resource = gpu.info.resource
        gpu.release()
        self.await_("the lease has ended", lambda: gpu.refresh().over)
        self.stage.promise("nothing went wrong", gpu.state == "destroyed", f"{gpu.state}: {gpu.info.message}")
        row = Resource._default_manager.get(pk=resource)
        self.stage.promise("the GPU is not quarantined", not row.quarantined, row.note)
        now = self._read(before.id)
        self.stage.line(f"nvidia-smi says {now}")
        differ = changed(self.settings, now)
        self.stage.promise("all settings are those from before", bool(now) and not differ, str(differ))
        if row.quarantined:
            return
        following = self._ask("accelerator", requirements={"class": before.device_class})
        following.wait_until_active(PATIENCE)
        self.stage.promise(f"lease {following.id} got a GPU", following.state == "active", following.state)
        following.release()
        self.await_("it has ended, too", lambda: following.refresh().over)

    def _read(self, device: str) -> Mapping[str, object]:
        """Return the settings of a device as nvidia-smi says now."""
        from blueprints.accelerators.nvidia import settings_of
        from drydock_agent import MemoryTree
        from drydock_agent.drivers.nvidia import Nvidia

        tree = MemoryTree({"drydock-tools/nvidia-smi.out": _printed(self.program, "-q", "-x")})
        found = next((one for one in Nvidia().read(tree).devices if one.id == device), None)
        return {} if found is None else settings_of(found)

    def _told(self, lease: Lease, words: str) -> str:
        """Return what a command of a lease prints."""
        return cast("Command", lease.interface("command")).run(words, timeout=60).text.strip()

    def _keep(self, name: str, text: str) -> None:
        if self.keep is not None:
            self.keep.mkdir(parents=True, exist_ok=True)
            (self.keep / name).write_text(anonymous(text) + "\n")


def anonymous(text: str) -> str:
    """Return an output of nvidia-smi or a scan without what identifies a machine. UUIDs stay different from another."""
    numbers: dict[str, str] = {}

    def numbered(match: re.Match[str]) -> str:
        return numbers.setdefault(match[0].lower(), f"{match[1]}-00000000-0000-4000-8000-{len(numbers) + 1:012x}")

    text = _UNIQUE.sub(numbered, text)
    text = _PROGRAMS.sub(r"<\1>program<", _SERIALS.sub(r"<\1>N/A<", text))
    return re.sub(r'"(serial|board_serial|dmi_uuid|mac|permanent_mac)": "[^"]*"', r'"\1": ""', text).strip()


def _printed(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=120)
    return done.stdout


def _why(device: Device) -> str:
    return f"{device.id}: {device.reason}" if device.device_class in _CLASSES else ""


def _whole(hardware: Hardware, device: Device) -> str:
    whole = hardware.device(device.part_of)
    return whole.vendor_id if whole else "10de"


def _modes(paths: tuple[str, ...]) -> dict[str, tuple[int, int, int]]:
    found = ((path, os.stat(path)) for path in paths if os.path.exists(path))
    return {path: (there.st_uid, there.st_gid, stat.S_IMODE(there.st_mode)) for path, there in found}


def why_skipped(stand: Stand) -> str:
    """Return why there is nothing to test on this machine, or an empty string."""
    if not stand.root and not shutil.which("nvidia-smi"):
        what = (
            "its kernel driver is loaded, but nvidia-smi is missing" if DRIVER.exists() else "it has no NVIDIA driver"
        )
        return f"{what} (nvidia-smi in PATH and {DRIVER} are needed)"
    return "" if os.geteuid() == 0 else "only root can give device nodes to accounts. Run it as root"


def main() -> int:
    from drydock.demo import runner

    parser = argparse.ArgumentParser(prog="make test-gpu", description="Test Drydock with the GPU of this machine.")
    parser.add_argument("--to", type=Path, help="folder in which to keep what was seen, without serials and UUIDs")
    parser.add_argument("--captured", default="", help="a captured tree that stands for this machine")
    parser.add_argument("--node", default="", help="the device node of its GPU")
    parser.add_argument("--tools", default="", help="a folder with its nvidia-smi")
    given = parser.parse_args()
    stand = Stand(root=given.captured, node=given.node, tools=given.tools)
    if skipped := why_skipped(stand):
        print(f"test-gpu was skipped on this machine: {skipped}.")
        return 0
    return runner.run(lambda stage: GpuCheck(stage, stand, given.to))


if __name__ == "__main__":
    sys.exit(main())
