"""Machine types and accelerators as instance types, and their prices.

The entries of one type in several zones of a region become one instance type with those zones. Accelerators attached to
an N1 are part of its name: `n1-standard-8+nvidia-tesla-t4:1`. A2, A3, A4, G2 and G4 have built-in GPUs.

Compute Engine's API has no prices: they come from the bundled table or from an operator's file in the same format.
Google prices most series by vCPU and GiB, so the table has rates for each series and region. Types that do not follow
their series (shared cores, local disks, built-in GPUs) have prices of their own, and attached GPUs have a price per
card. The file states its date and source.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from blueprints.cloud.values import Confidential, Gpu, InstanceType, Market, Price
from blueprints.gce.api import last, region_of
from drydock.core.errors import InvalidRequest

ARM = frozenset({"t2a", "c4a", "n4a", "a4x"})
"""Series with ARM processors, for entries where the API's `architecture` is empty."""
SHARED = frozenset({"e2-micro", "e2-small", "e2-medium", "f1-micro", "g1-small"})
HYPERDISK_ONLY = frozenset(
    {
        "a4", "a4x", "c4", "c4a", "c4d", "c4n", "ct6e", "g4", "h4d", "m4", "m4n", "n4", "n4a", "n4d", "tpu7x", "x4",
        "x5", "z4d",
    }
)  # fmt: skip
"""Series that boot only from Hyperdisk (openclaw/crabbox, docs/providers, which follows Google's pages on the
series)."""
HYPERDISK_TYPES = ("a3-ultragpu-",)
"""Prefixes of types in other series that boot only from Hyperdisk. Bare-metal types do too (OpenShift on C3: only
hyperdisk-balanced)."""
NO_MIGRATION = frozenset({"a2", "a3", "a4", "a4x", "g2", "g4", "h3", "h4d", "x4", "x5"})
"""Series that are not migrated live: those with built-in GPUs, those for high-performance computing, and bare metal
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
"""Maps a series to the metric of `regions.get` that counts its vCPUs. The metrics are listed in the discovery document;
their names tell which series they count."""
IN_CPUS = frozenset({"e2", "n1", "f1", "g1"})
"""Series that the metric CPUS counts. Series that are neither here nor in `QUOTA` count for CPUS_PER_VM_FAMILY, which
`regions.get` does not show."""
_CONFIDENTIAL = {
    "c2d": frozenset({Confidential.SEV}),
    "c3d": frozenset({Confidential.SEV}),
    "c4d": frozenset({Confidential.SEV}),
    "n2d": frozenset({Confidential.SEV, Confidential.SEV_SNP}),
}
"""Confidential technologies by series. Source:
docs.cloud.google.com/dataproc/docs/concepts/configuring-clusters/confidential-compute (SEV c4d, c3d, c2d, n2d,
g4-standard-48; SEV_SNP n2d; TDX c3-standard-*, a3-highgpu-1g)."""
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
"""Memory of each accelerator in GiB, from its name or its data sheet, because the API does not report it."""
ATTACHED: dict[str, dict[int, int]] = {
    "nvidia-tesla-t4": {1: 48, 2: 48, 4: 96},
    "nvidia-tesla-p4": {1: 24, 2: 48, 4: 96},
    "nvidia-tesla-p100": {1: 16, 2: 32, 4: 64},
    "nvidia-tesla-v100": {1: 12, 2: 24, 4: 48, 8: 96},
}
"""Accelerators that can be attached to N1. Each maps the number of attached cards to the maximum number of vCPUs. Not
checked yet against cloud.google.com/compute/docs/gpus; Google refuses other combinations."""
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
"""The country of each region outside the US. Source: cloud.google.com/compute/docs/regions-zones. Regions that begin
with `us-` are in the US."""


def series_of(type_name: str) -> str:
    """Return the series of a machine type: `n2` for n2-standard-8. A type `custom-...` is an N1."""
    series = type_name.split("-", 1)[0]
    return "n1" if series == "custom" else series


def confidential(type_name: str) -> frozenset[Confidential]:
    """Return the confidential technologies of a machine type."""
    if type_name.endswith(("-metal", "-lssd")):
        return frozenset()
    if type_name == "a3-highgpu-1g" or type_name.startswith("c3-standard-"):
        return frozenset({Confidential.TDX})
    if type_name == "g4-standard-48":
        return frozenset({Confidential.SEV})
    return _CONFIDENTIAL.get(series_of(type_name), frozenset())


def family(type_name: str) -> str:
    """Return the quota metric that counts a type's vCPUs, or `CPUS_PER_VM_FAMILY:C4` if there is no such metric."""
    series = series_of(type_name)
    if series in IN_CPUS:
        return "CPUS"
    return QUOTA.get(series) or f"CPUS_PER_VM_FAMILY:{series.upper()}"


