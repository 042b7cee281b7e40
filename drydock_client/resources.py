"""Resources, and their registration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drydock_client.operations import Operations, operation
from drydock_client.values import ActInfo, HostKey, ResourceInfo


class Resources(Operations):
    """Resources and their registration. Only operators may change resources; owners may read those they lease."""

    @operation("GET", "resources", "List resources", query="ResourceFilter", cursor="after")
    def resources(
        self, *, type: str = "", blueprint: str = "", state: str = "", name: str = "", gone: bool = False
    ) -> list[ResourceInfo]:
        """List resources in the order of their ids. With `gone`, include resources that no longer exist.

        Owners see only resources on which they have a lease.
        """

    @operation("GET", "resources/{id}", "Get a resource")
    def resource(self, id: int) -> ResourceInfo:
        """Return a resource with its capacity, parts, health and leases."""

    @operation(
        "POST", "resources/{id}/{act}", "Change a resource", scope="operate",
        acts={
            "drain": ("Drain a resource", "Reason"), "undrain": ("Undrain a resource", "Empty"),
            "quarantine": ("Quarantine a resource", "NeededMessage"),
            "unquarantine": ("End the quarantine of a resource", "Empty"),
            "no_reboots": ("Forbid reboots of a resource", "NeededReason"),
            "allow_reboots": ("Allow reboots of a resource", "Empty"),
            "retire": ("Retire an idle resource", "Empty"),
            "power": ("Switch a resource on or off, or cycle its power", "Power"),
            "check": ("Check a resource now", "Empty"),
            "force_destroy": ("Record that a resource no longer exists", "NeededReason"),
        },
    )  # fmt: skip
    def change_resource(self, id: int, act: str, **given: Any) -> ResourceInfo:
        """Drain, quarantine, retire, check or switch a resource, and return the resource."""

    @operation("GET", "resources/{id}/acts", "List the acts on a resource")
    def acts(self, id: int) -> list[ActInfo]:
        """List the acts that the resource's kind declares, with the JSON Schema of their arguments.

        Each act says why it cannot be started now, how far it is while it runs, and how its last run ended.
        """

    @operation("POST", "resources/{id}/acts/{name}", "Start an act", scope="lease", body="ActArguments")
    def start_act(self, id: int, name: str, *, arguments: Mapping[str, Any] | None = None) -> ActInfo:
        """Start an act on a resource, and return the act with its progress.

        Allowed for operators and, if the kind's declaration permits it, for the owner of a lease on the whole resource.
        409 if the act cannot be started now; the message says why.
        """

    @operation("POST", "resources/{id}/acts/{name}/cancel", "Cancel a running act", scope="lease")
    def cancel_act(self, id: int, name: str) -> ActInfo:
        """Cancel a running act at once or, if its current step cannot be interrupted, after that step."""

    @operation(
        "POST", "blueprints/{blueprint}/resources", "Register a resource", scope="operate", status=201,
        body="Registration", spread="registration", location="resources/{0.id}",
    )  # fmt: skip
    def register(self, blueprint: str, registration: Mapping[str, Any]) -> ResourceInfo:
        """Register a resource. For the fields, see the JSON Schema `registration` of the blueprint's kind (`kind`)."""

    @operation(
        "POST", "blueprints/{blueprint}/host-keys", "Get the host keys that a host presents", scope="operate",
        body="HostAddress", host="address",
    )  # fmt: skip
    def host_keys(self, blueprint: str, address: str, *, port: int = 22) -> list[HostKey]:
        """Return the public keys that a host presents now. Stores nothing.

        Before you register the host, compare the fingerprints with those shown on the host's own console: an attacker
        between you and the host could present other keys.
        """

    @operation(
        "PATCH", "resources/{id}", "Correct a registration", scope="operate", body="Registration", spread="changed"
    )
    def change_registration(self, id: int, changed: Mapping[str, Any]) -> ResourceInfo:
        """Correct a registration and check the resource again. Refused while leases hold the resource.

        For the fields, see the JSON Schema `registration` of the blueprint's kind. A field whose value is null is
        removed.
        """
