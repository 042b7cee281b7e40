"""PCI addresses, and the kinds and roles of PCI functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from drydock_agent.tree import Tree

FUNCTIONS = "sys/bus/pci/devices"
"""The sysfs folder with a link for every PCI function."""

_ADDRESS = re.compile(r"\A([0-9a-f]{1,8}):([0-9a-f]{1,2}):([0-1]?[0-9a-f])\.([0-7])\Z")

_IDS = {"vendor": 4, "device": 4, "class": 6}

ATTRIBUTES = frozenset({
    *_IDS, "subsystem_vendor", "subsystem_device", "revision", "numa_node", "local_cpulist", "sriov_totalvfs",
    "sriov_numvfs", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "boot_vga",
    "aer_dev_fatal", "aer_dev_nonfatal", "aer_dev_correctable",
})  # fmt: skip
"""The files that are read of every function.

Source: Documentation/ABI/testing/sysfs-bus-pci in the kernel.
"""

_UNBOUND = ATTRIBUTES | {"uevent"}
"""The same of a function without a link to its kernel driver."""

_DIGITS = re.compile(r"(\d+)")


class Ids(NamedTuple):
    """The vendor, device and class ids of a PCI function, as hexadecimal digits."""

    vendor: str
    device: str
    pci_class: str


@lru_cache(maxsize=16384)
def address(text: str) -> str | None:
    """Return a PCI address as sysfs writes it (lower case, a domain of four or more digits), or None."""
    match = _ADDRESS.match(text.strip().lower())
    if match is None:
        return None
    domain, bus, device, function = (int(part, 16) for part in match.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


@lru_cache(maxsize=16384)
def order(id: str) -> tuple[object, ...]:
    """Return the sort key of a device id: the numbers in its PCI address, then its part. Other ids come last."""
    place, _, part = id.partition("/")
    match = _ADDRESS.match(place)
    numbers = tuple(int(one, 16) for one in match.groups()) if match else ()
    return (not numbers, numbers, place, natural(part))


def natural(text: str) -> tuple[tuple[bool, int, str], ...]:
    """Return a sort key that compares sequences of digits as numbers."""
    return tuple((not one.isdigit(), int(one) if one.isdigit() else 0, one) for one in _DIGITS.split(text) if one)


def functions(tree: Tree) -> dict[str, Ids]:
    """Return all functions of a tree by their addresses, in numeric order."""
    return tree.once("pci", lambda tree: {one: _ids(texts) for one, texts in attributes(tree).items()})


def attributes(tree: Tree) -> dict[str, dict[str, str]]:
    """Return the files of all functions that are in `ATTRIBUTES`, by address and name."""
    return tree.once("pci attributes", _attributes)


def _attributes(tree: Tree) -> dict[str, dict[str, str]]:
    found = {}
    for one in sorted((name for name in tree.names(FUNCTIONS) if address(name) == name), key=order):
        folder = f"{FUNCTIONS}/{one}"
        found[one] = tree.texts(folder, ATTRIBUTES if "driver" in tree.names(folder) else _UNBOUND)
    return found


def _ids(texts: Mapping[str, str]) -> Ids:
    return Ids(*(hexadecimal(texts.get(name, ""), digits) for name, digits in _IDS.items()))


@lru_cache(maxsize=16384)
def hexadecimal(text: str, digits: int) -> str:
    """Return a hexadecimal number such as `0x10de` without the prefix, or an empty string if it is invalid."""
    text = text.lower().removeprefix("0x")
    try:
        return f"{int(text, 16):0{digits}x}" if 0 < len(text) <= digits else ""
    except ValueError:
        return ""


def bound_to(tree: Tree, of: str) -> str:
    """Return the name of the kernel driver that is bound to a function, or an empty string."""
    return tree.once(f"driver of {of}", lambda tree: _bound_to(tree, f"{FUNCTIONS}/{of}"))


def _bound_to(tree: Tree, folder: str) -> str:
    if "driver" in tree.names(folder) and (bound := tree.link_name(f"{folder}/driver")):
        return bound
    # Captures often lack the link; the same fact is a line of uevent.
    lines = (tree.read(f"{folder}/uevent") or "").splitlines()
    return next((line.removeprefix("DRIVER=") for line in lines if line.startswith("DRIVER=")), "")


def owner_of(path: str | None) -> str:
    """Return the innermost PCI address in the target of a link, such as that of /sys/class/net/eth0."""
    found = [part for part in (path or "").split("/") if address(part) == part]
    return found[-1] if found else ""


_KINDS = {
    "0300": "gpu", "0302": "gpu", "0380": "gpu", "1200": "accelerator", "0b40": "coprocessor",
    "0207": "infiniband", "0c06": "infiniband", "0200": "nic", "0280": "other_network",
}  # fmt: skip


@lru_cache(maxsize=1024)
def kind_of(pci_class: str, has_infiniband: bool = False) -> str:
    """Return the kind of a function from its class, six hexadecimal digits."""
    if has_infiniband:
        return "infiniband"
    if pci_class.startswith(("10", "06")):
        return "crypto" if pci_class.startswith("10") else "bridge"
    return "nvme" if pci_class == "010802" else _KINDS.get(pci_class[:4], "other")


WHOLE = ("gpu", "accelerator", "coprocessor", "crypto")
"""Kinds of functions that can be leased as a whole, unless their role excludes that."""

# BMCs and virtual machines show a screen with these. None of them computes.
_DISPLAY_VENDORS = {
    "1a03": "ASPEED", "102b": "Matrox", "1013": "Cirrus", "1af4": "virtio", "1234": "Bochs", "15ad": "VMware",
    "80ee": "VirtualBox", "1414": "Hyper-V", "126f": "Silicon Motion", "18ca": "XGI", "1d0f": "Amazon",
    "1ab8": "Parallels", "5853": "Xen", "1414:5353": "Hyper-V", "1b36": "QXL", "19e5:1711": "iBMC", "1ae0": "Google",
    "1002:515e": "ES1000", "1002:4752": "Rage XL", "1002:4755": "Rage XL", "1002:5159": "RV100", "10de:00fe": "BMC",
}  # fmt: skip

# Discrete graphics of Intel: DG1, Arc and Flex, Ponte Vecchio, Battlemage. All others are part of the processor.
_INTEL_DISCRETE = ("4905", "4906", "4907", "4908", "4909", "56", "0bd", "0b6", "e20", "e21", "e22")

_AMD_INTEGRATED_TEXT = """
    1304 1305 1306 1307 1309 130a 130b 130c 130d 130e 130f 1310 1311 1312 1313 1315 1316 1317 1318 131b 131c
    131d 13c0 1435 1506 150e 1586 15bf 15c8 15d8 15dd 15e7 1636 1638 163f 164c 164d 164e 164f 1681 1900 1901
    1114 9640 9641 9642 9643 9644 9645 9647 9648 9649 964a 964b 964c 964e 964f 9802 9803 9804 9805 9806 9807
    9808 9809 980a 9830 9831 9832 9833 9834 9835 9836 9837 9838 9839 983a 983b 983c 983d 983e 983f 9850 9851
    9852 9853 9854 9855 9856 9857 9858 9859 985a 985b 985c 985d 985e 985f 9874 98e4 9900 9901 9903 9904 9905
    9906 9907 9908 9909 990a 990b 990c 990d 990e 990f 9910 9913 9917 9918 9919 9990 9991 9992 9993 9994 9995
    9996 9997 9998 9999 999a 999b 999c 999d 99a0 99a2 99a4
