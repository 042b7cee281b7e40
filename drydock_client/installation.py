"""The installation: items that need attention, workers, periodic checks, and steps that wait for a person."""

from __future__ import annotations

from drydock_client.errors import InvalidRequest
from drydock_client.operations import Operations, operation
from drydock_client.values import Attention, Workers


class Installation(Operations):
    """Operations on the whole installation. Operators may change the installation; other users only read."""

    @operation("GET", "attention", "List items that need attention")
    def attention(self) -> list[Attention]:
        """List the items that need attention by a person, the most urgent first, each with what to do about it."""

    @operation("GET", "workers", "Check whether workers are alive")
    def workers(self) -> Workers:
        """Return whether any worker sent a heartbeat recently. Operators also get the names of these workers."""

    @operation("POST", "reclaim", "Remove idle resources", scope="operate", body="Chosen", inside="Reclaimed.reclaimed")
    def reclaim(self, *, type: str = "", blueprint: str = "") -> list[int]:
        """Remove idle resources, starting with those that need leases on other resources.

        Return the ids of the resources removed.
        """

    @operation("POST", "sweep", "Run every periodic check once", scope="operate", inside="Counted.count")
    def sweep(self) -> int:
        """Run every periodic check once. Return the number of due items, which workers then process."""

    @operation(
        "POST", "errors/clear", "Forget remembered errors", scope="operate", body="OfBlueprint",
        inside="Counted.count",
    )  # fmt: skip
    def clear_errors(self, *, blueprint: str = "") -> int:
        """Delete remembered errors, so that the offers that they exclude are tried again at once.

        Return the number of errors deleted.
        """

    @operation("POST", "leases/{id}/resolve", "Resolve a held step of a lease", scope="operate")
    def resolve_lease(self, id: int, *, yes: bool = True, message: str = "") -> None:
        """Answer a lease's step that is waiting for a person: yes (or done) or no, with a message for the step."""

    @operation("POST", "resources/{id}/resolve", "Resolve a held step of a resource", scope="operate")
    def resolve_resource(self, id: int, *, yes: bool = True, message: str = "") -> None:
        """Answer a resource's step that is waiting for a person: yes (or done) or no, with a message for the step."""

    def resolve(
        self, *, lease: int | None = None, resource: int | None = None, yes: bool = True, message: str = ""
    ) -> None:
        """Answer a step that is waiting for a person, of a lease or a resource: yes (or done) or no, with a message."""
        if lease is not None and resource is None:
            self.resolve_lease(lease, yes=yes, message=message)
        elif resource is not None and lease is None:
            self.resolve_resource(resource, yes=yes, message=message)
        else:
            raise InvalidRequest("Give either a lease or a resource.", field="lease")
