"""Resources, and their registration."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from drydock_client.operations import Operations, operation
from drydock_client.values import ActInfo, ErasureInfo, HostKey, RegistrationInfo, ResourceInfo, SensorReportInfo


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
            "update": ("Update a leased resource now, which disturbs its leases", "NeededReason"),
            "force_destroy": ("Record that a resource no longer exists", "NeededReason"),
        },
    )  # fmt: skip
    def change_resource(self, id: int, act: str, **given: Any) -> ResourceInfo:
        """Drain, quarantine, retire, check, update or switch a resource, and return the resource."""

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

    @operation("GET", "resources/{id}/sensors", "List what sensors measured", query="SensorFilter", cursor="after")
    def sensors(
        self, id: int, *, since: dt.datetime | None = None, after: int = 0, limit: int = 200
    ) -> list[SensorReportInfo]:
        """List what the sensors of a resource measured, in the order of the ids: last, or at each time from `since` on.

        Allowed for operators and for the owner of a lease on the whole resource, who sees what was measured during that
        lease. `after` continues after the report with this id. `limit` is at most 1000.
        """

    @operation(
        "POST", "blueprints/{blueprint}/resources", "Register a resource", scope="operate", status=201,
        body="Registration", spread="registration", location="resources/{0.id}",
    )  # fmt: skip
    def register(self, blueprint: str, registration: Mapping[str, Any]) -> ResourceInfo:
        """Register a resource. For the fields, see the JSON Schema `registration` of the blueprint's kind (`kind`)."""

    @operation(
        "POST", "blueprints/{blueprint}/resources/check", "Check a registration", scope="operate", body="Registration",
        spread="registration",
    )  # fmt: skip
    def check_registration(self, blueprint: str, registration: Mapping[str, Any]) -> RegistrationInfo:
        """Check a registration as `register` would, and store nothing. The host and its BMC are not contacted."""

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

    @operation("GET", "erasures", "List erasure records", query="ErasureFilter", cursor="after")
    def erasures(
        self, *, resource: int | None = None, name: str = "", lease: int | None = None, serial: str = "",
        since: dt.datetime | None = None, verified: bool | None = None, after: int = 0, limit: int = 200,
    ) -> list[ErasureInfo]:  # fmt: skip
        """List the records of erased disks in the order of their ids, starting after `after`.

        Owners see the records of disks that were erased after their own leases; operators see all. `name` is
        that of the machine at the time, `serial` the serial number or the WWN of a disk, and `since` the earliest time
        at which a record was written. `limit` is at most 1000.
        """
