"""Neural processors (NPUs): Huawei Ascend and Intel Habana Gaudi."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from drydock_agent import pci
from drydock_agent.driver import Findings
from drydock_agent.facts import Device, Health, Readiness, Value
from drydock_agent.identity import known
from drydock_agent.tree import Tree

_ASCEND = {
    "19e5:d100": "Ascend 310", "19e5:d500": "Ascend 310P", "19e5:d801": "Ascend 910", "19e5:d802": "Ascend 910B",
    "19e5:d803": "Ascend 910C",
}  # fmt: skip

_HABANA = {
    "1da3:0001": "Goya", "1da3:0030": "Greco", "1da3:1000": "Gaudi", "1da3:1010": "Gaudi", "1da3:1020": "Gaudi 2",
    "1da3:1030": "Gaudi 2", "1da3:1060": "Gaudi 3",
}  # fmt: skip

_HABANA_CLASSES = ("sys/class/accel", "sys/class/habanalabs")

_HABANA_FILES = ("device_type", "status", "cpucp_kernel_ver", "uboot_ver", "hard_reset_cnt")

# npu-smi prints two rows for each chip: number, name, health; then chip, address, and at the end used and total memory.
_FIRST = re.compile(r"\A\|\s*(\d+)\s+(\S+)\s*\|\s*(\S[^|]*?)\s*\|")
_SECOND = re.compile(r"\A\|[^|]*\|\s*([0-9A-Fa-f:.]+)\s*\|.*?(\d+)\s*/\s*(\d+)\s*\|\s*\Z")


class Npu:
    """Reports neural processors."""

    name = "npu"
    classes = ("npu",)
    paths = (
        *(f"{folder}/*" for folder in _HABANA_CLASSES),
        *(f"{folder}/*/{one}" for folder in _HABANA_CLASSES for one in _HABANA_FILES),
        *(f"{folder}/*/device/{one}" for folder in _HABANA_CLASSES for one in _HABANA_FILES),
    )
    tools: Mapping[str, tuple[str, ...]] = {"npu-smi": ("npu-smi", "info")}

    def read(self, tree: Tree) -> Findings:
        """Return facts about the neural processors."""
        chips = _chips(tree)
        devices = []
        for address, (vendor, device, _) in pci.functions(tree).items():
            ids = f"{vendor}:{device}"
            if ids in _ASCEND:
                devices.append(_ascend(tree, address, _ASCEND[ids], chips.get(address)))
            elif ids in _HABANA:
                devices.append(_habana(tree, address, _HABANA[ids]))
        return Findings(devices=tuple(devices))


def _ascend(tree: Tree, address: str, model: str, chip: Device | None) -> Device:
    made = dataclasses.replace(chip or Device(id=address), device_class=_class(tree, address))
    made = dataclasses.replace(made, name=made.name or model)
    if not pci.bound_to(tree, address):
        return made
    if made.health is Health.FAILED:
        return dataclasses.replace(made, readiness=Readiness.UNSUPPORTED, reason=made.problems[0])
    return made


def _class(tree: Tree, address: str) -> str:
    return "vf" if tree.exists(f"{pci.FUNCTIONS}/{address}/physfn") else "npu"


def _chips(tree: Tree) -> dict[str, Device]:
    """Return what `npu-smi info` reports by address."""
    output = tree.tool("npu-smi")
    found: dict[str, Device] = {}
    if output is None:
        return found
    if not output.ok:
        tree.warn("npu-smi", f"npu-smi ended with {output.status}, so the health of NPUs is not known.")
        return found
    first = None
    for line in output.text.splitlines():
        if first and (match := _SECOND.match(line)) and (id := pci.address(match[1])):
            health = {"ok": Health.OK, "warning": Health.DEGRADED}.get(first[3].lower(), Health.FAILED)
            problems = () if health is Health.OK else (f"npu-smi reports the health {first[3]}.",)
            found[id] = Device(
                id=id, name=f"Ascend {first[2]}", health=health, problems=problems, memory_mib=int(match[3]) or None,
                attributes={"memory_used_mib": int(match[2])}, nodes=(f"/dev/davinci{first[1]}",),
            )  # fmt: skip
        first = _FIRST.match(line)
    return found


def _habana(tree: Tree, address: str, model: str) -> Device:
    folder, name = next(
        (
            (folder, one)
            for folder in _HABANA_CLASSES
            for one in sorted(tree.names(folder), key=pci.natural)
            if not one.startswith("hl_control") and pci.owner_of(tree.link(f"{folder}/{one}")) == address
        ),
        ("", ""),
    )

    def text(key: str) -> str:
        return known(tree.read(f"{folder}/{name}/device/{key}")) or known(tree.read(f"{folder}/{name}/{key}"))

    made = Device(id=address, name=model, device_class=_class(tree, address))
    if not name:
        return made
    status = text("status")
    attributes: dict[str, Value] = {key: text(key) for key in ("device_type", "status") if text(key)}
    firmware = {key: value for key in ("cpucp_kernel_ver", "uboot_ver") if (value := text(key))}
    node = f"/dev/accel/{name}" if folder.endswith("accel") else f"/dev/{name}"
    made = dataclasses.replace(made, attributes=attributes, firmware=firmware, nodes=(node,))
    if status.lower() == "operational":
        return dataclasses.replace(
            made, health=Health.OK, readiness=Readiness.READY, reason="habanalabs reports the device as operational."
        )
    if not status:
        return made
    needs_reset = "reset" in status.lower()
    return dataclasses.replace(
        made, health=Health.DEGRADED if needs_reset else Health.FAILED,
        problems=(f"The driver reports: {status:.80}.",),
        readiness=Readiness.REBOOT_REQUIRED if needs_reset else Readiness.UNSUPPORTED,
        reason=f"The habanalabs driver reports it as {status:.80}.",
    )  # fmt: skip
