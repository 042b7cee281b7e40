"""The scenes of `make demo-hardware`: hardware is found, leased with its host, and given back."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from blueprints.devices.scripts import STATE
from drydock.cli.toolkit.exits import undisturbed
from drydock.core import clock
from drydock.demo import captured, reporting
from drydock.demo.demo_output import DemoOutput

if TYPE_CHECKING:
    from drydock_agent import Device, Hardware
    from drydock_client.protocol import Client
    from drydock_client.values import ResourceInfo
    from interfaces.command import Command
    from leases.allocator import Lease

PATIENCE = 90.0
"""Seconds to wait for anything."""
_SHOWN = ("gpu", "nic", "nvme", "accelerator", "coprocessor", "crypto", "infiniband")
_WITH_NODES = (captured.GPU, captured.NIC)
"""Captured devices that get device nodes of this machine."""
_HARMLESS = ("cpu_dma_latency", "udmabuf", "userfaultfd", "vga_arbiter", "vsock")
"""Devices that do nothing when they are opened. Their numbers are given out by the kernel."""
_MISC = 10


class HardwareDemo:
    """The scenes, in order."""

    def __init__(self, stage: DemoOutput) -> None:
        self.stage = stage
        self.leases: list[Lease] = []
        self.recorded = Path(STATE).exists()

    def run(self) -> None:
        """Run all scenes, from an empty state folder to an empty state folder."""
        from drydock.cli.toolkit.session import connect

        root = Path(os.environ["DRYDOCK_STATE"]) / "captured"
        captured.write(root)
        self._scans(root)
        self.stage.scene("Engines: a private PostgreSQL and broker, and a worker for the duration of the demo")
        client = connect()
        self.client, self.owner = client, client.name
        with client.attended() as attended:
            attended.look()
            try:
                with device_nodes(2) as nodes:
                    self._found(root, nodes)
                    gpu, host = self._leased()
                    self._refused()
                    self._isolated(gpu, nodes)
                    self._released(gpu, host)
                reporting.show(self, Path(os.environ["DRYDOCK_STATE"]))
                self._nothing_left()
            finally:
                with undisturbed():
                    self._abandon(client)

    def _scans(self, root: Path) -> None:
        from drydock_agent import FolderTree, load_drivers, local_tree, scan

        drivers = load_drivers()
        self.stage.scene("Hardware: what this machine has, and what of it is ready for leases")
        self._show(scan(local_tree(drivers), drivers=drivers))
        self.stage.scene("The same for the captured tree of a machine with GPUs")
        found = scan(FolderTree(str(root)), drivers=drivers)
        self._show(found)
        ready, other = found.device(captured.GPU), found.device(captured.UNREADY)
        self.stage.promise(f"{captured.GPU} is ready", ready is not None and ready.readiness == "ready")
        self.stage.promise(
            f"{captured.UNREADY} is not, with a reason", other is not None and other.readiness == "setup_required"
        )

    def _show(self, found: Hardware) -> None:
        rows = [_row(one) for one in found.devices if one.kind in _SHOWN or one.device_class]
        self.stage.table(("device", "class", "model", "state", "why"), rows)

    def _found(self, root: Path, nodes: Sequence[str]) -> None:
        from drydock_client.values import BlueprintChange

        self.stage.scene("Blueprints: this machine as a host, and the captured devices as parts of it")
        made = self.client.add_blueprint("this-machine", "local_host", {}, BlueprintChange(min_ready=1))
        self.stage.promise(f"{made.name}: a {made.type} by kind {made.kind}", made.enabled, str(made.problems))
        self.await_("the host is ready", lambda: self._resources("host"))
        config = {"captured": str(root), "nodes": {id: [path] for id, path in zip(_WITH_NODES, nodes, strict=False)}}
        made = self.client.add_blueprint("devices", "accelerators", config, BlueprintChange())
        self.stage.promise(f"{made.name}: {made.type}s by kind {made.kind}", made.enabled, str(made.problems))
        self.await_("its devices were found", self._all_built)
        names = {one.id: one.name for one in self.client.resources()}
        rows = [(one.name, names.get(one.part_of or 0, ""), one.state) for one in self.client.resources()]
        self.stage.table(("resource", "part of", "state"), rows)
        there = [one.name for one in self._resources("accelerator")]
        self.stage.promise("the GPU that is ready is a resource", f"gpu {captured.GPU}" in there, str(there))
        self.stage.promise("the other GPU is none", f"gpu {captured.UNREADY}" not in there, str(there))

    def _leased(self) -> tuple[Lease, Lease]:
        from leases.allocator import Allocator, allocate_many

        self.stage.scene("A GPU together with its host, all or nothing")
        asked = [
            Allocator("host", owner=self.owner, ttl="10m"),
            Allocator("accelerator", owner=self.owner, ttl="10m", requirements={"class": "gpu", "model": "P100"}),
        ]
        host, gpu = allocate_many(asked)
        self.leases += [host, gpu]
        for lease in (host, gpu):
            lease.wait_until_active(PATIENCE)
            self.stage.line(f"lease {lease.id}: {lease.info.type} {lease.info.resource_name} is active")
        command = cast("Command", gpu.interface("command"))
        said = command.check('echo "$CUDA_VISIBLE_DEVICES"').text.strip()
        self.stage.promise(f"CUDA_VISIBLE_DEVICES is {said}", said == captured.UUID)
        return gpu, host

    def _refused(self) -> None:
        self.stage.scene("A second tenant: the GPU is taken, and so is its host as a whole")
        for what, fields in (
            ("the GPU", {"type": "accelerator", "requirements": {"class": "gpu"}}),
            ("the whole host", {"type": "host", "exclusive": True}),
        ):
            lease = self._ask(**fields)
            said = self._verdict(lease)
            self.stage.line(f"lease {lease.id} for {what} is {lease.state}: {said}")
            self.stage.promise(f"{what} is refused", lease.state == "pending" and "lease" in said, said)
            lease.release()

    def _isolated(self, gpu: Lease, nodes: Sequence[str]) -> None:
        self.stage.scene("Device nodes: only the account of the lease opens them")
        if not nodes:
            self.stage.line("Left out: this needs root, and a machine that allows device nodes to be made.")
            return
        node = nodes[0]
        other = self._ask("accelerator", requirements={"class": "nic"})
        other.wait_until_active(PATIENCE)
        self.stage.line(f"{node} is a harmless device that stands for the GPU")
        for lease, wanted in ((gpu, ("opened",)), (other, ("Permission denied",))):
            said = _opened(lease, node)
            self.stage.promise(f"lease {lease.id} on {lease.info.resource_name}: {said}", said in wanted, said)
        if gpu.info.facts.get("isolation") != "cgroup-v1":
            self.stage.line("This machine has no device control groups that can be used, so ownership is all there is.")
        else:
            os.chmod(node, 0o666)  # noqa: S103  (a device that does nothing)
            self.stage.line("As a setuid program of a driver may do, the node is opened to everyone")
            said = _opened(other, node)
            refused = said == "Operation not permitted"
            self.stage.promise(f"lease {other.id} is refused by its control group: {said}", refused, said)
        other.release()

    def _ask(self, type: str, **fields: Any) -> Lease:
        from leases.allocator import Allocator

        lease = Allocator(type, owner=self.owner, ttl="10m", **fields).allocate()
        self.leases.append(lease)
        return lease

    def _verdict(self, lease: Lease) -> str:
        self.await_("", lambda: lease.refresh().verdicts)
        return "; ".join(one.sentence for one in lease.verdicts)

    def _released(self, gpu: Lease, host: Lease) -> None:
        self.stage.scene("Release: the GPU is free for the next lease")
        gpu.release()
        host.release()
        following = self._ask("accelerator", requirements={"class": "gpu"})
        following.wait_until_active(PATIENCE)
        self.stage.promise(f"lease {following.id} got it", following.info.resource_name == f"gpu {captured.GPU}")
        following.release()

    def _nothing_left(self) -> None:
        from leases.models import Run, Share, SlotLock

        self._give_back()
        self.stage.scene("Nothing is left")
        for model in (Share, SlotLock, Run):
            there = model._default_manager.count()
            self.stage.promise(f"no {model._meta.verbose_name} in the database", there == 0, str(there))
        self.stage.promise(f"no {STATE} that was not there before", self.recorded or not Path(STATE).exists())

    def _give_back(self) -> None:
        from drydock_client.values import BlueprintChange

        self.client.change_blueprint("this-machine", BlueprintChange(min_ready=0))
        for one in self.client.blueprints():
            self.client.switch_blueprint(one.name, "disable")
        self.await_("", lambda: all(lease.refresh().over for lease in self.leases))
        for device in self._resources("accelerator"):
            self.client.change_resource(device.id, "retire")
        until = clock.monotonic() + PATIENCE
        while clock.monotonic() < until:
            self.client.reclaim()
            if all(lease.refresh().over for lease in self.leases) and not self.client.resources():
                break
            clock.sleep(0.1)
        left = [f"{one.name} is {one.state}" for one in self.client.resources()]
        self.stage.promise("all leases have ended and all resources were handed back", not left, ", ".join(left))

    def _resources(self, type: str) -> list[ResourceInfo]:
        return [one for one in self.client.resources() if one.type == type and one.state == "active"]

    def _all_built(self) -> bool:
        """Return whether devices were found, and none of them is still being built."""
        found = [one for one in self.client.resources() if one.type == "accelerator"]
        return bool(found) and all(one.state == "active" for one in found)

    @property
    def host(self) -> str:
        """The id of this machine as a host."""
        (found,) = self._resources("host")
        return str(found.id)

    def await_(self, what: str, found: Any) -> None:
        """Wait until `found` returns something true. Promise `what`, unless it is empty."""
        until = clock.monotonic() + PATIENCE
        while not (there := found()) and clock.monotonic() < until:
            clock.sleep(0.05)
        if what:
            self.stage.promise(what, bool(there))

    def _abandon(self, client: Client) -> None:
        client.close()
        for lease in self.leases:
            lease.release()
        if any(not lease.refresh().over for lease in self.leases) or client.resources():
            self._give_back()


@contextmanager
def device_nodes(count: int) -> Iterator[tuple[str, ...]]:
    """Make nodes of harmless devices of this machine below /dev, which stand for captured devices.

    Empty if they cannot be made, such as without root.
    """
    folder = Path(f"/dev/drydock-demo-{os.getpid()}")
    try:
        folder.mkdir(mode=0o755)
    except OSError:
        yield ()
        return
    try:
        yield tuple(_harmless(folder))[:count]
    finally:
        shutil.rmtree(folder)


def _harmless(folder: Path) -> Iterator[str]:
    lines = Path("/proc/misc").read_text().splitlines()
    for number, name in sorted((line.split() for line in lines), key=lambda one: one[1]):
        if name not in _HARMLESS:
            continue
        path = folder / name
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(_MISC, int(number)))
            os.close(os.open(path, os.O_RDONLY))
        except OSError:
            path.unlink(missing_ok=True)
            continue
        yield str(path)


def _opened(lease: Lease, node: str) -> str:
    """Return `opened`, or the error of the kernel when a command of the lease opens a node."""
    command = cast("Command", lease.interface("command"))
    return command.run(f": 2>&1 <{node} && echo opened", timeout=20).text.strip().rpartition(": ")[2]


def _row(device: Device) -> tuple[str, ...]:
    from drydock_agent.pci import NOT_LEASED

    model = device.name or device.device_name or f"{device.vendor_id}:{device.device_id}"
    state = "not leased" if device.role in NOT_LEASED else str(device.readiness or "")
    why = NOT_LEASED.get(device.role, device.reason)
    return device.id, device.device_class or device.kind, model, state, why
