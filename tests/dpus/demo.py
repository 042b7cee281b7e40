"""`make demo-dpu`: four BlueField cards in two hosts, leased through DPF on a real API server and through a BMC.

DPF's controllers, the hosts and the BMCs are doubles. The API servers, the workers and the SSH server on the DPU are
real. The demo ends by itself, with 0 only when all of it came true, and no object, running system, process or file is
left.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import getpass
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drydock.core import clock
from drydock.demo.demo_output import DemoOutput
from tests import demos
from tests.dpus.demo_lab import AS_ROOT, CARDS, CHART, FLAVOR, NAMESPACE, NEW, OLD, DemoLab, missing

PATIENCE = 240.0
QUICK = {
    "DRYDOCK_SWEEP_INTERVAL_SECONDS": "0.5", "DRYDOCK_STEP_TOKEN_SECONDS": "10", "DRYDOCK_STEP_BACKOFF_SECONDS": "0.2",
    "DRYDOCK_LOST_WORKER_SECONDS": "5", "DRYDOCK_VISIBILITY_TIMEOUT_SECONDS": "10",
}  # fmt: skip
"""Shorter times than in earnest: these cards are installed in seconds."""
_PORTS = 28_950
"""The first of 20 ports for the web server from which the BMC fetches its image."""


class DpuDemo:
    """The story."""

    def __init__(self, stage: DemoOutput) -> None:
        self.stage = stage

    def run(self) -> None:
        """From four cards on which nothing runs to four cards on which nothing runs."""
        from drydock.cli.toolkit.session import connect_here
        from tests.clouds.world import crew

        self.stage.scene("Two hosts with two BlueField cards each: DPF knows three cards, the fourth has only its BMC")
        with contextlib.ExitStack() as stack:
            self.lab = DemoLab(Path(os.environ["DRYDOCK_STATE"]) / "dpf", stack)
            self.stage.line("two API servers run, one with DPF, the other as DPU cluster")
            self.workers = stack.enter_context(crew())
            self.client = connect_here()
            self._blueprints()
            self.workers.start(2)
            self._find()
            leases = self._lease()
            self._serve(leases)
            self._expire(leases)
            self._roll_out(leases)
            self._end(leases)

    def _blueprints(self) -> None:
        server = {"credential": "dpf", "namespace": NAMESPACE}
        self.client.add_credential("dpf", {"kubeconfig": self.lab.account()})
        self.client.add_credential("bmcs", {"username": "root", "password": _password()})
        bmcs = {serial: bmc.access() for serial, bmc in self.lab.bmcs.items()}
        self._hosts()
        self._add("images", "dpf_image", {**server, "images": [{"url": OLD}, {"url": NEW}]})
        self._add("clusters", "dpf_cluster", {**server, "build": {"max_nodes": 10}})
        self._add("cards", "dpf_card", {**server, "bmc_credential": "bmcs", "bmcs": bmcs})
        self._add("dpus", "dpf", {**server, **self._dpus(OLD)})
        if AS_ROOT:
            self._blueprints_with_bmc()
        else:
            self.stage.line("The card with only its BMC is left out: its DPU needs accounts, which root creates.")

    def _hosts(self) -> None:
        (double, guest), (_, other) = self.lab.servers.values()
        (other.folder / "control").write_text(guest.control.public + "\n")
        self.client.add_credential("rack-root", {"private_key": guest.control.private})
        self.client.add_credential("rack-bmc", double.credential())
        homes = Path(os.environ["DRYDOCK_STATE"]) / "homes"
        homes.mkdir()
        homes.chmod(0o755)
        config = {
            "credential": "rack-root", "bmc_credential": "rack-bmc", "homes": str(homes), "min_free_mib": 0,
            "compare": "report", "connect_timeout": 5, "shutdown_timeout": 10, "trusted": True,
            "accounts": "per_lease" if AS_ROOT else "shared",
        }  # fmt: skip
        self._add("hosts", "bare_metal", config)

    @staticmethod
    def _dpus(image: str) -> dict[str, Any]:
        charts = [{**CHART, "versions": ["1.2.0"]}]
        services = {"charts": charts, "chains": {"vfs": 8}, "networks": ["10.20.0.0/16"]}
        return {"image": image, "flavor": FLAVOR, "park": "power_off", **services}

    def _blueprints_with_bmc(self) -> None:
        from tests.bluefield.dpus import config

        here = {"folder": f"{os.environ['DRYDOCK_STATE']}/web", "first_uid": 825_100, "uids": 50}
        self._add("here", "local_host", {**here, "cpu_millicores": 200_000, "disk_mib": 100_000})
        # As many vCPUs as only this machine has: a web root on a host with cards would have to end before its reboot.
        self._add("folders", "storage", {"disk_mib": 32, "cpu_millicores": 100_000})
        self._add("sites", "webroot", {"first_port": _PORTS, "last_port": _PORTS + 20})
        self._add("bmc-cards", "bluefield_card", {})
        self._add("bmc-dpus", "bluefield", config(self.lab.card, self.lab.images))

    def _add(self, name: str, kind: str, config: dict[str, Any]) -> None:
        from blueprints.models import Blueprint
        from drydock_client.values import BlueprintChange

        made = self.client.add_blueprint(name, kind, config, BlueprintChange(audience="everyone"))
        if not made.enabled:
            raise AssertionError(f"{name}: {made.problems}")
        Blueprint.objects.filter(name=name).update(discovery_interval=dt.timedelta(seconds=2))

    # Scenes

    def _find(self) -> None:
        from leases.models import Resource

        for name, host in self.lab.hosts.items():
            self.client.register("hosts", self.lab.registration(name, getpass.getuser()))
            self.wait(f"host {name} is enrolled by its BMC", lambda h=host: self._is_active(h.name))  # type: ignore[misc]
            if name == "h1" and AS_ROOT:
                self.holder = self.ask("host", {}, allowed_blueprints=["hosts"])
                self._active(self.holder)
                self.stage.line("a job leases one of eight slots of host h1")
        self.lab.begin()
        if AS_ROOT:
            from tests.bluefield.dpus import PASSWORD
            from tests.bmc.bluefield import SERIAL

            access = self.lab.bmc.access()
            given = {"serial": SERIAL, "bmc": access, "host": self.lab.hosts["h2"].name}
            self.client.register("bmc-cards", {**given, "credential": {"password": PASSWORD}})
        cards = Resource.objects.filter(type="dpu_card", state="active", part_of__state="active")
        wanted = sum(map(len, CARDS.values())) + AS_ROOT
        self.wait(f"{wanted} cards are found in their hosts", lambda: cards.count() == wanted)
        rows = [(one.attributes.get("serial"), one.part_of.name, one.blueprint.name)
                for one in cards.select_related("part_of", "blueprint").order_by("name")]  # fmt: skip
        self.stage.table(("card", "host", "found by"), rows)

    def _lease(self) -> list[Any]:
        h1 = self.lab.hosts["h1"].name
        self.stage.scene(f"Leases on {2 + AS_ROOT} DPUs, two of them in host h1; nothing is installed yet")
        leases = [self.ask("dpu", {"host": h1}), self.ask("dpu", {"host": h1}, ttl="10s")]
        if AS_ROOT:
            from tests.bmc.bluefield import SERIAL

            leases.append(self.ask("dpu", {"serial": SERIAL}))
        if AS_ROOT:
            self._notified()
        self.wait("an installation is under way", lambda: self.lab.installing)
        self.workers.kill()
        self.stage.line("a worker was killed in OS Installing (SIGKILL); another one goes on")
        self.workers.start(1)
        for lease in leases:
            self._active(lease)
        imaged = [card.imaged for card in self.lab.double.world.cards]
        self.stage.promise("each card was installed once", imaged == [[OLD], [OLD], []], str(imaged))
        self.stage.promise("each host was rebooted once", self._rebooted(1), str(self.lab.reboots))
        return leases

    def _notified(self) -> None:
        """Wait until the holder of the host reads of the maintenance, and let it go."""
        from leases.models import Event

        told = Event.objects.filter(lease=self.holder.id, kind="lease.maintenance")
        self.wait("the job on h1 is notified", told.exists)
        self.stage.line(f"it reads: {told.first().message}")  # type: ignore[union-attr]
        self.holder.release()
        self.stage.line("it releases its lease")

    def _serve(self, leases: list[Any]) -> None:
        from drydock_client.values import DpuChart

        self.stage.scene("A service with a chain on the first DPU, and a command on the one without Kubernetes")
        first, chart = leases[0].id, DpuChart(**CHART, version="1.2.0")
        self.client.apply_dpu_service(first, "edge", chart=chart, interfaces=["net1", "net2"])
        self.client.create_dpu_network(first, "blue", subnet="10.20.1.0/24", addresses=8)
        self.client.connect_dpu_chain(first, "web", switches=[["p0", "edge:net1@blue"], ["edge:net2", "pf0vf3"]])
        self.wait(
            "the chain connects port, service and VF", lambda: self.client.dpu_chain(first, "web").state == "ready"
        )
        self.wait("its pods are ready", lambda: self.client.dpu_service(first, "edge").state == "ready")
        if AS_ROOT:
            said = leases[2].interface("command").check(["sh", "-c", "echo $(id -un) on $(uname -s)"]).text.strip()
            self.stage.line(f"a command over SSH: {said}")

    def _expire(self, leases: list[Any]) -> None:
        self.stage.scene("The second lease expires")
        self.wait("it is over", lambda: leases[1].refresh().state == "destroyed")

    def _roll_out(self, leases: list[Any]) -> None:
        from drydock_client.values import BlueprintChange
        from leases.models import Resource

        self.stage.scene("A new image")
        server = {"credential": "dpf", "namespace": NAMESPACE}
        self.client.change_blueprint("dpus", BlueprintChange(config={**server, **self._dpus(NEW)}))
        dpus = Resource.objects.filter(type="dpu", blueprint__name="dpus", gone_at=None)
        self.wait("the idle DPU with the old image is taken down", dpus.filter(state="released").exists)
        dpu = dpus.get(state="active")
        self.wait("the leased one waits", lambda: bool(self._update(dpu.pk)))
        self.stage.line(f"it says: {self._update(dpu.pk)}")
        leases[0].release()
        self.wait("both cards are switched off after the lease", lambda: not dpus.exists())
        lease = self.ask("dpu", {"image": NEW})
        self._active(lease)
        leases.append(lease)
        new = [card.serial for card in self.lab.double.world.cards if card.running == NEW]
        self.stage.promise("one card runs the new image", len(new) == 1, str(new))

    def _end(self, leases: list[Any]) -> None:
        from leases.models import Resource

        self.stage.scene("Release: nothing is kept")
        for lease in leases:
            if lease.refresh().state == "active":
                lease.release()
        for name in ("dpus", "bmc-dpus", "images", "clusters", "sites", "folders", "here"):
            if AS_ROOT or name in ("dpus", "images", "clusters"):
                self.client.switch_blueprint(name, "drain")
        built = Resource.objects.filter(gone_at=None, origin="built")
        self.wait("everything that was built is gone", lambda: not built.exists())
        left, running = self.lab.left(), self.lab.running()
        self.stage.promise("objects left: 0", not left, ", ".join(left))
        self.stage.promise("systems left running: 0", not running, ", ".join(running))
        broken = [*self.lab.double.violations, *self.lab.double.errors]
        self.stage.promise("DPF has nothing to complain of", not broken, "; ".join(map(str, broken)))
        rows = [(name, len(host.cards), count) for (name, count), host in
                zip(self.lab.reboots.items(), self.lab.hosts.values(), strict=True)]  # fmt: skip
        self.stage.table(("host", "cards in DPF", "reboots"), rows)

    # Looking

    def ask(self, type_: str, requirements: dict[str, Any], **more: Any) -> Any:
        from leases.allocator import Allocator

        return Allocator(type_, owner=self.client.name, requirements=requirements, **more).allocate()

    def _active(self, lease: Any) -> None:
        """Wait until a lease is active, and print what it says meanwhile."""
        said, end = "", clock.monotonic() + PATIENCE
        while (info := lease.refresh()).state != "active":
            if info.message and info.message != said:
                said = info.message
                self.stage.line(f"lease {lease.id}: {said[:160]}")
            if clock.monotonic() > end or info.state in ("destroyed", "broken"):
                self.stage.promise(
                    f"lease {lease.id} is active", False, f"{info.state}: {info.message}; {self._said()}"
                )
                raise AssertionError(f"lease {lease.id}")
            clock.sleep(0.3)
        self.stage.promise(f"lease {lease.id} is active", True)

    def _is_active(self, name: str) -> bool:
        from leases.models import Resource

        return Resource.objects.filter(name=name, state="active").exists()

    def _said(self) -> str:
        """Return what resources and steps say, for a promise that was not kept."""
        from leases.models import Resource, Run

        rows = [f"{one.name}: {one.state} {one.message}" for one in Resource.objects.filter(gone_at=None)]
        runs = [f"{one.resource}: {one.phase} {one.step}: {one.sentence}" for one in Run.objects.all()]
        return "; ".join((*rows, *runs))

    def _update(self, id: int) -> str:
        """Return what an update of a resource waits for."""
        found = self.client.resource(id).update
        return found.sentence if found is not None and found.state == "waiting" else ""

    def _rebooted(self, times: int) -> bool:
        wanted = {"h1": times, "h2": times if AS_ROOT else 0}
        return self.lab.reboots == wanted

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        end = clock.monotonic() + PATIENCE
        while not holds():
            if clock.monotonic() > end:
                self.stage.promise(what, False, f"not within {PATIENCE:.0f} s; {self._said()}")
                raise AssertionError(what)
            clock.sleep(0.2)
        self.stage.promise(what, True)


def _password() -> str:
    from tests.dpf.bmc import PASSWORD

    return PASSWORD


def main() -> int:
    """Run the demo; the exit status."""
    if why := missing():
        print(f"make demo-dpu needs a Kubernetes API server: {why}.", file=sys.stderr)
        return 2
    return demos.run("demo-dpu", lambda output: DpuDemo(output).run(), settings=QUICK, page="docs/kinds/dpf.md")


if __name__ == "__main__":
    sys.exit(main())