def gpu_family(accelerator: str) -> str:
    """Return the quota metric that counts these GPUs: NVIDIA_T4_GPUS, NVIDIA_A100_80GB_GPUS.

    Newer GPUs are counted by the quota GPUS_PER_GPU_FAMILY, which `regions.get` does not show, so no metric has the
    returned name.
    """
    return accelerator.replace("-tesla-", "-").replace("-", "_").upper() + "_GPUS"


def gpu(accelerator: str, count: int) -> Gpu:
    """Return the vendor and model of an accelerator: nvidia and t4 for `nvidia-tesla-t4`.

    A size in its name (`-80gb`) describes the memory, not the model.
    """
    maker, _, rest = accelerator.partition("-")
    if maker in ("ct3", "ct3p", "ct5l", "ct5lp", "ct5p", "ct6e", "tpu7x"):
        return Gpu(maker="google", model=accelerator, count=count)
    model = re.sub(r"-\d+gb$", "", rest.removeprefix("tesla-")) or accelerator
    return Gpu(maker=maker, model=model, count=count, memory_mib=_GPU_MEMORY_GIB.get(accelerator, 0) * 1024)


def country(region: str) -> str:
    """Return the ISO 3166 alpha-2 code of a region's country, or an empty string for an unknown region."""
    return "US" if region.startswith("us-") else COUNTRIES.get(region, "")


def is_metal(machine: str) -> bool:
    """Return whether a machine type is bare metal, without a hypervisor."""
    return machine.endswith("-metal") or series_of(machine) in ("x4", "x5")


def boots_from_hyperdisk(machine: str) -> bool:
    """Return whether a machine type boots only from Hyperdisk."""
    return series_of(machine) in HYPERDISK_ONLY or machine.startswith(HYPERDISK_TYPES) or is_metal(machine)


def migrates(machine: str) -> bool:
    """Return whether a machine type is migrated live."""
    return not (is_metal(machine) or series_of(machine) in NO_MIGRATION or TPUS.match(machine))


def split(type_name: str) -> tuple[str, str, int]:
    """Split a type name: `n1-standard-8+nvidia-tesla-t4:1` into (`n1-standard-8`, `nvidia-tesla-t4`, 1).

    Without a GPU, the last two are ("", 0). Raises ValueError if the part after the plus is not ACCELERATOR:COUNT.
    """
    machine, plus, attached = type_name.partition("+")
    if not plus:
        return machine, "", 0
    accelerator, colon, count = attached.partition(":")
    if not (colon and accelerator and count.isdigit() and int(count)):
        raise ValueError(f"{type_name!r} must be MACHINE+ACCELERATOR:COUNT")
    return machine, accelerator, int(count)


BUNDLED = Path(__file__).with_name("prices.json")
Rows = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A price table from one file."""

    source: str
    rates: Rows = field(default_factory=dict)
    types: Rows = field(default_factory=dict)
    gpus: Rows = field(default_factory=dict)

    def prices(self, region: str, type_name: str, vcpus: int, ram_mib: int) -> tuple[Price, ...]:
        """Return on-demand and spot prices in US dollars per hour, or nothing if the table has none."""
        machine, accelerator, count = split(type_name)
        pair = self._machine(region, machine, vcpus, ram_mib)
        cards = self.gpus.get(region, {}).get(accelerator) if accelerator else (0.0, 0.0)
        if pair is None or cards is None:
            return ()
        return tuple(
            Price(market=market, per_hour=round(base + count * card, 6), source=self.source)
            for market, base, card in zip((Market.ON_DEMAND, Market.SPOT), pair, cards, strict=True)
        )

    def _machine(self, region: str, machine: str, vcpus: int, ram_mib: int) -> tuple[float, float] | None:
        own = self.types.get(region, {}).get(machine)
        if own is not None:
            return own[0], own[1]
        rate = self.rates.get(region, {}).get(series_of(machine))
        if rate is None or "custom" in machine or machine.endswith(("-lssd", "-metal")):
            return None
        gib = ram_mib / 1024
        return rate[0] * vcpus + rate[1] * gib, rate[2] * vcpus + rate[3] * gib


@cache
def table(path: str = "") -> Table:
    """Return the operator's price table, or the bundled one. Raises InvalidRequest if it cannot be read."""
    where = Path(path) if path else BUNDLED
    try:
        said: dict[str, Any] = json.loads(where.read_text())
        rows = {name: said.get(name, {}) for name in ("rates", "types", "gpus")}
        source = f"{'file' if path else 'bundled'} {said['date']}"
    except (OSError, ValueError, KeyError) as error:
        raise InvalidRequest(
            f"The prices in {where.name} cannot be read: {type(error).__name__}.",
            field="prices",
            hint="The file must be JSON with date, rates, types and gpus, as in blueprints/gce/prices.json.",
        ) from None
    return Table(source=source, **rows)


