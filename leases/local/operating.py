"""Operations of the in-process client whose signatures differ from those of their functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drydock_client import values
from drydock_client.blueprints import Blueprints
from drydock_client.costs import Costs
from drydock_client.offers import Offers, Wanted
from drydock_client.permissions import Credentials, Permissions, Users
from drydock_client.resources import Resources
from leases.engine.core.database import patient
from leases.local.leases import LocalOperations
from leases.operations import blueprints, costs, installation, offers, permissions, resources


class LocalResources(LocalOperations, Resources):
    """Operations on resources, and on what is stuck."""

    def resources(
        self, *, type: str = "", blueprint: str = "", state: str = "", name: str = "", gone: bool = False
    ) -> list[values.ResourceInfo]:
        return resources.list_(self.who, type_=type, blueprint=blueprint, state=state, name=name, gone=gone)

    def host_keys(self, blueprint: str, address: str, *, port: int = 22) -> list[values.HostKey]:
        return resources.scan_host_keys(self.who, blueprint, address, port)

    def resolve(self, *, lease: int | None = None, resource: int | None = None, message: str = "") -> None:
        installation.resolve(self.who, lease_id=lease, resource_id=resource, message=message)


class LocalBlueprints(LocalOperations, Blueprints):
    """Operations on blueprints and their kinds."""

    def add_blueprint(
        self, name: str, kind: str, config: Mapping[str, Any], change: values.BlueprintChange, *, enabled: bool = True
    ) -> values.BlueprintInfo:
        return blueprints.add(self.who, name, kind, config, change=change, enabled=enabled)

    def change_blueprint(self, name: str, change: values.BlueprintChange) -> values.BlueprintInfo:
        return blueprints.change(self.who, name, change)


class LocalPermissions(LocalOperations, Permissions, Credentials, Users):
    """Operations on permissions, quotas, credentials and users."""

    def settle_authorization(self, id: int, *, allow: bool, message: str = "") -> values.AuthorizationInfo:
        return permissions.settle(self.who, id, allow=allow, message=message)

    def set_quota(
        self, *, user: str = "", group: str = "", limits: Mapping[str, values.QuotaLimit]
    ) -> values.QuotaInfo:
        return permissions.set_quota(self.who, user=user, group=group, limits=limits)


class LocalOffers(LocalOperations, Offers):
    """Operations on offers, instance types and their locations."""

    def offers(self, wanted: Wanted, *, limit: int = 50) -> list[values.OfferInfo]:
        return offers.search(self.who, wanted, limit=limit).offers

    def instance_types(self, wanted: Wanted, *, limit: int = 50) -> list[values.InstanceTypeInfo]:
        return offers.types(self.who, wanted, limit=limit)


class LocalCosts(LocalOperations, Costs):
    """Operations on usage and budgets."""

    def usage(self, wanted: Mapping[str, Any], *, by: str = "owner") -> values.UsageReport:
        return costs.usage_report(self.who, wanted, by=by)

    def usage_records(self, wanted: Mapping[str, Any], *, after: int = 0, limit: int = 200) -> list[values.UsageInfo]:
        return patient(costs.usage_records, self.who, wanted, after=after, limit=limit)
