"""The three doubles as the behaviour suite meets them: real SSH servers, and beside them what machines that all share
this computer cannot have of their own: a firewall, a boot id, a disk, cloud-init and systemd."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blueprints import registry
from blueprints.cloud.client import Client
from blueprints.cloud.kind import CloudHost
from blueprints.cloud.validation.choosing import Asking, choose
from blueprints.cloud.validation.environment import Environment, Outside
from blueprints.cloud.validation.journal import Journal
from blueprints.cloud.validation.tags import RunTags, run_tags
from blueprints.cloud.validation.values import Limits, Wish
from blueprints.userdata import READY_MARK
from interfaces.endpoints import SshEndpoint
from tests.clouds.azure.double import AzureDouble
from tests.clouds.azure.things import DISK, NSG
from tests.clouds.ec2.double import Double as Ec2Double
from tests.clouds.gce.double import Double as GceDouble
from tests.clouds.gce.double import Pace
from tests.clouds.machines import USER, Machines

QUICK = Limits(
    call=120, create=120, running=120, ssh=120, first_boot=120, firewall=120, change=120, stopped=120, ended=120,
    pace=0.05, expires_after=60,
)  # fmt: skip
"""Doubles are quick; the computer may be busy."""


@dataclass
class Place(Outside):
    """This computer, seen as the machines of one double would be: programs of the same names stand before its own."""

    folder: Path
    opened: Callable[[str], set[int]]
    """The ports that the double's firewall lets in to a machine of a key."""
    disk_gib: Callable[[str], int]
    keys: dict[str, str] = field(default_factory=dict)
    """Address -> key."""
    boots: dict[str, int] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    """What programs say instead."""

    def connects(self, address: str, port: int) -> bool:
        return port in self.opened(self.keys[address]) and super().connects(address, port)

    def run(self, endpoint: SshEndpoint, private_key: str, script: str, *arguments: str) -> str:
        self._furnish(self.keys[endpoint.host])
        set_up = f"PATH={self.folder}:$PATH HOME={self.folder}; export PATH HOME\n"
        script = set_up + script.replace(READY_MARK, f"{self.folder}/ready")
        return super().run(endpoint, private_key, script, *arguments)

    def _furnish(self, key: str) -> None:
        boot_id = f"{key}-boot-{self.boots.get(key, 0)}"
        usual = {
            "cloud-init": "echo status: done",
            "systemctl": "echo running",
            "lsblk": f"echo {self.disk_gib(key) << 30} disk; echo 1048576 part",
            "cat": f'case $1 in */boot_id) echo {boot_id};; *) exec /bin/cat "$@";; esac',
        }
        for name, body in {**usual, **self.said}.items():
            (self.folder / name).write_text(f"#!/bin/sh\n{body}\n")
            (self.folder / name).chmod(0o755)
        (self.folder / "ready").touch()


@dataclass(kw_only=True)
class Emulated:
    """A double, and what the suite needs of it. `made` are the clients that were made."""

    kind: str
    double: Any
    secrets: dict[str, Any]
    asked: dict[str, Any]
    place: Place
    machines: Machines
    lose: Callable[[], object]
    console: Callable[[str, str], object]
    """Let the machine of a key say something."""

    def client(self, base: Callable[[type[Client]], type[Client]] = lambda found: found) -> Client:
        """A client of its own; `base` may make another class of it."""
        kind = registry.kind(self.kind)
        assert isinstance(kind, CloudHost)
        made: Any = base(kind.client_class())
        client: Client = made(kind.Credential.model_validate(self.secrets))
        client.find_after = 0.5  # type: ignore[misc]
        return client

    def wish(self, client: Client, **other: Any) -> Wish:
        """A small machine."""
        kind = registry.kind(self.kind)
        words = kind.Config.model_validate({"credential": "x", "image": self.asked["image"]}).image.wanted()  # type: ignore[attr-defined]
        said = {"user": USER, "ssh_port": self.machines.port, **self.asked, "image": words, **other}
        return choose(client, Asking(**said))

    def environment(
        self, folder: Path, client: Client | None = None, *, whose: RunTags | None = None, **limits: Any
    ) -> Environment:
        """A new run."""
        client = client or self.client()
        quick = Limits(**{**QUICK.__dict__, **limits})
        return Environment(
            client, self.wish(client), whose or run_tags("validate-tests"), Journal(folder / "journal.jsonl"),
            limits=quick, outside=self.place,
        )  # fmt: skip


def _hooks(place: Place, machines: Machines, console: Callable[[Any], object]) -> dict[str, Any]:
    def on_start(machine: Any) -> str:
        address = machines.start(machine)
        place.keys[address] = machine.key
        place.boots[machine.key] = place.boots.get(machine.key, 0) + 1
        console(machine)
        return address

    return {"on_start": on_start, "on_end": machines.end}


