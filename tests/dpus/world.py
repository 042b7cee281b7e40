"""The machines: hosts with cards, their switches, and what an administrator registers of them in Kubernetes."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.dpus.api import DEVICE, DPU_NODE, NODE, PROVISIONING, Api, Json
from tests.dpus.generations import ENABLED, INSTALLING, Generation

NFD = "feature.node.kubernetes.io"
HOSTNAME = "kubernetes.io/hostname"
WORLD = "dpus.test/world"
"""Nodes belong to no namespace. This label says which double they belong to, so that tests can share a server."""


@dataclass(eq=False)
class Card:
    """A BlueField. It keeps running what was installed on it, also when its DPU is deleted in Kubernetes."""

    serial: str
    pci: str
    index: int
    model: str = "BlueField3"
    running: str = ""
    """URL of the image whose system runs, or nothing."""
    imaged: list[str] = field(default_factory=list)
    """URLs of all images that were installed, in order."""
    installing: str = ""
    """Name of the DPU that is being installed, from the first to the last byte."""

    @property
    def device(self) -> str:
        """Name of its DPUDevice."""
        return self.serial.strip().lower()

    def power_off(self) -> None:
        """Stop its system, as its BMC does."""
        self.running = ""


@dataclass(eq=False)
class Host:
    """A host. Its switches are for whoever may use them; a switch during an installation is a violation."""

    name: str
    """Name of its DPUNode or Node."""
    cards: list[Card]
    world: World
    on: bool = True
    boots: int = 0
    """How often it has booted since the test began, whoever asked."""
    reboots: list[str] = field(default_factory=list)
    """Who rebooted it."""

    def reboot(self, by: str = "test") -> None:
        """Reboot it, warm."""
        with self.world.lock:
            self._refuse_while_installing("rebooted", by)
            self.reboots.append(by)
            self.boots += 1

    def power_cycle(self, by: str = "test") -> None:
        """Take its power away, and switch it on again."""
        self.reboot(by)

    def power_off(self, by: str = "test") -> None:
        """Switch it off."""
        with self.world.lock:
            self._refuse_while_installing("switched off", by)
            self.on = False

    def power_on(self, by: str = "test") -> None:
        """Switch it on, which counts as a reboot if it was off."""
        with self.world.lock:
            if not self.on:
                self.on = True
                self.boots += 1
                self.reboots.append(by)

    def _refuse_while_installing(self, what: str, by: str) -> None:
        for card in self.cards:
            if card.installing:
                self.world.violate(f"{by} {what} host {self.name} during {INSTALLING} of DPU {card.installing}")


class World:
    """All machines of a double.

    `registrar` is the administrator's access: by it the world writes Nodes, DPUNodes and DPUDevices.
    """

    def __init__(
        self, registrar: Api, generation: Generation, violate: Callable[[str], None], lock: threading.RLock
    ) -> None:
        self.registrar, self.generation, self.violate, self.lock = registrar, generation, violate, lock
        self.hosts: dict[str, Host] = {}
        self.name = registrar.namespace
        self.suffix = hashlib.sha256(self.name.encode()).hexdigest()[:6]

    @property
    def cards(self) -> list[Card]:
        """All cards."""
        return [card for host in self.hosts.values() for card in host.cards]

    def host(
        self, name: str, cards: Sequence[str], *, register: bool = True, kubernetes: bool = False,
        reboot: Literal["external", "hostAgent"] = "external", labels: dict[str, str] | None = None,
    ) -> Host:  # fmt: skip
        """Add a host with cards of these serial numbers, and register it as this version of DPF has it.

        With `register=False` there are only the machines, and the test or the kind registers them. `kubernetes` makes
        it a Node too (in 24.10 it always is). The name is made unique, because Nodes of all tests are in one place:
        use `Host.name`.
        """
        made = [Card(serial, f"0000-{0x08 + 8 * number:02x}-00", number) for number, serial in enumerate(cards)]
        host = Host(f"{name}-{self.suffix}", made, self)
        with self.lock:
            self.hosts[host.name] = host
        if not register:
            return host
        labels = {ENABLED: "true", **(labels or {})}
        if not self.generation.devices:
            self._node(host, labels)
            return host
        owner = self._node(host, labels) if kubernetes else None
        for card in made:
            self._device(card)
        body: Json = {
            "metadata": {"name": host.name, "labels": labels},
            "spec": {"dpus": [{"name": card.device} for card in made], "nodeRebootMethod": {reboot: {}}},
        }
        if owner:
            reference = {"apiVersion": "v1", "kind": "Node", "name": host.name, "uid": owner["metadata"]["uid"]}
            body["metadata"]["ownerReferences"] = [reference]
        self.registrar.create(DPU_NODE, body)
        return host

    def find_card(self, serial: str) -> Card | None:
        """Return the card with a serial number, whatever blanks are around it."""
        return next((card for card in self.cards if card.serial.strip() == serial.strip()), None)

    def host_of(self, card: Card) -> Host:
        """Return the host that a card is in."""
        return next(host for host in self.hosts.values() if card in host.cards)

    def nodes(self, api: Api) -> list[Json]:
        """Return the Nodes that belong to this world."""
        return api.all(NODE, f"{WORLD}={self.name}")

    def remove_nodes(self, apis: Iterable[Api]) -> None:
        """Remove the Nodes of this world, which belong to no namespace, from all servers."""
        for api in apis:
            for node in self.nodes(api):
                api.delete(NODE, node["metadata"]["name"])

    def _node(self, host: Host, labels: dict[str, str]) -> Json:
        # The labels of DPF's own discovery, 24.10. They have no serial number: cards are told apart by address.
        found = {
            f"{NFD}/dpu-{card.index}-{key}": value
            for card in host.cards
            for key, value in (("pci-address", card.pci), ("pf0-name", f"ens{card.index + 1}f0np0"))
        }
        metadata = {"name": host.name, "labels": {**labels, **found, HOSTNAME: host.name, WORLD: self.name}}
        return self.registrar.create(NODE, {"metadata": metadata, "status": node_status(host.name)})

    def _device(self, card: Card) -> None:
        body = {"metadata": {"name": card.device}, "spec": {"serialNumber": card.serial, "numberOfPFs": 1}}
        self.registrar.create(DEVICE, body)


def node_status(name: str, ready: bool = True) -> Json:
    """Return the status that a kubelet reports."""
    condition = {"type": "Ready", "status": "True" if ready else "False", "reason": "KubeletReady", "message": ""}
    return {"conditions": [condition], "addresses": [{"type": "Hostname", "address": name}]}


def device_labels(card: Card) -> dict[str, str]:
    """Return the labels that discovery puts on a DPUDevice (docs of DPF 26.x)."""
    return {
        f"{PROVISIONING}/dpudevice-num-of-pfs": "1",
        f"{PROVISIONING}/dpudevice-pciAddress": card.pci,
        f"{PROVISIONING}/dpudevice-pf0-name": f"ens{card.index + 1}f0np0",
    }