"""

_AMD_INTEGRATED = frozenset(_AMD_INTEGRATED_TEXT.split())

# Engines inside processors that the platform itself uses: AMD's and Hygon's secure processor, Intel's key locker.
_PLATFORM_CRYPTO = ("1022", "1d94")


NOT_LEASED = {
    "display_only": "The device only drives a display, so it cannot be leased.",
    "integrated_gpu": "The device is part of the processor, so it cannot be leased.",
    "management": "The function manages its card, so it cannot be leased.",
    "platform_crypto": "The device belongs to the platform, so it cannot be leased.",
}
"""Why devices with these roles cannot be leased."""


def role_of(kind: str, vendor: str, device: str, is_vf: bool = False) -> str:
    """Return the role of a function, which determines whether leases may use it by default."""
    if is_vf:
        return "part"
    if kind == "gpu" and (vendor in _DISPLAY_VENDORS or f"{vendor}:{device}" in _DISPLAY_VENDORS):
        return "display_only"
    if kind == "gpu" and vendor == "8086" and not device.startswith(_INTEL_DISCRETE):
        return "integrated_gpu"
    if kind == "gpu" and vendor == "1002" and device in _AMD_INTEGRATED:
        return "integrated_gpu"
    if kind == "crypto" and vendor in _PLATFORM_CRYPTO:
        return "platform_crypto"
    return "lease_candidate" if kind in WHOLE else ""


# Drivers of virtual functions. A guest does not see the PF, and captures often lack the link to it.
_VF_DRIVERS_TEXT = """
    igbvf ixgbevf iavf i40evf fm10k_vf bnxt_en_vf cxgb4vf nicvf octeontx2-nicvf rvu_nicvf hns3vf hinicvf
    be2net_vf c6xxvf c3xxxvf dh895xccvf 4xxxvf 420xxvf d15xxvf efa_vf sfc_vf qlcnicvf
"""

_VF_DRIVERS = frozenset(_VF_DRIVERS_TEXT.split())

# Virtual functions by id: Intel's NICs and QAT, and all of Mellanox's, whose PFs have even numbers.
_VF_IDS_TEXT = """
    8086:10ca 8086:1520 8086:10ed 8086:1515 8086:154c 8086:1565 8086:15a8 8086:15c5 8086:37cd 8086:1889
    8086:37c9 8086:19e3 8086:0443 8086:6f55 8086:4941 8086:4943 8086:4945 8086:4947 8086:18a1 8086:18ef
    8086:571f 15b3:1002 15b3:1004 15b3:1012 15b3:1014 15b3:1016 15b3:1018 15b3:101a 15b3:101c 15b3:101e
    15b3:a2d3 14e4:16dc 14e4:16c1 14e4:1606 14e4:1609 14e4:1806 14e4:1807 14e4:1808 19e5:a22f 19e5:a256
"""

_VF_IDS = frozenset(_VF_IDS_TEXT.split())


def is_vf_by_id(vendor: str, device: str, driver: str) -> bool:
    """Return whether a function is a VF, judging by its ids and driver, if the link to its PF is missing."""
    return driver in _VF_DRIVERS or f"{vendor}:{device}" in _VF_IDS
