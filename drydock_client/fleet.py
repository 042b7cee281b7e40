"""Instances, the fleet, and what stands in accounts without a row."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from drydock_client.values import BackendInfo, InstanceInfo, OrphanInfo


class Fleet(Protocol):
    """Cloud machines as instances, for everybody; fleet and orphans, for operators."""

    def create_instance(self, wanted: Mapping[str, Any]) -> InstanceInfo:
        """Ask for one: the fields of `leases.operations.instance_request.InstanceRequest`. It is pending then."""

    def instances(
        self, *, states: Collection[str] = (), location: str = "", instance_type: str = "", tag: str = "",
        name: str = "", all: bool = False, limit: int = 200,
    ) -> list[InstanceInfo]:  # fmt: skip
        """Instances, newest first; those that are over only with `all` or by their state."""

    def instance(self, id: int) -> InstanceInfo:
        """One instance."""

    def end_instance(self, id: int) -> InstanceInfo:
        """End it; one that has ended is fine."""

    def change_instance(self, id: int, act: str) -> InstanceInfo:
        """`stop`, `start` or `reboot` it."""

    def fleet(self, *, capabilities: bool = False) -> list[BackendInfo]:
        """Every backend in the order in which they are tried. `capabilities`: also what their clouds can do."""

    def orphans(self) -> list[OrphanInfo]:
        """Things without a row, suspects, and rows without a thing."""

    def settle_orphan(self, id: int, act: str, *, dry_run: bool = False) -> OrphanInfo:
        """Have one destroyed (`destroy`) or given a row again (`adopt`); `dry_run`: only say what would be done."""
