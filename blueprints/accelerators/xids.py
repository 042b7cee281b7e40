"""The health of a GPU after an Xid, an error code of NVIDIA's driver.

Source: NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), by the immediate action
that it recommends. A GPU that must be reset has failed until it is. An error that ends only applications says nothing
about the GPU, and leases can cause it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from blueprints.answers import HealthState

Repair = Literal["", "reset", "restart"]
"""The repair after which a GPU can be used again: none, its reset, or a restart of its machine."""

_RESET: Mapping[int, str] = {
    46: "The GPU stopped processing.",
    48: "The GPU found an uncorrectable memory error.",
    62: "The GPU's power controller halted.",
    64: "Bad memory of the GPU could not be taken out of use.",
    79: "The GPU has fallen off the bus. Its machine must be restarted.",
    95: "A memory error of the GPU was not contained.",
    109: "The GPU did not switch between programs in time.",
    110: "The GPU has a security fault.",
    119: "The GPU's system processor did not answer in time.",
    120: "The GPU's system processor has failed.",
    136: "An NVLink of the GPU could not be trained.",
    140: "The GPU found an uncorrectable memory error.",
    143: "The GPU could not be initialized.",
    151: "The GPU could not change the keys of confidential computing. Its machine must be restarted.",
    155: "An NVLink of the GPU has failed.",
    156: "The GPU took a faulty part of itself out of use.",
    158: "The GPU had a fatal timeout.",
}
"""Xids after which a GPU must be reset (RESET_GPU, WORKFLOW_XID_48) or its machine restarted (RESTART_BM, RESTART_VM).
"""

_CHECK: Mapping[int, str] = {
    54: "The GPU lacks auxiliary power. Its power cables must be checked.",
    74: "An NVLink of the GPU has errors.",
    92: "The GPU corrects many memory errors.",
    93: "The GPU's record of its memory errors is full.",
    121: "The link of the GPU to its processor has errors.",
    142: "A video encoder of the GPU has failed.",
    **dict.fromkeys(range(144, 151), "An NVLink of the GPU has errors."),
    157: "A faulty part of the GPU could not be taken out of use.",
    161: "A faulty channel of the GPU could not be taken out of use.",
    167: "The PCIe link of the GPU had a fatal timeout.",
    168: "The GPU has less memory than it should.",
    169: "The GPU's security processor halted.",
}
"""Xids after which a GPU works, but must be watched or checked."""

_HARMLESS = frozenset([
    *range(1, 46), 60, 63, 66, 67, *range(68, 73), *range(75, 79), 80, *range(82, 90), 94, *range(96, 109),
    *range(126, 136), 137, 139, 141, 152, 153, 154, 159, 160, *range(162, 167), 170,
])  # fmt: skip
"""Xids that are the fault of an application or of software, that only inform (63: bad memory was taken out of use), or
that are not used any more. 154 repeats what nvidia-smi reports as the recovery action of the GPU."""


_RESTART = frozenset([79, 151])
"""Xids after which a reset is not enough."""


def verdict(code: str) -> tuple[HealthState, str, Repair]:
    """Return the health of a GPU after an error, such as `xid 79`, with a sentence and what repairs it."""
    number = int(code.removeprefix("xid "))
    if number in _HARMLESS:
        return "ok", "", ""
    if number in _RESET:
        return "failed", f"{_RESET[number]} (Xid {number})", "restart" if number in _RESTART else "reset"
    return (
        "degraded",
        f"{_CHECK.get(number, 'The GPU reported an error that Drydock does not know.')} (Xid {number})",
        "",
    )
