"""`make demo-metal DOUBLES=1`: servers with emulated BMCs (Redfish), whose operating systems are real SSH servers.

It ends by itself, with 0 only when all of it came true, both machines are off, and no process or file is left.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import getpass
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from drydock.core import clock
from drydock.demo.demo_output import DemoOutput
from tests import demos
from tests.metal.deployment import DeploymentScene
from tests.peers import find

PATIENCE = 60.0
QUICK = {
    "DRYDOCK_SWEEP_INTERVAL_SECONDS": "0.5", "DRYDOCK_STEP_TOKEN_SECONDS": "30", "DRYDOCK_STEP_BACKOFF_SECONDS": "0.2",
    "DRYDOCK_VISIBILITY_TIMEOUT_SECONDS": "10",
}  # fmt: skip
"""Shorter times than in earnest: these machines boot at once."""
AS_ROOT = os.geteuid() == 0


@contextlib.contextmanager
def server(address: str, on_start: Callable[[], None] = lambda: None, **about: Any) -> Iterator[tuple[Any, Any]]:
    """A server that is off: its BMC, and its operating system, which runs while the server is on.

    `on_start` is called whenever it is switched on.
    """
    from blueprints.bmc.values import PowerState
    from tests.blueprints import host_peers
    from tests.bmc.double import redfish_double
    from tests.bmc.machine import Machine

    with host_peers.server(address) as guest:
        guest.stop()

        def switched(state: PowerState) -> None:
            if state is PowerState.ON:
                guest.again()
                on_start()
            elif state is PowerState.OFF:
                guest.stop()

        with redfish_double(Machine(on_power=switched, **about)) as double:
            try:
                yield double, guest
            finally:
                if double.machine.power_state == "Off" and guest.popen.poll() is None:
                    guest.stop()


class MetalDemo:
    """The story."""

    patience = PATIENCE

    def __init__(self, stage: DemoOutput, boot_port: int) -> None:
        self.stage, self.boot_port = stage, boot_port

    def run(self) -> None:
        """From two unknown servers, and one with nothing on it, to three that are off."""
        from drydock.cli.toolkit.session import connect_here
        from tests.clouds.world import crew

        self.stage.scene("Two servers that are off, each with a BMC that speaks Redfish")
        one = server("127.9.6.1", name="alpha", serial="SN-ALPHA", macs=("52:54:00:00:00:01",))
        two = server("127.9.6.2", name="beta", serial="SN-BETA", macs=("52:54:00:00:00:02",))
        with one as self.alpha, two as self.beta, _homes() as self.homes, crew() as workers:
            self.client = connect_here()
            self._blueprint()
            workers.start(1)
            self._enrol()
            lease = self._use()
            self._drift(lease)
            self._end(lease)
            if AS_ROOT and find("sfdisk") is not None:
                DeploymentScene(self, self.boot_port).run()
            else:
                self.stage.line("The deployment of a server is left out: it needs root, and the program sfdisk.")

    def _blueprint(self) -> None:
        from blueprints.models import Blueprint
        from drydock_client.values import BlueprintChange

        (double, guest), (_, other) = self.alpha, self.beta
        (other.folder / "control").write_text(guest.control.public + "\n")
        self.client.add_credential("rack-root", {"private_key": guest.control.private})
        self.client.add_credential("rack-bmc", double.credential())
        config = {
            "credential": "rack-root", "bmc_credential": "rack-bmc", "idle_power": "off", "min_free_mib": 0,
            "homes": str(self.homes), "compare": "report", "connect_timeout": 5, "shutdown_timeout": 10,
            "accounts": "per_lease" if AS_ROOT else "shared", "trusted": True,
        }  # fmt: skip
        made = self.client.add_blueprint("rack", "bare_metal", config, BlueprintChange())
        Blueprint.objects.update(audience="everyone", check_interval=dt.timedelta(seconds=1))
        self.stage.promise("the blueprint is checked without a call", made.enabled, str(made.problems))

    def _enrol(self) -> None:
        self.stage.scene("Both are registered; nobody knows the certificate of beta's BMC")
        (double, _), (other, _) = self.alpha, self.beta
        self.ids = {
            "alpha": self._register("alpha", self.alpha, {"serial": "SN-ALPHA"}, double.access()),
            "beta": self._register("beta", self.beta, {}, {**other.access(), "fingerprint": ""}),
        }
        self.wait("alpha is enrolled", lambda: self.row("alpha").state == "active")
        hardware = self.row("alpha").attributes
        self.stage.line(f"alpha is a {hardware['vendor']} {hardware['model']}, serial number {hardware['serial']}")
        self.wait("beta is held", lambda: bool(self._held()))
        self.stage.line(f"the operator is asked: {self._held()}")
        pairs = ":".join(other.fingerprint[at : at + 2].upper() for at in range(0, 64, 2))
        self.stage.promise("it shows the fingerprint", pairs in self._held())
        self.stage.promise("nothing was sent to that BMC", not other.calls, str(other.calls))
        said = _drydock("resolve", "--resource", str(self.ids["beta"]), "--message", "same as on its label")
        self.stage.promise("drydock resolve --resource confirms it", said.returncode == 0, said.stderr)
        self.wait("beta is enrolled, with its certificate pinned", lambda: self.row("beta").state == "active")
        self.wait("both are off while nobody needs them", self._off)

    def _register(self, name: str, of: tuple[Any, Any], more: dict[str, Any], access: dict[str, Any]) -> int:
        where = {**of[1].registration(getpass.getuser()), "name": name, "slots": 1, **more}
        return int(self.client.register("rack", {**where, "bmc": {"driver": "redfish", **access}}).id)

    def _use(self) -> Any:
        from leases.allocator import Allocator

        self.stage.scene("A lease on one of them: it is switched on, and an account is made")
        lease = Allocator("host", owner=self.client.name, exclusive=True, requirements={"model": "C-1000"}).allocate()
        lease.wait_until_active(timeout=PATIENCE)
        self.name = next(name for name in self.ids if self.row(name).used_slots)
        self.stage.promise(f"{self.name} is on", self._machine().power_state == "On", self._machine().power_state)
        said = lease.interface("command").check(["sh", "-c", "echo $(id -un) on $(uname -s)"]).text.strip()
        self.stage.line(f"a command over SSH: {said}")
        act = self.client.start_act(self.ids[self.name], "boot-device", arguments={"device": "network"})
        self.stage.line(f"an act, {act.name}: {act.summary}")
        target = lambda: self._machine().boot["BootSourceOverrideTarget"]  # noqa: E731
        self.wait("it boots from the network next", lambda: target() == "Pxe")
        return lease

    def _drift(self, lease: Any) -> None:
        self.stage.scene("Somebody pulls its plug")
        self._machine().reset("ForceOff")
        self.wait("a check notices it", lambda: "lost its power" in self.row(self.name).message)
        self.stage.line(f"{self.name}: {self.row(self.name).message}")
        self.stage.promise("the lease says why", "is off" in self.lease(lease).message, self.lease(lease).message)
        self.client.change_resource(self.ids[self.name], "power", wanted="on")
        self.wait("it is on again, and answers", lambda: self.row(self.name).suspect_since is None)
        said = lease.interface("command").check(["echo", "back"]).text.strip()
        self.stage.promise("the lease goes on where it was", said == "back")

    def _end(self, lease: Any) -> None:
        self.stage.scene("Release: the account is removed, and the server is switched off")
        lease.release()
        self.wait("the lease is over", lambda: self.lease(lease).state == "destroyed")
        self.wait("both are off", self._off)
        self.stage.promise("nothing of the lease is left", not list(self.homes.iterdir()))
        for id in self.ids.values():
            self.client.change_resource(id, "retire")
        self.wait("both are handed back", lambda: all(self.row(name).gone_at for name in self.ids))
        self.stage.promise("both are off", self._off())
        open_ones = sum(double.sessions for double, _ in (self.alpha, self.beta))
        self.stage.promise("no session is left at a BMC", not open_ones, str(open_ones))

    def _machine(self) -> Any:
        return (self.alpha if self.name == "alpha" else self.beta)[0].machine

    def _off(self) -> bool:
        return all(double.machine.power_state == "Off" for double, _ in (self.alpha, self.beta))

    def row(self, name: str) -> Any:
        from leases.models import Resource

        return Resource.objects.get(pk=self.ids[name])

    def lease(self, lease: Any) -> Any:
        from leases.models import Lease

        return Lease.objects.get(pk=lease.id)

    def _held(self) -> str:
        from leases.models import Run

        found = Run.objects.filter(resource=self.ids["beta"], waits_for="operator").first()
        return found.sentence if found else ""

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        end = clock.monotonic() + PATIENCE
        while not holds():
            if clock.monotonic() > end:
                said = "; ".join(f"{name}: {self.row(name).message}" for name in self.ids)
                self.stage.promise(what, False, f"not within {PATIENCE:.0f} s; {said}")
                return
            clock.sleep(0.1)
        self.stage.promise(what, True)


@contextlib.contextmanager
def _homes() -> Iterator[Path]:
    """A folder for the homes of leases, which is empty at the end."""
    with tempfile.TemporaryDirectory(prefix="drydock-homes-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def _drydock(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as an operator would."""
    code = "import sys; from drydock.cli import main; sys.exit(main())"
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=PATIENCE)


def free_port() -> int:
    """Return a port of the loopback address that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> int:
    """Run the demo; the exit status."""
    port = free_port()
    settings = {**QUICK, "DRYDOCK_BOOT_URL": f"http://127.0.0.1:{port}"}
    return demos.run(
        "demo-metal", lambda output: MetalDemo(output, port).run(), settings=settings, page="docs/kinds/bare_metal.md"
    )


if __name__ == "__main__":
    sys.exit(main())
