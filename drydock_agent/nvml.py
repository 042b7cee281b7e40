"""Print what NVML reports as JSON: `python -m drydock_agent.nvml`. Needs the package nvidia-ml-py.

NVML is called in a separate process, because a call can hang and only a process can be killed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable
from typing import Any


def report(nvml: Any) -> dict[str, Any]:
    """Return the GPUs that an NVML module reports, without values that a GPU does not support."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"gpus": [], "error": str(error)}
    try:
        count = nvml.nvmlDeviceGetCount()
        gpus = [_gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(n)) for n in range(count)]
        return {"gpus": gpus, "driver": _value(nvml, nvml.nvmlSystemGetDriverVersion)}
    except nvml.NVMLError as error:
        return {"gpus": [], "error": str(error)}
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _value(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        found = call(*arguments)
    except nvml.NVMLError:
        return None
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else found


def _gpu(nvml: Any, handle: Any) -> dict[str, Any]:
    def ask(name: str, *arguments: Any) -> Any:
        return _value(nvml, getattr(nvml, name), handle, *arguments)

    place, memory, rows = ask("nvmlDeviceGetPciInfo"), ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetRemappedRows")
    capability, mig, ecc = (
        ask("nvmlDeviceGetCudaComputeCapability"),
        ask("nvmlDeviceGetMigMode"),
        ask("nvmlDeviceGetEccMode"),
    )
    running = ask("nvmlDeviceGetComputeRunningProcesses")
    bus = place.busId if place else ""
    found = {
        "bus_id": bus.decode() if isinstance(bus, bytes) else bus,
        "name": ask("nvmlDeviceGetName"),
        "uuid": ask("nvmlDeviceGetUUID"),
        "serial": ask("nvmlDeviceGetSerial"),
        "minor": ask("nvmlDeviceGetMinorNumber"),
        "memory_mib": memory.total >> 20 if memory else None,
        "compute_capability": ".".join(map(str, capability)) if capability else None,
        "mig": ("Disabled", "Enabled")[mig[0]] if mig else None,
        "ecc": ("Disabled", "Enabled")[ecc[0]] if ecc else None,
        "compute_processes": len(running) if running is not None else None,
        "remap_pending": bool(rows[2]) if rows else None,
        "remap_failed": bool(rows[3]) if rows else None,
        "slices": _slices(nvml, handle) if mig and mig[0] else None,
    }
    return {key: value for key, value in found.items() if value is not None}


def _slices(nvml: Any, handle: Any) -> list[dict[str, Any]]:
    found = []
    for index in range(_value(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        part = _value(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if part is None:
            continue
        memory = _value(nvml, nvml.nvmlDeviceGetMemoryInfo, part)
        found.append({
            "index": index,
            "instance": _value(nvml, nvml.nvmlDeviceGetGpuInstanceId, part) or 0,
            "compute": _value(nvml, nvml.nvmlDeviceGetComputeInstanceId, part) or 0,
            "uuid": _value(nvml, nvml.nvmlDeviceGetUUID, part),
            "memory_mib": memory.total >> 20 if memory else None,
        })  # fmt: skip
    return found


def main() -> None:
    """Print the report."""
    print(json.dumps(report(importlib.import_module("pynvml"))))


if __name__ == "__main__":
    main()
