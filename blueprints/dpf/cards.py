"""The cards that DPF knows, read from DPUDevices or, on servers without them, from the labels of Nodes.

DPF 24.10 describes cards by labels that its DPU detector and Node Feature Discovery write
(doca-platform v24.10, `cmd/dpudetector/main.go`); later versions have the kinds DPUDevice and DPUNode.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blueprints.answers import Json
from blueprints.bluefield import usual_memory_gib
from blueprints.kube import NODE, Cluster, Dialect, Object, selector

FEATURE = "feature.node.kubernetes.io/"
"""Prefix of the labels of Node Feature Discovery."""
GROUP = "provisioning.dpu.nvidia.com/"
DEVICE_NODE = f"{GROUP}dpunode-name"
DEVICE_PCI = f"{GROUP}dpudevice-pciAddress"
HOSTNAME = "kubernetes.io/hostname"
_LABEL = re.compile(rf"{re.escape(FEATURE)}dpu-(\d{{1,3}})-pci-address\Z")


@dataclass(frozen=True, kw_only=True)
class Card:
    """A card in a node of the cluster, as DPF describes it."""

    name: str
    """The name of its DPUDevice; for cards described by labels, that of the node and the index."""
    node: str
    """The name of its DPUNode or Node; empty if it is in none."""
    pci: str
    """The PCI address as DPF writes it, such as `0000-2b-00`."""
    serial: str = ""
    model: str = ""
    psid: str = ""
    opn: str = ""
    bmc: Mapping[str, Any] = field(default_factory=dict)
    """Address and port of its BMC; empty if DPF does not report them."""
    problem: str = ""
    """Why no DPU can be built on it now."""
    node_labels: Mapping[str, str] | None = None
    """The labels that select its node."""
    card_labels: Mapping[str, str] | None = None
    """The labels that select the card among those of its node."""

    @property
    def identity(self) -> str:
        """The serial number, or node and PCI address where DPF reports no serial numbers."""
        return self.serial or f"{self.node}/{self.pci}"

    @property
    def memory_gib(self) -> int | None:
        """The usual memory of its generation in GiB; None if that is unknown."""
        return usual_memory_gib(self.model)

    def facts(self) -> Json:
        """Return what a DPUSet needs in order to select the card."""
        return {
            "device": self.name, "node": self.node, "pci": self.pci, "serial": self.serial, "psid": self.psid,
            "opn": self.opn, "node_labels": dict(self.node_labels or {}), "card_labels": dict(self.card_labels or {}),
            "bmc": dict(self.bmc),
        }  # fmt: skip


def uses_devices(dialect: Dialect) -> bool:
    """Return whether cards are DPUDevices, and not labels of Nodes."""
    return dialect.has("DPUDevice") and dialect.has("DPUSet", "spec.dpuDeviceSelector")


def of_devices(devices: Sequence[Object], nodes: Sequence[Object]) -> list[Card]:
    """Return the cards that DPUDevices describe."""
    within = {
        str(one.get("name")): node for node in nodes for one in node.spec.get("dpus") or () if isinstance(one, dict)
    }
    return [_of_device(device, within.get(device.name)) for device in devices]


def _of_device(device: Object, node: Object | None) -> Card:
    said = {**device.spec, **{key: value for key, value in device.status.items() if value not in ("", None)}}
    name = device.labels.get(DEVICE_NODE) or (node.name if node is not None else "")
    pci = str(said.get("pciAddress") or device.labels.get(DEVICE_PCI) or "")
    labels = {key: device.labels[key] for key in (DEVICE_NODE, DEVICE_PCI) if device.labels.get(key)}
    serial = str(said.get("serialNumber") or "").strip()
    model = str(said.get("dpuType") or "")
    return Card(
        name=device.name, node=name, pci=pci, serial=serial, model="" if model == "Unknown" else model,
        psid=str(said.get("psid") or ""), opn=str(said.get("opn") or ""), problem=_problem(device, name),
        node_labels={}, card_labels=labels,
        bmc={"address": said["bmcIp"], "port": said.get("bmcPort")} if said.get("bmcIp") else {},
    )  # fmt: skip


def _problem(device: Object, node: str) -> str:
    if device.deleting:
        return f"DPUDevice {device.name} is being deleted."
    if not node:
        return f"DPUDevice {device.name} is in no DPUNode."
    wrong = device.condition("Error")
    if wrong is not None and wrong.true:
        return f"DPUDevice {device.name} has an error: {wrong.reason} {wrong.message}".strip()
    ready = device.condition("Ready")
    if ready is not None and not ready.true:
        return f"DPUDevice {device.name} is not ready: {ready.reason} {ready.message}".strip()
    return ""


def of_nodes(nodes: Sequence[Object]) -> list[Card]:
    """Return the cards that labels of Nodes describe."""
    return [card for node in nodes for card in _of_node(node)]


def _of_node(node: Object) -> Iterator[Card]:
    for label, pci in sorted(node.labels.items()):
        found = _LABEL.match(label)
        if found is None or not pci:
            continue
        psid = node.labels.get(f"{FEATURE}dpu-{found[1]}-ps-id", "")
        yield Card(
            name=f"{node.name}-{found[1]}", node=node.name, pci=pci, psid=psid,
            problem=f"Node {node.name} is being deleted." if node.deleting else "",
            node_labels={HOSTNAME: node.labels.get(HOSTNAME, node.name)}, card_labels={label: pci},
        )  # fmt: skip


def all_cards(cluster: Cluster, dialect: Dialect, namespace: str, nodes: Mapping[str, str] | None = None) -> list[Card]:
    """Read the cards that DPF knows; where Nodes describe them, of Nodes with the labels `nodes`. Raises KubeError."""
    if not uses_devices(dialect):
        return of_nodes(cluster.list(NODE, labels=selector(nodes or {})))
    devices = cluster.list(dialect.type("DPUDevice"), namespace)
    return of_devices(devices, cluster.list(dialect.type("DPUNode"), namespace))


def read_selected(cluster: Cluster, dialect: Dialect, namespace: str, card: Mapping[str, Any]) -> list[Card]:
    """Read the cards that a DPUSet for a card with these facts selects. The server looks for them. Raises KubeError."""
    if not card.get("card_labels"):
        return all_cards(cluster, dialect, namespace)
    labels = selector({**(card.get("node_labels") or {}), **card["card_labels"]})
    if not uses_devices(dialect):
        return selected(card, of_nodes(cluster.list(NODE, labels=labels)))
    return selected(card, of_devices(cluster.list(dialect.type("DPUDevice"), namespace, labels=labels), ()))


def selected(card: Mapping[str, Any], among: Sequence[Card]) -> list[Card]:
    """Return the cards that a DPUSet for a card with these facts selects. It must be exactly this card."""
    if not card.get("card_labels"):
        return list(among)
    wanted = {**(card.get("node_labels") or {}), **card["card_labels"]}
    return [one for one in among if wanted.items() <= {**(one.node_labels or {}), **(one.card_labels or {})}.items()]


def dpus_on(card: Mapping[str, Any], dpus: Sequence[Object]) -> list[Object]:
    """Return the DPUs on a card with these facts."""
    found = []
    for dpu in dpus:
        pci = dpu.spec.get("pciAddress") or dpu.labels.get(f"{GROUP}dpu-pciAddress")
        on_node = dpu.spec.get("nodeName") == card.get("node") and pci == card.get("pci")
        if on_node or dpu.spec.get("dpuDeviceName") == card.get("device"):
            found.append(dpu)
    return found
