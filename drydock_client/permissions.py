"""Authorizations and quotas."""

from __future__ import annotations

from collections.abc import Mapping

from drydock_client.operations import Operations, operation
from drydock_client.values import AuthorizationInfo, QuotaInfo, QuotaLimit


class Permissions(Operations):
    """Authorizations and quotas."""

    @operation("GET", "authorizations", "List authorizations", query="AuthorizationFilter")
    def authorizations(self, *, blueprint: str = "", state: str = "") -> list[AuthorizationInfo]:
        """List authorizations. Operators see all; other users see only those for themselves and their groups."""

    @operation(
        "POST",
        "authorizations",
        "Request permission to use a blueprint",
        scope="lease",
        status=201,
        body="AskAuthorization",
    )
    def ask_authorization(self, blueprint: str, *, message: str = "") -> AuthorizationInfo:
        """Request permission to use a blueprint. Requesting it again has no effect."""

    @operation("POST", "authorizations/decide", "Grant or decline an authorization", scope="operate", body="Decision")
    def decide_authorization(
        self, blueprint: str, *, allow: bool, user: str = "", group: str = "", message: str = ""
    ) -> AuthorizationInfo:
        """Allow or decline the use of a blueprint by a user or group, whether or not it was requested."""

    @operation("GET", "authorizations/{id}", "Get an authorization")
    def authorization(self, id: int) -> AuthorizationInfo:
        """Return an authorization, which is requested, approved or declined."""

    @operation(
        "POST", "authorizations/{id}/{act}", "Approve or decline an authorization", scope="operate",
        acts={"approve": ("Approve an authorization", "Message"), "decline": ("Decline an authorization", "Message")},
    )  # fmt: skip
    def change_authorization(self, id: int, act: str, *, message: str = "") -> AuthorizationInfo:
        """Allow or decline the use of the blueprint, whatever was decided before.

        Leases that wait for the authorization are tried again. Existing leases are not affected.
        """

    def settle_authorization(self, id: int, *, allow: bool, message: str = "") -> AuthorizationInfo:
        """Approve or decline a requested authorization."""
        return self.change_authorization(id, "approve" if allow else "decline", message=message)

    @operation("GET", "quotas", "List quotas")
    def quotas(self) -> list[QuotaInfo]:
        """List quotas. Operators see all quotas, other users only the quotas that limit them."""

    @operation("PUT", "quotas", "Set a quota", scope="operate", body="Quota", spread="limits")
    def set_quota(self, *, user: str = "", group: str = "", limits: Mapping[str, QuotaLimit]) -> QuotaInfo:
        """Set the given limits in the quota of a user or group, and leave other limits unchanged. None removes a limit.

        Leases that waited because of a limit are tried again.
        """

    @operation("DELETE", "quotas", "Remove a quota", scope="operate", query="Holder")
    def remove_quota(self, *, user: str = "", group: str = "") -> None:
        """Remove the quota of a user or a group."""
