"""Environment variables that tell programs which devices are theirs. They only inform: control groups refuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from blueprints.devices.values import Device

_CLASSES = frozenset({"gpu", "gpu_slice"})


@dataclass(frozen=True, kw_only=True)
class _Runtime:
    """How a vendor's runtime names its devices: by UUID, or by position among those that the account can open."""

    variable: str
    by_uuid: bool
    more: Mapping[str, str] = field(default_factory=dict)


_RUNTIMES = {
    "10de": _Runtime(variable="CUDA_VISIBLE_DEVICES", by_uuid=True, more={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
    "1002": _Runtime(variable="ROCR_VISIBLE_DEVICES", by_uuid=True),
    # By default each tile of a GPU has a position of its own.
    "8086": _Runtime(variable="ZE_AFFINITY_MASK", by_uuid=False, more={"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}),
}
"""By PCI vendor id."""


def environment(devices: Sequence[Device]) -> dict[str, str]:
    """Return the variables for an account that has these GPUs and slices, and no others.

    Positions count from 0, because a runtime lists only devices that the account can open.
    """
    found: dict[str, str] = {}
    for vendor, runtime in _RUNTIMES.items():
        gpus = [one for one in devices if one.vendor == vendor and one.device_class in _CLASSES]
        if not gpus:
            continue
        named = runtime.by_uuid and all(one.uuid for one in gpus)
        names = [one.uuid for one in gpus] if named else [str(position) for position in range(len(gpus))]
        found |= {runtime.variable: ",".join(names), **runtime.more}
    return found
