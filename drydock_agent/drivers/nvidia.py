"""NVIDIA GPUs, their MIG slices and vGPU types, from sysfs, `nvidia-smi -q -x` (formats v11 and v12) and NVML."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any
from xml.etree.ElementTree import Element

from drydock_agent import kernel_log, pci
from drydock_agent.driver import Findings
from drydock_agent.facts import Device, Health, Link, Readiness, Value
from drydock_agent.identity import identity, known
from drydock_agent.tree import Tree
from drydock_agent.xml import BadXml, parse

VENDOR = "10de"

_END = "</nvidia_smi_log>"
_PROCESS_TYPE = re.compile(r"<type>\s*([A-Z](?:\+[A-Z])*)\s*</type>")
_NUMBER = re.compile(r"\A(\d{1,12})(?:\.\d+)?(?: ?(?:MiB|x|W|MHz|C|%))?\Z")

_GENERATIONS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0, 7: 128.0}
"""GT/s of each PCIe generation."""

NO_ACTION = "none"
"""The attribute `recovery_action` of a GPU that needs no action to recover, according to its driver."""

_RECOVERIES = {
    "reset": "a reset",
    "gpu reset": "a reset",
    "drain and reset": "a reset once nothing uses it",
    "reboot": "a reboot of the machine",
    "node reboot": "a reboot of the machine",
}
"""What nvidia-smi calls the recovery action of a GPU (drivers from 570 on), and its meaning in a sentence."""

_LISTED_GPU = re.compile(r"\AGPU \d+: .*\(UUID: (GPU-[0-9a-f-]{36})\)")

_LISTED_SLICE = re.compile(r"\A\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)]{1,100})\)")


@dataclasses.dataclass(kw_only=True)
class _Gpu:
    """What nvidia-smi or NVML reports on one GPU."""

    id: str
    device: Device
    slices: list[Device] = dataclasses.field(default_factory=list)
    waiting: str = ""
    """Why the GPU has to be reset, in one sentence."""


class Nvidia:
    """Reports NVIDIA GPUs."""

    name = "nvidia"
    classes = ("gpu", "gpu_slice")
    paths = (
        "proc/driver/nvidia/version",
        f"{pci.FUNCTIONS}/*/mdev_supported_types",
        f"{pci.FUNCTIONS}/*/mdev_supported_types/*/name",
        f"{pci.FUNCTIONS}/*/mdev_supported_types/*/available_instances",
    )
    tools = {
        "nvidia-smi": ("nvidia-smi", "-q", "-x"),
        "nvidia-smi-list": ("nvidia-smi", "-L"),
        kernel_log.TOOL: kernel_log.COMMAND,
    }

    def read(self, tree: Tree) -> Findings:
        """Return facts about the GPUs and their MIG slices."""
        gpus, failure = _from_tools(tree)
        devices: list[Device] = []
        functions = {one: _is_gpu(ids) for one, ids in pci.functions(tree).items()}
        for address, is_gpu in functions.items():
            if is_gpu:
                devices += _with_tools(tree, address, gpus.pop(address, None), failure, bool(gpus))
        for gpu in gpus.values():
            if functions:
                tree.warn("nvidia-smi", f"nvidia-smi lists {gpu.id}, which is not in {pci.FUNCTIONS}.")
            whole = dataclasses.replace(
                gpu.device, kind="gpu", device_class="gpu", role="lease_candidate", vendor_id=VENDOR
            )
            devices += _judged(whole, gpu)
        logged = kernel_log.xids(tree)
        return Findings(devices=tuple(dataclasses.replace(one, errors=logged.get(one.id, ())) for one in devices))


def _is_gpu(ids: pci.Ids) -> bool:
    return ids.vendor == VENDOR and pci.kind_of(ids.pci_class) == "gpu"


def _with_tools(tree: Tree, address: str, gpu: _Gpu | None, failure: str, others: bool) -> list[Device]:
    """Return a GPU that sysfs lists, with what the tools say about it."""
    driver = pci.bound_to(tree, address)
    attributes = _vgpus(tree, address)
    base = gpu.device if gpu else Device(id=address)
    base = dataclasses.replace(base, device_class="gpu", attributes={**base.attributes, **attributes})
    if tree.exists(f"{pci.FUNCTIONS}/{address}/physfn"):
        base = dataclasses.replace(base, device_class="vf")
    if driver in ("nouveau", "nova", "nvidiafb"):
        reason = f"The kernel driver {driver} is bound to the device. Computing needs nvidia."
        return [dataclasses.replace(base, readiness=Readiness.SETUP_REQUIRED, reason=reason)]
    if driver != "nvidia":
        return [base]  # unbound, or held for a guest: the verdict of the PCI driver is right
    if gpu:
        return _judged(base, gpu)
    if failure:
        return [dataclasses.replace(base, readiness=Readiness.SETUP_REQUIRED, reason=failure)]
    if others:
        reason = "nvidia-smi lists other GPUs, but not this one. It does not respond; reboot the machine."
        return [dataclasses.replace(
            base, readiness=Readiness.REBOOT_REQUIRED, reason=reason, health=Health.FAILED, problems=(reason,)
        )]  # fmt: skip
    reason = (
        "The kernel driver nvidia is bound to the device. There is no usable report of nvidia-smi, so memory and health"
        " are not known."
    )
    return [dataclasses.replace(base, readiness=Readiness.READY, reason=reason)]


def _judged(base: Device, gpu: _Gpu) -> list[Device]:
    """Return a GPU that responds, and its slices."""
    if gpu.waiting:
        base = dataclasses.replace(base, readiness=Readiness.REBOOT_REQUIRED, reason=gpu.waiting)
    elif base.health is Health.FAILED:
        base = dataclasses.replace(base, readiness=Readiness.UNSUPPORTED, reason=base.problems[0])
    else:
        base = dataclasses.replace(base, readiness=Readiness.READY, reason="The nvidia driver reports the device.")
    verdict: dict[str, Any] = {"readiness": base.readiness, "reason": base.reason}
    if base.readiness is Readiness.READY:
        verdict["reason"] = "The device is a slice of a GPU in MIG mode."
    return [base, *(dataclasses.replace(one, **verdict) for one in gpu.slices)]


def _vgpus(tree: Tree, address: str) -> dict[str, Value]:
    folder = f"{pci.FUNCTIONS}/{address}/mdev_supported_types"
    types = []
    for name in sorted(tree.names(folder), key=pci.natural):
        free = tree.integer(f"{folder}/{name}/available_instances")
        types.append(f"{name} {tree.read(f'{folder}/{name}/name') or ''} ({free or 0} free)")
    return {"vgpu_types": tuple(types)} if types else {}


def _from_tools(tree: Tree) -> tuple[dict[str, _Gpu], str]:
    """Return the GPUs that nvidia-smi or NVML reports, and why they cannot."""
    output = tree.tool("nvidia-smi")
    if output is None:
        return _from_nvml(tree)
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


def _gpu(element: Element, document: Element, listed: dict[tuple[str, int], tuple[str, str]]) -> _Gpu | None:
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
    return _Gpu(id=id, device=device, slices=[one for one in slices if one], waiting=_waiting(element))


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
    return _slice_device(gpu, index, instance, compute, profile, slice_uuid, memory, processors, used)


def _slice_device(
    gpu: str, index: int, instance: int, compute: int, profile: str, uuid: str, memory: int | None,
    processors: int | None, used: int | None = None,
) -> Device:  # fmt: skip
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


def _from_nvml(tree: Tree) -> tuple[dict[str, _Gpu], str]:
    """Return the GPUs that `drydock_agent.nvml` has printed."""
    output = tree.tool("nvml")
    if output is None:
        return {}, ""
    try:
        document = json.loads(output.text)
        gpus = {gpu.id: gpu for gpu in _nvml_gpus(document)}
        failure = str(document.get("error") or "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        tree.warn("nvml", f"The report is malformed ({type(error).__name__}). Exit code {output.status}.")
        return {}, f"NVML gives no valid report (exit code {output.status})."
    return gpus, f"NVML reports: {failure:.160}" if failure else ""


def _nvml_gpus(document: dict[str, list[dict[str, object]]]) -> Iterator[_Gpu]:
    for one in document["gpus"]:
        id = pci.address(str(one["bus_id"]))
        if id is None:
            raise ValueError(one["bus_id"])
        texts = {key: identity(str(one.get(key) or "")) for key in ("uuid", "serial")}
        memory, minor = one.get("memory_mib"), one.get("minor")
        pending, failed = one.get("remap_pending") is True, one.get("remap_failed") is True
        problem = "A memory row could not be remapped. The GPU has to be replaced." if failed else (
            "A memory row waits to be remapped." if pending else "")  # fmt: skip
        attributes: dict[str, Value] = {
            key: value for key in ("compute_capability", "mig", "compute_processes", "ecc")
            if isinstance(value := one.get(key), str | int)
        }  # fmt: skip
        device = Device(
            id=id, name=known(str(one.get("name") or "")), memory_mib=memory if isinstance(memory, int) else None,
            identities={key: text for key, text in texts.items() if text},
            nodes=(f"/dev/nvidia{minor}",) if isinstance(minor, int) else (), attributes=attributes,
            health=Health.FAILED if failed else Health.DEGRADED if pending else Health.OK,
            problems=(problem,) if problem else (), firmware={"driver": str(document.get("driver") or "")},
        )  # fmt: skip
        waiting = "A memory row waits to be remapped, which needs a reset of the GPU or a reboot." if pending else ""
        slices = one.get("slices")
        parts = [
            _slice_device(id, int(s["index"]), int(s["instance"]), int(s["compute"]), str(s.get("profile") or ""),
                          str(s.get("uuid") or ""), s.get("memory_mib"), None)
            for s in (slices if isinstance(slices, list) else ())
        ]  # fmt: skip
        yield _Gpu(id=id, device=device, slices=parts, waiting=waiting)
