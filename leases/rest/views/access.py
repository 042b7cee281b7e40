"""Authorizations, quotas, and the token's own user."""

from __future__ import annotations

from drydock.core.errors import InvalidRequest
from drydock_client.values import AuthorizationInfo, QuotaInfo
from leases.rest import bodies, operating
from leases.rest.endpoint import Asked, Endpoint, operation
from leases.rest.models import Scope
from leases.rest.values import Me


class Approve(Endpoint):
    """Approve an authorization."""

    @operation("Approve it", gives=AuthorizationInfo, scope=Scope.OPERATE, body=bodies.Message)
    def post(self, asked: Asked, id: int) -> AuthorizationInfo:
        """Allow the user or group to use the blueprint. Leases that wait for the authorization are considered again."""
        return asked.client.settle_authorization(id, allow=True, message=asked.body.message)


class Decline(Endpoint):
    """Decline an authorization."""

    @operation("Decline it", gives=AuthorizationInfo, scope=Scope.OPERATE, body=bodies.Message)
    def post(self, asked: Asked, id: int) -> AuthorizationInfo:
        """Decline the request, or revoke the authorization. Current leases are not affected."""
        return asked.client.settle_authorization(id, allow=False, message=asked.body.message)


class Quotas(Endpoint):
    """The limits of users and groups."""

    @operation("Set limits", gives=QuotaInfo, scope=Scope.OPERATE, body=operating.Quota)
    def put(self, asked: Asked) -> QuotaInfo:
        """Set the given limits of a user or a group; null removes a limit. Leases that were waiting because of a limit
        are tried again."""
        limits = asked.body.model_dump(exclude_unset=True, exclude={"user", "group"})
        if not limits:
            raise InvalidRequest("Give at least one limit.", field="max_leases")
        return asked.client.set_quota(user=asked.body.user, group=asked.body.group, limits=limits)


class Myself(Endpoint):
    """The token that is used for the request."""

    @operation("Whom the token speaks for", gives=Me)
    def get(self, asked: Asked) -> Me:
        """Return the user that the token speaks for, its scope, and when it expires."""
        token, who = asked.token, asked.client.who
        return Me(name=who.name, operator=who.operator, scope=token.scope, expires_at=token.expires_at)
