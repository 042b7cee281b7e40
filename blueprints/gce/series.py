"""Facts of Compute Engine's machine series and regions that the API does not tell."""

from __future__ import annotations

import re

from blueprints.cloud.values import Confidential, Gpu

ARM = frozenset({"t2a", "c4a", "n4a", "a4x"})
"""Series with ARM processors, for entries where the API's `architecture` is empty."""
SHARED = frozenset({"e2-micro", "e2-small", "e2-medium", "f1-micro", "g1-small"})
HYPERDISK_ONLY = frozenset(
    {
        "a4", "a4x", "c4", "c4a", "c4d", "c4n", "ct6e", "g4", "h4d", "m4", "m4n", "n4", "n4a", "n4d", "tpu7x", "x4",
        "x5", "z4d",
    }
)  # fmt: skip
"""Series that boot from Hyperdisk alone (openclaw/crabbox, docs/providers, which follows the series' pages)."""
HYPERDISK_TYPES = ("a3-ultragpu-",)
"""Types of other series that do; bare metal does too (OpenShift on C3: only hyperdisk-balanced)."""
NO_MIGRATION = frozenset({"a2", "a3", "a4", "a4x", "g2", "g4", "h3", "h4d", "x4", "x5"})
"""Series that are not migrated live: those with GPUs of their own, those for high performance computing, bare metal
(docs.cloud.google.com/compute/docs/instances/live-migration-process, "Limitations")."""
TPUS = re.compile(r"ct\d|tpu")
QUOTA = {
    "a2": "A2_CPUS",
    "c2": "C2_CPUS",
    "c2d": "C2D_CPUS",
    "c3": "C3_CPUS",
    "m1": "M1_CPUS",
    "m2": "M2_CPUS",
    "m3": "M3_CPUS",
    "n2": "N2_CPUS",
    "n2d": "N2D_CPUS",
    "t2a": "T2A_CPUS",
    "t2d": "T2D_CPUS",
}
"""Series -> the metric of `regions.get` that counts its vCPUs. The metrics are those of the discovery document; which
series each counts is taken from their names."""
IN_CPUS = frozenset({"e2", "n1", "f1", "g1"})
"""Counted by the metric CPUS. All others are in the quota CPUS_PER_VM_FAMILY, which `regions.get` does not show."""

_CONFIDENTIAL = {
    "c2d": frozenset({Confidential.SEV}),
    "c3d": frozenset({Confidential.SEV}),
    "c4d": frozenset({Confidential.SEV}),
    "n2d": frozenset({Confidential.SEV, Confidential.SEV_SNP}),
}
"""Source: docs.cloud.google.com/dataproc/docs/concepts/configuring-clusters/confidential-compute (SEV c4d, c3d, c2d,
n2d, g4-standard-48; SEV_SNP n2d; TDX c3-standard-*, a3-highgpu-1g)."""

_GPU_MEMORY_GIB = {
    "nvidia-tesla-t4": 16,
    "nvidia-tesla-p4": 8,
    "nvidia-tesla-p100": 16,
    "nvidia-tesla-v100": 16,
    "nvidia-tesla-a100": 40,
    "nvidia-a100-80gb": 80,
    "nvidia-l4": 24,
    "nvidia-h100-80gb": 80,
    "nvidia-h100-mega-80gb": 80,
    "nvidia-h200-141gb": 141,
    "nvidia-b200": 180,
    "nvidia-rtx-pro-6000": 96,
}
"""From the cards' names and makers' sheets; the API does not tell."""
ATTACHED: dict[str, dict[int, int]] = {
    "nvidia-tesla-t4": {1: 48, 2: 48, 4: 96},
    "nvidia-tesla-p4": {1: 24, 2: 48, 4: 96},
    "nvidia-tesla-p100": {1: 16, 2: 32, 4: 64},
    "nvidia-tesla-v100": {1: 12, 2: 24, 4: 48, 8: 96},
}
"""Accelerators that are attached to N1: how many at once -> the most vCPUs with them.
Not checked yet against cloud.google.com/compute/docs/gpus; Google refuses what does not fit."""

