"""The fleet, and orphans."""

from __future__ import annotations

from drydock_client.operations import Operations, operation
from drydock_client.values import BackendInfo, OrphanInfo


class Fleet(Operations):
    """The fleet and its orphans, for operators only."""

    @operation("GET", "fleet", "Get the fleet", scope="operate", query="Reading")
    def fleet(self, *, capabilities: bool = False) -> list[BackendInfo]:
        """List backends in the order in which they are tried, with their offers, machines, problems and costs."""

    @operation("GET", "orphans", "List orphans", scope="operate")
    def orphans(self) -> list[OrphanInfo]:
        """List provider objects without a resource and resources without an object, each with the planned action."""

    @operation(
        "POST", "orphans/{id}/{act}", "Destroy or adopt an orphan", scope="operate", status=202,
        acts={
            "destroy": ("Destroy an orphan", "DryRun"), "adopt": ("Adopt an orphan", "DryRun"),
        },
    )  # fmt: skip
    def settle_orphan(self, id: int, act: str, *, dry_run: bool = False) -> OrphanInfo:
        """Request that an orphan be destroyed or adopted.

        The first search that sees the orphan after its `not_before` carries out the request. With `dry_run`, only
        return what would be done. 409 if the object does not provably belong to this installation.
        """
