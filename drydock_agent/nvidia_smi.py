"""GPUs and their MIG slices in the reports of `nvidia-smi -q -x` (formats v11 and v12) and `nvidia-smi -L`."""

from __future__ import annotations

import dataclasses
import re
from typing import Any
from xml.etree.ElementTree import Element

from drydock_agent import pci
from drydock_agent.facts import Device, Health, Link, Value
from drydock_agent.identity import identity, known
from drydock_agent.tree import ToolOutput, Tree
from drydock_agent.xml import BadXml, parse

VENDOR = "10de"

_END = "</nvidia_smi_log>"

_PROCESS_TYPE = re.compile(r"<type>\s*([A-Z](?:\+[A-Z])*)\s*</type>")

_NUMBER = re.compile(r"\A(\d{1,12})(?:\.\d+)?(?: ?(?:MiB|x|W|MHz|C|%))?\Z")

_GENERATIONS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0, 7: 128.0}
"""GT/s of each PCIe generation."""

_RECOVERIES = {
    "reset": "a reset",
    "gpu reset": "a reset",
    "drain and reset": "a reset once nothing uses it",
    "reboot": "a reboot of the machine",
    "node reboot": "a reboot of the machine",
}
"""The recovery actions that nvidia-smi reports for a GPU (drivers from 570 on), each with a sentence for people."""

_LISTED_GPU = re.compile(r"\AGPU \d+: .*\(UUID: (GPU-[0-9a-f-]{36})\)")

_LISTED_SLICE = re.compile(r"\A\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)]{1,100})\)")


@dataclasses.dataclass(kw_only=True)
class Gpu:
    """A GPU as nvidia-smi or NVML reports it."""

    id: str
    device: Device
    slices: list[Device] = dataclasses.field(default_factory=list)
    waiting: str = ""
    """Why the GPU has to be reset, in one sentence."""


def gpus_of(tree: Tree, output: ToolOutput) -> tuple[dict[str, Gpu], str]:
    """Return the GPUs in a report by their ids, and why there is no usable report."""
    if output.status == "timeout":
        tree.warn("nvidia-smi", "The tool timed out and was stopped.")
        return {}, "nvidia-smi did not respond in time. A GPU or its driver hangs; a reboot may be necessary."
    try:
        document = parse(_without_names(output.text), "nvidia_smi_log")
    except BadXml as error:
        tree.warn("nvidia-smi", f"{error}. Exit code {output.status}.")
        said = next((line.strip() for line in output.text.splitlines() if line.strip()), "nothing")
        return {}, f"nvidia-smi gives no valid report (exit code {output.status}). It printed: {said:.160}"
    if not output.ok:
        tree.warn("nvidia-smi", f"nvidia-smi ended with exit code {output.status} after its report.")
    elements = document.findall("gpu")
    attached = _number(document, "attached_gpus")
    if attached is not None and attached < len(elements):
        tree.warn(
            "nvidia-smi", f"The report lists {len(elements)} GPUs, but only {attached} are attached. It is not used."
        )
        return {}, ""
    listed = _listed_slices(tree)
    found = {}
    for element in elements:
        gpu = _gpu(element, document, listed)
        if gpu is None:
            tree.warn("nvidia-smi", f"A GPU has no valid PCI address: {element.get('id', '')[:40]!r}. It was left out.")
        else:
            found[gpu.id] = gpu
    return found, ""


def _without_names(text: str) -> str:
    """Return the report with only the types of the processes on each GPU.

    Their names are not escaped, so the user of a GPU could write elements of the report with them. Nothing else that
    follows the processes of a GPU is used.
    """
    head, *gpus = re.split(r"(?=<gpu\s)", text)
    if not text.rstrip().endswith(_END):
        return text
    return head + "".join(_processes_last(one) for one in gpus) + (_END if gpus else "")


def _processes_last(gpu: str) -> str:
    facts, _, processes = gpu.partition("<processes>")
    if not processes:
        return gpu.rstrip().removesuffix(_END)
    types = "".join(f"<process_info><type>{one}</type></process_info>" for one in _PROCESS_TYPE.findall(processes))
    return f"{facts}<processes>{types}</processes></gpu>"


def _text(element: Element, path: str) -> str:
    return known(element.findtext(path))


def _number(element: Element, path: str) -> int | None:
    match = _NUMBER.match(_text(element, path))
    return int(match[1]) if match else None