COUNTRIES = {
    "africa-south1": "ZA",
    "asia-east1": "TW",
    "asia-east2": "HK",
    "asia-northeast1": "JP",
    "asia-northeast2": "JP",
    "asia-northeast3": "KR",
    "asia-south1": "IN",
    "asia-south2": "IN",
    "asia-southeast1": "SG",
    "asia-southeast2": "ID",
    "asia-southeast3": "TH",
    "australia-southeast1": "AU",
    "australia-southeast2": "AU",
    "europe-central2": "PL",
    "europe-north1": "FI",
    "europe-north2": "SE",
    "europe-southwest1": "ES",
    "europe-west1": "BE",
    "europe-west2": "GB",
    "europe-west3": "DE",
    "europe-west4": "NL",
    "europe-west6": "CH",
    "europe-west8": "IT",
    "europe-west9": "FR",
    "europe-west10": "DE",
    "europe-west12": "IT",
    "me-central1": "QA",
    "me-central2": "SA",
    "me-west1": "IL",
    "northamerica-northeast1": "CA",
    "northamerica-northeast2": "CA",
    "northamerica-south1": "MX",
    "southamerica-east1": "BR",
    "southamerica-west1": "CL",
}
"""Source: cloud.google.com/compute/docs/regions-zones. Regions that begin with `us-` are in the US."""


def series_of(type_name: str) -> str:
    """`n2` of n2-standard-8. A type `custom-...` is an N1."""
    series = type_name.split("-", 1)[0]
    return "n1" if series == "custom" else series


def confidential(type_name: str) -> frozenset[Confidential]:
    """What a machine type can guard its memory with."""
    if type_name.endswith(("-metal", "-lssd")):
        return frozenset()
    if type_name == "a3-highgpu-1g" or type_name.startswith("c3-standard-"):
        return frozenset({Confidential.TDX})
    if type_name == "g4-standard-48":
        return frozenset({Confidential.SEV})
    return _CONFIDENTIAL.get(series_of(type_name), frozenset())


def family(type_name: str) -> str:
    """The quota metric that counts its vCPUs; `CPUS_PER_VM_FAMILY:C4` where no metric does."""
    series = series_of(type_name)
    if series in IN_CPUS:
        return "CPUS"
    return QUOTA.get(series) or f"CPUS_PER_VM_FAMILY:{series.upper()}"


def gpu_family(accelerator: str) -> str:
    """The quota metric that counts such GPUs: NVIDIA_T4_GPUS, NVIDIA_A100_80GB_GPUS. Newer ones are in the quota
    GPUS_PER_GPU_FAMILY, which `regions.get` does not show: no metric has the name then."""
    return accelerator.replace("-tesla-", "-").replace("-", "_").upper() + "_GPUS"


def gpu(accelerator: str, count: int) -> Gpu:
    """`nvidia-tesla-t4` is nvidia's t4; sizes in a name (`-80gb`) are told by the memory."""
    maker, _, rest = accelerator.partition("-")
    if maker in ("ct3", "ct3p", "ct5l", "ct5lp", "ct5p", "ct6e", "tpu7x"):
        return Gpu(maker="google", model=accelerator, count=count)
    model = re.sub(r"-\d+gb$", "", rest.removeprefix("tesla-")) or accelerator
    return Gpu(maker=maker, model=model, count=count, memory_mib=_GPU_MEMORY_GIB.get(accelerator, 0) * 1024)


def country(region: str) -> str:
    """ISO 3166 alpha-2, empty where we do not know the region."""
    return "US" if region.startswith("us-") else COUNTRIES.get(region, "")


def is_metal(machine: str) -> bool:
    """Whether it is a bare metal machine: no hypervisor stands between."""
    return machine.endswith("-metal") or series_of(machine) in ("x4", "x5")


def boots_from_hyperdisk(machine: str) -> bool:
    """Whether it takes no other boot disk."""
    return series_of(machine) in HYPERDISK_ONLY or machine.startswith(HYPERDISK_TYPES) or is_metal(machine)


def migrates(machine: str) -> bool:
    """Whether it can be moved to another host while it runs."""
    return not (is_metal(machine) or series_of(machine) in NO_MIGRATION or TPUS.match(machine))


def split(type_name: str) -> tuple[str, str, int]:
    """`n1-standard-8+nvidia-tesla-t4:1` -> (`n1-standard-8`, `nvidia-tesla-t4`, 1); without GPU ("", 0).

    Raises ValueError where the part after the plus is not ACCELERATOR:COUNT.
    """
    machine, plus, attached = type_name.partition("+")
    if not plus:
        return machine, "", 0
    accelerator, colon, count = attached.partition(":")
    if not (colon and accelerator and count.isdigit() and int(count)):
        raise ValueError(f"{type_name!r} must be MACHINE+ACCELERATOR:COUNT")
    return machine, accelerator, int(count)
