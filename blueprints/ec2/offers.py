"""Instance types as EC2 describes them, in the contract's values."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from blueprints.cloud.values import Confidential, Gpu, InstanceType, Price
from blueprints.ec2.calls import Answer, Calls

STANDARD = "standard"
_FAMILIES = {
    **dict.fromkeys("acdhimrtz", STANDARD),
    **{"g": "g", "gr": "g", "vt": "g", "p": "p", "x": "x", "u": "u", "f": "f"},
    **{"inf": "inf", "trn": "trn", "dl": "dl", "hpc": "hpc", "im": STANDARD, "is": STANDARD, "mac": "mac"},
}
"""Letters that a type's name begins with -> what its quota counts (https://docs.aws.amazon.com/ec2/latest/instancetypes/
ec2-instance-quotas.html: Standard is A, C, D, H, I, M, R, T, Z; G and VT are one)."""
_LETTERS = re.compile(r"[a-z]*")
_MAKERS = {"habana": "intel", "nvidia": "nvidia", "amd": "amd", "aws": "aws", "intel": "intel", "xilinx": "amd"}
_BOOTABLE = ("x86_64", "arm64", "i386")


def family_of(name: str) -> str:
    """What the quota of a type is counted by. p5 and p6 are families of their own: on demand they share the quota of
    all P, but the spot quota of P is one of P4, P3 and P2."""
    letters = name[: _LETTERS.match(name).end()]  # type: ignore[union-attr]
    return name[:2] if name.startswith(("p5", "p6")) else _FAMILIES.get(letters, letters)


def zones_of(calls: Calls, region: str) -> dict[str, list[str]]:
    """Type -> the zones that have it, sorted."""
    zones: dict[str, list[str]] = defaultdict(list)
    for page in calls.pages(
        "describe_instance_type_offerings", region, LocationType="availability-zone", MaxResults=1000
    ):
        for offering in page["InstanceTypeOfferings"]:
            zones[offering["InstanceType"]].append(offering["Location"])
    return {name: sorted(found) for name, found in zones.items()}


def types_of(calls: Calls, region: str, prices: Mapping[str, Sequence[Price]]) -> list[InstanceType]:
    """Every type of a region, by name. Macs are left out: they exist on dedicated hosts only."""
    zones = zones_of(calls, region)
    found = {}
    for page in calls.pages("describe_instance_types", region, MaxResults=100):
        for one in page["InstanceTypes"]:
            if _arch(one):
                name = one["InstanceType"]
                found[name] = type_of(one, region, zones.get(name, []), prices.get(name, ()))
    return [found[name] for name in sorted(found)]


def type_of(one: Answer, region: str, zones: Sequence[str], prices: Sequence[Price]) -> InstanceType:
    """One type as DescribeInstanceTypes tells of it."""
    features = (one.get("ProcessorInfo") or {}).get("SupportedFeatures") or ()
    return InstanceType(
        name=one["InstanceType"],
        location=region,
        zones=tuple(zones),
        vcpus=one["VCpuInfo"]["DefaultVCpus"],
        ram_mib=one["MemoryInfo"]["SizeInMiB"],
        arch=_arch(one),
        gpus=_gpus(one),
        local_disk_gib=_gib((one.get("InstanceStorageInfo") or {}).get("TotalSizeInGB") or 0),
        network=(one.get("NetworkInfo") or {}).get("NetworkPerformance") or "",
        confidential=frozenset({Confidential.SEV_SNP} if "amd-sev-snp" in features else ()),
        family=family_of(one["InstanceType"]),
        available=bool(zones),
        stoppable="ebs" in (one.get("SupportedRootDeviceTypes") or ()),
        prices=tuple(price for price in prices if not price.zone or price.zone in zones),
    )


def _arch(one: Answer) -> str:
    supported = one["ProcessorInfo"].get("SupportedArchitectures") or ()
    return next((arch for arch in _BOOTABLE if arch in supported), "")


def _gpus(one: Answer) -> tuple[Gpu, ...]:
    """GPUs, else accelerators: NeuronInfo where it is told, as it is of Inferentia and Trainium; the older
    InferenceAcceleratorInfo tells of Inferentia alone."""
    devices = (
        (one.get("GpuInfo") or {}).get("Gpus")
        or (one.get("NeuronInfo") or {}).get("NeuronDevices")
        or (one.get("InferenceAcceleratorInfo") or {}).get("Accelerators")
        or ()
    )
    return tuple(_gpu(device) for device in devices)


def _gpu(device: Answer) -> Gpu:
    said = (device.get("Manufacturer") or "AWS").lower()
    model = (device.get("Name") or "").lower()
    return Gpu(
        maker=_MAKERS.get(said, said),
        model=model.removeprefix(said).strip(),
        count=max(1, device.get("Count") or 1),  # a part of a GPU is told as none
        memory_mib=(device.get("MemoryInfo") or {}).get("SizeInMiB") or 0,
    )


def _gib(gigabytes: int) -> int:
    return gigabytes * 10**9 // 2**30
