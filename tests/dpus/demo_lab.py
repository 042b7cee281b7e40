"""What `make demo-dpu` stands on: DPF's doubles on two real API servers, hosts and cards with BMCs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kube import apiserver

NAMESPACE = "dpf-operator-system"
OLD, NEW = "http://127.0.0.1:1/bf-bundle-3.1.0.bfb", "http://127.0.0.1:1/bf-bundle-3.2.0.bfb"
CARDS = {"h1": ("MT2400X00001", "MT2400X00002"), "h2": ("MT2400X00003",)}
"""The serial numbers of the cards that DPF knows, by host."""
CHART = {"repository": "oci://charts.example.org/doca", "name": "firewall"}
FLAVOR = {
    "bfcfgParameters": ["WITH_NIC_FW_UPDATE=no"],
    "grub": {"kernelParameters": ["hugepagesz=2M", "hugepages=512"]},
}
TICK = 0.3
"""Seconds in a phase of DPF's double, and ten times as long in OS Installing."""
AS_ROOT = os.geteuid() == 0


class DemoLab:
    """DPF with two hosts, and a card that only its BMC knows."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        from tests.dpf.bmc import card_bmc
        from tests.dpus.api import NAMESPACE as NAMESPACES
        from tests.dpus.api import Api
        from tests.dpus.double import Double
        from tests.dpus.generations import INSTALLING
        from tests.dpus.images import Image
        from tests.dpus.user import User

        folder.mkdir()
        new, old = (stack.enter_context(_server(version, folder / version)) for version in ("26.4", "24.10"))
        admin = Api(new.kubeconfig, namespace=NAMESPACE)
        admin.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        admin.close()
        self.double = stack.enter_context(Double(new.kubeconfig, namespace=NAMESPACE, cluster=old.kubeconfig))
        self.double.images.update({OLD: Image(), NEW: Image()})
        self.double.dwell[INSTALLING] = 10
        self.hosts = {name: self.double.world.host(name, list(serials)) for name, serials in CARDS.items()}
        self.user = User(self.double, new.kubeconfig)
        stack.callback(self.user.close)
        self.bmcs = {card.serial: stack.enter_context(card_bmc(card.serial)) for card in self.double.world.cards}
        for card in self.double.world.cards:
            self.bmcs[card.serial].on_off = card.power_off
        self.bmc: Any = None
        self.card: Any = None
        if AS_ROOT:
            self._card_with_bmc(folder, stack)
        self.servers = {name: stack.enter_context(self._server_of(name)) for name in CARDS}
        self.double.start(TICK)

    def _card_with_bmc(self, folder: Path, stack: contextlib.ExitStack) -> None:
        from tests.bluefield.dpus import PASSWORD, publish, resources, web
        from tests.bmc.bluefield import bluefield
        from tests.bmc.flashing import flashing

        self.images = stack.enter_context(web(folder / "images"))
        publish(self.images)
        self.bmc = stack.enter_context(bluefield(resources()))
        self.bmc.set(PASSWORD)
        self.card = stack.enter_context(flashing(self.bmc))

    def _server_of(self, name: str) -> Any:
        """Return a server with a BMC, whose starts are those of the host with the cards."""
        from tests.metal.demo import server

        host, number = self.hosts[name], list(CARDS).index(name) + 1
        about = {"name": name, "serial": f"SN-{name}", "macs": (f"52:54:00:00:02:{number:02}",)}
        return server(f"127.9.16.{number}", on_start=lambda: host.power_cycle(by="drydock"), **about)

    def registration(self, name: str, user: str) -> dict[str, Any]:
        """Return how a host is registered."""
        double, guest = self.servers[name]
        bmc = {"driver": "redfish", **double.access()}
        shared = {"slots": 8} if AS_ROOT else {}  # without accounts of their own, one lease has the whole host
        about = {"name": self.hosts[name].name, "serial": f"SN-{name}", "bmc": bmc}
        return {**guest.registration(user), **about, **shared}

    def begin(self) -> None:
        """Count the reboots from now on."""
        for host in self.hosts.values():
            host.reboots.clear()

    def account(self) -> str:
        """Return the kubeconfig of Drydock's account, with the least role."""
        from tests.dpf.accounts import least

        return least(self.user)

    @property
    def reboots(self) -> dict[str, int]:
        """How often each host was rebooted."""
        return {name: len(host.reboots) for name, host in self.hosts.items()}

    @property
    def installing(self) -> bool:
        """Whether a card is being installed at this moment."""
        return any(card.installing for card in self.double.world.cards)

    def running(self) -> list[str]:
        """Return the serial numbers of the cards on which a system runs."""
        found = [card.serial for card in self.double.world.cards if card.running]
        return found + ([f"the card of {self.card.address}"] if self.card and self.card.running else [])

    def left(self) -> list[str]:
        """Return the objects on the API servers that were made for Drydock."""
        from tests.dpus.api import BFB, CHAIN, CLUSTER, FLAVOR, INTERFACE, IPAM, SERVICE, name_of

        kinds = (BFB, CLUSTER, FLAVOR, SERVICE, CHAIN, INTERFACE, IPAM)
        return self.user.left() + [f"{kind.name} {name_of(one)}" for kind in kinds for one in self.user.all(kind)]


@contextlib.contextmanager
def _server(version: str, folder: Path) -> Iterator[apiserver.Server]:
    try:
        yield apiserver.start(version, folder)
    finally:
        apiserver.Server(version, folder).stop()


def missing() -> str:
    """Return why the demo cannot run here; empty if it can."""
    return apiserver.missing()