@contextmanager
def ec2(machines: Machines, folder: Path) -> Iterator[Emulated]:
    """Amazon's."""
    place = Place(folder, lambda key: _ec2_ports(double, key), lambda key: _ec2_disk(double, key))

    def console(machine: Any) -> None:
        double.consoles.setdefault(machine.id, "login: ")

    with Ec2Double(**_hooks(place, machines, console)) as double:
        yield Emulated(
            kind="ec2", double=double, secrets={**double.secrets(), "price_list": False}, machines=machines,
            place=place, lose=lambda: double.plan.lose("RunInstances"),
            console=lambda key, text: double.consoles.update({_ec2_machine(double, key).id: text}),
            asked={
                "location": "us-east-1", "type": "t3.micro", "other_type": "m5.large", "image_pattern": "debian-12-*",
                "image": {"name": "debian-12-amd64-*", "owner": "136693071363"}, "kept_types": ("us-east-1/t3.micro",),
            },
        )  # fmt: skip


def _ec2_machine(double: Any, key: str) -> Any:
    return next(one for one in reversed(double._instances()) if double.machine(one).key == key)


def _ec2_ports(double: Any, key: str) -> set[int]:
    groups = _ec2_machine(double, key).security_groups
    return {
        port for group in groups for rule in group.ingress_rules if rule.from_port is not None
        for port in range(int(rule.from_port), int(rule.to_port) + 1)
    }  # fmt: skip


def _ec2_disk(double: Any, key: str) -> int:
    disks = _ec2_machine(double, key).block_device_mapping
    return max(int(one.size or 0) for one in [_volume(double, disk) for disk in disks.values()])


def _volume(double: Any, disk: Any) -> Any:
    return next(volumes[disk.volume_id] for one in double._backends() if disk.volume_id in (volumes := one.volumes))


@contextmanager
def gce(machines: Machines, folder: Path) -> Iterator[Emulated]:
    """Google's."""
    place = Place(folder, lambda key: _gce_ports(double, key), lambda key: _gce_disk(double, key))
    hooks = _hooks(place, machines, lambda machine: None)
    with GceDouble(**hooks, pace=Pace(operation=0.02, boot=0.05, second=0.01)) as double:
        yield Emulated(
            kind="gce", double=double, secrets=double.credential, machines=machines, place=place,
            lose=lambda: double.faults.lose("compute.instances.insert"),
            console=lambda key, text: double.world.consoles.update({_gce_id(double, key): text}),
            asked={
                "location": "us-central1", "type": "n2-standard-2", "other_type": "n2-standard-4",
                "image": {"project": "debian-cloud", "family": "debian-12"},
                "image_pattern": "debian-cloud/debian-12-*",
            },
        )  # fmt: skip
    assert double.violations == []


def _gce_ports(double: Any, key: str) -> set[int]:
    with double.world.lock:
        rules = [rule for name, rule in double.world.firewalls.items() if name.startswith(key)]
        return {int(port) for rule in rules for allowed in rule["allowed"] for port in allowed.get("ports", ())}


def _gce_id(double: Any, key: str) -> str:
    return next(str(one["id"]) for (_, name), one in double.world.instances.items() if name == key)


def _gce_disk(double: Any, key: str) -> int:
    return next(int(one["sizeGb"]) for one in double.world.disks.values() if one["name"] == key)


@contextmanager
def azure(machines: Machines, folder: Path) -> Iterator[Emulated]:
    """Microsoft's."""
    place = Place(folder, lambda key: _azure_ports(double, key), lambda key: _azure_disk(double, key))

    def console(machine: Any) -> None:
        double.say(machine.key, "login: ")

    with AzureDouble(duration=0.05, **_hooks(place, machines, console)) as double:
        yield Emulated(
            kind="azure", double=double, secrets=double.credential(), machines=machines, place=place,
            lose=double.lose, console=double.say,
            asked={
                "location": "eastus", "type": "Standard_D2s_v5", "other_type": "Standard_D4s_v5",
                "image": {"publisher": "Debian", "offer": "debian-12", "sku": "12-gen2"},
                "image_pattern": "Debian:debian-12:12-gen2",
            },
        )  # fmt: skip


def _azure_ports(double: Any, key: str) -> set[int]:
    with double.ground.lock:
        groups = [one for one in double.ground.things.of(NSG) if one.name == f"{key}-nsg"]
        rules = [rule["properties"] for one in groups for rule in one.properties.get("securityRules") or ()]
    return {int(rule["destinationPortRange"]) for rule in rules if rule.get("destinationPortRange", "*").isdigit()}


def _azure_disk(double: Any, key: str) -> int:
    with double.ground.lock:
        return next(
            int(one.properties["diskSizeGB"]) for one in double.ground.things.of(DISK) if one.name.startswith(key)
        )


CLOUDS = {"ec2": ec2, "gce": gce, "azure": azure}


@contextmanager
def cloud(name: str) -> Iterator[Emulated]:
    """One of them, with machines and a folder of its own."""
    machines, folder = Machines(), Path(tempfile.mkdtemp(prefix="drydock-validation-"))
    folder.chmod(0o755)
    try:
        with CLOUDS[name](machines, folder) as found:
            yield found
    finally:
        machines.close()
        shutil.rmtree(folder, ignore_errors=True)
