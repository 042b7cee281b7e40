"""Classes and traits of accelerators, and their names in OpenStack."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

Class = Literal["gpu", "gpu_slice", "fpga", "qat", "dsa", "iaa", "npu", "nic", "vf", "nvme", "coprocessor"]

RESOURCE_CLASSES: Mapping[Class, str] = {
    "gpu": "PGPU",
    "gpu_slice": "VGPU",
    "fpga": "FPGA",
    "qat": "CUSTOM_QAT",
    "dsa": "CUSTOM_DSA",
    "iaa": "CUSTOM_IAA",
    "npu": "CUSTOM_NPU",
    "nic": "PCI_DEVICE",
    "vf": "SRIOV_NET_VF",
    "nvme": "CUSTOM_NVME",
    "coprocessor": "CUSTOM_COPROCESSOR",
}
"""Each class of accelerators and its resource class in OpenStack (`os-resource-classes`, or a custom one)."""

CAPTURED, MIG, PASS_THROUGH, RDMA, SRIOV = "captured", "mig", "pass_through", "rdma", "sriov"

TRAITS: Mapping[str, str] = {
    CAPTURED: "CUSTOM_CAPTURED",
    MIG: "CUSTOM_NVIDIA_MIG",
    PASS_THROUGH: "CUSTOM_PASS_THROUGH",
    RDMA: "CUSTOM_RDMA",
    SRIOV: "HW_NIC_SRIOV",
}
"""Each trait of accelerators and its name in OpenStack (`os-traits`, or a custom one)."""

_CUDA = re.compile(r"\Acuda_compute_capability_(\d{1,2})_(\d)\Z")
_LAST_CUDA_TRAIT = (7, 2)
"""The last compute capability that `os-traits` knows."""

VENDORS: Mapping[str, str] = {
    "1002": "amd",
    "10de": "nvidia",
    "10ee": "xilinx",
    "15b3": "mellanox",
    "19e5": "huawei",
    "1b36": "qemu",
    "1da3": "habana",
    "8086": "intel",
}
"""Short names of vendors, by PCI vendor id. Others are named by their id."""


def cuda_trait(capability: float) -> str:
    """Return the trait of GPUs with a CUDA compute capability, such as 8.0."""
    return f"cuda_compute_capability_{f'{capability:.1f}'.replace('.', '_')}"


def os_trait(trait: str) -> str:
    """Return the name of a trait in OpenStack: one of `os-traits`, or a custom one."""
    if trait in TRAITS:
        return TRAITS[trait]
    if match := _CUDA.match(trait):
        version = int(match[1]), int(match[2])
        prefix = "HW_" if version <= _LAST_CUDA_TRAIT else "CUSTOM_"
        return f"{prefix}GPU_CUDA_COMPUTE_CAPABILITY_V{version[0]}_{version[1]}"
    return "CUSTOM_" + re.sub(r"[^A-Z0-9_]+", "_", trait.upper())
