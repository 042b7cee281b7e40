"""The installation: items that need attention, workers, periodic checks, and steps that wait for a person."""

from __future__ import annotations

from drydock_client.errors import InvalidRequest
from drydock_client.operations import Operations, operation
from drydock_client.values import Attention, Workers


class Installation(Operations):
    """Operations on the whole installation. Operators may change it; other users have read-only access."""

    @operation("GET", "attention", "List items that need attention")
    def attention(self) -> list[Attention]:
        """List the items that need attention, the most urgent first, each with a remedy."""

    @operation("GET", "workers", "Check whether workers are alive")
    def workers(self) -> Workers:
        """Return whether any worker was seen recently. Operators also get the names of the workers."""

    @operation("POST", "reclaim", "Remove idle resources", scope="operate", body="Chosen", inside="Reclaimed.reclaimed")
    def reclaim(self, *, type: str = "", blueprint: str = "") -> list[int]:
        """Remove idle resources, beginning with those that hold leases on others. Return their ids."""

    @operation("POST", "sweep", "Run every periodic check once", scope="operate", inside="Counted.count")
    def sweep(self) -> int:
        """Run every periodic check once. Return the number of items that were due, which workers then process."""

    @operation(
        "POST", "errors/clear", "Forget remembered errors", scope="operate", body="OfBlueprint",
        inside="Counted.count",
    )  # fmt: skip
    def clear_errors(self, *, blueprint: str = "") -> int:
        """Forget remembered errors, so that the offers that they exclude are tried again at once.

        Return their number.
        """

    @operation("POST", "leases/{id}/resolve", "Resolve a held step of a lease", scope="operate", body="Message")
    def resolve_lease(self, id: int, *, message: str = "") -> None:
        """Record that a person has done what a held step of a lease waits for. The step continues."""

    @operation("POST", "resources/{id}/resolve", "Resolve a held step of a resource", scope="operate", body="Message")
    def resolve_resource(self, id: int, *, message: str = "") -> None:
        """Record that a person has done what a held step of a resource waits for. The step continues."""

    def resolve(self, *, lease: int | None = None, resource: int | None = None, message: str = "") -> None:
        """Record that a person has done what a held step of a lease or a resource waits for."""
        if lease is not None and resource is None:
            self.resolve_lease(lease, message=message)
        elif resource is not None and lease is None:
            self.resolve_resource(resource, message=message)
        else:
            raise InvalidRequest("Give either a lease or a resource.", field="lease")