def _gpu(element: Element, document: Element, listed: dict[tuple[str, int], tuple[str, str]]) -> Gpu | None:
    id = pci.address(element.get("id", "")) or pci.address(element.findtext("pci/pci_bus_id", ""))
    if id is None:
        return None
    problems, failed = _problems(element)
    uuid = identity(element.findtext("uuid"))
    identities = {"uuid": uuid, "serial": identity(element.findtext("serial"))}
    driver = _text(document, "driver_version")
    firmware = {
        "vbios": _text(element, "vbios_version"),
        "gsp": _text(element, "gsp_firmware_version"),
        "driver": driver,
    }
    health = Health.FAILED if failed else Health.DEGRADED if problems else Health.OK
    minor = _number(element, "minor_number")
    device = Device(
        id=id, name=_text(element, "product_name"), memory_mib=_number(element, "fb_memory_usage/total"),
        link=_link(element), identities={key: one for key, one in identities.items() if one},
        firmware={key: one for key, one in firmware.items() if one}, health=health, problems=problems,
        nodes=() if minor is None else (f"/dev/nvidia{minor}",), attributes=_attributes(element, document),
        counters=_counters(element), **_ids(element),
    )  # fmt: skip
    slices = [_slice(id, uuid, one, listed) for one in element.findall("mig_devices/mig_device")]
    return Gpu(id=id, device=device, slices=[one for one in slices if one], waiting=_waiting(element))


def _ids(element: Element) -> dict[str, Any]:
    """Return the ids that are there. People who share a report often zero or redact them."""
    found: dict[str, Any] = {}
    for path, device, vendor in (("pci/pci_device_id", "device_id", "vendor_id"),
                                 ("pci/pci_sub_system_id", "subsystem_device_id", "subsystem_vendor_id")):  # fmt: skip
        match = re.fullmatch(r"(?:0x)?([0-9A-Fa-f]{4})([0-9A-Fa-f]{4})", element.findtext(path, "").strip())
        if match and int(match[1], 16) and (device != "device_id" or match[2].lower() == VENDOR):
            found |= {device: match[1].lower(), vendor: match[2].lower()}
    return found


def _link(element: Element) -> Link | None:
    prefix = "pci/pci_gpu_link_info/"
    found = Link(
        speed=_GENERATIONS.get(_number(element, prefix + "pcie_gen/current_link_gen") or 0),
        max_speed=_GENERATIONS.get(_number(element, prefix + "pcie_gen/max_link_gen") or 0),
        width=_number(element, prefix + "link_widths/current_link_width"),
        max_width=_number(element, prefix + "link_widths/max_link_width"),
    )
    return None if found == Link() else found


def _attributes(element: Element, document: Element) -> dict[str, Value]:
    texts = {
        "architecture": _text(element, "product_architecture"), "brand": _text(element, "product_brand"),
        "cuda_version": _text(document, "cuda_version"), "compute_mode": _text(element, "compute_mode"),
        "persistence_mode": _text(element, "persistence_mode"),
        "performance_state": _text(element, "performance_state"),
        "virtualization_mode": _text(element, "gpu_virtualization_mode/virtualization_mode"),
        "ecc": _text(element, "ecc_mode/current_ecc"), "mig": _text(element, "mig_mode/current_mig"),
        "board_part_number": _text(element, "board_part_number"),
        "recovery_action": _text(element, "gpu_recovery_action").lower(),
    }  # fmt: skip
    types = [_text(one, "type") for one in element.findall("processes/process_info")]
    numbers = {
        "memory_used_mib": _number(element, "fb_memory_usage/used"),
        "memory_reserved_mib": _number(element, "fb_memory_usage/reserved"),
        "compute_processes": sum("C" in one for one in types),
        "graphics_processes": sum(one == "G" for one in types),
        "power_limit_watts": _number(element, "gpu_power_readings/current_power_limit")
        or _number(element, "power_readings/power_limit"),
        "clock_mhz": _number(element, "max_clocks/sm_clock"),
    }
    found: dict[str, Value] = {key: one for key, one in texts.items() if one and one != "None"}
    return found | {key: one for key, one in numbers.items() if one is not None}


_COUNTED = {
    "ecc_correctable": ("ecc_errors/volatile/sram_correctable", "ecc_errors/volatile/dram_correctable"),
    "ecc_uncorrectable": (
        "ecc_errors/volatile/sram_uncorrectable", "ecc_errors/volatile/dram_uncorrectable",
        "ecc_errors/volatile/sram_uncorrectable_parity", "ecc_errors/volatile/sram_uncorrectable_secded",
    ),
    "remapped_rows": ("remapped_rows/remapped_row_corr", "remapped_rows/remapped_row_unc"),
    "retired_pages": (
        "retired_pages/multiple_single_bit_retirement/retired_count",
        "retired_pages/double_bit_retirement/retired_count",
    ),
}  # fmt: skip
"""The counters, and the elements of nvidia-smi's report that they are the sums of.

ECC errors count since the driver was loaded or the GPU was reset; rows and pages count since the GPU was made.
"""


