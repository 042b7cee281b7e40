"""FPGAs: the kernel's FPGA regions and managers, DFL devices such as Intel's PAC, and Xilinx Alveo."""

from __future__ import annotations

import re
from collections.abc import Mapping

from drydock_agent import pci
from drydock_agent.driver import Findings
from drydock_agent.facts import Device, Health, Readiness, Value
from drydock_agent.identity import known
from drydock_agent.tree import Tree

_DFL_IDS = frozenset(["8086:09c4", "8086:0b2b", "8086:bcbd", "8086:bcc0", "8086:0b30", "8086:bcce", "8086:af00"])

_MODELS = {
    "5000": "Alveo U200", "5001": "Alveo U200", "5004": "Alveo U250", "5005": "Alveo U250", "500c": "Alveo U280",
    "500d": "Alveo U280", "5020": "Alveo U50", "5021": "Alveo U50", "505c": "Alveo U55C", "505d": "Alveo U55C",
}  # fmt: skip

_REGIONS, _MANAGERS = "sys/class/fpga_region", "sys/class/fpga_manager"


class Fpga:
    """Reports FPGAs."""

    name = "fpga"
    classes = ("fpga",)
    paths = (
        f"{_REGIONS}/*", f"{_REGIONS}/*/compat_id", f"{_REGIONS}/*/dfl-fme.*/bitstream_id",
        f"{_REGIONS}/*/dfl-port.*/afu_id", f"{_REGIONS}/*/dfl-fme.*/ports_num", f"{_MANAGERS}/*",
        f"{_MANAGERS}/*/name", f"{_MANAGERS}/*/state", f"{_MANAGERS}/*/status",
    )  # fmt: skip
    tools: Mapping[str, tuple[str, ...]] = {}

    def read(self, tree: Tree) -> Findings:
        """Return facts about the FPGAs."""
        regions: dict[str, list[str]] = {}
        for name in sorted(tree.names(_REGIONS), key=pci.natural):
            regions.setdefault(pci.owner_of(tree.link(f"{_REGIONS}/{name}")) or f"fpga_region/{name}", []).append(name)
        devices = []
        functions = pci.functions(tree)
        for address, (vendor, device, pci_class) in functions.items():
            is_xilinx = vendor == "10ee" and pci.kind_of(pci_class) == "accelerator"
            if is_xilinx or (vendor == "10ee" and device in _MODELS):
                devices.append(_xilinx(tree, address, device))
            elif address in regions or f"{vendor}:{device}" in _DFL_IDS:
                devices.append(_card(tree, address, regions.get(address, [])))
        for owner, names in regions.items():
            if owner not in functions:
                devices.append(_card(tree, owner, names))
        return Findings(devices=tuple(devices))


def _card(tree: Tree, id: str, regions: list[str]) -> Device:
    attributes: dict[str, Value] = {}
    for key, pattern in (("interface_ids", "compat_id"), ("bitstream_ids", "bitstream_id"), ("afu_ids", "afu_id")):
        if found := tuple(text for region in regions for text in _texts(tree, f"{_REGIONS}/{region}", pattern)):
            attributes[key] = found
    managers = [one for one in tree.names(_MANAGERS) if pci.owner_of(tree.link(f"{_MANAGERS}/{one}")) == id]
    if not pci.address(id) and len(tree.names(_MANAGERS)) == 1:
        managers = list(tree.names(_MANAGERS))  # a system on a chip
    states = [known(tree.read(f"{_MANAGERS}/{one}/state")) for one in managers]
    errors = [text for one in managers if (text := known(tree.read(f"{_MANAGERS}/{one}/status")))]
    if states:
        attributes["manager_states"] = tuple(states)
    driver = pci.bound_to(tree, id) if pci.address(id) else ""
    problems = tuple(f"The FPGA manager reports: {text:.160}." for text in errors)
    if regions:
        readiness, reason = Readiness.READY, f"{len(regions)} regions can be programmed."
    elif driver:
        readiness, reason = (
            Readiness.SETUP_REQUIRED,
            f"The kernel driver {driver} is bound to the device, but has no FPGA region.",
        )
    else:
        readiness, reason = Readiness.SETUP_REQUIRED, "No kernel driver is bound to the device."
    # dfl-fme.N, with which the card is programmed, is for root alone.
    below = [one for region in regions for one in tree.names(f"{_REGIONS}/{region}")]
    ports = sorted((one for one in below if re.fullmatch(r"dfl-port\.\d+", one)), key=pci.natural)
    return Device(
        id=id, kind="" if pci.address(id) else "accelerator", device_class="fpga", role="lease_candidate",
        nodes=tuple(f"/dev/{one}" for one in ports),
        attributes=attributes, problems=problems, health=Health.DEGRADED if problems else None, readiness=readiness,
        reason=reason,
    )  # fmt: skip


def _texts(tree: Tree, folder: str, name: str) -> list[str]:
    """Return a file of this name in a region, or in the units below it."""
    places = [folder, *(f"{folder}/{one}" for one in tree.names(folder) if one.startswith(("dfl-fme.", "dfl-port.")))]
    return [text for place in places if (text := known(tree.read(f"{place}/{name}")))]


def _xilinx(tree: Tree, address: str, device: str) -> Device:
    driver = pci.bound_to(tree, address)
    model = _MODELS.get(device, "")
    if device.startswith("d0"):
        return Device(
            id=address, device_class="fpga", role="lease_candidate", readiness=Readiness.SETUP_REQUIRED,
            reason="The card runs its golden image. Flash a platform, then switch the machine off and on.",
        )  # fmt: skip
    if driver in ("xclmgmt", "xmgmt"):
        return Device(
            id=address, name=model, device_class="fpga", role="management", readiness=Readiness.UNSUPPORTED,
            attributes={"function": "management"}, reason="This is the management function of the card.",
        )  # fmt: skip
    made = Device(id=address, name=model, device_class="fpga", role="lease_candidate")
    if driver == "xocl":
        return Device(
            id=address, name=model, device_class="fpga", role="lease_candidate", readiness=Readiness.READY,
            reason="The kernel driver xocl is bound to the device.",
        )  # fmt: skip
    return made
