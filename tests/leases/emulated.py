"""Emulated clouds as the engine's tests use them: a double, a credential and a blueprint each, real machines behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from blueprints.models import Blueprint, Credential, Reading
from drydock.core import clock
from leases.engine.catalogue import poll_schedule
from leases.engine.core import specs
from leases.engine.sync import poll
from leases.messaging.inline import settle
from leases.models import Lease, Resource
from leases.operations import callers, interfaces
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
    tags: Callable[[str], dict[str, str]]
    """The tags of the machine of a key."""
    untag: Callable[[str, str], object]
    """Somebody removes a tag from the machine of a key."""
    erase: Callable[[str, bool], object]
    """Somebody deletes the machine of a key; without a trace, or as this cloud does it."""
    preempt: Callable[[str], object]
    """The cloud takes the spot machine of a key back."""
    words: str
    """What this cloud says of a machine that somebody deleted."""

    def key(self, lease: Lease) -> str:
        """The key of a lease's machine."""
        assert lease.resource is not None
        return specs.name_of(lease.resource)

    def remove(self, key: str, *, trace: bool = True) -> None:
        """Somebody deletes the machine of a key."""
        self.erase(key, trace)

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
    from blueprints.ec2.client import Ec2  # loads the SDK

    with _sure_soon(Ec2), Ec2Double(on_start=machines.start, on_end=machines.end) as double:
        double.host_key = machines.host_key
        # One region: asking each of the 17 for its zones takes a second, before every test.
        secrets = {**double.secrets(), "price_list": False, "regions": ["us-east-1"]}
        yield Emulated(
            kind="ec2", double=double, secrets=secrets, machines=machines,
            config={"regions": ["us-east-1"], "types": ["t3.*", "m6a.*"]},
            lose=lambda: double.plan.lose("RunInstances"),
            fill=lambda: double.limits.update({"L-1216C47A": ("Running On-Demand Standard instances", 1.0)}),
            tags=lambda key: double.tags(_ec2(double, key).id),
            untag=lambda key, name: [one.tags[_ec2(double, key).id].pop(name, None) for one in double._backends()],
            erase=lambda key, trace: _ec2_erase(double, key, trace=trace),
            preempt=lambda key: double.preempt(_ec2(double, key).id), words="Client.UserInitiatedShutdown",
        )  # fmt: skip


def _ec2(double: Any, key: str) -> Any:
    return next(one for one in reversed(double._instances()) if double.machine(one).key == key)


def _ec2_erase(double: Any, key: str, *, trace: bool) -> None:
    with double._lock:
        instance = _ec2(double, key)
        double._end(instance.id, "Client.UserInitiatedShutdown", "User initiated shutdown")
        double.age()
        for backend in () if trace else double._backends():
            for reservation in backend.reservations.values():
                reservation.instances = [one for one in reservation.instances if one.id != instance.id]


@contextmanager
def gce(machines: Machines) -> Iterator[Emulated]:
    """Google's."""
    from blueprints.gce.client import Gce  # loads the SDK

    with _sure_soon(Gce), GceDouble(on_start=machines.start, on_end=machines.end) as double:
        double.world.host_key = machines.host_key
        yield Emulated(
            kind="gce", double=double, secrets=double.credential, machines=machines,
            config={"regions": ["us-central1"]}, lose=lambda: double.faults.lose("compute.instances.insert"),
            fill=lambda: double.quotas["us-central1"].update(INSTANCES=0),
            tags=lambda key: dict(_gce(double, key)["labels"]),
            untag=lambda key, name: _gce(double, key)["labels"].pop(name, None),
            erase=lambda key, trace: double.world.remove(_gce(double, key)), preempt=double.preempt,
            words="notFound",
        )  # fmt: skip


def _gce(double: Any, key: str) -> Any:
    with double.world.lock:
        return next(one for (_, name), one in double.world.instances.items() if name == key)


@contextmanager
def azure(machines: Machines) -> Iterator[Emulated]:
    """Microsoft's."""
    from blueprints.azure.client import Azure  # loads the SDK

    with _sure_soon(Azure), AzureDouble(duration=0.05, on_start=machines.start, on_end=machines.end) as double:
        double.ground.host_key = machines.host_key
        yield Emulated(
            kind="azure", double=double, secrets=double.credential(), machines=machines,
            config={"regions": ["eastus"]}, lose=double.lose, fill=lambda: double.limit("eastus", "cores", 0),
            tags=lambda key: dict(_azure(double, key).body["tags"]),
            untag=lambda key, name: _azure(double, key).body["tags"].pop(name),
            erase=lambda key, trace: _azure_erase(double, key), preempt=double.evict, words="ResourceNotFound",
        )  # fmt: skip


def _azure(double: Any, key: str) -> Any:
    return double._thing(key)


def _azure_erase(double: Any, key: str) -> None:
    with double.ground.lock:
        double.ground.delete(_azure(double, key))
    double.finish_operations()


def _sure_soon(client: type[Any]) -> AbstractContextManager[Any]:
    """The double's reads do not lag behind: what they do not know is proven after half a second to be absent."""
    return mock.patch.object(client, "find_after", 0.5)


CLOUDS = {"ec2": ec2, "gce": gce, "azure": azure}


def look(what: str = "") -> None:
    """Make every reading now, those first of which others follow."""
    poll_schedule.due()
    for each in [what] if what else ["places", "inventory", "status", "allowances"]:
        Reading.objects.filter(what=each).update(due_at="2020-01-01T00:00Z")
        for one in Reading.objects.filter(what=each):
            assert poll.read(one.pk)
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
    return interfaces.interface(callers.caller("ada"), lease.pk, name)


def gone() -> None:
    """Release everything, and keep no machine; until none of ours is left."""
    Lease.objects.filter(state__in=["pending", "acquired", "active"]).update(release_wanted="released")
    Resource.objects.update(drained=True)
    end = clock.monotonic() + 120
    while Resource.objects.filter(gone_at=None).exists():
        settle()
        assert clock.monotonic() < end, [(r.state, r.message) for r in Resource.objects.filter(gone_at=None)]
        clock.sleep(0.05)
