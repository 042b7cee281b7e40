"""Offers of providers, by location and zone."""

from __future__ import annotations

from drydock_client.values import InstanceTypeInfo, OfferInfo
from leases.operations import offers
from leases.rest import queries
from leases.rest.endpoint import Asked, Endpoint, Page, operation


class Offers(Endpoint):
    """The collection of offers."""

    @operation("Search offers", gives=list[OfferInfo], query=queries.Offers)
    def get(self, asked: Asked) -> Page:
        """Return the offers in the order of `sort`, limited to the accounts of blueprints that you may use; operators
        see all."""
        q = asked.query
        found = offers.search(asked.client.who, q, limit=q.limit, after=q.cursor or "")
        return Page(results=found.offers, next=found.next)


class InstanceTypes(Endpoint):
    """The collection of instance types."""

    @operation("List instance types", gives=list[InstanceTypeInfo], query=queries.InstanceTypes)
    def get(self, asked: Asked) -> Page:
        """Return offers grouped by type and location, in order of id, with their prices by market and zone."""
        q = asked.query
        found = offers.types(asked.client.who, q, limit=q.limit, after=int(q.cursor or 0))
        return Page(results=found, next=str(found[-1].id) if len(found) == q.limit else None)
