"""Machine types and accelerators as instance types.

The entries of one type in several zones of a region become one instance type with those zones. What is attached to an
N1 is part of its name: `n1-standard-8+nvidia-tesla-t4:1`. A2, A3, A4, G2 and G4 bring their GPUs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from blueprints.cloud.values import Gpu, InstanceType
from blueprints.gce.prices import Table
from blueprints.gce.reading import ARCHITECTURES, last, region_of
from blueprints.gce.series import ARM, ATTACHED, SHARED, confidential, family, gpu, gpu_family, series_of, split

LOCAL_SSD_GIB = 375
"""Of each partition. The API tells how many, not how large: newer series such as Z3 may have larger ones."""


def offers(machines: Iterable[Any], accelerators: Iterable[Any], table: Table) -> list[InstanceType]:
    """Of `compute_v1.MachineType` and `AcceleratorType` of any number of zones; the deprecated ones are left out."""
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
    """Zone -> what can be attached there, and how many at most."""
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
