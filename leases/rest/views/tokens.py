"""Creating, listing and revoking tokens by means of a token."""

from __future__ import annotations

from django.http import HttpResponse

from drydock_client.values import TokenInfo
from leases.rest import bodies, queries, tokens
from leases.rest.endpoint import Asked, Endpoint, Page, json_response, operation
from leases.rest.models import Scope
from leases.rest.values import NewToken


class Tokens(Endpoint):
    """The collection of tokens."""

    @operation("List tokens", gives=list[TokenInfo], query=queries.TokenFilter)
    def get(self, asked: Asked) -> Page:
        """Return your tokens, or everyone's if you are an operator, newest first and without their secrets."""
        q = asked.query
        found = tokens.list_(
            asked.client.who, owner=q.user, limit=q.limit, before=None if q.cursor is None else int(q.cursor)
        )
        return Page(results=found, next=str(found[-1].id) if len(found) == q.limit else None)

    @operation(
        "Make a token", gives=NewToken, status=201, scope=Scope.LEASE, body=bodies.NewToken,
        headers={"Location": "Its address."},
    )  # fmt: skip
    def post(self, asked: Asked) -> HttpResponse:
        """Create a token. Its secret is shown only in this response. The new token cannot exceed the scope or lifetime
        of the token used for this request, and is revoked with it."""
        body = asked.body
        made, secret = tokens.create(
            asked.client.who, name=body.name, scope=body.scope, ttl=body.ttl, owner=body.user, by=asked.token
        )
        shown = NewToken(token=secret, about=made)
        return json_response(shown, status=201, headers={"Location": f"/api/v1/tokens/{made.id}"})


class Token(Endpoint):
    """A single token."""

    @operation("Look at a token", gives=TokenInfo)
    def get(self, asked: Asked, id: int) -> TokenInfo:
        """Return a token without its secret."""
        return tokens.get(asked.client.who, id)

    @operation("Revoke a token", gives=TokenInfo, scope=Scope.LEASE)
    def delete(self, asked: Asked, id: int) -> TokenInfo:
        """Revoke a token and all tokens created with it; they are refused from now on. A token may revoke itself."""
        return tokens.revoke(asked.client.who, id)
