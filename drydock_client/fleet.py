"""Instances, the fleet, and orphans."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from drydock_client.operations import Operations, operation
from drydock_client.values import BackendInfo, InstanceInfo, OrphanInfo


class Fleet(Operations):
    """Cloud machines as instances, for every user; the fleet and orphans, for operators only."""

    @abstractmethod
    def create_instance(self, wanted: Mapping[str, Any]) -> InstanceInfo:
        """Request an instance. It is pending at first.

        `wanted` has the fields of `leases.operations.instances.InstanceRequest`.
        """

    @abstractmethod
    def instances(
        self, *, states: Collection[str] = (), location: str = "", instance_type: str = "", tag: str = "",
        name: str = "", all: bool = False, limit: int = 200,
    ) -> list[InstanceInfo]:  # fmt: skip
        """List instances, newest first. Those that are over are listed only with `all`, or by their state."""

    @abstractmethod
    def instance(self, id: int) -> InstanceInfo:
        """Return one instance."""

    @operation("DELETE", "instances/{id}", "End an instance", scope="lease")
    def end_instance(self, id: int) -> InstanceInfo:
        """Terminate an instance. Idempotent."""

    @operation(
        "POST", "instances/{id}/{act}", "Change an instance", scope="lease",
        acts={
            "stop": ("Switch an instance off", ""), "start": ("Switch an instance on", ""),
            "reboot": ("Reboot an instance", ""),
        },
    )  # fmt: skip
    def change_instance(self, id: int, act: str) -> InstanceInfo:
        """Request a stop, start or reboot.

        The instance's state shows the progress. 409, naming the capability, if its cloud does not support the action.
        """

    @operation("GET", "fleet", "Look at the fleet", scope="operate", query="Reading")
    def fleet(self, *, capabilities: bool = False) -> list[BackendInfo]:
        """List backends in the order in which they are tried, with their offers, machines, problems and costs."""

    @operation("GET", "orphans", "List orphans", scope="operate")
    def orphans(self) -> list[OrphanInfo]:
        """List provider objects without a row, suspects, and rows without an object, each with the planned action."""

    @operation(
        "POST", "orphans/{id}/{act}", "Settle an orphan", scope="operate", status=202,
        acts={
            "destroy": ("Have an orphan destroyed", "DryRun"), "adopt": ("Give a machine a row again", "DryRun"),
        },
    )  # fmt: skip
    def settle_orphan(self, id: int, act: str, *, dry_run: bool = False) -> OrphanInfo:
        """Have an orphan destroyed or adopted by the first search that sees it after its `not_before`.

        With `dry_run`, only return what would be done. 409 if the object is not provably ours.
        """