LOCAL_SSD_GIB = 375
"""Size of each local SSD partition in GiB. The API reports only the number of partitions; newer series such as Z3 may
have larger partitions."""


def offers(machines: Iterable[Any], accelerators: Iterable[Any], table: Table) -> list[InstanceType]:
    """Return offers for machine types and accelerators in any number of zones. Deprecated types are omitted."""
    types: dict[tuple[str, str], Any] = {}
    zones: dict[tuple[str, str], set[str]] = defaultdict(set)
    for machine in machines:
        if machine.deprecated.state in ("", "ACTIVE"):
            zone = last(machine.zone)
            types[region_of(zone), machine.name] = machine
            zones[region_of(zone), machine.name].add(zone)
    cards = _cards(accelerators)
    found = []
    for (region, name), machine in sorted(types.items()):
        there = zones[region, name]
        found.append(_offer(machine, region, there, name, _gpus(machine), table))
        found += _attached(machine, region, there, cards, table)
    return found


def _cards(accelerators: Iterable[Any]) -> dict[str, set[tuple[str, int]]]:
    """Return, for each zone, the accelerators that can be attached there and the maximum number of each."""
    found: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for one in accelerators:
        if one.name in ATTACHED and one.deprecated.state in ("", "ACTIVE"):
            found[last(one.zone)].add((one.name, one.maximum_cards_per_instance))
    return found


def _attached(
    machine: Any, region: str, zones: set[str], cards: Mapping[str, set[tuple[str, int]]], table: Table
) -> Iterator[InstanceType]:
    if series_of(machine.name) != "n1" or machine.name.startswith(("n1-megamem", "n1-ultramem")):
        return
    for accelerator, counts in ATTACHED.items():
        for count, most in counts.items():
            there = {zone for zone in zones if any(name == accelerator and n >= count for name, n in cards[zone])}
            if there and machine.guest_cpus <= most:
                name = f"{machine.name}+{accelerator}:{count}"
                yield _offer(machine, region, there, name, (gpu(accelerator, count),), table)


def _gpus(machine: Any) -> tuple[Gpu, ...]:
    return tuple(gpu(one.guest_accelerator_type, one.guest_accelerator_count) for one in machine.accelerators)


def _offer(machine: Any, region: str, zones: set[str], name: str, gpus: Sequence[Gpu], table: Table) -> InstanceType:
    disks = machine.bundled_local_ssds.partition_count
    return InstanceType(
        name=name,
        location=region,
        zones=tuple(sorted(zones)),
        vcpus=machine.guest_cpus,
        ram_mib=machine.memory_mb,
        arch=_arch(machine),
        gpus=tuple(gpus),
        local_disk_gib=disks * LOCAL_SSD_GIB,
        confidential=confidential(machine.name) if machine.name not in SHARED else frozenset(),
        family=family(machine.name),
        families=_gpu_families(machine, name),
        stoppable=not disks and not machine.name.endswith("-metal"),
        prices=table.prices(region, name, machine.guest_cpus, machine.memory_mb),
    )


def _gpu_families(machine: Any, name: str) -> tuple[str, ...]:
    named = {one.guest_accelerator_type for one in machine.accelerators} | {split(name)[1]}
    return tuple(sorted(gpu_family(one) for one in named if one))


def _arch(machine: Any) -> str:
    fallback = "arm64" if series_of(machine.name) in ARM else "x86_64"
    return ARCHITECTURES.get(machine.architecture, fallback)


ARCHITECTURES = {"ARM64": "arm64", "X86_64": "x86_64"}
