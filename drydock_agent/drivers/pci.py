"""All PCI functions: ids, class, kernel driver, NUMA node, IOMMU group, link, PF and VFs."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache

from drydock_agent import pci
from drydock_agent.driver import Findings
from drydock_agent.facts import Device, Health, Link, Readiness, Value, changed
from drydock_agent.tree import Tree, integer

_LINK_FILES = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")

_COUNTERS = (
    ("aer_dev_fatal", "TOTAL_ERR_FATAL", "pcie_fatal"),
    ("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL", "pcie_nonfatal"),
    ("aer_dev_correctable", "TOTAL_ERR_COR", "pcie_correctable"),
)
"""Each file of PCIe's advanced error reporting, the line with its total, and the name of the counter."""

_FILES = ("uevent", "driver", "iommu_group", "physfn", "virtfn*", "infiniband", *sorted(pci.ATTRIBUTES))

_UNKNOWN = Device(id="")

PASS_THROUGH = ("vfio-pci", "pci-stub", "xen-pciback")
"""Kernel drivers that reserve a function for pass-through to a guest."""


class Pci:
    """Reports every PCI function, with facts that are the same for all vendors. Other drivers add their own."""

    name = "pci"
    classes = ("gpu", "accelerator", "coprocessor", "crypto", "nic", "vf", "nvme")
    paths = (
        pci.FUNCTIONS + "/*",
        *(f"{pci.FUNCTIONS}/*/{one}" for one in _FILES),
        "sys/kernel/iommu_groups/*/devices/*",
    )
    tools: dict[str, tuple[str, ...]] = {}

    def read(self, tree: Tree) -> Findings:
        """Return facts about every PCI function."""
        for name in tree.names(pci.FUNCTIONS):
            if pci.address(name) != name:
                tree.warn(f"{pci.FUNCTIONS}/{name}", "The entry was skipped, because its name is not a PCI address.")
        texts = pci.attributes(tree)
        devices = [_function(tree, one, ids, texts[one]) for one, ids in pci.functions(tree).items()]
        return Findings(devices=tuple(_grouped(tree, _narrow(devices))))


def _function(tree: Tree, address: str, ids: pci.Ids, texts: Mapping[str, str]) -> Device:
    folder = f"{pci.FUNCTIONS}/{address}"
    present = tree.names(folder)
    vendor, device, pci_class = ids
    driver = pci.bound_to(tree, address)
    kind = pci.kind_of(pci_class, "infiniband" in present)
    numa = integer(texts.get("numa_node"))
    function_of = pci.owner_of(tree.link(f"{folder}/physfn")) if "physfn" in present else ""
    is_vf = bool(function_of) or "physfn" in present or pci.is_vf_by_id(vendor, device, driver)
    role = pci.role_of(kind, vendor, device, is_vf)
    total = integer(texts.get("sriov_totalvfs"))
    readiness, reason = _readiness(kind, role, driver)
    root, parent = _place((tree.link(folder) or "").rpartition("/")[0])
    attributes: dict[str, Value] = {}
    if texts.get("boot_vga") == "1":
        attributes["boot_vga"] = True
    if (enabled := integer(texts.get("sriov_numvfs"))) is not None:
        attributes["enabled_vfs"] = enabled
    if driver in PASS_THROUGH:
        attributes["pass_through"] = True
    return changed(
        _UNKNOWN, id=address, part_of=function_of, kind=kind, device_class=_class(kind, role, is_vf), role=role,
        pci_class=pci_class, vendor_id=vendor, device_id=device,
        subsystem_vendor_id=pci.hexadecimal(texts.get("subsystem_vendor", ""), 4),
        subsystem_device_id=pci.hexadecimal(texts.get("subsystem_device", ""), 4),
        revision=pci.hexadecimal(texts.get("revision", ""), 2), driver=driver,
        numa_node=numa if numa is not None and numa >= 0 else None, local_cpus=texts.get("local_cpulist", ""),
        iommu_group=_group(tree, folder, present), parent=parent, root=root, link=_link(texts),
        total_vfs=total, vfs=_vfs(tree, folder, present), attributes=attributes, readiness=readiness, reason=reason,
        counters=_counters(texts),
    )  # fmt: skip


def _class(kind: str, role: str, is_vf: bool) -> str:
    if is_vf:
        return "vf"
    if role == "lease_candidate":
        return kind
    return {"nic": "nic", "infiniband": "nic", "nvme": "nvme"}.get(kind, "")


