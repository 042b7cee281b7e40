"""NVIDIA GPUs, their MIG slices and vGPU types, from sysfs, `nvidia-smi` and NVML."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from drydock_agent import kernel_log, nvidia_smi, pci
from drydock_agent.driver import Findings
from drydock_agent.facts import Device, Health, Readiness, Value
from drydock_agent.identity import identity, known
from drydock_agent.nvidia_smi import Gpu, slice_device
from drydock_agent.tree import Tree

VENDOR = nvidia_smi.VENDOR

NO_ACTION = "none"
"""The attribute `recovery_action` of a GPU that needs no action to recover, according to its driver."""


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


def _with_tools(tree: Tree, address: str, gpu: Gpu | None, failure: str, others: bool) -> list[Device]:
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


def _judged(base: Device, gpu: Gpu) -> list[Device]:
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


def _from_tools(tree: Tree) -> tuple[dict[str, Gpu], str]:
    """Return the GPUs that nvidia-smi or NVML reports, and why they cannot."""
    output = tree.tool("nvidia-smi")
    return _from_nvml(tree) if output is None else nvidia_smi.gpus_of(tree, output)


def _from_nvml(tree: Tree) -> tuple[dict[str, Gpu], str]:
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


def _nvml_gpus(document: dict[str, list[dict[str, object]]]) -> Iterator[Gpu]:
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
            slice_device(id, int(s["index"]), int(s["instance"]), int(s["compute"]), str(s.get("profile") or ""),
                          str(s.get("uuid") or ""), s.get("memory_mib"), None)
            for s in (slices if isinstance(slices, list) else ())
        ]  # fmt: skip
        yield Gpu(id=id, device=device, slices=parts, waiting=waiting)
