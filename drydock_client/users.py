"""Users and their groups."""

from __future__ import annotations

from collections.abc import Collection

from drydock_client.operations import Operations, operation
from drydock_client.values import PasswordInfo, UserInfo


class Users(Operations):
    """Users and their groups, for administrators."""

    @operation("GET", "users", "List users", scope="operate")
    def users(self) -> list[UserInfo]:
        """List users by name."""

    @operation("GET", "users/{user}", "Get a user", scope="operate")
    def user(self, user: str) -> UserInfo:
        """Return a user, with the user's groups and whether the user may sign in."""

    @operation(
        "POST", "users", "Add a user", scope="operate", status=201, body="NewUser", location="users/{0.user.name}"
    )
    def add_user(
        self, user: str, *, operator: bool = False, groups: Collection[str] = (), password: str | None = None
    ) -> PasswordInfo:
        """Add a user with the given password, or with a generated password that is shown only once."""

    @operation("POST", "users/{user}/password", "Set a user's password", scope="operate", body="NewPassword")
    def set_user_password(self, user: str, *, password: str | None = None) -> PasswordInfo:
        """Set a user's password to the given one, or to a generated password that is shown only once."""

    @operation(
        "POST", "users/{user}/{act}", "Enable or disable a user", scope="operate",
        acts={"enable": ("Enable a user", "Empty"), "disable": ("Disable a user", "Empty")},
    )  # fmt: skip
    def switch_user(self, user: str, act: str) -> UserInfo:
        """Enable or disable a user's password and tokens. Leases of a disabled user continue until they end."""

    @operation("POST", "users/{user}/groups", "Change a user's groups", scope="operate", body="GroupChange")
    def change_user_groups(self, user: str, *, add: Collection[str] = (), remove: Collection[str] = ()) -> UserInfo:
        """Add a user to groups and remove the user from others.

        Leases that wait for an authorization are tried again.
        """
