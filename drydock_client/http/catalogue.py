"""Looking at what providers offer, over HTTP."""

from __future__ import annotations

from typing import Any

from drydock_client.catalogue import Wanted
from drydock_client.http.connection import Connection
from drydock_client.values import InstanceTypeInfo, LocationInfo, OfferInfo, from_json, to_json


class HttpCatalogue:
    """`drydock_client.catalogue.Catalogue` on a server."""

    http: Connection

    def offers(self, wanted: Wanted, *, limit: int = 50) -> list[OfferInfo]:
        return [from_json(OfferInfo, one) for one in self._found("offers", wanted, limit)]

    def instance_types(self, wanted: Wanted, *, limit: int = 50) -> list[InstanceTypeInfo]:
        return [from_json(InstanceTypeInfo, one) for one in self._found("instance-types", wanted, limit)]

    def locations(self) -> list[LocationInfo]:
        return [from_json(LocationInfo, one) for one in self.http.get("locations")["results"]]

    def _found(self, path: str, wanted: Wanted, limit: int) -> list[Any]:
        asked = {name: str(one) if isinstance(one, float) else one for name, one in to_json(wanted).items()}
        found = self.http.get(path, {**asked, "limit": str(limit)})["results"]
        assert isinstance(found, list)
        return found
