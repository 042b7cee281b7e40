"""AMD GPUs, from the sysfs files of the kernel driver amdgpu and from `amd-smi static --json`."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from drydock_agent import pci
from drydock_agent.driver import Findings
from drydock_agent.facts import Device, Health, Readiness, Value
from drydock_agent.identity import identity, known
from drydock_agent.tree import Tree

VENDOR = "1002"

_FILES = (
    "mem_info_vram_total", "mem_info_vram_used", "unique_id", "product_name", "product_number", "serial_number",
    "vbios_version", "current_compute_partition", "current_memory_partition", "ras", "ras/*_err_count", "drm", "drm/*",
    "ras/gpu_vram_bad_pages", "fw_version/*",
)  # fmt: skip


class Amd:
    """Reports AMD GPUs of any PCI class: graphics cards have 0300, Instinct accelerators 0380 or 1200."""

    name = "amd"
    classes = ("gpu",)
    paths = tuple(f"{pci.FUNCTIONS}/*/{one}" for one in _FILES)
    tools: Mapping[str, tuple[str, ...]] = {"amd-smi": ("amd-smi", "static", "--json")}

    def read(self, tree: Tree) -> Findings:
        """Return facts about the GPUs."""
        reported = _from_tool(tree)
        devices = [_gpu(tree, one, reported.get(one)) for one, ids in pci.functions(tree).items() if _is_gpu(ids)]
        return Findings(devices=tuple(devices))


def _is_gpu(ids: pci.Ids) -> bool:
    return ids.vendor == VENDOR and pci.kind_of(ids.pci_class) in ("gpu", "accelerator")


def _gpu(tree: Tree, address: str, reported: Device | None) -> Device:
    folder = f"{pci.FUNCTIONS}/{address}"
    ids = pci.functions(tree)[address]
    is_part = tree.exists(f"{folder}/physfn")
    whole = not is_part and pci.role_of(pci.kind_of(ids.pci_class), VENDOR, ids.device) == "lease_candidate"

    def text(name: str) -> str:
        return known(tree.read(f"{folder}/{name}"))

    memory, used = tree.integer(f"{folder}/mem_info_vram_total"), tree.integer(f"{folder}/mem_info_vram_used")
    drm = sorted(tree.names(f"{folder}/drm"), key=pci.natural)
    attributes: dict[str, Value] = {
        name: value for name in ("current_compute_partition", "current_memory_partition", "product_number")
        if (value := text(name))
    }  # fmt: skip
    if used is not None:
        attributes["memory_used_mib"] = used >> 20
    firmware = {
        name.removesuffix("_fw_version"): text(f"fw_version/{name}") for name in tree.names(f"{folder}/fw_version")
    }
    problems = _problems(tree, folder)
    made = reported or Device(id=address)
    found = {"unique_id": identity(text("unique_id")), "serial": identity(text("serial_number"))}
    made = dataclasses.replace(
        made, device_class="gpu" if whole else "", name=text("product_name") or made.name,
        memory_mib=memory >> 20 if memory else made.memory_mib,
        identities={**made.identities, **{key: one for key, one in found.items() if one}},
        firmware={**made.firmware, **{key: one for key, one in firmware.items() if one},
                  **({"vbios": text("vbios_version")} if text("vbios_version") else {})},
        nodes=tuple(f"/dev/dri/{one}" for one in drm if one.startswith(("card", "render")) and "-" not in one),
        attributes={**made.attributes, **attributes}, problems=problems, counters=_counters(tree, folder),
    )  # fmt: skip
    return dataclasses.replace(made, **_verdict(tree, address, problems))


def _verdict(tree: Tree, address: str, problems: tuple[str, ...]) -> dict[str, Any]:
    driver = pci.bound_to(tree, address)
    if driver == "radeon":
        reason = "The kernel driver radeon is bound to the device. Computing needs amdgpu."
        return {"readiness": Readiness.SETUP_REQUIRED, "reason": reason}
    if driver != "amdgpu":
        return {}
    found: dict[str, Any] = {
        "readiness": Readiness.READY, "reason": "The kernel driver amdgpu is bound to the device.",
    }  # fmt: skip
    if problems:
        found["health"] = Health.DEGRADED
    elif tree.exists(f"{pci.FUNCTIONS}/{address}/ras"):
        found["health"] = Health.OK
    return found


_COUNT = re.compile(r"^(ue|ce): (\d{1,12})$", re.MULTILINE)

_TYPES = {"ue": "uncorrectable", "ce": "correctable"}

_BAD_PAGE = re.compile(r"^0x[0-9a-fA-F]+ *: *0x[0-9a-fA-F]+ *: *([RPF])$", re.MULTILINE)


def _counts(tree: Tree, folder: str) -> Iterator[tuple[str, str, int]]:
    """Yield the block, the type and the number of the errors that each block of the GPU has counted.

    Source: "RAS Error Count sysfs Interface" in the kernel's documentation of amdgpu. The driver counts from zero
    when it is loaded.
    """
    for name in tree.names(f"{folder}/ras"):
        if name.endswith("_err_count"):
            for kind, count in _COUNT.findall(tree.read(f"{folder}/ras/{name}") or ""):
                yield name.removesuffix("_err_count"), _TYPES[kind], int(count)


def _counters(tree: Tree, folder: str) -> dict[str, int]:
    return {f"ras_{block}_{kind}": count for block, kind, count in _counts(tree, folder) if count}


def _problems(tree: Tree, folder: str) -> tuple[str, ...]:
    """Return a sentence for each block with uncorrectable errors, and for memory pages that are still in use.

    Source: "RAS VRAM Bad Pages sysfs Interface" in the kernel's documentation of amdgpu: R is a page that was taken out
    of use, P one that will be, and F one that could not be.
    """
    counts = _counts(tree, folder)
    found = [
        f"{count} uncorrectable errors in {block}."
        for block, kind, count in counts
        if count and kind == "uncorrectable"
    ]
    states = _BAD_PAGE.findall(tree.read(f"{folder}/ras/gpu_vram_bad_pages") or "")
    if count := states.count("P"):
        found.append(f"{count} bad memory pages wait to be taken out of use.")
    if count := states.count("F"):
        found.append(f"{count} bad memory pages could not be taken out of use. The GPU has to be reset.")
    return tuple(found)


def _from_tool(tree: Tree) -> dict[str, Device]:
    output = tree.tool("amd-smi")
    if output is None:
        return {}
    if output.status == "timeout":
        tree.warn("amd-smi", "The tool timed out and was stopped.")
        return {}
    try:
        # Warnings can come before the document.
        begin = min(at for at in (output.text.find("["), output.text.find("{")) if at >= 0)
        document = json.loads(output.text[begin:])
        listed = document.get("gpu_data", []) if isinstance(document, dict) else document
        return {one.id: one for one in _reported(listed)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        tree.warn("amd-smi", f"The report is malformed ({type(error).__name__}). Exit code {output.status}.")
        return {}


def _reported(listed: list[dict[str, dict[str, object]]]) -> Iterator[Device]:
    for one in listed:
        id = pci.address(str(one["bus"]["bdf"]))
        if id is None:
            continue
        asic, board, vram = one.get("asic") or {}, one.get("board") or {}, one.get("vram") or {}
        size = vram.get("size")
        amount = size.get("value") if isinstance(size, dict) else size
        serial = identity(str(board.get("product_serial") or ""))
        vbios = known(str((one.get("vbios") or {}).get("version") or ""))
        yield Device(
            id=id, name=known(str(board.get("product_name") or "")) or known(str(asic.get("market_name") or "")),
            memory_mib=amount if isinstance(amount, int) and not isinstance(amount, bool) else None,
            identities={"serial": serial} if serial else {}, firmware={"vbios": vbios} if vbios else {},
        )  # fmt: skip
