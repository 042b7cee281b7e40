"""What providers offer, and where."""

from __future__ import annotations

from leases.client.values import InstanceTypeInfo, LocationInfo, OfferInfo
from leases.operations import offers
from leases.rest import queries
from leases.rest.endpoint import Asked, Endpoint, Page, operation


class Offers(Endpoint):
    """What providers offer."""

    @operation("Search offers", gives=list[OfferInfo], query=queries.Offers)
    def get(self, asked: Asked) -> Page:
        """In the accounts of blueprints that one may use; operators see all. In the order of `sort`."""
        q = asked.query
        found = offers.search(asked.client.who, q, limit=q.limit, after=q.cursor or "")
        return Page(results=found.offers, next=found.next)


class InstanceTypes(Endpoint):
    """Offers by type."""

    @operation("List instance types", gives=list[InstanceTypeInfo], query=queries.InstanceTypes)
    def get(self, asked: Asked) -> Page:
        """By id: offers by type and location, with their prices by market and zone."""
        q = asked.query
        found = offers.types(asked.client.who, q, limit=q.limit, after=int(q.cursor or 0))
        return Page(results=found, next=str(found[-1].id) if len(found) == q.limit else None)


class Locations(Endpoint):
    """Where accounts are read."""

    @operation("List locations", gives=list[LocationInfo])
    def get(self, asked: Asked) -> Page:
        """Those where a blueprint of the account may build, and when each was read."""
        return Page(results=asked.client.locations())
