"""Resources, and items that need attention."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from drydock_client.operations import Operations, operation
from drydock_client.values import Attention, HostKey, ResourceInfo


class Resources(Operations):
    """Resources. Operators may change them; other users may only look."""

    @abstractmethod
    def resources(
        self, *, type: str = "", blueprint: str = "", state: str = "", name: str = "", gone: bool = False
    ) -> list[ResourceInfo]:
        """List resources in order of id. Those that are gone are included only with `gone`."""

    @operation("GET", "resources/{id}", "Look at a resource")
    def resource(self, id: int) -> ResourceInfo:
        """Return a resource with its capacity, parts, health and leases."""

    @operation(
        "POST", "resources/{id}/{act}", "Change a resource", scope="operate",
        acts={
            "drain": ("Give it to nobody any more", "Reason"), "undrain": ("Let it serve again", "Empty"),
            "quarantine": ("Take it out of service as it is", "NeededMessage"),
            "unquarantine": ("Put it back into service", "Empty"),
            "retire": ("Give it up, where nobody holds it", "Empty"),
            "power": ("Switch it on or off, or cycle it", "Power"),
            "check": ("Look now whether it is well", "Empty"),
            "force_destroy": ("Vouch that it is gone", "NeededReason"),
        },
    )  # fmt: skip
    def change_resource(self, id: int, act: str, **given: Any) -> ResourceInfo:
        """Drain, quarantine, retire, check or switch a resource, and return it."""

    @operation(
        "POST", "blueprints/{blueprint}/resources", "Register a resource", scope="operate", status=201,
        body="Registration", spread="registration", location="resources/{0.id}",
    )  # fmt: skip
    def register(self, blueprint: str, registration: Mapping[str, Any]) -> ResourceInfo:
        """Register a resource. Its fields are described in `registration` of the blueprint's kind."""

    @abstractmethod
    def host_keys(self, blueprint: str, address: str, *, port: int = 22) -> list[HostKey]:
        """Return the public keys that a host presents now, to compare before registering it."""

    @operation(
        "PATCH", "resources/{id}", "Correct a registration", scope="operate", body="Registration", spread="changed"
    )
    def change_registration(self, id: int, changed: Mapping[str, Any]) -> ResourceInfo:
        """Correct a registration and check the resource again. Refused while leases hold the resource.

        The fields are described in `registration` of the blueprint's kind; null removes a field.
        """

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

    @abstractmethod
    def resolve(self, *, lease: int | None = None, resource: int | None = None, message: str = "") -> None:
        """Record that the task a held step waits for has been done."""

    @operation("GET", "attention", "What needs attention")
    def attention(self) -> list[Attention]:
        """List the items that need attention, the most urgent first, with what to do about each."""
