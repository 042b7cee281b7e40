"""Tokens over HTTP."""

from __future__ import annotations

import sys

from drydock_client.http.connection import Connection
from drydock_client.http.operations import pages
from drydock_client.values import TokenInfo, from_json


class HttpTokens:
    """The tokens that the current token may create, see and revoke."""

    http: Connection

    def create_token(
        self, name: str, *, scope: str = "lease", ttl: str | None = None, user: str | None = None
    ) -> tuple[TokenInfo, str]:
        """Create a token and return it with its secret, which is shown only now.

        The new token has no wider scope than the current one, expires no later, and is revoked with it.
        """
        made = self.http.send("POST", "tokens", {"name": name, "scope": scope, "ttl": ttl, "user": user})
        return from_json(TokenInfo, made["about"]), str(made["token"])

    def tokens(self, *, user: str | None = None) -> list[TokenInfo]:
        """List tokens, newest first. Operators see everybody's, or only those of `user`."""
        found = pages(self.http, "tokens", {"user": user}, sys.maxsize)
        return [from_json(TokenInfo, one) for one in found]

    def revoke_token(self, id: int) -> TokenInfo:
        """Revoke a token and all tokens that were created with it."""
        return from_json(TokenInfo, self.http.send("DELETE", f"tokens/{id}"))