def _readiness(kind: str, role: str, driver: str) -> tuple[Readiness, str]:
    if kind in ("bridge", "other") and role != "part":
        what = "a bridge" if kind == "bridge" else "not a device that leases use"
        return Readiness.UNSUPPORTED, f"This function is {what}."
    if not driver:
        return Readiness.SETUP_REQUIRED, "No kernel driver is bound to the device."
    if driver in PASS_THROUGH:
        return Readiness.READY, f"The device is bound to {driver}, for use in a guest."
    return Readiness.READY, f"The kernel driver {driver} is bound to the device."


@lru_cache(maxsize=1024)
def _place(folder: str) -> tuple[str, str]:
    """Return the root bus and the bridge above the functions in a folder below sys/devices."""
    parts = folder.split("/")
    above = [one for one in parts if pci.address(one) == one]
    return next((one for one in parts if one.startswith("pci")), ""), above[-1] if above else ""


def _group(tree: Tree, folder: str, present: tuple[str, ...]) -> int | None:
    name = tree.link_name(f"{folder}/iommu_group") if "iommu_group" in present else ""
    return int(name) if name.isascii() and name.isdigit() and len(name) < 10 else None


def _vfs(tree: Tree, folder: str, present: tuple[str, ...]) -> tuple[str, ...]:
    links = present[bisect_left(present, "virtfn") : bisect_left(present, "virtfo")]  # they are sorted
    if not links:
        return ()
    found = {pci.owner_of(tree.link(f"{folder}/{name}")) for name in links}
    return tuple(sorted(found - {""}, key=pci.order))


def _link(texts: Mapping[str, str]) -> Link | None:
    values = {name: texts[name].split(" ")[0] for name in _LINK_FILES if name in texts}
    if not values:
        return None

    def speed(name: str) -> float | None:
        try:
            return float(values.get(name, "")) or None
        except ValueError:
            return None  # "Unknown"

    def width(name: str) -> int | None:
        text = values.get(name, "")
        lanes = int(text) if text.isascii() and text.isdigit() else 0
        return lanes if 0 < lanes <= 64 else None  # 255: the kernel does not know

    found = Link(
        speed=speed("current_link_speed"), width=width("current_link_width"),
        max_speed=speed("max_link_speed"), max_width=width("max_link_width"),
    )  # fmt: skip
    return None if found == Link() else found


def _counters(texts: Mapping[str, str]) -> dict[str, int]:
    """Return how many errors PCIe's advanced error reporting has counted since the machine started.

    Source: Documentation/ABI/testing/sysfs-bus-pci-devices-aer in the kernel. A count that is zero is left out. Even a
    sound function may have some, because the enumeration of a bus counts as unsupported requests.
    """
    found = {}
    for file, total, name in _COUNTERS:
        if file not in texts:
            continue
        lines = texts[file].splitlines()
        count = next((line.split()[-1] for line in lines if line.startswith(total)), "0")
        if count.isascii() and count.isdigit() and len(count) < 19 and int(count):
            found[name] = int(count)
    return found


def _narrow(devices: list[Device]) -> list[Device]:
    """Add a problem to devices whose link has fewer lanes than they and the port above them can use."""
    by_id = {one.id: one for one in devices}
    found = []
    for one in devices:
        above = by_id.get(one.parent)
        own, port = one.link, above.link if above else None
        if one.kind not in ("bridge", "other") and own and own.width and own.max_width and port and port.max_width:
            possible = min(own.max_width, port.max_width)
            if own.width < possible:
                sentence = f"The PCIe link has {own.width} lanes; {possible} are possible."
                one = dataclasses.replace(one, problems=(*one.problems, sentence), health=Health.DEGRADED)
        found.append(one)
    return found


def _grouped(tree: Tree, devices: list[Device]) -> list[Device]:
    """Add the members of each IOMMU group, and the PF to VFs whose link is not in the tree."""
    members: dict[int, set[str]] = {}
    owner = {vf: one.id for one in devices for vf in one.vfs}
    for one in devices:
        if one.iommu_group is not None:
            members.setdefault(one.iommu_group, set()).add(one.id)
    for group, known in members.items():
        known.update(n for n in tree.names(f"sys/kernel/iommu_groups/{group}/devices") if pci.address(n) == n)
    found = []
    for one in devices:
        group_members = members.get(one.iommu_group, set()) if one.iommu_group is not None else set()
        part_of = one.part_of or owner.get(one.id, "")
        if part_of and one.role != "part":
            one = dataclasses.replace(one, role="part", device_class="vf")
        if part_of or group_members:
            ordered = tuple(sorted(group_members, key=pci.order))
            one = dataclasses.replace(one, part_of=part_of, iommu_members=ordered)
        found.append(one)
    return found