def _counters(element: Element) -> dict[str, int]:
    sums = {name: sum(_number(element, path) or 0 for path in paths) for name, paths in _COUNTED.items()}
    return {name: count for name, count in sums.items() if count}


_ECC_COUNTERS = (
    ("sram_uncorrectable", "SRAM"),
    ("dram_uncorrectable", "DRAM"),
    ("sram_uncorrectable_parity", "SRAM parity"),
    ("sram_uncorrectable_secded", "SRAM"),
)


def _problems(element: Element) -> tuple[tuple[str, ...], bool]:
    """Return a sentence for each problem, and whether the GPU must not be used."""
    found, failed = [], False
    if _text(element, "remapped_rows/remapped_row_failure") == "Yes":
        found.append("A memory row could not be remapped. The GPU has to be replaced.")
        failed = True
    for path, what in _ECC_COUNTERS:
        count = _number(element, f"ecc_errors/volatile/{path}")
        if count:
            found.append(f"{count} uncorrectable {what} errors since the driver was loaded.")
    if _text(element, "remapped_rows/remapped_row_pending") == "Yes":
        found.append("A memory row waits to be remapped.")
    if _text(element, "retired_pages/pending_retirement") == "Yes":
        found.append("A memory page waits to be retired.")
    if _text(element, "ecc_errors/aggregate/sram_threshold_exceeded") == "Yes":
        found.append(
            "The SRAM has had more uncorrectable errors than its threshold. NVIDIA's field diagnostics are due."
        )
    return tuple(found), failed


def _waiting(element: Element) -> str:
    if _text(element, "remapped_rows/remapped_row_pending") == "Yes":
        return "A memory row waits to be remapped, which needs a reset of the GPU or a reboot."
    if _text(element, "retired_pages/pending_retirement") == "Yes":
        return "A memory page waits to be retired, which needs a reset of the GPU or a reboot."
    if _text(element, "gpu_reset_status/reset_required") == "Yes":
        return "The GPU reports that it has to be reset."
    if (action := _text(element, "gpu_recovery_action").lower()) in _RECOVERIES:
        return f"The GPU reports that it needs {_RECOVERIES[action]}."
    for now, then, what in (("mig_mode/current_mig", "mig_mode/pending_mig", "MIG mode"),
                            ("ecc_mode/current_ecc", "ecc_mode/pending_ecc", "ECC mode")):  # fmt: skip
        current, pending = _text(element, now), _text(element, then)
        if current and pending and current != pending:
            return f"The {what} is {current} and will be {pending} after a reset of the GPU or a reboot."
    return ""


def _slice(gpu: str, uuid: str, element: Element, listed: dict[tuple[str, int], tuple[str, str]]) -> Device | None:
    index, instance = _number(element, "index"), _number(element, "gpu_instance_id")
    if index is None or instance is None:
        return None
    compute = _number(element, "compute_instance_id") or 0
    profile, slice_uuid = listed.get((uuid, index), ("", ""))
    processors = _number(element, "device_attributes/shared/multiprocessor_count")
    memory, used = (_number(element, f"fb_memory_usage/{name}") for name in ("total", "used"))
    return slice_device(gpu, index, instance, compute, profile, slice_uuid, memory, processors, used)


def slice_device(
    gpu: str, index: int, instance: int, compute: int, profile: str, uuid: str, memory: int | None,
    processors: int | None, used: int | None = None,
) -> Device:  # fmt: skip
    """Return a MIG slice of a GPU."""
    attributes: dict[str, Value] = {"mig_index": index, "gpu_instance": instance, "compute_instance": compute}
    if processors is not None:
        attributes["multiprocessors"] = processors
    if used is not None:
        attributes["memory_used_mib"] = used
    if profile:
        attributes["mig_profile"] = profile
    return Device(
        id=f"{gpu}/mig-{instance}-{compute}", part_of=gpu, kind="gpu", device_class="gpu_slice", role="part",
        name=f"MIG {profile}".strip(), memory_mib=memory, attributes=attributes,
        identities={"uuid": identity(uuid)} if identity(uuid) else {},
    )  # fmt: skip


def _listed_slices(tree: Tree) -> dict[tuple[str, int], tuple[str, str]]:
    """Return profile and UUID of each slice by GPU and index, from `nvidia-smi -L`; the XML has neither."""
    output = tree.tool("nvidia-smi-list")
    found: dict[tuple[str, int], tuple[str, str]] = {}
    gpu = ""
    for line in output.text.splitlines() if output and output.ok else ():
        if match := _LISTED_GPU.match(line):
            gpu = match[1]
        elif match := _LISTED_SLICE.match(line):
            found[gpu, int(match[2])] = (match[1], match[3])
    return found
