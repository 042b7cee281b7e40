"""Looking at what providers offer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from drydock_client.values import InstanceTypeInfo, LocationInfo, OfferInfo

Wanted = Mapping[str, Any]
"""The fields of `leases.sought.OfferSearch`; what is left out is not asked."""


class Catalogue(Protocol):
    """What providers offer, in the accounts of blueprints that one may use; operators see all accounts."""

    def offers(self, wanted: Wanted, *, limit: int = 50) -> list[OfferInfo]:
        """The best offers, the cheapest first, or in the order that `sort` says: at most 1000."""

    def instance_types(self, wanted: Wanted, *, limit: int = 50) -> list[InstanceTypeInfo]:
        """Offers by type and location, with their prices by market and zone; without an order of theirs."""

    def locations(self) -> list[LocationInfo]:
        """Where accounts are read, and when they were."""
