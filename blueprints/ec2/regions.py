"""The regions of an account with their zones, and the countries that AWS's names of them tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Location
from blueprints.ec2.calls import Calls, filters

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
"""https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-regions.html"""


def locations_of(calls: Calls, home: str, allowed: Sequence[str], descriptions: Mapping[str, str]) -> list[Location]:
    """The regions enabled for the account, as far as they are allowed, by name; one call for each tells its zones."""
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
    """None where the account may not use the region, as an organization's policy can say."""
    try:
        answer = calls.call(
            "describe_availability_zones", region, Filters=filters(zone_type="availability-zone", state="available")
        )
    except CloudError as error:
        if error.meaning is not Meaning.CREDENTIALS:
            raise
        return None
    return sorted(one["ZoneName"] for one in answer["AvailabilityZones"])
