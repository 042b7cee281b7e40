"""What types cost: on demand from a table or from AWS's Price List, spot from the API.

A table is JSON: `date`, `source` and `regions`, each with type -> US dollars per hour for Linux on shared tenancy. The
bundled one says where its figures are from; `Credential.prices` names another. The Price List Query API is free of
charge, needs the permission `pricing:GetProducts`, and is asked for regions that the table has not
(https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html).
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Market, Price
from blueprints.ec2.calls import Calls

BUNDLED = Path(__file__).with_name("prices.json")
LIST_REGION = "us-east-1"
"""Where the Price List Query API answers for all regions."""
LIST_AGE = 24 * 3600.0
"""Seconds for which what the Price List said is good; AWS changes on-demand prices a few times a year."""
_ORDINARY = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}


@dataclass(frozen=True, kw_only=True)
class Table:
    """On-demand prices: region -> type -> US dollars per hour."""

    source: str
    regions: dict[str, dict[str, float]]


@lru_cache(maxsize=16)
def table(path: str = "") -> Table:
    """The table at a path, or the bundled one. Raises CloudError INVALID for one that cannot be used."""
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
    """Type -> its price in a region, as far as it is known; `cloud`: whose Price List is asked about a region that the
    table has not (empty: nobody's)."""
    known = table(path)
    if region in known.regions or not cloud:
        return _priced(known.regions.get(region, {}), known.source)
    return _priced(_from_list(calls, cloud, region), "provider")


def spot(calls: Calls, region: str) -> dict[str, list[Price]]:
    """Type -> the latest price in each zone. Nothing where the account may not read it or the cloud has none."""
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
    """Read once a day for each region and process; what cannot be read is no price and asked again in an hour."""
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
