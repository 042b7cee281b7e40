"""Offers, instance types and locations of providers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drydock_client.operations import Operations, operation
from drydock_client.values import InstanceTypeInfo, LocationInfo, OfferInfo

Wanted = Mapping[str, Any]
"""The fields of `leases.validation.offer_query.OfferSearch`; fields that are left out do not restrict the search."""


class Offers(Operations):
    """Offers of accounts whose blueprints the caller may use. Operators see the offers of all accounts."""

    @operation("GET", "offers", "Search offers", query="Offers", spread="wanted", cursor="after")
    def offers(self, wanted: Wanted, *, limit: int = 50) -> list[OfferInfo]:
        """List offers, the cheapest first unless `wanted` has another `sort`. `limit` is at most 1000."""

    @operation("GET", "instance-types", "List instance types", query="InstanceTypes", spread="wanted", cursor="after")
    def instance_types(self, wanted: Wanted, *, limit: int = 50) -> list[InstanceTypeInfo]:
        """List instance types by location, with their prices by market and zone, in the order of their ids."""

    @operation("GET", "locations", "List locations")
    def locations(self) -> list[LocationInfo]:
        """List the locations in which blueprints may build, for each account, with the time of the last poll."""
