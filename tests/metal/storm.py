"""`make storm RACK=1`: tenants of a rack one after another, while workers are killed.

A worker is killed at any instant, also between what a BMC has done and its answer. The machines are as in
`make demo-metal DOUBLES=1`: their BMCs are emulated, their disks are regular files, and their systems are real SSH
servers. It ends with 0 only if no machine had two tenants, none was available before it was clean and off, no medium
stayed inserted, and nothing is left.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import random
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

from drydock.core import clock
from drydock.demo.demo_output import DemoOutput
from tests import demos
from tests.bmc.machine import Machine
from tests.clouds import world
from tests.metal import demo
from tests.metal.deployment import image, web

PATIENCE = 240.0
WORKERS = 2
MACHINES = 2
KILLED_AT_CALL = 0.12
"""How often a worker, which may be the one that asked, is killed before a BMC answers what it has just done."""
KILLED_AT_TURN = 0.02
PAUSE = 6.0
"""Seconds between two kills at least, so that workers that start get something done."""
CANARY = b"left by lease "
BRIEF = {
    "DRYDOCK_STEP_TOKEN_SECONDS": "12", "DRYDOCK_LOST_WORKER_SECONDS": "5", "DRYDOCK_STEP_BACKOFF_LIMIT_SECONDS": "2",
    "DRYDOCK_LOOK_AGAIN_SECONDS": "2", "DRYDOCK_REMEMBER_STEP_SECONDS": "1",
}  # fmt: skip


class WatchedMachine(Machine):
    """A machine that says when its BMC has done something and has not answered yet."""

    def __init__(self, done: Callable[[str], None], **about: Any) -> None:
        super().__init__(**about)
        self.done = done

    def reset(self, wanted: str) -> None:
        """Tell of an accepted reset."""
        super().reset(wanted)
        self.done("a machine was switched")

    def media_changed(self, device: str) -> None:
        """Tell of a medium that was inserted or ejected."""
        self.done("a medium was changed")


class RackStorm:
    """One run. Its seed repeats the kills, but not their exact timing."""

    def __init__(self, stage: DemoOutput, seed: int, leases: int, port: int) -> None:
        self.stage, self.count, self.port = stage, leases, port
        self.chance, self.lock = random.Random(seed), Lock()
        self.killing, self.killed_at = False, 0.0
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.used: dict[int, int] = {}
        self.rack: dict[int, tuple[Any, Any]] = {}
        self.crew = world.Crew()

    def run(self) -> None:
        """From machines that nobody knows to machines with nothing on them."""
        from drydock.cli.toolkit.session import connect_here

        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dd-metal-", dir="/tmp")))
            folder.chmod(0o755)
            self.client = connect_here()
            stack.enter_context(web(self.port))
            servers = self._servers(stack, folder)
            self._blueprint(stack.enter_context(image(folder / "images")), servers)
            stack.callback(self._stop)
            self.crew.start(WORKERS)
            self._enrol(servers)
            self.killing = True
            self._tenants()
            self.killing = False
            self._ended()
            self._hand_back()
            self.stage.table(("what", "how often"), sorted(self.done.items()))

    def _stop(self) -> None:
        from drydock.cli.toolkit.exits import undisturbed

        with undisturbed():
            self.crew.stop()

    def _servers(self, stack: contextlib.ExitStack, folder: Path) -> list[tuple[Any, Any]]:
        from interfaces.keys import new_key_pair
        from tests.bmc.double import redfish_double
        from tests.bmc.guests import guests

        control = new_key_pair("control")
        made: list[tuple[Any, Any]] = []
        for number in range(MACHINES):
            guest = stack.enter_context(guests(folder / f"m{number}", f"127.9.7.{number + 1}", control=control))
            machine = WatchedMachine(
                self._acted, name=f"m{number}", serial=f"SN-STORM-{number}", macs=(f"52:54:00:00:07:{number + 1:02}",),
                power_delay=0.05, on_power=guest.switched,
            )  # fmt: skip
            guest.machine = machine
            guest.port = made[0][1].port if made else guest.port  # a blueprint has one port for all its ramdisks
            made.append((stack.enter_context(redfish_double(machine)), guest))
        return made

    def _acted(self, what: str) -> None:
        """A BMC has done something, and nobody knows of it yet."""
        if self.killing and self.chance.random() < KILLED_AT_CALL:
            self._kill(f"workers killed after {what}")

    def _kill(self, what: str) -> None:
        with self.lock:
            if not self.crew.running or clock.monotonic() < self.killed_at + PAUSE:
                return
            self.killed_at = clock.monotonic()
            which = self.chance.randrange(len(self.crew.running))
            self.done[what] += 1
        self.crew.kill(which)

    def _blueprint(self, small: dict[str, Any], servers: list[tuple[Any, Any]]) -> None:
        from blueprints.models import Blueprint
        from drydock_client.values import BlueprintChange
        from tests.bmc.guests import RAMDISK

        double, guest = servers[0]
        self.client.add_credential("rack-root", {"private_key": guest.control.private})
        self.client.add_credential("rack-bmc", double.credential())
        config = {
            "credential": "rack-root", "bmc_credential": "rack-bmc", "min_free_mib": 0, "compare": "report",
            "accounts": "shared", "ramdisk": {"url": RAMDISK, "port": guest.port, "samples": 16},
            "images": {"small": small}, "idle_power": "off",
        }  # fmt: skip
        made = self.client.add_blueprint("rack", "bare_metal", config, BlueprintChange())
        Blueprint.objects.filter(pk=made.id).update(audience="everyone")
        self.stage.promise("the blueprint is checked", made.enabled, str(made.problems))

    def _enrol(self, servers: list[tuple[Any, Any]]) -> None:
        self.stage.scene(f"{len(servers)} servers are inspected and erased for the first time")
        for double, guest in servers:
            about = {**guest.registration(), "name": double.machine.name, "serial": double.machine.serial, "slots": 1}
            about |= {"user": "root" if demo.AS_ROOT else getpass.getuser()}
            found = self.client.register("rack", {**about, "bmc": {"driver": "redfish", **double.access()}})
            self.rack[int(found.id)] = double, guest
        self._wait("all are available", lambda: len(self._available()) == len(self.rack), self._resources)

    def _tenants(self) -> None:
        from leases.allocator import Allocator
        from leases.models import Lease

        self.stage.scene(f"{self.count} tenants, who leave something on the disk, while workers die")
        asked = [
            Allocator("host", owner=self.client.name, exclusive=True, requirements={"image": "small"}).allocate().id
            for _ in range(self.count)
        ]
        mine = Lease.objects.filter(pk__in=asked)
        end = clock.monotonic() + PATIENCE + 60 * self.count
        while mine.exclude(state__in=["destroyed", "broken"]).exists() and clock.monotonic() < end:
            for lease in mine.filter(state="active").order_by("pk"):
                self._use(lease)
            self._look()
            if self.chance.random() < KILLED_AT_TURN:
                self._kill("workers killed")
            self.crew.start(WORKERS - len(self.crew.running))
            clock.sleep(0.1)
        ended = {one.pk: f"{one.state}: {one.message}" for one in mine}
        self.stage.promise("every tenant was served", set(self.used) == set(asked), f"{ended}; {self._resources()}")

    def _use(self, lease: Any) -> None:
        """Look for what former tenants left, leave something, and release."""
        _, guest = self.rack[lease.resource_id]
        if lease.pk not in self.used:
            if guest.holds(CANARY):
                self.wrong.append(f"lease {lease.pk} found something of another tenant")
            with (guest.disks.root / "dev/vda").open("r+b") as disk:
                disk.seek(9 << 20)
                disk.write(CANARY + str(lease.pk).encode())
            self.used[lease.pk] = lease.resource_id
        self.client.release(lease.pk)

    def _look(self) -> None:
        """Whatever is available, before and after the look, is clean, off and without media."""
        from leases.models import Share

        before = self._available()
        seen = {pk: self._unready(pk) for pk in before}
        self.wrong += [f"machine {pk} was available, but {seen[pk]}" for pk in self._available() & before if seen[pk]]
        taken = Counter(Share.objects.values_list("resource_id", flat=True))
        self.wrong += [f"machine {pk} has {n} tenants" for pk, n in taken.items() if n > 1]
        self.done["looks"] += 1

    def _available(self) -> set[tuple[int, int]]:
        """Return the resources that serve the next lease, each with the number of its last event."""
        from leases.models import Event, Resource

        free = Resource.objects.filter(pk__in=self.rack, state="active", in_maintenance=False, used_slots=0)
        last = {pk: Event.objects.filter(resource_id=pk).order_by("-pk").values_list("pk", flat=True).first() or 0
                for pk in free.values_list("pk", flat=True)}  # fmt: skip
        return set(last.items())

    def _unready(self, of: tuple[int, int]) -> str:
        double, guest = self.rack[of[0]]
        if guest.holds(CANARY):
            return "it was not clean"
        if double.machine.power_state != "Off":
            return f"its power was {double.machine.power_state}"
        return f"it had media: {inserted}" if (inserted := _inserted(double.machine)) else ""

    def _ended(self) -> None:
        from leases.models import ErasureRecord, Share

        self.crew.start(WORKERS - len(self.crew.running))
        self._wait("all are clean again", lambda: len(self._available()) == len(self.rack), self._resources)
        self._look()
        self.stage.promise("nothing was available uncleaned, and no machine had two tenants", not self.wrong,
                           "; ".join(self.wrong[:10]))  # fmt: skip
        records = ErasureRecord.objects.filter(lease_id__in=self.used, verified=True)
        lacking = set(self.used) - set(records.values_list("lease_id", flat=True))
        self.stage.promise("every tenant has a record of the erasure after him", not lacking, str(lacking))
        self.stage.promise("no share is left", not Share.objects.exists())
        self.done["leases"] = len(self.used)

    def _hand_back(self) -> None:
        from leases.models import Debt, Resource, Run

        for pk in self.rack:
            self.client.change_resource(pk, "retire")
        there = Resource.objects.filter(pk__in=self.rack, gone_at=None)
        self._wait("all are handed back", lambda: not there.exists(), self._resources)
        doubles = [double for double, _ in self.rack.values()]
        on = [double.machine.name for double in doubles if double.machine.power_state != "Off"]
        self.stage.promise("all are off", not on, str(on))
        media = [found for double in doubles if (found := _inserted(double.machine))]
        self.stage.promise("no medium is inserted", not media, str(media))
        sessions = sum(double.sessions for double in doubles)
        self.done["sessions of killed workers at BMCs, which end by themselves"] = sessions
        left = Run.objects.exists() or Debt.objects.exists()
        self.stage.promise("no run is left, and no cleaning owed", not left)
        problems = [problem for _, guest in self.rack.values() for problem in guest.problems]
        self.stage.promise("every boot found its system", not problems, str(problems))

    def _resources(self) -> str:
        from leases.models import Resource

        return "; ".join(f"{one.pk} {one.state}: {one.message}" for one in Resource.objects.filter(pk__in=self.rack))

    def _wait(self, what: str, holds: Callable[[], bool], found: Callable[[], str]) -> None:
        end = clock.monotonic() + PATIENCE
        while not (so := holds()) and clock.monotonic() < end:
            clock.sleep(0.1)
        self.stage.promise(what, so, "" if so else found())


def _inserted(machine: Machine) -> list[str]:
    return [str(it["Image"]) for it in machine.media.values() if it.get("Inserted")]


def main() -> int:
    """Read the arguments, run; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.metal.storm", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="the kills of a former run")
    parser.add_argument("--leases", type=int, default=12)
    given = parser.parse_args()
    port = demo.free_port()
    settings = {**demo.QUICK, **BRIEF, "DRYDOCK_BOOT_URL": f"http://127.0.0.1:{port}"}
    stage = demos.play(lambda output: RackStorm(output, given.seed, given.leases, port).run(), settings, what="storm")
    again = f"--seed {given.seed} --leases {given.leases}"
    if stage.broken:
        print(f"\nA promise was broken ({again}): {'; '.join(stage.broken)}", file=sys.stderr)
        return 1
    stage.scene(f"Every promise was kept ({again}).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
