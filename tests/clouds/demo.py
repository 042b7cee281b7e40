"""`make demo-cloud`: five leases on three emulated clouds, each short of something, with real SSH servers as machines.

It ends by itself, with 0 only when all of it came true and nothing is left: no object in a cloud, no process, no file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from drydock.core import clock
from drydock.demo.demo_output import DemoOutput
from tests import demos
from tests.clouds import world

PATIENCE = 180.0


class CloudDemo:
    """The story."""

    def __init__(self, stage: DemoOutput) -> None:
        self.stage = stage

    def run(self) -> None:
        """From empty clouds to empty clouds."""
        from drydock.cli.toolkit.session import connect_here

        self.stage.scene("Three emulated clouds, each short of something; every instance is a real SSH server here")
        with world.clouds() as (machines, doubles), world.crew() as workers:
            client = connect_here()
            self.client, self.machines, self.doubles = client, machines, doubles
            self._shortages()
            self._accounts()
            workers.start(2)
            leases = self._ask(workers)
            self._show(leases)
            self._use(leases)
            self._stop_and_start(leases[0])
            self._expire()
            self._end(leases)

    def _shortages(self) -> None:
        ec2, gce, azure = (self.doubles[name] for name in ("ec2", "gce", "azure"))
        ec2.plan.no_capacity("t3.micro")
        self.stage.line("EC2 has no t3.micro in any zone")
        gce.faults.exhaust("us-central1-a", "", times=2)
        self.stage.line("Compute Engine's zone us-central1-a is exhausted, twice")
        azure.refuse("SkuNotAvailable", size="Standard_B1s")
        self.stage.line("Azure refuses Standard_B1s")

    def _accounts(self) -> None:
        self.stage.scene("A credential and a blueprint for each, in the operators' order: ec2, gce, azure")
        for kind, made in world.blueprints(self.client, self.machines, self.doubles).items():
            self.stage.promise(f"{kind}: checked without creating anything", made.enabled, str(made.problems))
        self.stage.promise("nothing was made", not world.left(self.doubles), str(world.left(self.doubles)))

    def _ask(self, workers: Any) -> list[Any]:
        from leases.allocator import Allocator

        self.stage.scene("Five hosts: two in the operators' order, two by price, one that must be a TDX machine")
        wishes: list[dict[str, Any]] = [{}, {}, {"choose": "price"}, {"choose": "price"}, {"traits": ["tdx"]}]
        leases = [Allocator("host", owner=self.client.name, exclusive=True, **wish).allocate() for wish in wishes]
        self._wait("the first machine is on its way", lambda: bool(self.machines.running))
        workers.kill()
        self.stage.line("a worker was killed in the middle (SIGKILL); the other goes on")
        for lease in leases:
            lease.wait_until_active(timeout=PATIENCE)
            self.stage.line(f"lease {lease.id} is active")
        self.stage.promise("one machine for each lease, and no more", len(self.machines.running) == len(leases))
        return leases

    def _show(self, leases: list[Any]) -> None:
        from blueprints.models import RememberedError
        from leases.models import Lease

        served = Lease.objects.filter(pk__in=[lease.id for lease in leases]).select_related("resource__blueprint")
        rows = [_served(row) for row in served.order_by("pk")]
        self.stage.table(("lease", "chosen by", "cloud", "offer", "an hour", "traits"), rows)
        self.stage.scene("What was tried and refused on the way, in the providers' words; remembered for a while")
        for one in RememberedError.objects.select_related("blueprint"):
            self.stage.line(f"{one.blueprint.name} {one.key}: {one.message[:100]}")
        self.stage.promise("every cloud's shortage was met and gone around", RememberedError.objects.count() >= 1)
        tdx = Lease.objects.get(pk=leases[-1].id).resource
        self.stage.promise("the TDX lease has a TDX machine", tdx is not None and "tdx" in tdx.traits)

    def _use(self, leases: list[Any]) -> None:
        self.stage.scene("A command on each, over SSH with its own key and the host key that is pinned")
        for lease in leases:
            said = lease.interface("command").check(["sh", "-c", "echo $(id -un) on $(uname -s)"]).text.strip()
            self.stage.line(f"lease {lease.id}: {said}")

    def _stop_and_start(self, lease: Any) -> None:
        from leases.engine.resources import maintenance
        from leases.models import Lease, Resource

        self.stage.scene("Stop and start: a stop that we asked for is no death")
        pk = Lease.objects.get(pk=lease.id).resource_id
        assert pk is not None
        for wanted in ("off", "on"):
            maintenance.want_power(pk, wanted)
            self._wait(f"it is {wanted}", lambda w=wanted: Resource.objects.get(pk=pk).power == w)  # type: ignore[misc]
        said = lease.interface("command").check(["echo", "back"]).text.strip()
        self.stage.promise("the lease goes on where it was", said == "back")

    def _expire(self) -> None:
        from leases.allocator import Allocator
        from leases.models import Lease

        self.stage.scene("One more, for five seconds: it runs out by itself")
        lease = Allocator("host", owner=self.client.name, exclusive=True, ttl="5s").allocate()
        lease.wait_until_active(timeout=PATIENCE)
        self._wait("it is over", lambda: Lease.objects.get(pk=lease.id).state == "destroyed")

    def _end(self, leases: list[Any]) -> None:
        from leases.models import Resource

        self.stage.scene("Release: nothing is kept")
        for lease in leases:
            lease.release()
        for name in self.doubles:
            self.client.switch_blueprint(name, "drain")
        self._wait("every machine is gone", lambda: not Resource.objects.filter(gone_at=None).exists())
        left = world.left(self.doubles)
        self.stage.promise("no object is left in any cloud", not left, str(left))
        self.stage.promise("no machine answers any more", not self.machines.running)
        made = Resource.objects.filter(facts__has_key="instance_id").select_related("blueprint").order_by("pk")
        rows = [_cost(one) for one in made]
        self.stage.table(("machine", "cloud", "offer", "seconds", "cost"), rows)

    def _wait(self, what: str, holds: Callable[[], bool]) -> None:
        end = clock.monotonic() + PATIENCE
        while not holds():
            if clock.monotonic() > end:
                self.stage.promise(what, False, f"not within {PATIENCE:.0f} s")
                return
            clock.sleep(0.1)
        self.stage.promise(what, True)


def _served(lease: Any) -> tuple[object, ...]:
    on = lease.resource
    return lease.pk, lease.choose or "order", on.blueprint.name, on.offer, f"${on.price:.4f}", ", ".join(on.traits)


def _cost(resource: Any) -> tuple[object, ...]:
    seconds = (resource.gone_at - resource.created_at).total_seconds()
    cost = f"${resource.price * seconds / 3600:.6f}"
    return resource.name, resource.blueprint.name, resource.offer, f"{seconds:.0f}", cost


def main() -> int:
    """Run the demo; the exit status."""
    return demos.run(
        "demo-cloud", lambda output: CloudDemo(output).run(), settings=world.QUICK, page="docs/how-to/cloud-hosts.md"
    )


if __name__ == "__main__":
    sys.exit(main())
