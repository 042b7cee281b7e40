"""Regions, quotas and images of one account.

Quotas are virtual CPUs that may run at once, by family and market. Limits are read from Service Quotas, which does not
report usage: usage is counted from the running instances of the whole account, with each type's default number of
virtual CPUs. Pending instances count here, though EC2 counts them only once they run. Capacity reservations count at
EC2 even while unused, and are not seen here.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic import ValidationError

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Image, Location, Market, Quota
from blueprints.ec2 import config
from blueprints.ec2.api import Answer, Calls, filters, listed
from blueprints.ec2.instances import describe, image_of
from blueprints.ec2.market import STANDARD, family_of

_AT_ONCE = 8
COUNTRIES = {
    "af-south-1": "ZA", "ap-east-1": "HK", "ap-east-2": "TW", "ap-northeast-1": "JP", "ap-northeast-2": "KR",
    "ap-northeast-3": "JP", "ap-south-1": "IN", "ap-south-2": "IN", "ap-southeast-1": "SG", "ap-southeast-2": "AU",
    "ap-southeast-3": "ID", "ap-southeast-4": "AU", "ap-southeast-5": "MY", "ap-southeast-6": "NZ",
    "ap-southeast-7": "TH", "ca-central-1": "CA", "ca-west-1": "CA", "cn-north-1": "CN", "cn-northwest-1": "CN",
    "eu-central-1": "DE", "eu-central-2": "CH", "eu-north-1": "SE", "eu-south-1": "IT", "eu-south-2": "ES",
    "eu-west-1": "IE", "eu-west-2": "GB", "eu-west-3": "FR", "il-central-1": "IL", "me-central-1": "AE",
    "me-south-1": "BH", "mx-central-1": "MX", "sa-east-1": "BR", "us-east-1": "US", "us-east-2": "US",
    "us-gov-east-1": "US", "us-gov-west-1": "US", "us-west-1": "US", "us-west-2": "US",
}  # fmt: skip
"""The country of each region. Source:
https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-regions.html"""


def locations_of(calls: Calls, home: str, allowed: Sequence[str], descriptions: Mapping[str, str]) -> list[Location]:
    """Return the allowed regions among those enabled for the account, by name.

    Reading the zones takes one call for each region.
    """
    found = calls.call("describe_regions", home)["Regions"]
    names = sorted(one["RegionName"] for one in found if not allowed or one["RegionName"] in allowed)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        zones = list(threads.map(lambda name: _zones(calls, name), names))
    return [
        Location(
            name=name,
            description=descriptions.get(name, ""),
            zones=tuple(there or ()),
            available=there is not None,
            country=COUNTRIES.get(name, ""),
        )
        for name, there in zip(names, zones, strict=True)
    ]


def _zones(calls: Calls, region: str) -> list[str] | None:
    """Return the zones of a region, or None if the account may not use it, for example because of a policy."""
    try:
        answer = calls.call(
            "describe_availability_zones", region, Filters=filters(zone_type="availability-zone", state="available")
        )
    except CloudError as error:
        if error.meaning is not Meaning.CREDENTIALS:
            raise
        return None
    return sorted(one["ZoneName"] for one in answer["AvailabilityZones"])


_D, _S = Market.ON_DEMAND, Market.SPOT
CODES: dict[str, tuple[Market, tuple[str, ...]]] = {
    "L-1216C47A": (_D, (STANDARD,)),
    "L-34B43A08": (_S, (STANDARD,)),
    "L-DB2E81BA": (_D, ("g",)),
    "L-3819A6DF": (_S, ("g",)),
    "L-417A185B": (_D, ("p", "p5", "p6")),
    "L-7212CCBC": (_S, ("p",)),
    "L-C4BD4855": (_S, ("p5",)),
    "L-7295265B": (_D, ("x",)),
    "L-E3A00192": (_S, ("x",)),
    "L-74FC7D96": (_D, ("f",)),
    "L-88CF9481": (_S, ("f",)),
    "L-1945791B": (_D, ("inf",)),
    "L-B5D1601B": (_S, ("inf",)),
    "L-2C3B7624": (_D, ("trn",)),
    "L-6B0D517C": (_S, ("trn",)),
    "L-6E869C2A": (_D, ("dl",)),
    "L-85EED4F7": (_S, ("dl",)),
    "L-43DA4232": (_D, ("u",)),
    "L-F7808C92": (_D, ("hpc",)),
}
"""Maps a quota code to the market and the instance families that the quota limits. The codes are those linked from
"On-Demand Instance quotas" and "Spot Instance quotas" of the EC2 guide
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-on-demand-instances.html, using-spot-limits.html)."""
_MOST_TYPES = 100


def quotas_of(calls: Calls, region: str) -> list[Quota]:
    """Return a quota for each market and family for which the account has a limit in a region."""
    limits = [one for one in _limits(calls, region) if one["QuotaCode"] in CODES]
    used = vcpus_used(calls, region)
    return [quota for one in limits for quota in _quotas(one, region, used)]


def vcpus_used(calls: Calls, region: str) -> Counter[tuple[Market, str]]:
    """Count the virtual CPUs of all pending and running instances in a region, by market and family."""
    running: Counter[tuple[Market, str]] = Counter()
    up = filters(instance_state_name=["pending", "running"])
    for one in describe(calls, region, Filters=up, MaxResults=1000):
        running[_S if one.get("InstanceLifecycle") == "spot" else _D, one["InstanceType"]] += 1
    sizes = dict(_sizes(calls, region, sorted({name for _, name in running})))
    used: Counter[tuple[Market, str]] = Counter()
    for (market, name), count in running.items():
        used[market, family_of(name)] += count * sizes.get(name, 0)
    return used


def _limits(calls: Calls, region: str) -> Iterator[Answer]:
    for page in calls.pages("list_service_quotas", region, service="service-quotas", ServiceCode="ec2", MaxResults=100):
        yield from page["Quotas"]


def _quotas(one: Answer, region: str, used: Counter[tuple[Market, str]]) -> Iterator[Quota]:
    market, families = CODES[one["QuotaCode"]]
    total = sum(used[market, family] for family in families)
    for family in families:
        yield Quota(
            name=one.get("QuotaName") or one["QuotaCode"],
            location=region,
            limit=float(one["Value"]),
            used=float(total),
            family=family,
            market=market,
        )


def _sizes(calls: Calls, region: str, names: list[str]) -> Iterator[tuple[str, int]]:
    for start in range(0, len(names), _MOST_TYPES):
        some = names[start : start + _MOST_TYPES]
        for one in listed(calls, "describe_instance_types", region, "InstanceTypes", InstanceTypes=some):
            yield one["InstanceType"], one["VCpuInfo"]["DefaultVCpus"]


_DEBIAN_NAMES = {"x86_64": "amd64", "arm64": "arm64"}
_NEVER = dt.datetime.min.replace(tzinfo=dt.UTC)
OWNERS = ("self", config.AMAZON, config.DEBIAN, config.UBUNTU)
"""Accounts whose images are searched: the credential's own account, and the vendors of common systems."""


