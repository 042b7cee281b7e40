"""Instance types and their prices.

On-demand prices come from a table or from AWS's Price List, spot prices from the API. A table is JSON: `date`, `source`
and `regions`, each with type -> US dollars per hour for Linux on shared tenancy. The bundled table names the source of
its figures; `Credential.prices` selects another. The Price List Query API is free of charge, needs the permission
`pricing:GetProducts`, and is queried for regions that the table lacks
(https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html).
"""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Confidential, Gpu, InstanceType, Market, Price
from blueprints.ec2.api import Answer, Calls

STANDARD = "standard"
_FAMILIES = {
    **dict.fromkeys("acdhimrtz", STANDARD),
    **{"g": "g", "gr": "g", "vt": "g", "p": "p", "x": "x", "u": "u", "f": "f"},
    **{"inf": "inf", "trn": "trn", "dl": "dl", "hpc": "hpc", "im": STANDARD, "is": STANDARD, "mac": "mac"},
}
"""Maps the leading letters of a type's name to the family of its quota
(https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html: Standard is A, C, D, H, I, M, R, T, Z; G
and VT are one)."""
_LETTERS = re.compile(r"[a-z]*")
_MAKERS = {"habana": "intel", "nvidia": "nvidia", "amd": "amd", "aws": "aws", "intel": "intel", "xilinx": "amd"}
_BOOTABLE = ("x86_64", "arm64", "i386")


def family_of(name: str) -> str:
    """Return the family whose quota counts a type.

    p5 and p6 are families of their own: on demand they share the quota of all P types, but the spot quota of P covers
    only P4, P3 and P2.
    """
    letters = name[: _LETTERS.match(name).end()]  # type: ignore[union-attr]
    return name[:2] if name.startswith(("p5", "p6")) else _FAMILIES.get(letters, letters)


def zones_of(calls: Calls, region: str) -> dict[str, list[str]]:
    """Return the zones of each type, sorted."""
    zones: dict[str, list[str]] = defaultdict(list)
    for page in calls.pages(
        "describe_instance_type_offerings", region, LocationType="availability-zone", MaxResults=1000
    ):
        for offering in page["InstanceTypeOfferings"]:
            zones[offering["InstanceType"]].append(offering["Location"])
    return {name: sorted(found) for name, found in zones.items()}


def types_of(calls: Calls, region: str, prices: Mapping[str, Sequence[Price]]) -> list[InstanceType]:
    """Return every type of a region, by name. Macs are omitted, because they exist on dedicated hosts only."""
    zones = zones_of(calls, region)
    found = {}
    for page in calls.pages("describe_instance_types", region, MaxResults=100):
        for one in page["InstanceTypes"]:
            if _arch(one):
                name = one["InstanceType"]
                found[name] = type_of(one, region, zones.get(name, []), prices.get(name, ()))
    return [found[name] for name in sorted(found)]


def type_of(one: Answer, region: str, zones: Sequence[str], prices: Sequence[Price]) -> InstanceType:
    """Convert a type from DescribeInstanceTypes to the contract's form."""
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
    """Return the GPUs or else the accelerators.

    NeuronInfo covers Inferentia and Trainium; the older InferenceAcceleratorInfo, used if it is missing, covers only
    Inferentia.
    """
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


BUNDLED = Path(__file__).with_name("prices.json")
LIST_REGION = "us-east-1"
"""Region whose Price List Query API serves all regions."""
LIST_AGE = 24 * 3600.0
"""Seconds for which an answer from the Price List is valid; AWS changes on-demand prices a few times a year."""
_ORDINARY = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}


@dataclass(frozen=True, kw_only=True)
class Table:
    """On-demand prices in US dollars per hour, by region and type."""

    source: str
    regions: dict[str, dict[str, float]]


