"""Machines on fake switches, and what their networks were at every moment.

`Journal` looks at the networks of a machine whenever it starts or a switch changes something. It knows which system
runs, so that it sees a tenant in the network of the ramdisk, the ramdisk in that of tenants, and two networks at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from blueprints.answers import Answer, Json, Ready
from blueprints.baremetal.power import bring
from blueprints.baremetal.sessions import session
from blueprints.bmc.contract import Boots
from blueprints.bmc.values import BootDevice, BootOverride, PowerState
from blueprints.contract import Plan, Step
from blueprints.networks.fake import FABRICS, Fabric
from blueprints.specs import Spec
from interfaces.keys import new_key_pair
from tests.blueprints.baremetal.ramdisk_bench import BMC, RamdiskHooks
from tests.blueprints.baremetal.scripted import Machine, machine

PORTS = ({"switch": "leaf-1", "port": "Ethernet1/1"}, {"switch": "leaf-2", "port": "Ethernet1/1"})
NETWORK = {
    "driver": "fake", "settings": {"fabric": "test"}, "provisioning": "deploy", "cleaning": "wash",
    "tenant": ["blue", "green"],
}  # fmt: skip
TENANTS, OURS = {"blue", "green"}, {"deploy", "wash"}


@dataclass
class Journal:
    """The networks of a machine over time."""

    fabric: Fabric
    bmc: Any
    runs: Any
    """Returns what runs on the machine: `ramdisk`, `disk`, or an empty string."""
    boots: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    """What was booted, and in which networks."""
    wrong: list[str] = field(default_factory=list)

    def there(self) -> set[str]:
        """The networks of the machine, by any of its ports."""
        return set().union(*self.fabric.networks.values())

    def look(self) -> None:
        """Note what must never be."""
        runs, there = self.runs(), self.there()
        if len(there) > 1:
            self.wrong.append(f"it is in {sorted(there)}")
        if runs == "disk" and there & OURS:
            self.wrong.append(f"the system of a tenant is in {sorted(there)}")
        if runs == "ramdisk" and there & TENANTS:
            self.wrong.append(f"the ramdisk is in {sorted(there)}")

    def changed(self) -> None:
        """Look after a change of a switch. The machine must be off."""
        if self.bmc.state is not PowerState.OFF:
            self.wrong.append(f"it is moved to {sorted(self.there())} while it runs {self.runs()}")
        self.look()

    def started(self) -> None:
        """Look after a start."""
        self.boots.append((self.runs(), tuple(sorted(self.there()))))
        self.look()


class Stand:
    """What runs on a machine without a system: it is known by the boot device that was chosen."""

    def __init__(self) -> None:
        self.runs = ""
        self.bmc: Machine | None = None
        self.journal: Journal | None = None

    def again(self) -> None:
        """Start."""
        assert self.bmc is not None
        assert self.journal is not None
        chosen = self.bmc.override
        self.runs = "ramdisk" if chosen is not None and chosen.device is BootDevice.MEDIUM else "disk"
        self.bmc.override = None
        self.journal.started()

    def stop(self) -> None:
        """Lose the power."""
        self.runs = ""


def start_ramdisk(spec: Spec, memo: Json) -> Answer:
    """Boot the ramdisk, without its media."""
    with session(spec.resource, 5) as bmc:
        assert isinstance(bmc, Boots)
        if (off := bring(bmc, spec, {}, PowerState.OFF, at_once=True)) is not None:
            return off
        bmc.set_boot(BootOverride(device=BootDevice.MEDIUM))
        return bring(bmc, spec, {}, PowerState.ON) or Ready(power="on")


KEPT = {
    "inspect", "ramdisk_keys", "isolate", "halt", "provisioning_record", "provisioning_network", "cleaning_record",
    "cleaning_network", "tenant_record", "tenant_network", "no_network", "power_off", "ramdisk_leave", "disk_boot",
}  # fmt: skip


def shortened(plan: Plan) -> Plan:
    """Return the steps of a plan that switch power and networks. The ramdisk only boots; its work is left out."""
    boots = {"ramdisk_boot": start_ramdisk}
    return tuple(
        replace(step, act=boots.get(step.name, step.act)) for step in plan if step.name in KEPT or step.name in boots
    )


class Rack(RamdiskHooks):
    """A machine whose systems are only names."""

    pace = 0.0

    def __init__(self, bmc: Machine, journal: Journal) -> None:
        self.bmc, self.journal, self.fabric = bmc, journal, journal.fabric
        self.server: Any = SimpleNamespace(url="http://127.0.0.1:9", image=b"image")
        place = {"address": "127.0.0.1", "port": 22, "user": "root"}
        self.guest: Any = SimpleNamespace(port=22, control=new_key_pair("control"), registration=lambda: place)
        self.given: Json = {"network": NETWORK}
        self.ramdisk: Json = {}
        self.ports: Sequence[Json] = PORTS

    def registration(self) -> Json:
        return {**super().registration(), "ports": list(self.ports)}

    def requirements(self) -> Json:
        return {"image": "small", "network": "green"}

    def plan(self, phase: str) -> Plan:
        return shortened(super().plan(phase))


@contextmanager
def fabric(name: str = "test") -> Iterator[Fabric]:
    """Switches under a name."""
    made = FABRICS[name] = Fabric()
    try:
        yield made
    finally:
        del FABRICS[name]


@contextmanager
def rack() -> Iterator[Rack]:
    """A machine that is off, on switches of its own."""
    stand: Any = Stand()
    with fabric() as switches, machine(BMC, stand, state=PowerState.OFF, drives={"CD1": "", "CD2": ""}) as bmc:
        journal = Journal(switches, bmc, lambda: stand.runs)
        stand.bmc, stand.journal, switches.changed = bmc, journal, journal.changed
        made = Rack(bmc, journal)
        yield made
        journal.runs = lambda: ""  # the machine is switched on again at the end
    assert journal.wrong == []


def steps(plan: Plan) -> list[str]:
    """The names of the steps."""
    return [step.name for step in plan if isinstance(step, Step)]
