"""The device nodes of an accelerator: those that only its lease opens, and those that several devices share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from blueprints.accelerators.config import Config
from blueprints.answers import Json
from blueprints.devices import Device, Node
from drydock_agent import Device as Found
from drydock_agent import Hardware

_SHARED: Mapping[str, tuple[str, ...]] = {
    "1002": ("/dev/kfd",),
    "10de": ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"),
    "19e5": ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"),
}
"""Nodes that programs need besides that of their device, by PCI vendor id."""
_OPENED = ("gpu", "gpu_slice", "npu")
"""Classes whose devices programs use through nodes only. Without known nodes a lease on one would be of no use."""
_BLOCK_DEVICES = ("nvme",)
_VFIO = "vfio-pci"


class Nodes(NamedTuple):
    """Paths of nodes."""

    own: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()


def nodes_of(config: Config, hardware: Hardware, device: Found, *, captured: bool) -> Nodes:
    """Return the nodes of a device. A captured device has those that the config names."""
    if captured:
        return Nodes(config.nodes.get(device.id, ()))
    if device.driver == _VFIO and device.iommu_group is not None:
        return Nodes((f"/dev/vfio/{device.iommu_group}",), ("/dev/vfio/vfio",))
    if not device.nodes or device.device_class in _BLOCK_DEVICES:
        return Nodes()
    whole = hardware.device(device.part_of)
    vendor = device.vendor_id or (whole.vendor_id if whole else "")
    of_whole = whole.nodes if whole and device.device_class == "gpu_slice" else ()
    return Nodes(device.nodes, (*of_whole, *_SHARED.get(vendor, ())))


def isolated(known: Json) -> Device:
    """Return a device, from the facts of its resource, by the names that its nodes and the tools of its vendor use."""
    names = known["identities"]
    uuid = names.get("uuid") or (f"GPU-{names['unique_id']}" if "unique_id" in names else "")
    own = [Node(path=path) for path in known["nodes"]]
    shared = [Node(path=path, shared=True) for path in known.get("shared", ())]
    return Device(
        id=known["id"], device_class=known["class"], vendor=known["vendor"], uuid=uuid, nodes=(*own, *shared)
    )  # fmt: skip


def lacks_nodes(known: Mapping[str, Any]) -> bool:
    """Return whether a device that is used through nodes has none that are known."""
    return known["class"] in _OPENED and not known["nodes"] and not known["captured"]
