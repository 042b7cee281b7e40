"""Where Azure has machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blueprints.cloud.values import Location

_COUNTRIES = {
    "australia": "AU", "austria": "AT", "belgium": "BE", "brazil": "BR", "canada": "CA", "chile": "CL",
    "denmark": "DK", "france": "FR", "germany": "DE", "hong kong": "HK", "india": "IN", "indonesia": "ID",
    "ireland": "IE", "israel": "IL", "italy": "IT", "japan": "JP", "korea": "KR", "malaysia": "MY", "mexico": "MX",
    "netherlands": "NL", "new zealand": "NZ", "norway": "NO", "poland": "PL", "qatar": "QA", "singapore": "SG",
    "south africa": "ZA", "spain": "ES", "sweden": "SE", "switzerland": "CH", "taiwan": "TW", "uae": "AE",
    "united arab emirates": "AE", "united kingdom": "GB", "united states": "US",
}  # fmt: skip
"""By the geography or the physical location of a region, as "Subscriptions - List Locations" has them."""


def location(found: Mapping[str, Any]) -> Location | None:
    """One entry of the subscription's locations; None for those that are no region (such as `global`)."""
    about: Mapping[str, Any] = found.get("metadata") or {}
    if about.get("regionType", "Physical") != "Physical":
        return None
    zones = {str(one.get("logicalZone")) for one in found.get("availabilityZoneMappings") or ()}
    places = (str(about.get(name) or "").lower() for name in ("geography", "physicalLocation"))
    return Location(
        name=str(found["name"]).lower(),
        description=str(found.get("displayName") or ""),
        zones=tuple(sorted(zones)),
        country=next((_COUNTRIES[place] for place in places if place in _COUNTRIES), ""),
    )
