"""Operators' operations whose requests differ from the declared arguments, and queries with many fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from drydock_client.blueprints import Blueprints
from drydock_client.costs import Costs
from drydock_client.http.operations import ALL, HttpOperations, pages
from drydock_client.offers import Offers, Wanted
from drydock_client.permissions import Credentials, Permissions, Users
from drydock_client.resources import Resources
from drydock_client.values import (
    AuthorizationInfo,
    BlueprintChange,
    BlueprintInfo,
    HostKey,
    InstanceTypeInfo,
    OfferInfo,
    QuotaInfo,
    QuotaLimit,
    ResourceInfo,
    UsageInfo,
    UsageReport,
    from_json,
    to_json,
)


class HttpResources(HttpOperations, Resources):
    """`drydock_client.resources.Resources` over HTTP."""

    def resources(
        self, *, type: str = "", blueprint: str = "", state: str = "", name: str = "", gone: bool = False
    ) -> list[ResourceInfo]:
        query = {"type": type, "blueprint": blueprint, "state": state, "name": name, "gone": gone}
        return [from_json(ResourceInfo, one) for one in pages(self.http, "resources", query, ALL)]

    def host_keys(self, blueprint: str, address: str, *, port: int = 22) -> list[HostKey]:
        found = self.http.send("POST", f"blueprints/{blueprint}/host-keys", {"address": address, "port": port})
        return [from_json(HostKey, one) for one in found["results"]]

    def resolve(self, *, lease: int | None = None, resource: int | None = None, message: str = "") -> None:
        what = f"leases/{lease}" if lease is not None else f"resources/{resource}"
        self.http.send("POST", f"{what}/resolve", {"message": message})


class HttpBlueprints(HttpOperations, Blueprints):
    """`drydock_client.blueprints.Blueprints` over HTTP."""

    def add_blueprint(
        self, name: str, kind: str, config: Mapping[str, Any], change: BlueprintChange, *, enabled: bool = True
    ) -> BlueprintInfo:
        given = {**_changed(change), "name": name, "kind": kind, "config": dict(config), "enabled": enabled}
        return from_json(BlueprintInfo, self.http.send("POST", "blueprints", given))

    def change_blueprint(self, name: str, change: BlueprintChange) -> BlueprintInfo:
        return from_json(BlueprintInfo, self.http.send("PATCH", f"blueprints/{name}", _changed(change)))


def _changed(change: BlueprintChange) -> dict[str, Any]:
    found = {field.name: getattr(change, field.name) for field in dataclasses.fields(change)}
    return {name: to_json(value) for name, value in found.items() if value is not None}


class HttpPermissions(HttpOperations, Permissions, Credentials, Users):
    """Authorizations, quotas, credentials and users over HTTP."""

    def settle_authorization(self, id: int, *, allow: bool, message: str = "") -> AuthorizationInfo:
        act = "approve" if allow else "decline"
        return from_json(AuthorizationInfo, self.http.send("POST", f"authorizations/{id}/{act}", {"message": message}))

    def set_quota(self, *, user: str = "", group: str = "", limits: Mapping[str, QuotaLimit]) -> QuotaInfo:
        given = {"user": user, "group": group, **{name: to_json(value) for name, value in limits.items()}}
        return from_json(QuotaInfo, self.http.send("PUT", "quotas", given))


class HttpCosts(HttpOperations, Costs):
    """`drydock_client.costs.Costs` over HTTP."""

    def usage(self, wanted: Mapping[str, Any], *, by: str = "owner") -> UsageReport:
        return from_json(UsageReport, self.http.get("usage", {**to_json(wanted), "by": by}))

    def usage_records(self, wanted: Mapping[str, Any], *, after: int = 0, limit: int = 200) -> list[UsageInfo]:
        asked = {**to_json(wanted), "limit": str(limit), "cursor": str(after)}
        return [from_json(UsageInfo, one) for one in self.http.get("usage/records", asked)["results"]]


class HttpOffers(HttpOperations, Offers):
    """`drydock_client.offers.Offers` over HTTP."""

    def offers(self, wanted: Wanted, *, limit: int = 50) -> list[OfferInfo]:
        return [from_json(OfferInfo, one) for one in self._found("offers", wanted, limit)]

    def instance_types(self, wanted: Wanted, *, limit: int = 50) -> list[InstanceTypeInfo]:
        return [from_json(InstanceTypeInfo, one) for one in self._found("instance-types", wanted, limit)]

    def _found(self, path: str, wanted: Wanted, limit: int) -> list[Any]:
        asked = {name: str(one) if isinstance(one, float) else one for name, one in to_json(wanted).items()}
        found = self.http.get(path, {**asked, "limit": str(limit)})["results"]
        assert isinstance(found, list)
        return found
