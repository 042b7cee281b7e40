"""Authentication by bearer token: `Authorization: Bearer ddk_...`.

Sessions and cookies are ignored, so that a web page cannot forge a request.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from drydock.core.errors import NotAllowed
from leases.operations.callers import Caller
from leases.rest import tokens
from leases.rest.models import AGENT, Scope, Token


class TokenAuthentication(BaseAuthentication):
    """Authenticate a request by its bearer token."""

    def authenticate(self, request: Request) -> tuple[Any, Token] | None:
        """Return the user and the token, or None if the request has no token.

        Raises AuthenticationFailed if the token is unknown, revoked or expired, or if its user is inactive, and
        NotAllowed if it is an agent's.
        """
        given = request.META.get("HTTP_AUTHORIZATION", "")
        if not given:
            return None
        scheme, _, secret = given.partition(" ")
        if scheme.lower() != "bearer":
            raise AuthenticationFailed("Send a bearer token: `Authorization: Bearer ddk_...`.")
        token = tokens.find(secret.strip())
        problem = _problem(token)
        if token is None or problem:
            raise AuthenticationFailed(problem)
        if token.scope == AGENT:
            raise NotAllowed("This token belongs to an agent, which may only use the addresses of agents.")
        tokens.used(token)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        """Return the `WWW-Authenticate` header of a 401 response."""
        return 'Bearer realm="drydock"'


def _problem(token: Any) -> str:
    if token is None:
        return "This token is not valid."
    if token.revoked_at is not None:
        return "This token was revoked."
    if token.expired:
        return "This token has expired."
    return "" if token.user is None or token.user.is_active else "The user of this token is not active."


def caller(token: Token) -> Caller:
    """Return the caller for a request with this token.

    The caller is an operator only if the user is an operator and the scope of the token allows it.
    """
    user: Any = token.user
    operator = (user.is_staff or user.is_superuser) and token.allows(Scope.OPERATE)
    return Caller(id=user.pk, name=user.get_username(), operator=operator, maker=token.maker)


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describe token authentication in the OpenAPI schema."""

    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return the OpenAPI security scheme: an HTTP bearer token."""
        return {"type": "http", "scheme": "bearer", "description": "A token created by `drydock tokens create`."}
