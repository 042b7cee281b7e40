"""Sizes of machines as Resource SKUs lists them, one entry for each location.

Source: REST reference of Microsoft.Compute, "Resource Skus - List". It says what this subscription may have, never
what there is at the moment: Azure has no API for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from blueprints.azure.gpus import gpus
from blueprints.azure.prices import Prices
from blueprints.cloud.values import Confidential, InstanceType

_ARCH = {"x64": "x86_64", "arm64": "arm64"}
_CONFIDENTIAL = {"snp": Confidential.SEV_SNP, "tdx": Confidential.TDX}
_FAMILIES = (
    (re.compile(r"(DC|EC)\d+i?ad?s_v[56]"), Confidential.SEV_SNP),
    (re.compile(r"NCC\d+ads_H100_v5"), Confidential.SEV_SNP),
    (re.compile(r"(DC|EC)\d+i?ed?s_v[56]"), Confidential.TDX),
)
"""learn.microsoft.com, "About Azure confidential VMs", sizes: DCasv5, DCadsv5, ECasv5, ECadsv5 and their successors
have SEV-SNP, DCesv5, DCedsv5, ECesv5, ECedsv5 and theirs TDX. DCsv2, DCsv3 and DCdsv3 have SGX enclaves, which is
neither; the _cc sizes are hosts of confidential containers."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """An instance type, and what a machine of it may say that is nobody else's business."""

    type: InstanceType
    trusted_launch: bool
    accelerated_network: bool
    generations: frozenset[str]
    """Of images that it boots: V1, V2."""
    controllers: frozenset[str]
    """By which it has its disks: SCSI, NVMe; empty where that is not told, as of older sizes, which have SCSI."""


def sizes(skus: Iterable[Mapping[str, Any]], prices: Prices) -> Iterator[Size]:
    """Those among the entries of Resource SKUs that are machines, sorted by id."""
    made = {
        size.type.id: size for sku in skus if sku.get("resourceType") == "virtualMachines" for size in _of(sku, prices)
    }
    yield from (made[id] for id in sorted(made))


def confidential(size: str, capability: str) -> frozenset[Confidential]:
    """By the capability ConfidentialComputingType, or by the size's name where it has none."""
    if capability:
        named = _CONFIDENTIAL.get(capability.lower())
        return frozenset({named} if named else ())
    short = size.removeprefix("Standard_")
    return frozenset(technology for pattern, technology in _FAMILIES if pattern.fullmatch(short))


def _of(sku: Mapping[str, Any], prices: Prices) -> Iterator[Size]:
    can = {one["name"]: str(one.get("value", "")) for one in sku.get("capabilities") or ()}
    zones = {one["location"].lower(): one.get("zones") or () for one in sku.get("locationInfo") or ()}
    for location in (str(one).lower() for one in sku.get("locations") or ()):
        refused, without = _restrictions(sku, location)
        left = tuple(sorted(set(zones.get(location, ())) - without))
        yield Size(
            type=_type(sku, can, location, left, available=not refused and bool(left or not without), prices=prices),
            trusted_launch=can.get("TrustedLaunchDisabled", "").lower() != "true" and "V2" in _generations(can),
            generations=frozenset(words(_generations(can))),
            controllers=frozenset(words(can.get("DiskControllerTypes", ""))),
            accelerated_network=can.get("AcceleratedNetworkingEnabled", "").lower() == "true",
        )


def _type(
    sku: Mapping[str, Any],
    can: Mapping[str, str],
    location: str,
    zones: tuple[str, ...],
    *,
    available: bool,
    prices: Prices,
) -> InstanceType:
    name = str(sku["name"])
    return InstanceType(
        name=name,
        location=location,
        zones=zones,
        vcpus=int(float(can.get("vCPUs") or 0)),
        ram_mib=round(float(can.get("MemoryGB") or 0) * 1024),
        arch=_ARCH.get(can.get("CpuArchitectureType", "x64").lower(), can.get("CpuArchitectureType", "")),
        gpus=gpus(name, can.get("GPUs", "")),
        local_disk_gib=int(can.get("MaxResourceVolumeMB") or 0) // 1024,
        confidential=confidential(name, can.get("ConfidentialComputingType", "")),
        family=str(sku.get("family") or "").lower(),
        available=available,
        prices=prices.of(name, location, spot=can.get("LowPriorityCapable", "").lower() == "true"),
    )


def words(listed: str) -> list[str]:
    """The words of a capability or feature such as `SCSI, NVMe`."""
    return [word.strip() for word in listed.split(",") if word.strip()]


def _generations(can: Mapping[str, str]) -> str:
    return can.get("HyperVGenerations") or "V1,V2"


def _restrictions(sku: Mapping[str, Any], location: str) -> tuple[bool, set[str]]:
    """Whether this subscription may not have it in a location, and the zones in which it may not."""
    refused, zones = False, set()
    for one in sku.get("restrictions") or ():
        about = one.get("restrictionInfo") or {}
        if location not in {
            str(name).lower() for name in (*(one.get("values") or ()), *(about.get("locations") or ()))
        }:
            continue
        if one.get("type") == "Zone":
            zones |= set(about.get("zones") or ())
        else:
            refused = True
    return refused, zones
