"""Tokens, over HTTP."""

from __future__ import annotations

import sys

from drydock_client.http.connection import Connection
from drydock_client.http.leases import pages
from drydock_client.values import TokenInfo, from_json


class HttpTokens:
    """Tokens that the token at hand may make, see and revoke."""

    http: Connection

    def create_token(
        self, name: str, *, scope: str = "lease", ttl: str | None = None, user: str | None = None
    ) -> tuple[TokenInfo, str]:
        """A new token and its secret, which is shown only now. It reaches no further and lasts no longer than the
        one at hand, and is revoked with it."""
        made = self.http.send("POST", "tokens", {"name": name, "scope": scope, "ttl": ttl, "user": user})
        return from_json(TokenInfo, made["about"]), str(made["token"])

    def tokens(self, *, user: str | None = None) -> list[TokenInfo]:
        """Tokens, newest first; an operator's list has everybody's, or those of `user`."""
        found = pages(self.http, "tokens", {"user": user}, sys.maxsize)
        return [from_json(TokenInfo, one) for one in found]

    def revoke_token(self, id: int) -> TokenInfo:
        """From now on it is refused, and so are those that were made with it."""
        return from_json(TokenInfo, self.http.send("DELETE", f"tokens/{id}"))