def newest_image(calls: Calls, region: str, wanted: Mapping[str, str], arch: str) -> Image:
    """Return the image that the fields of `config.Image` select.

    Raises CloudError NOT_FOUND with the search terms, INVALID for fields that `config.Image` does not have.
    """
    words = _image_words(wanted)
    if words.id:
        found = _images(calls, region, ImageIds=[words.id])
        asked = words.id
    else:
        name = words.name.replace("{arch}", _DEBIAN_NAMES.get(arch, arch))
        asked = f"named {name} of {words.owner}"
        usable = filters(name=name, architecture=arch, state="available", root_device_type="ebs")
        found = _images(calls, region, Owners=[words.owner], Filters=usable)
    fitting = [image for image in found if image.arch == arch]
    if not fitting:
        raise CloudError(Meaning.NOT_FOUND, f"{region} has no image {asked} for {arch}.")
    return _newest_first(fitting)[0]


def fitting_images(calls: Calls, region: str, name: str) -> list[Image]:
    """Return the images of `OWNERS` whose name matches a pattern with * and ?, newest first."""
    usable = filters(name=name or "*", state="available")
    return _newest_first(_images(calls, region, Owners=list(OWNERS), Filters=usable))


def image_description(calls: Calls, region: str, image: str) -> Answer:
    """Return one image as EC2 describes it. Raises CloudError NOT_FOUND."""
    for found in listed(calls, "describe_images", region, "Images", ImageIds=[image]):
        return found
    raise CloudError(Meaning.NOT_FOUND, f"{region} has no image {image}.")


def _images(calls: Calls, region: str, **wanted: Any) -> list[Image]:
    return [image_of(one) for one in listed(calls, "describe_images", region, "Images", **wanted)]


def _newest_first(found: Iterable[Image]) -> list[Image]:
    return sorted(found, key=lambda image: (image.created_at or _NEVER, image.id), reverse=True)


def _image_words(wanted: Mapping[str, str]) -> config.Image:
    try:
        return config.Image.model_validate(dict(wanted))
    except ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise CloudError(Meaning.INVALID, f"The image selectors are invalid: {said}") from error
