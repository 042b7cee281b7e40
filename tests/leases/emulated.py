"""Emulated clouds as the engine's tests use them: a double, a credential and a blueprint each, real machines behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from blueprints.models import Blueprint, Credential, Reading
from drydock.core import clock
from leases.engine import reading, readings
from leases.inline import settle
from leases.models import Lease, Resource
from leases.operations import callers, using
from tests.clouds.azure.double import AzureDouble
from tests.clouds.ec2.double import Double as Ec2Double
from tests.clouds.gce.double import Double as GceDouble
from tests.clouds.machines import USER, Machines


@dataclass(kw_only=True)
class Emulated:
    """One cloud: `lose()` lets the answer to the next create be lost."""

    kind: str
    double: Any
    secrets: dict[str, Any]
    machines: Machines
    config: dict[str, Any] = field(default_factory=dict)
    lose: Callable[[], object]
    fill: Callable[[], object]
    """From now on the account may have no more on-demand machines of the usual family."""

    def blueprint(self, name: str = "", **config: Any) -> Blueprint:
        """One that everybody may use, with a credential of its cloud."""
        name = name or self.kind
        Credential.objects.get_or_create(name=self.kind, defaults={"secrets": self.secrets})
        said = {
            "credential": self.kind, "ready_by": "ssh", "user": USER, "ssh_port": self.machines.port,
            "homes": str(self.machines.homes), "min_free_mib": 0, **self.config, **config,
        }  # fmt: skip
        return Blueprint.objects.create(
            name=name, kind=self.kind, config=said, audience="everyone", resource_type="host"
        )


@contextmanager
def ec2(machines: Machines) -> Iterator[Emulated]:
    """Amazon's."""
    with Ec2Double(on_start=machines.start, on_end=machines.end) as double:
        double.host_key = machines.host_key
        yield Emulated(
            kind="ec2", double=double, secrets={**double.secrets(), "price_list": False}, machines=machines,
            config={"regions": ["us-east-1"], "types": ["t3.*", "m6a.*"]},
            lose=lambda: double.plan.lose("RunInstances"),
            fill=lambda: double.limits.update({"L-1216C47A": ("Running On-Demand Standard instances", 1.0)}),
        )  # fmt: skip


@contextmanager
def gce(machines: Machines) -> Iterator[Emulated]:
    """Google's."""
    with GceDouble(on_start=machines.start, on_end=machines.end) as double:
        double.world.host_key = machines.host_key
        yield Emulated(
            kind="gce", double=double, secrets=double.credential, machines=machines,
            config={"regions": ["us-central1"]}, lose=lambda: double.faults.lose("compute.instances.insert"),
            fill=lambda: double.quotas["us-central1"].update(INSTANCES=0),
        )  # fmt: skip


@contextmanager
def azure(machines: Machines) -> Iterator[Emulated]:
    """Microsoft's."""
    with AzureDouble(duration=0.05, on_start=machines.start, on_end=machines.end) as double:
        double.ground.host_key = machines.host_key
        yield Emulated(
            kind="azure", double=double, secrets=double.credential(), machines=machines,
            config={"regions": ["eastus"]}, lose=double.lose, fill=lambda: double.limit("eastus", "cores", 0),
        )  # fmt: skip


CLOUDS = {"ec2": ec2, "gce": gce, "azure": azure}


def look(what: str = "") -> None:
    """Make every reading now, those first of which others follow."""
    readings.due()
    for each in [what] if what else ["places", "inventory", "status", "allowances"]:
        Reading.objects.filter(what=each).update(due_at="2020-01-01T00:00Z")
        for one in Reading.objects.filter(what=each):
            assert reading.read(one.pk)
            one.refresh_from_db()
            assert one.message == ""
    settle()


def ready(lease: Lease, until: Callable[..., Any]) -> Lease:
    """Until it is active; a listing tells that its machine runs."""
    settle()
    look("status")
    until(lease, state="active", seconds=120)
    return lease


def interface(lease: Lease, name: str) -> Any:
    """An interface on the lease of `ada`."""
    return using.interface(callers.caller("ada"), lease.pk, name)


def gone() -> None:
    """Release everything, and keep no machine; until none of ours is left."""
    Lease.objects.filter(state__in=["pending", "acquired", "active"]).update(release_wanted="released")
    Resource.objects.update(drained=True)
    end = clock.monotonic() + 120
    while Resource.objects.filter(gone_at=None).exists():
        settle()
        assert clock.monotonic() < end, [(r.state, r.message) for r in Resource.objects.filter(gone_at=None)]
        clock.sleep(0.05)
