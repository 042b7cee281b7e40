"""A host with a ramdisk that really boots is in the right network at each boot, and keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from blueprints.answers import Json
from blueprints.bmc.values import PowerState
from blueprints.testing.conformance import Outside
from interfaces.ssh.pool import POOL
from tests.blueprints.baremetal.network_bench import NETWORK, PORTS, Journal, fabric
from tests.blueprints.baremetal.ramdisk_bench import BMC, RamdiskHooks, media_server
from tests.blueprints.baremetal.scripted import machine, scripted
from tests.blueprints.host_peers import WORKER
from tests.bmc.guests import Guests, guests

__all__ = ["scripted"]
pytestmark = [pytest.mark.timeout(900, func_only=True), pytest.mark.usefixtures("scripted")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with media_server(tmp_path_factory.mktemp("image")) as running:
        yield running


class Networked(RamdiskHooks):
    """A host whose networks are watched."""

    journal: Journal

    def registration(self) -> Json:
        return {**super().registration(), "ports": list(PORTS)}

    def outside(self) -> Sequence[Outside]:
        attached = [Outside(name=f"network {name}") for name in sorted(self.journal.there())]
        return [*super().outside(), *attached]

    def seen_of_act(self, resource: Any, act: str) -> Json:
        return {**super().seen_of_act(resource, act), "networks": sorted(self.journal.there())}

    def watch(self, guest: Guests, bmc: Any, switches: Any) -> None:
        """Note what is wrong with the networks at each change and each start."""
        self.journal = Journal(switches, bmc, lambda: guest.runs)
        switches.changed = self.journal.changed
        real = guest.switched

        def switched(state: PowerState) -> None:
            real(state)
            if state is PowerState.ON:
                self.journal.started()

        guest.switched = switched  # type: ignore[method-assign]


@pytest.fixture
def bed(server: Any, tmp_path: Path, scripted: None) -> Iterator[Networked]:
    tmp_path.chmod(0o755)
    made = Networked()
    made.server, made.given, made.ramdisk = server, {"network": NETWORK}, {}
    drives = {"CD1": "", "CD2": ""}
    with (
        guests(tmp_path / "guest", f"127.9.11.{WORKER + 1}") as made.guest,
        fabric() as switches,
        machine(BMC, made.guest, state=PowerState.OFF, drives=drives) as made.bmc,
    ):
        made.guest.machine = made.bmc  # type: ignore[assignment]
        made.watch(made.guest, made.bmc, switches)
        yield made
        POOL.close_idle(0)
    assert made.journal.wrong == []


def test_a_machine_boots_in_the_network_of_each_phase(bed: Networked) -> None:
    lease = bed.activated(bed.lease(bed.built()))
    assert bed.journal.boots == [("ramdisk", ("deploy",)), ("ramdisk", ("deploy",)), ("disk", ("blue",))]
    outcome = bed.ready("deactivate", lease.resource, lease)
    assert bed.journal.there() == set()
    assert outcome.spec.lease is not None
    clean = bed.ready("clean", outcome.spec.resource, outcome.spec.lease)
    assert bed.journal.boots[3:] == [("ramdisk", ("wash",))]
    assert bed.journal.there() == set()
    bed.destroyed(clean.spec.resource)


@pytest.mark.slow
class TestNetworks(Networked):
    """All of the conformance suite, with a machine that is moved between networks."""

    @pytest.fixture(autouse=True)
    def _machine(self, server: Any, tmp_path: Path, scripted: Any) -> Iterator[None]:
        tmp_path.chmod(0o755)
        self.server, self.given, self.ramdisk = server, {"network": NETWORK}, {}
        with guests(tmp_path / "guest", f"127.9.12.{WORKER + 1}") as self.guest, fabric() as switches:
            drives = {"CD1": "", "USB": ""}
            with machine(BMC, self.guest, state=PowerState.OFF, drives=drives) as self.bmc:
                self.guest.machine = self.bmc  # type: ignore[assignment]
                self.watch(self.guest, self.bmc, switches)
                yield
                assert self.bmc.most_open <= 1
                assert not self.inserted(), "a medium was left inserted"
            POOL.close_idle(0)
        assert self.journal.wrong == []
        assert not self.guest.problems
