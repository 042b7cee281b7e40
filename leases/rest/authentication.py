"""Who asks: `Authorization: Bearer ddk_...`. No session and no cookie is looked at, so no page can forge a request."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from leases.operations.callers import Caller
from leases.rest import tokens
from leases.rest.models import Scope, Token


class TokenAuthentication(BaseAuthentication):
    """The user and the token of a request; None where it shows no token."""

    def authenticate(self, request: Request) -> tuple[Any, Token] | None:
        """Raises AuthenticationFailed for a token that is unknown, revoked or expired, or whose user is inactive."""
        given = request.META.get("HTTP_AUTHORIZATION", "")
        if not given:
            return None
        scheme, _, secret = given.partition(" ")
        if scheme.lower() != "bearer":
            raise AuthenticationFailed("Show a token: `Authorization: Bearer ddk_...`.")
        token = tokens.find(secret.strip())
        problem = _problem(token)
        if token is None or problem:
            raise AuthenticationFailed(problem)
        tokens.used(token)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        """What a 401 asks for."""
        return 'Bearer realm="drydock"'


def _problem(token: Any) -> str:
    if token is None:
        return "There is no such token."
    if token.revoked_at is not None:
        return "This token was revoked."
    if token.expired:
        return "This token has expired."
    return "" if token.user.is_active else "The user of this token is not active."


def caller(token: Token) -> Caller:
    """The caller that a token speaks for; an operator only where the token's scope says so, too."""
    user = token.user
    operator = (user.is_staff or user.is_superuser) and token.allows(Scope.OPERATE)
    return Caller(id=user.pk, name=user.get_username(), operator=operator, maker=token.maker)


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema calls it."""

    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """An HTTP bearer token."""
        return {"type": "http", "scheme": "bearer", "description": "A token made by `drydock tokens create`."}
