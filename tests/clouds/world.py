"""The three emulated clouds with real machines behind, accounts for them, and workers: what demo and storm stand on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

from drydock.cli.toolkit.exits import undisturbed

QUICK = {
    "DRYDOCK_STATUS_INTERVAL_SECONDS": "1", "DRYDOCK_SWEEP_INTERVAL_SECONDS": "0.5", "DRYDOCK_STEP_TOKEN_SECONDS": "10",
    "DRYDOCK_STEP_BACKOFF_SECONDS": "0.2", "DRYDOCK_LOST_WORKER_SECONDS": "5",
    "DRYDOCK_VISIBILITY_TIMEOUT_SECONDS": "10", "AWS_EC2_METADATA_DISABLED": "true",
}  # fmt: skip
"""Shorter times than in earnest: the machines of emulators boot at once."""
REGIONS = {"ec2": "us-east-1", "gce": "us-central1", "azure": "eastus"}


@contextlib.contextmanager
def clouds(on_start: Callable[[Any], None] = lambda machine: None) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The machines, and the doubles by kind. `on_start` is called when a cloud has made a machine and told nobody."""
    from tests.clouds.azure.double import AzureDouble
    from tests.clouds.ec2.double import Double as Ec2Double
    from tests.clouds.gce.double import Double as GceDouble
    from tests.clouds.machines import Machines

    machines = Machines()

    def start(machine: Any) -> str:
        on_start(machine)
        return machines.start(machine)

    hooks: dict[str, Any] = {"on_start": start, "on_end": machines.end}
    try:
        with Ec2Double(**hooks) as ec2, GceDouble(**hooks) as gce, AzureDouble(duration=0.1, **hooks) as azure:
            yield machines, {"ec2": ec2, "gce": gce, "azure": azure}
    finally:
        machines.close()


def blueprints(client: Any, machines: Any, doubles: dict[str, Any]) -> dict[str, Any]:
    """Add a credential and a blueprint for each cloud, in this order, for everyone. Returns what adding each said.

    Each lease gets an account of its own where we may make accounts; else it uses ours, which the machine runs as.
    """
    from blueprints.models import Blueprint
    from drydock_client.values import BlueprintChange
    from tests.clouds.machines import USER
    from tests.peers import become_root

    accounts: dict[str, Any] = {} if become_root() is not None else {"accounts": "shared", "lease_sudo": False}
    made = {}
    for order, (kind, secrets) in enumerate(_secrets(doubles).items(), 1):
        client.add_credential(kind, secrets)
        config = {
            "credential": kind, "regions": [REGIONS[kind]], "ready_by": "ssh", "user": USER,
            "homes": str(machines.homes), "ssh_port": machines.port, "min_free_mib": 0, **accounts,
        }  # fmt: skip
        made[kind] = client.add_blueprint(kind, kind, config, BlueprintChange())
        Blueprint.objects.filter(name=kind).update(order=order, audience="everyone")
    return made


def left(doubles: dict[str, Any]) -> dict[str, Any]:
    """Whatever still stands in the clouds."""
    return {name: found for name, double in doubles.items() if (found := double.objects())}


def _secrets(doubles: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        "ec2": {**doubles["ec2"].secrets(), "price_list": False},
        "gce": doubles["gce"].credential,
        "azure": doubles["azure"].credential(),
    }


class Crew:
    """Real workers; one of them has the beat."""

    def __init__(self) -> None:
        self.running: list[Any] = []
        self._beats: Any = None
        self._lock = Lock()

    def start(self, count: int) -> None:
        """So many more."""
        from tests.workers import Worker

        for _ in range(count):
            worker = Worker(beat=self._beats is None)
            self._beats = self._beats or worker
            with self._lock:
                self.running.append(worker)
        for worker in [*self.running]:
            try:
                worker.wait_ready()
            except AssertionError:
                if worker in self.running:
                    raise

    def kill(self, which: int = -1) -> None:
        """One of them, without a warning."""
        with self._lock:
            worker = self.running.pop(which)
        worker.kill()
        worker.output.close()
        self._beats = None if worker is self._beats else self._beats

    def stop(self) -> None:
        """All."""
        for worker in self.running:
            worker.stop()


@contextlib.contextmanager
def crew() -> Iterator[Crew]:
    """Workers for as long as the block."""
    workers = Crew()
    try:
        yield workers
    finally:
        with undisturbed():
            workers.stop()
