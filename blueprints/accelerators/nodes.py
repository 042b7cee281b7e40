"""The device nodes of an accelerator, and the names by which the tools of its vendor address it.

There are nodes that only its lease opens, and nodes that several devices share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from blueprints.accelerators.config import Config
from blueprints.answers import Json
from blueprints.devices import Device, Node
from blueprints.specs import Spec
from drydock.core.errors import InvalidRequest
from drydock_agent import Device as Found
from drydock_agent import Hardware
from drydock_agent.drivers.nvidia import VENDOR
from drydock_agent.pci import address

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
    """Return a device, from the facts of its resource, by the names that its nodes and the tools of its vendor use.

    Raises InvalidRequest if one of them is not valid.
    """
    names = known["identities"]
    uuid = names.get("uuid") or (f"GPU-{names['unique_id']}" if "unique_id" in names else "")
    own = [Node(path=path) for path in known["nodes"]]
    shared = [Node(path=path, shared=True) for path in known.get("shared", ())]
    return Device(
        id=known["id"], device_class=known["class"], vendor=known["vendor"], uuid=uuid, nodes=(*own, *shared)
    )  # fmt: skip


def closable(known: Json) -> Device:
    """Return a device with those nodes only that can be closed. Reported names that are not valid were never opened."""
    kept = {name: [path for path in known.get(name, ()) if _is_node(path)] for name in ("nodes", "shared")}
    try:
        return isolated(known | kept | {"identities": {}})
    except InvalidRequest:
        return isolated(known | kept | {"identities": {}, "id": "unnamed", "class": "", "vendor": ""})


def _is_node(path: object) -> bool:
    try:
        Node(path=str(path))
    except InvalidRequest:
        return False
    return True


def why_not_named(known: Json) -> str:
    """Return why the names of a reported device cannot be used on its host, or an empty string."""
    try:
        isolated(known)
        if is_nvidia_gpu(known):
            gpu_address(known)
    except InvalidRequest as error:
        return str(error)
    return ""


def is_nvidia_gpu(known: Json) -> bool:
    """Return whether nvidia-smi manages the device."""
    return known["vendor"] == VENDOR and known["class"] in ("gpu", "gpu_slice")


def gpu_address(known: Json) -> str:
    """Return the PCI address of an NVIDIA GPU, or of the GPU that a slice is part of.

    Raises InvalidRequest if it is not exactly one: nvidia-smi takes lists, and the id of a slice begins with that of
    its GPU. Both come from a report, which an agent that was taken over can forge.
    """
    id, part_of, is_slice = str(known["id"]), known["part_of"], known.get("class") == "gpu_slice"
    whole = id.partition("/")[0] if is_slice else id
    if address(whole) != whole or (is_slice and part_of != whole):
        named = f"{id!r:.60}" + (f", part of {part_of!r:.60}," if part_of else "")
        raise InvalidRequest(
            f"{named} does not name one GPU by its PCI address, such as 0000:3b:00.0, so nvidia-smi is not run for it.",
            field="id",
        )
    return whole


_OPENED_BY = ("id", "class", "vendor", "nodes", "shared", "captured", "part_of", "attach")


def opens(spec: Spec) -> Json:
    """Return the facts of a lease about the device that is opened to it."""
    known = spec.resource.facts["device"]
    names = {name: known["identities"][name] for name in ("uuid", "unique_id") if name in known["identities"]}
    return {name: known[name] for name in _OPENED_BY if name in known} | {
        "identities": names, "resource": spec.resource.id,
    }  # fmt: skip


def known_of(spec: Spec) -> Json:
    """Return what is known of the device: as it was opened to the lease if there is one, else as last reported.

    Reports during a lease do not change this list.
    """
    known: Json = spec.resource.facts["device"]
    facts = spec.lease.facts if spec.lease is not None else {}
    opened: Json = facts.get("opens", {})
    if opened and opened["resource"] == spec.resource.id:
        return known | opened
    if not opened and facts.get("device") == known["id"]:
        return known | {"nodes": facts["nodes"]}  # an earlier version opened it
    return known


def lacks_nodes(known: Mapping[str, Any]) -> bool:
    """Return whether a device that is used through nodes has none that are known."""
    return known["class"] in _OPENED and not known["nodes"] and not known["captured"]
