"""What the double has to offer: 30 sizes over 3 locations, images, and limits. Figures as on Azure's public pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

LOCATIONS = {
    "eastus": ("East US", "United States", ("1", "2", "3")),
    "westeurope": ("West Europe", "Europe", ("1", "2", "3")),
    "westcentralus": ("West Central US", "United States", ()),
}
PHYSICAL = {"eastus": "Virginia", "westeurope": "Netherlands", "westcentralus": "Wyoming"}

NVME = {"HyperVGenerations": "V2", "DiskControllerTypes": "NVMe"}
"""Sizes from v6 on: generation 2 and NVMe alone."""
# name, family, vCPUs, GB, capabilities besides
SIZES: tuple[tuple[str, str, int, float, dict[str, str]], ...] = (
    ("B1s", "standardBSFamily", 1, 1, {"MaxResourceVolumeMB": "4096", "LowPriorityCapable": "False"}),
    ("B2s", "standardBSFamily", 2, 4, {"MaxResourceVolumeMB": "8192", "LowPriorityCapable": "False"}),
    ("B2ms", "standardBSFamily", 2, 8, {"MaxResourceVolumeMB": "16384", "LowPriorityCapable": "False"}),
    ("B2pts_v2", "standardBpsv2Family", 2, 1, {"CpuArchitectureType": "Arm64"}),
    ("A1_v2", "standardAv2Family", 1, 2, {"HyperVGenerations": "V1", "TrustedLaunchDisabled": "True"}),
    ("D2s_v5", "standardDSv5Family", 2, 8, {}),
    ("D4s_v5", "standardDSv5Family", 4, 16, {}),
    ("D8s_v5", "standardDSv5Family", 8, 32, {}),
    ("D16s_v5", "standardDSv5Family", 16, 64, {}),
    ("D2ds_v5", "standardDDSv5Family", 2, 8, {"MaxResourceVolumeMB": "76800"}),
    ("D4ds_v5", "standardDDSv5Family", 4, 16, {"MaxResourceVolumeMB": "153600"}),
    ("D2as_v5", "standardDASv5Family", 2, 8, {}),
    ("D4as_v5", "standardDASv5Family", 4, 16, {}),
    ("D2ps_v5", "standardDPSv5Family", 2, 8, {"CpuArchitectureType": "Arm64"}),
    ("D4ps_v5", "standardDPSv5Family", 4, 16, {"CpuArchitectureType": "Arm64"}),
    ("E2s_v5", "standardESv5Family", 2, 16, {}),
    ("E4s_v5", "standardESv5Family", 4, 32, {}),
    ("F2s_v2", "standardFSv2Family", 2, 4, {"MaxResourceVolumeMB": "16384"}),
    ("F4s_v2", "standardFSv2Family", 4, 8, {"MaxResourceVolumeMB": "32768"}),
    ("L8s_v3", "standardLSv3Family", 8, 64, {"MaxResourceVolumeMB": "81920"}),
    ("DC2as_v5", "standardDCASv5Family", 2, 8, {"ConfidentialComputingType": "SNP"}),
    ("DC4as_v5", "standardDCASv5Family", 4, 16, {"ConfidentialComputingType": "SNP"}),
    ("EC4as_v5", "standardECASv5Family", 4, 32, {"ConfidentialComputingType": "SNP"}),
    ("DC2es_v6", "standardDCESv6Family", 2, 8, {"ConfidentialComputingType": "TDX", **NVME}),
    ("D2s_v6", "standardDSv6Family", 2, 8, NVME),
    ("DC2s_v3", "standardDCSv3Family", 2, 16, {}),
    ("NC4as_T4_v3", "Standard NCASv3_T4 Family", 4, 28, {"GPUs": "1", "MaxResourceVolumeMB": "180224"}),
    ("NC24ads_A100_v4", "StandardNCADSA100v4Family", 24, 220, {"GPUs": "1", "MaxResourceVolumeMB": "65536"}),
    ("NV6ads_A10_v5", "StandardNVADSA10v5Family", 6, 55, {"GPUs": "1", "MaxResourceVolumeMB": "184320"}),
    ("ND96isr_H100_v5", "standardNDSH100v5Family", 96, 1900, {"GPUs": "8", "MaxResourceVolumeMB": "1024000"}),
    ("M128ms", "standardMSFamily", 128, 3892, {"TrustedLaunchDisabled": "True"}),
)
REFUSED = {("Standard_ND96isr_H100_v5", "westeurope"), ("Standard_M128ms", "westcentralus")}
WITHOUT_ZONES = {("Standard_NC24ads_A100_v4", "eastus"): ("2", "3")}
IMAGES = {
    ("Debian", "debian-12", "12-gen2"): "TrustedLaunchSupported",
    ("Debian", "debian-12", "12"): "",
    ("Debian", "debian-12", "12-arm64"): "TrustedLaunchSupported",
    ("Canonical", "ubuntu-24_04-lts", "cvm"): "TrustedLaunchAndConfidentialVmSupported",
}
OLD_IMAGES = {("Debian", "debian-12", "12")}
"""Of generation 1, and without a driver for NVMe; the others are of generation 2 and have one."""
VERSIONS = ("0.20251112.2300", "0.20260601.2600", "0.20260210.2401", "0.20260601.100")
NEWEST = "0.20260601.2600"


def skus() -> Iterator[dict[str, Any]]:
    """As "Resource Skus - List" has them, disks among them."""
    for place, (_, _, zones) in LOCATIONS.items():
        yield {"resourceType": "disks", "name": "Premium_LRS", "tier": "Premium", "size": "P10", "locations": [place]}
        for short, family, cores, memory, other in SIZES:
            yield _sku(f"Standard_{short}", family, cores, memory, other, place, zones)


def capabilities(size: str) -> dict[str, str] | None:
    """Those of one size; None where there is none of that name."""
    found = next((one for one in SIZES if f"Standard_{one[0]}" == size), None)
    return _capabilities(found[2], found[3], found[4]) if found else None


def family(size: str) -> str:
    """The family whose limit a size counts for."""
    return next(one[1] for one in SIZES if f"Standard_{one[0]}" == size)


def refusals(size: str, place: str) -> tuple[bool, tuple[str, ...]]:
    """Whether this subscription may not have it there, and the zones without it."""
    return (size, place) in REFUSED, WITHOUT_ZONES.get((size, place), ())


def _sku(
    name: str, family: str, cores: int, memory: float, other: dict[str, str], place: str, zones: tuple[str, ...]
) -> dict[str, Any]:
    return {
        "resourceType": "virtualMachines",
        "name": name,
        "tier": "Standard",
        "size": name.removeprefix("Standard_"),
        "family": family,
        # Azure writes some locations in capitals.
        "locations": [place.upper() if name.startswith("Standard_F") else place],
        "locationInfo": [{"location": place, "zones": list(reversed(zones)), "zoneDetails": []}],
        "capabilities": [{"name": key, "value": value} for key, value in _capabilities(cores, memory, other).items()],
        "restrictions": _restrictions(name, place),
    }


def _capabilities(cores: int, memory: float, other: dict[str, str]) -> dict[str, str]:
    usual = {
        "vCPUs": str(cores),
        "MemoryGB": f"{memory:g}",
        "CpuArchitectureType": "x64",
        "HyperVGenerations": "V1,V2",
        "LowPriorityCapable": "True",
        "MaxResourceVolumeMB": "0",
        "AcceleratedNetworkingEnabled": "True" if cores > 1 else "False",
    }
    return usual | other


def _restrictions(name: str, place: str) -> list[dict[str, Any]]:
    refused, zones = refusals(name, place)
    found: list[dict[str, Any]] = []
    for sort, on in (("Location", refused), ("Zone", bool(zones))):
        if on:
            about = {"locations": [place], **({"zones": list(zones)} if sort == "Zone" else {})}
            found.append(
                {
                    "type": sort,
                    "values": [place],
                    "restrictionInfo": about,
                    "reasonCode": "NotAvailableForSubscription",
                }
            )
    return found
