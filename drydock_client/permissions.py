"""Authorizations, quotas, credentials and users."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from drydock_client.operations import Operations, operation
from drydock_client.values import (
    AuthorizationInfo,
    CredentialInfo,
    PasswordInfo,
    QuotaInfo,
    QuotaLimit,
    UserInfo,
)


class Permissions(Operations):
    """Authorizations and quotas."""

    @operation("GET", "authorizations", "List authorizations", query="AuthorizationFilter")
    def authorizations(self, *, blueprint: str = "", state: str = "") -> list[AuthorizationInfo]:
        """List authorizations. Operators see all, other users their own and their groups'."""

    @operation("POST", "authorizations", "Ask to use a blueprint", scope="lease", status=201, body="AskAuthorization")
    def ask_authorization(self, blueprint: str, *, message: str = "") -> AuthorizationInfo:
        """Request permission to use a blueprint. Idempotent."""

    @operation("POST", "authorizations/decide", "Allow or decline a user or group", scope="operate", body="Decision")
    def decide_authorization(
        self, blueprint: str, *, allow: bool, user: str = "", group: str = "", message: str = ""
    ) -> AuthorizationInfo:
        """Allow or decline a user or group, whether or not they have asked."""

    @operation("GET", "authorizations/{id}", "Look at an authorization")
    def authorization(self, id: int) -> AuthorizationInfo:
        """Return an authorization, which is requested, approved or declined."""

    @abstractmethod
    def settle_authorization(self, id: int, *, allow: bool, message: str = "") -> AuthorizationInfo:
        """Approve or decline a requested authorization."""

    @operation("GET", "quotas", "List quotas")
    def quotas(self) -> list[QuotaInfo]:
        """List quotas. Operators see all, other users those that limit them."""

    @abstractmethod
    def set_quota(self, *, user: str = "", group: str = "", limits: Mapping[str, QuotaLimit]) -> QuotaInfo:
        """Set the given limits of a user's or group's quota and leave the others. None removes a limit."""

    @operation("DELETE", "quotas", "Lift all limits", scope="operate", query="Holder")
    def remove_quota(self, *, user: str = "", group: str = "") -> None:
        """Remove the quota of a user or a group."""


class Credentials(Operations):
    """Secrets that blueprints refer to by name. They can be stored and replaced, but never read."""

    @operation("GET", "credentials", "List credentials", scope="operate", query="Reading")
    def credentials(self, *, capabilities: bool = False) -> list[CredentialInfo]:
        """List credentials without their secrets, with the state of their polls."""

    @operation("GET", "credentials/{name}", "Look at a credential", scope="operate")
    def credential(self, name: str) -> CredentialInfo:
        """Return a credential without its secrets, with the capabilities of its clouds."""

    @operation("POST", "credentials/{name}/read", "Have an account read", scope="operate", status=202, body="Empty")
    def read_credential(self, name: str) -> CredentialInfo:
        """Make all polls of a credential due, so that a worker runs them now. 409 if it has no polls."""

    @operation(
        "POST", "credentials", "Store a credential", scope="operate", status=201, body="NewCredential",
        location="credentials/{0.name}",
    )  # fmt: skip
    def add_credential(self, name: str, secrets: Mapping[str, Any], *, note: str = "") -> CredentialInfo:
        """Store secrets under a name. Blueprints that already refer to this name are tried again."""

    @operation("PATCH", "credentials/{name}", "Change a credential", scope="operate", body="CredentialChange")
    def change_credential(
        self, name: str, *, secrets: Mapping[str, Any] | None = None, note: str | None = None
    ) -> CredentialInfo:
        """Replace all secrets of a credential, or its note. None leaves either as it is."""

    @operation("DELETE", "credentials/{name}", "Remove a credential", scope="operate")
    def remove_credential(self, name: str) -> None:
        """Remove a credential. 409 while a blueprint refers to it."""


class Users(Operations):
    """Users and their groups, for administrators."""

    @operation("GET", "users", "List users", scope="operate")
    def users(self) -> list[UserInfo]:
        """List users by name."""

    @operation("GET", "users/{user}", "Look at a user", scope="operate")
    def user(self, user: str) -> UserInfo:
        """Return a user, including their groups and whether they may sign in."""

    @operation(
        "POST", "users", "Add a user", scope="operate", status=201, body="NewUser", location="users/{0.user.name}"
    )
    def add_user(
        self, user: str, *, operator: bool = False, groups: Collection[str] = (), password: str | None = None
    ) -> PasswordInfo:
        """Add a user with the given password, or with a generated one that is shown only now."""

    @operation("POST", "users/{user}/password", "Set a user's password", scope="operate", body="NewPassword")
    def set_user_password(self, user: str, *, password: str | None = None) -> PasswordInfo:
        """Set a user's password to the given one, or to a generated one that is shown only now."""

    @operation(
        "POST", "users/{user}/{act}", "Enable or disable a user", scope="operate",
        acts={"enable": ("Enable a user", "Empty"), "disable": ("Disable a user", "Empty")},
    )  # fmt: skip
    def switch_user(self, user: str, act: str) -> UserInfo:
        """Accept or refuse a user's password and tokens. Their leases continue until they end."""

    @operation("POST", "users/{user}/groups", "Change a user's groups", scope="operate", body="GroupChange")
    def change_user_groups(self, user: str, *, add: Collection[str] = (), remove: Collection[str] = ()) -> UserInfo:
        """Add a user to groups and remove the user from others.

        Leases that wait for an authorization are reconsidered.
        """
