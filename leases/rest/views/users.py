"""Users and their groups: for administrators."""

from __future__ import annotations

from django.http import HttpResponse

from leases.client.values import PasswordInfo, UserInfo
from leases.rest import bodies, operating
from leases.rest.endpoint import Asked, Endpoint, Page, json_response, operation
from leases.rest.models import Scope


class Users(Endpoint):
    """Everybody who may sign in."""

    @operation("List users", gives=list[UserInfo], scope=Scope.OPERATE)
    def get(self, asked: Asked) -> Page:
        """By name."""
        return Page(results=asked.client.users())

    @operation(
        "Add a user", gives=PasswordInfo, status=201, scope=Scope.OPERATE, body=operating.NewUser,
        headers={"Location": "Its address."},
    )  # fmt: skip
    def post(self, asked: Asked) -> HttpResponse:
        """With a password of your choice, or one that is made up and shown only now."""
        body = asked.body
        made = asked.client.add_user(body.user, operator=body.operator, groups=body.groups, password=body.password)
        return json_response(made, status=201, headers={"Location": f"/api/v1/users/{made.user.name}"})


class User(Endpoint):
    """One user."""

    @operation("Look at a user", gives=UserInfo, scope=Scope.OPERATE)
    def get(self, asked: Asked, user: str) -> UserInfo:
        """Whether they may sign in, and their groups."""
        return asked.client.user(user)


class Password(Endpoint):
    """What a user signs in with."""

    @operation("Set a user's password", gives=PasswordInfo, scope=Scope.OPERATE, body=operating.NewPassword)
    def post(self, asked: Asked, user: str) -> PasswordInfo:
        """One of your choice, or one that is made up and shown only now."""
        return asked.client.set_user_password(user, password=asked.body.password)


class Enable(Endpoint):
    """Access granted again."""

    @operation("Enable a user", gives=UserInfo, scope=Scope.OPERATE, body=bodies.Empty)
    def post(self, asked: Asked, user: str) -> UserInfo:
        """Accept the password and the tokens of the user again."""
        return asked.client.switch_user(user, "enable")


class Disable(Endpoint):
    """Access taken away."""

    @operation("Disable a user", gives=UserInfo, scope=Scope.OPERATE, body=bodies.Empty)
    def post(self, asked: Asked, user: str) -> UserInfo:
        """Refuse the password and the tokens of the user; leases stay until they end."""
        return asked.client.switch_user(user, "disable")


class Groups(Endpoint):
    """Whose quotas and authorizations also count."""

    @operation("Change a user's groups", gives=UserInfo, scope=Scope.OPERATE, body=operating.GroupChange)
    def post(self, asked: Asked, user: str) -> UserInfo:
        """Join some, leave others; leases that wait for an authorization of a group are decided again."""
        return asked.client.change_user_groups(user, add=asked.body.add, remove=asked.body.remove)
