"""Machine sizes from Resource SKUs, with one entry for each location, and their prices.

Source: REST reference of Microsoft.Compute, "Resource Skus - List". It lists the sizes that the subscription may use,
not the capacity that is free at the moment, for which Azure has no API. The GPU models are from learn.microsoft.com,
"GPU accelerated virtual machine sizes" and the pages of the series listed there: Resource SKUs has only their number.

Prices come from a table, because Azure's price list is a separate API that does not have the account's own prices. The
bundled table is made from the Azure Retail Prices API as recorded in Azure/karpenter-provider-azure
(pkg/providers/pricing/zz_generated.pricing.go); its date, locations and commit are in prices.json. On demand, Linux, US
dollars per hour.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Confidential, Gpu, InstanceType, Market, Price

GIB = 1024
_MODELS = tuple(
    (re.compile(pattern), maker, model, gib)
    for pattern, maker, model, gib in (
        (r"NCC?\d+ad(i)?s_H100_v5", "nvidia", "h100", 94),
        (r"ND\d+\w*_H100_v5", "nvidia", "h100", 80),
        (r"ND\d+\w*_H200_v5", "nvidia", "h200", 141),
        (r"ND\d+\w*_GB200\w*", "nvidia", "gb200", 192),
        (r"ND\d+\w*_GB300\w*", "nvidia", "gb300", 288),
        (r"ND\d+\w*_MI300X_v5", "amd", "mi300x", 192),
        (r"NC\d+ads_A100_v4", "nvidia", "a100", 80),
        (r"ND\d+amsr?_A100_v4", "nvidia", "a100", 80),
        (r"ND\d+asr(_A100)?_v4", "nvidia", "a100", 40),
        (r"NC\d+as_T4_v3", "nvidia", "t4", 16),
        (r"NC\d+r?s_v3", "nvidia", "v100", 16),
        (r"ND\d+rs_v2", "nvidia", "v100", 32),
        (r"N[CV]\d+adm?s_A10_v[45]", "nvidia", "a10", 24),
        (r"NC\d+l?ds_xl_RTXPRO6000BSE_v6", "nvidia", "rtxpro6000", 96),
        (r"NV\d+s_v3", "nvidia", "m60", 8),
        (r"NV\d+as_v4", "amd", "mi25", 16),
        (r"N[GV]\d+\w*_V710_v5", "amd", "v710", 24),
        (r"NG\d+\w*_V620(_v1)?", "amd", "v620", 32),
    )
)
_PARTS = {"NV6ads_A10_v5": 6, "NV12ads_A10_v5": 3, "NV18ads_A10_v5": 2, "NV4as_v4": 8, "NV8as_v4": 4, "NV16as_v4": 2}
"""Maps sizes that have only a part of a GPU to the number of parts into which the GPU is divided."""


def gpus(size: str, count: str) -> tuple[Gpu, ...]:
    """Return a size's accelerators: the model from the size's name, the count from its capability `GPUs`.

    An unknown model is called `unknown`.
    """
    number = max(1, round(float(count))) if count and float(count) > 0 else 0
    if not number:
        return ()
    short = size.removeprefix("Standard_")
    for pattern, maker, model, gib in _MODELS:
        if pattern.fullmatch(short):
            return (Gpu(maker=maker, model=model, count=number, memory_mib=gib * GIB // _PARTS.get(short, 1)),)
    return (Gpu(maker="nvidia", model="unknown", count=number),)


BUNDLED = Path(__file__).with_name("prices.json")


@dataclass(frozen=True, kw_only=True)
class Prices:
    """A price table. It maps a size (without `Standard_`) to prices in the order of `locations`."""

    source: str
    locations: tuple[str, ...]
    on_demand: dict[str, list[float | None]]
    spot: dict[str, list[float | None]]

    def of(self, size: str, location: str, *, spot: bool) -> tuple[Price, ...]:
        """Return the prices of a size in a location, or nothing if the table has none."""
        usual = self._figure(self.on_demand, size, location)
        if usual is None:
            return ()
        found = [Price(market=Market.ON_DEMAND, per_hour=usual, source=self.source)]
        if spot:
            known = self._figure(self.spot, size, location)
            source = self.source if known is not None else f"{self.source}, at most"
            found.append(Price(market=Market.SPOT, per_hour=usual if known is None else known, source=source))
        return tuple(found)

    def _figure(self, table: dict[str, list[float | None]], size: str, location: str) -> float | None:
        row = table.get(size.removeprefix("Standard_"))
        return row[self.locations.index(location)] if row and location in self.locations else None


@cache
def table(path: str = "") -> Prices:
    """Return the price table from the file `path`, or the bundled one by default.

    Raises CloudError INVALID if it cannot be read.
    """
    try:
        return _read(json.loads(Path(path or BUNDLED).read_text(encoding="utf-8")), path)
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise CloudError(Meaning.INVALID, f"The prices in {path} cannot be read: {error!r}") from None


def _read(given: dict[str, Any], path: str) -> Prices:
    locations = tuple(given["locations"])
    tables = {name: dict(given.get(name, {})) for name in ("on_demand", "spot")}
    wrong = [size for rows in tables.values() for size, row in rows.items() if len(row) != len(locations)]
    if wrong:
        raise ValueError(f"{wrong[0]} does not have one price for each location")
    return Prices(source=f"{Path(path).name if path else 'bundled'} {given['read_at']}", locations=locations, **tables)


_ARCH = {"x64": "x86_64", "arm64": "arm64"}
_CONFIDENTIAL = {"snp": Confidential.SEV_SNP, "tdx": Confidential.TDX}
_FAMILIES = (
    (re.compile(r"(DC|EC)\d+i?ad?s_v[56]"), Confidential.SEV_SNP),
    (re.compile(r"NCC\d+ads_H100_v5"), Confidential.SEV_SNP),
    (re.compile(r"(DC|EC)\d+i?ed?s_v[56]"), Confidential.TDX),
)
"""Confidential technologies by the size's name. Source: learn.microsoft.com, "About Azure confidential VMs". DCasv5,
DCadsv5, ECasv5, ECadsv5 and their successors have SEV-SNP; DCesv5, DCedsv5, ECesv5, ECedsv5 and their successors have
TDX. DCsv2, DCsv3 and DCdsv3 have only SGX enclaves, and the _cc sizes are hosts of confidential containers."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """An instance type, with additional fields that only this kind needs."""

    type: InstanceType
    trusted_launch: bool
    accelerated_network: bool
    generations: frozenset[str]
    """Generations of images that the size boots: V1, V2."""
    controllers: frozenset[str]
    """Disk controllers: SCSI, NVMe. Empty if Azure does not report them; older sizes, which have SCSI, do not."""


def sizes(skus: Iterable[Mapping[str, Any]], prices: Prices) -> Iterator[Size]:
    """Yield the entries of Resource SKUs that are machines, sorted by id."""
    made = {
        size.type.id: size for sku in skus if sku.get("resourceType") == "virtualMachines" for size in _of(sku, prices)
    }
    yield from (made[id] for id in sorted(made))


def confidential(size: str, capability: str) -> frozenset[Confidential]:
    """Return the confidential technologies, from the capability ConfidentialComputingType or else from the name."""
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
    """Return the words in a capability or feature such as `SCSI, NVMe`."""
    return [word.strip() for word in listed.split(",") if word.strip()]


def _generations(can: Mapping[str, str]) -> str:
    return can.get("HyperVGenerations") or "V1,V2"


def _restrictions(sku: Mapping[str, Any], location: str) -> tuple[bool, set[str]]:
    """Return whether this subscription may not use a size in the whole location, and in which zones it may not."""
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
