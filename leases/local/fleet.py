"""Instances, the fleet and orphans."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from leases.client import values
from leases.operations import fleet, instances, orphans
from leases.operations.callers import Caller


class LocalFleet:
    """Cloud machines as instances; and for operators what there is of them."""

    who: Caller
    owner: str | None

    def create_instance(self, wanted: Mapping[str, Any]) -> values.InstanceInfo:
        return instances.create(self.who, wanted, owner=self.owner)

    def instances(
        self, *, states: Collection[str] = (), location: str = "", instance_type: str = "", tag: str = "",
        name: str = "", all: bool = False, limit: int = 200,
    ) -> list[values.InstanceInfo]:  # fmt: skip
        return instances.list_(
            self.who, owner=self.owner, states=states, location=location, instance_type=instance_type, tag=tag,
            name=name, all_=all, limit=limit,
        )  # fmt: skip

    def instance(self, id: int) -> values.InstanceInfo:
        return instances.get(self.who, id)

    def end_instance(self, id: int) -> values.InstanceInfo:
        return instances.end(self.who, id)

    def change_instance(self, id: int, act: str) -> values.InstanceInfo:
        return instances.change(self.who, id, act)

    def fleet(self, *, capabilities: bool = False) -> list[values.BackendInfo]:
        return fleet.backends(self.who, able=capabilities)

    def orphans(self) -> list[values.OrphanInfo]:
        return orphans.list_(self.who)

    def settle_orphan(self, id: int, act: str, *, dry_run: bool = False) -> values.OrphanInfo:
        return orphans.settle(self.who, id, act, dry_run=dry_run)
