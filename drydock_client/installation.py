"""The installation: what needs attention, is due, or waits for a person, and whether anything works on it."""

from __future__ import annotations

from drydock_client.errors import InvalidRequest
from drydock_client.operations import Operations, operation
from drydock_client.values import Attention, Workers


class Installation(Operations):
    """Operations on the whole installation. Operators may change it; other users may only look."""

    @operation("GET", "attention", "What needs attention")
    def attention(self) -> list[Attention]:
        """List the items that need attention, the most urgent first, with what to do about each."""

    @operation("GET", "workers", "Whether anybody works")
    def workers(self) -> Workers:
        """Return whether any worker was seen recently. Operators also get the workers' names."""

    @operation(
        "POST", "reclaim", "Give up idle resources", scope="operate", body="Chosen", inside="Reclaimed.reclaimed"
    )
    def reclaim(self, *, type: str = "", blueprint: str = "") -> list[int]:
        """Remove idle resources, beginning with those that hold leases on others. Return the ids of what is removed."""

    @operation("POST", "sweep", "Look at everything that may be due", scope="operate", inside="Counted.count")
    def sweep(self) -> int:
        """Run every periodic check once, now, and return the number of items that were due. Workers carry them out."""

    @operation(
        "POST", "errors/clear", "Forget remembered failures", scope="operate", body="OfBlueprint",
        inside="Counted.count",
    )  # fmt: skip
    def clear_errors(self, *, blueprint: str = "") -> int:
        """Forget remembered errors, so that the offers they rule out are tried again at once. Return their number."""

    @operation("POST", "leases/{id}/resolve", "Confirm that a person has done it", scope="operate", body="Message")
    def resolve_lease(self, id: int, *, message: str = "") -> None:
        """Record that the task for which a step of a lease is held has been done. The step continues."""

    @operation("POST", "resources/{id}/resolve", "Confirm that a person has done it", scope="operate", body="Message")
    def resolve_resource(self, id: int, *, message: str = "") -> None:
        """Record that the task for which a step of a resource is held has been done. The step continues."""

    def resolve(self, *, lease: int | None = None, resource: int | None = None, message: str = "") -> None:
        """Record that the task for which a step of a lease or a resource is held has been done."""
        if lease is not None and resource is None:
            self.resolve_lease(lease, message=message)
        elif resource is not None and lease is None:
            self.resolve_resource(resource, message=message)
        else:
            raise InvalidRequest("Give either a lease or a resource.", field="lease")