@lru_cache(maxsize=16)
def table(path: str = "") -> Table:
    """Return the table at a path, or the bundled one. Raises CloudError INVALID for a table that cannot be used."""
    word = "table" if path else "bundled"
    try:
        given = json.loads(Path(path or BUNDLED).read_text())
        regions = {
            region: {name: float(one) for name, one in all_.items()} for region, all_ in given["regions"].items()
        }
        return Table(source=f"{word} {dt.date.fromisoformat(given['date'])}", regions=regions)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CloudError(Meaning.INVALID, f"The price table {path} cannot be used: {error}") from error


def on_demand(calls: Calls, region: str, *, path: str = "", cloud: str = "") -> dict[str, Price]:
    """Return the known on-demand prices of a region, by type.

    `cloud` names the provider whose Price List is queried for a region that the table lacks; empty for no query.
    """
    known = table(path)
    if region in known.regions or not cloud:
        return _priced(known.regions.get(region, {}), known.source)
    return _priced(_from_list(calls, cloud, region), "provider")


def spot(calls: Calls, region: str) -> dict[str, list[Price]]:
    """Return the latest price of each type in each zone.

    Return an empty dict if the account may not read prices or the cloud has no spot market.
    """
    latest: dict[tuple[str, str], tuple[dt.datetime, float]] = {}
    try:
        # From now on: EC2 then tells the prices in force (DescribeSpotPriceHistory, StartTime).
        for page in calls.pages(
            "describe_spot_price_history",
            region,
            StartTime=dt.datetime.now(dt.UTC),
            ProductDescriptions=["Linux/UNIX"],
            MaxResults=1000,
        ):
            for one in page["SpotPriceHistory"]:
                place = (one["InstanceType"], one["AvailabilityZone"])
                latest[place] = max(
                    latest.get(place, (one["Timestamp"], 0.0)), (one["Timestamp"], float(one["SpotPrice"]))
                )
    except CloudError as error:
        if error.meaning not in (Meaning.CREDENTIALS, Meaning.INVALID):
            raise
    found: dict[str, list[Price]] = defaultdict(list)
    for (name, zone), (_, price) in sorted(latest.items()):
        found[name].append(Price(market=Market.SPOT, per_hour=price, zone=zone, source="provider"))
    return dict(found)


def _priced(prices: dict[str, float], source: str) -> dict[str, Price]:
    return {name: Price(market=Market.ON_DEMAND, per_hour=price, source=source) for name, price in prices.items()}


_listed: dict[tuple[str, str], tuple[float, dict[str, float]]] = {}
_lock = Lock()


def _from_list(calls: Calls, cloud: str, region: str) -> dict[str, float]:
    """Read the Price List, at most once a day for each region and process.

    After a failure, return no prices and retry in an hour.
    """
    with _lock:
        until, prices = _listed.get((cloud, region), (0.0, {}))
    if time.monotonic() < until:
        return prices
    try:
        prices, age = _read_list(calls, region), LIST_AGE
    except CloudError:
        age = 3600.0
    with _lock:
        _listed[cloud, region] = (time.monotonic() + age, prices)
    return prices


def _read_list(calls: Calls, region: str) -> dict[str, float]:
    wanted = [
        {"Type": "TERM_MATCH", "Field": field, "Value": value}
        for field, value in {**_ORDINARY, "regionCode": region}.items()
    ]
    found: dict[str, float] = {}
    for page in calls.pages(
        "get_products", LIST_REGION, service="pricing", ServiceCode="AmazonEC2", Filters=wanted, MaxResults=100
    ):
        for text in page["PriceList"]:
            found.update(_product(json.loads(text)))
    return found


def _product(one: dict[str, Any]) -> dict[str, float]:
    name = one["product"]["attributes"].get("instanceType")
    terms = (one.get("terms") or {}).get("OnDemand") or {}
    prices = [
        float(dimension["pricePerUnit"]["USD"])
        for term in terms.values()
        for dimension in term["priceDimensions"].values()
        if dimension.get("unit") == "Hrs" and "USD" in dimension["pricePerUnit"]
    ]
    return {name: max(prices)} if name and prices and max(prices) > 0 else {}
