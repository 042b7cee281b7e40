"""Looking at what providers offer."""

from __future__ import annotations

from leases.client import values
from leases.client.protocol import Wanted
from leases.operations import offers
from leases.operations.callers import Caller


class LocalCatalogue:
    """Offers, instance types and where they are."""

    who: Caller

    def offers(self, wanted: Wanted, *, limit: int = 50) -> list[values.OfferInfo]:
        return offers.search(self.who, wanted, limit=limit).offers

    def instance_types(self, wanted: Wanted, *, limit: int = 50) -> list[values.InstanceTypeInfo]:
        return offers.types(self.who, wanted, limit=limit)

    def locations(self) -> list[values.LocationInfo]:
        return offers.places(self.who)
